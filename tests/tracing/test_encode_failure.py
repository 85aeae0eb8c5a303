from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_gym.content import KeptBody
from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import ContentOnce
from otel_gym.tracing import encode
from otel_gym.tracing.payloads import Payload
from tests.store.test_text_delta import noise


def test_a_line_that_cannot_be_made_is_not_built_on(tmp_path, monkeypatch):
    content = ContentOnce(BlobStore(tmp_path))
    span = TracerProvider().get_tracer("t").start_span("chat")
    span.end()
    payload = Payload(KeptBody(noise("a", 4000).encode()), None)
    with monkeypatch.context() as patched:
        patched.setattr(encode, "encode_strict_json", lambda _value: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode.encode_span(span, payload, rollout_id="1-0", once=content)
    assert b"body.base" not in encode.encode_span(span, payload, rollout_id="1-0", once=content)
    content.committed("1-0")
    assert b"body.base" in encode.encode_span(span, payload, rollout_id="1-0", once=content)


def test_a_line_that_is_made_safe_at_the_second_try_is_not_built_on_itself(tmp_path):
    content = ContentOnce(BlobStore(tmp_path))
    span = TracerProvider().get_tracer("t").start_span("half an emoji \ud83e")
    span.end()
    payload = Payload(KeptBody(noise("a", 4000).encode()), None)
    assert b"body.base" not in encode.encode_span(span, payload, rollout_id="1-0", once=content)
