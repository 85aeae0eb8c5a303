from __future__ import annotations

import base64
import json
import random
from hashlib import sha256

import pytest

from otel_gym.media import media_reference, without_media

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + random.Random(1).randbytes(90)
ENCODED = base64.b64encode(PNG).decode()
REFERENCE = f"otel_gym:blob:{sha256(PNG).hexdigest()}:{len(PNG)}"

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
}


@pytest.mark.parametrize("name", BODIES)
def test_a_reference_stands_where_the_media_stood_and_its_type_stays(name):
    text = json.dumps({"before": "x", "body": BODIES[name]})
    assert without_media(text) == text.replace(ENCODED, REFERENCE)
    assert media_reference(PNG) == REFERENCE


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
