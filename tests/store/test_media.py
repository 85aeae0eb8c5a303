"""Media leaves the text for blobs/ and comes back character by character, or was never taken."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.media import without_media
from otel_gym.store.blobs import BlobError, BlobStore
from otel_gym.store.media import extract_media, references, restore_media

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
B64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{B64}"
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(3000)).decode()
PCM = base64.b64encode(bytes(range(200)) * 20).decode()


class Kept:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.contents[sha256] = content
        return sha256

    def get(self, sha256: str, length: int) -> bytes:
        content = self.contents[sha256]
        assert len(content) == length
        return content


def extracted(text: str) -> tuple[str, int, Kept]:
    kept = Kept()
    stored, number = extract_media(text, kept.put)
    assert restore_media(stored, kept.get) == text
    return stored, number, kept


MEDIA = {
    "chat image": {"type": "image_url", "image_url": {"url": URL}},
    "responses image": {"type": "input_image", "image_url": URL},
    "chat sound": {"type": "input_audio", "input_audio": {"data": PCM, "format": "wav"}},
    "sound, format first": {"type": "input_audio", "input_audio": {"format": "pcm16", "data": PCM}},
    "file as data URL": {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF}"},
    "bare file": {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
    "messages image": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": B64}},
    "messages image, data first": {"type": "image", "source": {"data": PCM, "media_type": "image/x", "type": "base64"}},
    "MCP result": {
        "type": "tool_result",
        "content": json.dumps([{"type": "image", "data": PCM, "mimeType": "image/x"}]),
    },
    "generated image": {"type": "image_generation_call", "result": B64},
    "image on its way": {"type": "response.image_generation_call.partial_image", "partial_image_b64": B64},
    "in Markdown": {"type": "text", "text": f"see ![x]({URL}) there"},
    "small picture": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + B64[:40]}},
}


@pytest.mark.parametrize("part", MEDIA.values(), ids=MEDIA)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_media_of_every_api_leaves_the_text(part, separators):
    text = json.dumps(
        {"messages": [{"content": [{"type": "text", "text": "what is this"}, part]}]}, separators=separators
    )
    stored, number, kept = extracted(text)
    assert number == 1 and len(kept.contents) == 1
    assert len(stored) < 420 and "what is this" in stored
    json.loads(stored)
    assert references(stored) == {sha256: len(content) for sha256, content in kept.contents.items()}
    assert without_media(text) == stored


NO_MEDIA = {
    "reasoning": {"type": "reasoning", "encrypted_content": PCM},
    "signature": {"type": "thinking", "signature": PCM},
    "redacted thinking": {"type": "redacted_thinking", "data": PCM},
    "a hash": {"data": "deadbeef" * 8},
    "broken lines": {"data": "\n".join(B64[at : at + 76] for at in range(0, len(B64), 76))},
    "escaped slashes": {"url": "data:image/png;base64," + "A" * 40 + "\\/" + "A" * 40},
    "URL alphabet": {"url": "data:image/png;base64," + "A" * 40 + "-_" + "A" * 38},
    "no padding": {"url": "data:image/png;base64," + base64.b64encode(bytes(40)).decode().rstrip("=")},
    "bits that decoding drops": {"url": "data:image/png;base64," + "A" * 41 + "B=="},
    "cut": {"url": "data:image/png;base64," + "A" * 45},
    "words": {"text": 'the data: \'base64\', a format; see ;base64, and "data": "x"'},
}


@pytest.mark.parametrize("part", NO_MEDIA.values(), ids=NO_MEDIA)
def test_what_is_no_media_or_would_not_come_back_stays(part):
    text = json.dumps({"messages": [{"content": [part]}]})
    assert extracted(text)[:2] == (text, 0)


def test_a_text_that_was_cut_within_its_media_keeps_it():
    text = '{"url":"' + URL[:1000]
    assert extracted(text)[:2] == (text, 0)


def test_a_text_that_speaks_of_references_stays_as_it_is():
    text = json.dumps([{"url": URL}, "otel_gym:blob:" + "0" * 64 + ":12"])
    kept = Kept()
    assert extract_media(text, kept.put) == (text, 0)
    assert kept.contents == {}


def test_what_cannot_be_kept_stays_inline():
    text = json.dumps([{"url": URL}, {"url": f"data:application/pdf;base64,{PDF}"}])
    kept = Kept()
    stored, number = extract_media(text, lambda content: kept.put(content) if content.startswith(b"%PDF") else None)
    assert number == 1 and B64 in stored and PDF not in stored
    assert restore_media(stored, kept.get) == text


@given(
    st.lists(
        st.binary(max_size=300).map(lambda content: "data:a/b;base64," + base64.b64encode(content).decode())
        | st.text(st.characters(codec="utf-8"))
        | st.sampled_from(['"', "\\", ";base64,", 'data":"', "=", "A" * 33, "otel_gym:blob:", "{", '"format":"wav"'])
    )
)
def test_any_text_comes_back(pieces):
    extracted("".join(pieces))


# ── blobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fsync", [False, True])
def test_a_blob_is_kept_once_for_its_owner_alone(tmp_path, fsync):
    blobs = BlobStore(tmp_path / "store", fsync=fsync)
    sha256 = blobs.put(PNG)
    assert sha256 == hashlib.sha256(PNG).hexdigest()
    path = blobs.folder / sha256
    before = path.stat()
    assert blobs.put(PNG) == sha256
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino
    assert stat.S_IMODE(before.st_mode) == 0o600
    assert stat.S_IMODE(blobs.folder.stat().st_mode) == stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert [entry.name for entry in blobs.folder.iterdir()] == [sha256]
    assert blobs.get(sha256, len(PNG)) == PNG
    assert blobs.missing({sha256: len(PNG), "0" * 64: 3}) == ["0" * 64]


def test_a_blob_that_was_cut_is_named_and_written_again(tmp_path):
    blobs = BlobStore(tmp_path)
    sha256 = blobs.put(PNG)
    (blobs.folder / sha256).write_bytes(PNG[:100])
    with pytest.raises(BlobError, match="damaged"):
        blobs.get(sha256, len(PNG))
    blobs.put(PNG)
    assert blobs.get(sha256, len(PNG)) == PNG


def test_a_blob_that_was_changed_or_is_gone_is_named(tmp_path):
    blobs = BlobStore(tmp_path)
    sha256 = blobs.put(PNG)
    (blobs.folder / sha256).write_bytes(b"x" * len(PNG))
    with pytest.raises(BlobError, match=sha256):
        blobs.get(sha256, len(PNG))
    (blobs.folder / sha256).unlink()
    with pytest.raises(BlobError, match=sha256):
        blobs.get(sha256, len(PNG))


def test_a_write_that_fails_leaves_nothing_and_is_counted(tmp_path, monkeypatch):
    blobs = BlobStore(tmp_path)

    def full(*_arguments):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", full)
    assert blobs.put(PNG) is None
    assert blobs.lost == 1 and blobs.last_error is not None
    assert list(blobs.folder.iterdir()) == []
    monkeypatch.undo()
    assert blobs.put(PNG) is not None


def test_a_folder_that_cannot_be_made_keeps_media_inline(tmp_path):
    (tmp_path / "blobs").write_text("in the way")
    blobs = BlobStore(tmp_path)
    assert extract_media(json.dumps([URL]), blobs.put) == (json.dumps([URL]), 0)
    assert blobs.lost == 1
