"""What of a model call's content is recorded, and how it is cleaned before it is written or leaves the process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from otel_gym.media import without_media
from otel_gym.redaction import Redactor, redactor_from

if TYPE_CHECKING:
    from otel_gym.settings import Settings

# Enough of a request to tell one agent of a rollout from another.
_HEAD = 2048


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """``bodies``: the store keeps them; ``media``: with the bytes of images, audio and files; ``messages``: the
    conventions' opt-in content attributes are set."""

    bodies: bool = True
    media: bool = True
    messages: bool = False
    redactor: Redactor = field(default_factory=Redactor)

    def body(self, text: str, series: str) -> str:
        """A body's text as it may be stored. ``series`` is shared by texts that grow out of each other."""
        text = self.redactor.text(text, f"{series}:{hash(text[:_HEAD])}")
        return text if self.media else without_media(text)

    def attributes(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes as they may be stored and sent."""
        attributes = self.redactor.attributes(attributes)
        return attributes if self.media else {name: _without_media(value) for name, value in attributes.items()}

    @property
    def is_usual(self) -> bool:
        """All is kept, and secrets are told by the default rules at most."""
        return self.bodies and self.media and not self.redactor.has_own_rules

    def are_clean(self, texts: Sequence[str]) -> bool:
        """That ``text`` would give each back as it is; False also where that cannot be told in one pass."""
        return self.media and self.redactor.are_clean(texts)

    def text(self, text: str) -> str:
        """A name or a status message as it may be stored and sent."""
        text = self.redactor.text(text)
        return text if self.media else without_media(text)

    def message(self, text: str) -> str:
        """An error's text as it may be stored and sent. URLs in it lose their queries: clients send keys in them."""
        return self.text(_QUERY_IN_TEXT.sub(r"\1", text) if "?" in text else text)


_QUERY_IN_TEXT = re.compile(r"(\bhttps?://[^\s?#'\"<>]{1,2000})\?[^\s'\"<>]*")


def _without_media(value: Any) -> Any:
    """Of an attribute's value: also in its lists and maps."""
    if isinstance(value, str):
        return without_media(value)
    if isinstance(value, Mapping):
        return {name: _without_media(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_media(item) for item in value]
    return value


DEFAULT_POLICY = ContentPolicy()


def content_policy_from(settings: Settings, *, messages: bool) -> ContentPolicy:
    return ContentPolicy(
        bodies=settings.content != "none",
        media=settings.content == "full",
        messages=messages,
        redactor=redactor_from(settings.redact),
    )
