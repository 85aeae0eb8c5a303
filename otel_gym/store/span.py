"""The span as it is read back from a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from otel_gym.conventions import BODY_BLOBS, NEMO_ROLLOUT_ID, ROLLOUT_ID, RUN_ID, UNASSIGNED
from otel_gym.store.blobs import BlobError, BlobStore
from otel_gym.store.media import restore_media

STATUS_UNSET = 0
STATUS_ERROR = 2

KIND_SERVER = 2
KIND_CLIENT = 3


@dataclass(slots=True)
class SpanEvent:
    name: str
    time_unix_nano: int
    attributes: dict[str, Any]


@dataclass(slots=True)
class SpanLink:
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(slots=True)
class StoredSpan:
    """Ids are lower-case hex; times are UTC nanoseconds, ``end_ns`` None for a span that never ended.

    ``resource`` holds the resource's attributes, on which a Collector may have put the rollout id.
    ``blobs`` is where the media lies that the bodies refer to.
    ``dropped`` counts what limits dropped of it: attributes, events, links, and attributes of these.
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
    def rollout_id(self) -> str:
        for attributes in (self.attributes, self.resource):
            for name in (ROLLOUT_ID, NEMO_ROLLOUT_ID):
                value = attributes.get(name)
                if type(value) is str:
                    return value
        return UNASSIGNED

    @property
    def run_id(self) -> str | None:
        value = self.attributes.get(RUN_ID)
        if type(value) is not str:
            value = self.resource.get(RUN_ID)
        return value if type(value) is str else None
