"""The span as it is read back from a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_gym.conventions import BODY_BLOBS, NEMO_ROLLOUT_ID, ROLLOUT_ID, RUN_ID, UNASSIGNED
from otel_gym.store.blobs import BlobError, BlobStore
from otel_gym.store.media import restore_media

STATUS_UNSET = 0
STATUS_ERROR = 2

# What may name a rollout, first found wins; the last one is agent-lightning's.
ROLLOUT_IDS = (ROLLOUT_ID, NEMO_ROLLOUT_ID, "agentlightning.rollout_id")

KIND_SERVER = 2
KIND_CLIENT = 3


@dataclass(slots=True)
class SpanEvent:
    """``dropped`` counts its attributes that a limit dropped."""

    name: str
    time_unix_nano: int
    attributes: dict[str, Any]
    dropped: int = field(default=0, compare=False)


@dataclass(slots=True)
class SpanLink:
    """``trace_state``, ``flags`` and ``dropped`` as it came with them."""

    trace_id: str
    span_id: str
    attributes: dict[str, Any]
    trace_state: str = field(default="", compare=False)
    flags: int = field(default=0, compare=False)
    dropped: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """What an instrumentation says once for its spans, beside its name and the attributes of the resource."""

    scope_version: str = ""
    scope_attributes: Mapping[str, Any] = field(default_factory=dict)
    scope_dropped: int = 0
    schema_url: str = ""
    resource_schema_url: str = ""
    resource_dropped: int = 0


NO_ORIGIN = Origin()


@dataclass(slots=True)
class StoredSpan:
    """Ids are lower-case hex; times are UTC nanoseconds, ``end_ns`` None for a span that never ended.

    ``resource`` holds the resource's attributes, on which a Collector may have put the rollout id.
    ``blobs`` is where the media lies that the bodies refer to.
    ``dropped`` counts what limits dropped of it: attributes, events, links, and attributes of these.

    From ``trace_state`` on stands what no view needs, and who hands a span on does: lines keep it, Parquet does not.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: int
    start_ns: int
    end_ns: int | None
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    links: list[SpanLink] = field(default_factory=list)
    status: int = STATUS_UNSET
    status_message: str | None = None
    resource: dict[str, Any] = field(default_factory=dict)
    scope_name: str | None = None
    dropped: int = 0
    blobs: BlobStore | None = None
    trace_state: str = field(default="", compare=False)
    flags: int = field(default=0, compare=False)
    dropped_events: int = field(default=0, compare=False)
    dropped_links: int = field(default=0, compare=False)
    origin: Origin = field(default=NO_ORIGIN, compare=False)

    def body(self, name: str) -> str | None:
        """The text of a body with its media put back; BlobError where that is missing or damaged."""
        text = self.attributes.get(name)
        if not isinstance(text, str):
            return None
        if name + BODY_BLOBS not in self.attributes:
            return text
        if self.blobs is None:
            raise BlobError(f"span {self.span_id}: its media is not at hand, open the store that it lies in")
        return restore_media(text, self.blobs.get)

    @property
    def dropped_attributes(self) -> int:
        """Of its own attributes."""
        of_parts = sum(event.dropped for event in self.events) + sum(link.dropped for link in self.links)
        return max(0, self.dropped - self.dropped_events - self.dropped_links - of_parts)

    @property
    def rollout_id(self) -> str:
        for attributes in (self.attributes, self.resource):
            for name in ROLLOUT_IDS:
                value = attributes.get(name)
                if type(value) is str and value:
                    return value
        return UNASSIGNED

    @property
    def run_id(self) -> str | None:
        value = self.attributes.get(RUN_ID)
        if type(value) is not str:
            value = self.resource.get(RUN_ID)
        return value if type(value) is str else None
