from __future__ import annotations

import base64
import json
import random
import re
from hashlib import sha256

import pytest

from otel_gym.media import find_media, media_reference, without_media

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + random.Random(1).randbytes(90)
ENCODED = base64.b64encode(PNG).decode()

BODIES = {
    "chat image": {"image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
    "chat audio": {"input_audio": {"data": ENCODED, "format": "wav"}},
    "chat file": {"file": {"file_data": f"data:application/pdf;base64,{ENCODED}"}},
    "responses image": {"type": "input_image", "image_url": f"data:image/png;base64,{ENCODED}"},
    "responses drawing": {"type": "image_generation_call", "result": ENCODED},
    "messages image": {"source": {"type": "base64", "media_type": "image/png", "data": ENCODED}},
    "gen_ai part": {"type": "blob", "modality": "image", "mime_type": "image/png", "content": ENCODED},
    "in a tool's result": {"content": json.dumps({"image": f"data:image/png;base64,{ENCODED}"})},
    "in a tool's arguments": {"arguments": json.dumps({"b64_json": ENCODED})},
    "bare file": {"file": {"filename": "a.png", "file_data": ENCODED}},
    "spoken answer": {"audio": {"id": "audio_1", "data": base64.b64encode(bytes(range(99))).decode()}},
    "among other letters": {"text": "한국어 \U0001f600 é", "b64_json": ENCODED},
}


@pytest.mark.parametrize("name", BODIES)
def test_a_reference_stands_where_the_media_stood_and_its_type_stays(name):
    text = json.dumps({"before": "x", "body": BODIES[name]}, ensure_ascii=False)
    (media,) = find_media(text)
    reference = media_reference(sha256(media.content).hexdigest(), len(media.content))
    assert without_media(text) == text[: media.begin] + reference + text[media.end :]
    assert text[media.begin : media.end] == base64.b64encode(media.content).decode()
    assert media.content == PNG or name == "spoken answer"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "redacted_thinking", "data": ENCODED},
        {"data": ENCODED, "type": "redacted_thinking"},
        {"type": "thinking", "thinking": "x", "signature": ENCODED},
        {"type": "reasoning", "encrypted_content": ENCODED},
        {"result": sha256(PNG).hexdigest()},
        {"data": "short"},
    ],
)
def test_what_is_no_media_stays(body):
    text = json.dumps([body])
    assert without_media(text) is text


@pytest.mark.parametrize("cut", range(4))
def test_of_a_picture_that_was_cut_with_its_body_nothing_is_kept(cut):
    text = json.dumps(BODIES["chat image"])[: -20 - cut]
    assert "iVBORw0KGgo" in text
    kept = without_media(text)
    assert "iVBORw0KGgo" not in kept
    assert re.fullmatch(r'{"image_url": {"url": "data:image/png;base64,otel_gym:blob:[0-9a-f]{64}:\d+', kept)
