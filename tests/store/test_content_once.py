"""A request that grew is stored as what is new, and comes back byte for byte; or there is a gap that is named."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import CANDIDATES, ContentOnce, RequestHistory
from otel_gym.store.span import StoredSpan
from otel_gym.store.whole_requests import Gap, HistoryReader, whole_requests
from otel_gym.store.writer import StoreWriter
from tests.store.test_text_delta import noise

BODY = "gym.request.body"
TRACE = "a" * 32


def span_of(span_id: str, attributes: dict) -> StoredSpan:
    return StoredSpan(TRACE, span_id, None, "chat toy", 2, 1, 2, attributes)


def request(*messages: str, **fields: str) -> str:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": m} for m in messages], **fields})


class File:
    """The lines of one writer and one rollout: each call is written by itself, unless told otherwise."""

    def __init__(self, history: RequestHistory | None = None, rollout_id: str = "1-0") -> None:
        self.history = history or RequestHistory()
        self.rollout_id = rollout_id
        self.texts: dict[str, str] = {}
        self.lines: dict[str, dict] = {}

    def call(self, text: str, *, written: bool | None = True) -> dict:
        """``written`` None: part of a batch whose fate is still open."""
        span_id = f"{len(self.texts):016x}"
        attributes = self.history.encode(self.rollout_id, span_id, text)
        self.texts[span_id] = text
        if written is not False:
            self.lines[span_id] = attributes
        if written is not None:
            (self.history.committed if written else self.history.failed)(self.rollout_id)
        return attributes

    def spans(self) -> list[StoredSpan]:
        return [span_of(span_id, dict(attributes)) for span_id, attributes in self.lines.items()]

    def check(self) -> None:
        spans = self.spans()
        assert whole_requests(spans) == []
        assert [span.attributes for span in spans] == [{BODY: self.texts[span.span_id]} for span in spans]


def new_characters(attributes: dict) -> int:
    return len(attributes[BODY])


def is_grown(attributes: dict) -> bool:
    return f"{BODY}.base" in attributes


MESSAGES = [noise(str(n), 4000) for n in range(12)]
TOOLS = noise("tools", 20_000)


def test_a_growing_history_is_stored_once():
    file = File()
    for n in range(1, 12):
        attributes = file.call(request(*MESSAGES[:n], tools=TOOLS))
        assert new_characters(attributes) < (30_000 if n == 1 else 4_200)
    file.check()


def test_a_retry_with_the_same_body_adds_nothing():
    file = File()
    for _ in range(3):
        attributes = file.call(request(*MESSAGES[:3]))
    assert attributes[BODY] == "" and attributes[f"{BODY}.base"] == f"{0:016x}"
    file.check()


def test_interleaved_conversations_each_keep_their_own():
    file = File()
    for n in range(1, 5):
        for agent in range(4):
            messages = [noise(f"{agent}-{m}", 3000) for m in range(n)]
            attributes = file.call(request("shared system prompt" * 40, *messages, tools=TOOLS))
            assert new_characters(attributes) < (25_000 if agent == 0 and n == 1 else 3_200)
    file.check()


def test_a_compaction_breaks_the_prefix_and_the_rest_is_kept():
    file = File()
    file.call(request(*MESSAGES, tools=TOOLS))
    attributes = file.call(request(MESSAGES[0], "summary " + noise("summary", 500), tools=TOOLS))
    assert new_characters(attributes) < 700
    attributes = file.call(request(*MESSAGES, noise("the old branch goes on", 500), tools=TOOLS))
    assert new_characters(attributes) < 700
    file.check()


def test_fewer_messages_and_other_tools():
    file = File()
    file.call(request(*MESSAGES, tools=TOOLS))
    assert new_characters(file.call(request(*MESSAGES[:5], tools=TOOLS))) < 100
    assert new_characters(file.call(request(*MESSAGES[:6], tools="other" + TOOLS[:5000] + "!" + TOOLS[5100:]))) < 4_400
    file.check()


def test_a_cache_marker_that_moves_costs_no_more_than_its_message():
    """As Claude Code sends it: the last message carries the marker, so the one before loses it."""

    def marked(n: int) -> str:
        blocks: list[dict] = [{"type": "text", "text": text} for text in MESSAGES[:n]]
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
        return json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": [b]} for b in blocks], "tools": TOOLS}
        )

    file = File()
    for n in range(1, 10):
        attributes = file.call(marked(n))
    assert new_characters(attributes) < 4_300
    file.check()


def test_a_short_request_stays_whole():
    file = File()
    file.call(request("hello"))
    assert not is_grown(file.call(request("hello")))
    file.check()


def test_what_was_not_written_is_never_built_on():
    file = File()
    file.call(request(*MESSAGES[:3]))
    file.call(request(*MESSAGES[:6]), written=False)
    attributes = file.call(request(*MESSAGES[:7]))
    assert attributes[f"{BODY}.base"] == f"{0:016x}"
    file.check()


def test_calls_of_one_batch_build_on_each_other_and_fall_together():
    file = File()
    file.call(request(*MESSAGES[:2]), written=None)
    second = file.call(request(*MESSAGES[:3]), written=None)
    assert second[f"{BODY}.base"] == f"{0:016x}"
    file.history.failed("1-0")
    file.lines.clear()
    assert not is_grown(file.call(request(*MESSAGES[:4])))
    file.check()


def test_a_write_that_fails_in_whatever_way_is_not_built_on(tmp_path):
    history = RequestHistory()
    writer = StoreWriter(tmp_path / "file" / "store", content=ContentOnce(BlobStore(tmp_path), history))
    (tmp_path / "file").write_text("in the way of the store")
    for rollout_id in ("1-0", "no/folder"):
        history.encode(rollout_id, "1", request(*MESSAGES[:2]))
        with pytest.raises((ValueError, OSError)):
            writer.append(rollout_id, b"{}\n")
        assert not is_grown(history.encode(rollout_id, "2", request(*MESSAGES[:3])))
        history.failed()
    (tmp_path / "file").unlink()
    history.encode("1-0", "3", request(*MESSAGES[:2]))
    writer.append("1-0", b"{}\n")
    assert history.encode("1-0", "4", request(*MESSAGES[:3]))[f"{BODY}.base"] == "3"


def test_a_file_that_is_gone_is_not_built_on():
    file = File()
    file.call(request(*MESSAGES[:3]))
    file.history.forget("1-0")
    assert not is_grown(file.call(request(*MESSAGES[:4])))


def test_rollouts_do_not_share():
    history = RequestHistory()
    File(history, "1-0").call(request(*MESSAGES))
    assert not is_grown(File(history, "2-0").call(request(*MESSAGES)))


def test_memory_is_bounded():
    history = RequestHistory(rollout_bytes=100_000, all_bytes=250_000)
    for n in range(60):
        file = File(history, f"{n % 7}-0")
        file.call(noise(f"{n}", 30_000))
        assert history.size <= 250_000
    file.call(noise("too large", 200_000))
    assert history.size <= 250_000
    for n in range(30):
        history.forget(f"{n}-0")
    assert history.size == 0


def test_no_more_candidates_than_a_few():
    file = File()
    for n in range(CANDIDATES + 1):
        file.call(noise(f"conversation {n}", 5000))
    assert not is_grown(file.call(noise("conversation 0", 5000)))
    assert is_grown(file.call(noise("conversation 5", 5000)))
    file.check()


def test_a_lone_surrogate_stays_whole_and_is_no_base():
    file = File()
    file.call(request(*MESSAGES[:2]) + "\ud83e")
    assert not is_grown(file.call(request(*MESSAGES[:2])))


def test_a_chain_of_thousands_in_any_order():
    file = File()
    text = noise("start", 1000)
    for n in range(2000):
        text += f"message {n} " * 3
        file.call(text)
    spans = file.spans()
    random.Random(1).shuffle(spans)
    assert whole_requests(spans) == []
    assert all(span.attributes[BODY] == file.texts[span.span_id] for span in spans)


def test_the_reader_holds_few_rebuilt_texts():
    file = File()
    for n in range(1, 12):
        file.call(request(*MESSAGES[:n]))
    reader = HistoryReader(cache_characters=50_000)
    for span in file.spans():
        reader.add(span)
    for span in [*file.spans(), *reversed(file.spans())]:
        assert reader.text_of(span) == file.texts[span.span_id]
        assert reader._cached <= 100_000


# ── gaps ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def three_calls() -> File:
    file = File()
    for n in (2, 3, 4):
        file.call(request(*MESSAGES[:n]))
    return file


def test_a_missing_base_is_named_and_nothing_is_made_up():
    file = three_calls()
    first, second, third = file.spans()
    gaps = whole_requests([second, third])
    assert [gap.span_id for gap in gaps] == [second.span_id, third.span_id]
    assert all(f"span {first.span_id}" in gap.problem and "missing" in gap.problem for gap in gaps)
    assert second.attributes == third.attributes == {}


def test_what_does_not_need_the_missing_part_is_right():
    file = three_calls()
    first, _, third = file.spans()
    file.lines[third.span_id][f"{BODY}.base"] = first.span_id
    spans = [first, file.spans()[2]]
    assert len(whole_requests(spans)) == 1
    assert spans[0].attributes == {BODY: file.texts[first.span_id]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "changed"),
        ("", None),
        (".kept_head", 7),
        (".kept_head", 10**9),
        (".kept_tail", -1),
        (".kept_tail", "12"),
        (".characters", 3),
        (".sha256", "0" * 64),
        (".sha256", None),
        (".kept_blocks", "x"),
        (".kept_blocks", [0, 5]),
        (".kept_blocks", [10**9, 0, 1]),
        (".base", "f" * 16),
    ],
)
def test_a_damaged_part_gives_a_gap_and_never_a_wrong_text(name, value):
    spans = three_calls().spans()
    spans[1].attributes[BODY + name] = value
    if value is None:
        del spans[1].attributes[BODY + name]
    gaps = whole_requests(spans)
    assert [gap.span_id for gap in gaps] == [spans[1].span_id, spans[2].span_id]
    assert all(BODY not in span.attributes for span in spans[1:])


def test_a_base_that_was_changed_is_found_out():
    spans = three_calls().spans()
    spans[0].attributes[BODY] = spans[0].attributes[BODY].replace("a", "b", 1)
    gaps = whole_requests(spans)
    assert len(gaps) == 2 and all("changed" in gap.problem for gap in gaps)


def test_requests_that_name_each_other_end():
    spans = three_calls().spans()
    spans[1].attributes[f"{BODY}.base"] = spans[2].span_id
    assert len(whole_requests(spans)) == 2


def test_of_a_span_that_was_written_twice_the_whole_one_serves():
    first, second, _ = three_calls().spans()
    text = first.attributes[BODY]
    torn = span_of(first.span_id, {BODY: "", f"{BODY}.base": "f" * 16})
    reader = HistoryReader()
    for span in (torn, first, second, torn):
        reader.add(span)
    assert reader.text_of(first) == text
    assert not isinstance(reader.text_of(second), Gap)


# ── whatever is said, by whomever, in whatever order ───────────────────────────────────────────────────────────────

parts = st.lists(
    st.sampled_from([noise(str(n), 700) for n in range(6)] + ["", "é" * 600, "\U0001f600" * 400]), max_size=5
)
fates = st.sampled_from(["written", "open", "failed", "dropped after"])
calls = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), parts, fates), max_size=25)


@settings(max_examples=150, deadline=None)
@given(calls, st.integers(1, 3), st.randoms(use_true_random=False))
def test_what_was_written_comes_back_and_what_is_missing_is_named(said, scale, order):
    """Two writers, three rollouts; batches that fail; lines lost after they were written; any reading order."""
    writers = [RequestHistory(rollout_bytes=8_000 * scale) for _ in range(2)]
    texts: dict[tuple[int, int, str], str] = {}
    lines: dict[tuple[int, int], dict[str, dict]] = {}
    lost: set[tuple[int, int, str]] = set()
    waiting: dict[tuple[int, int], dict[str, dict]] = {}
    for number, (writer, rollout, messages, fate) in enumerate(said):
        file, span_id = (writer, rollout), f"{number:016x}"
        texts[writer, rollout, span_id] = text = request(*messages)
        batch = waiting.setdefault(file, {})
        batch[span_id] = writers[writer].encode(f"{rollout}-0", span_id, text)
        if fate == "open":
            continue
        del waiting[file]
        if fate == "failed":
            writers[writer].failed(f"{rollout}-0")
            continue
        writers[writer].committed(f"{rollout}-0")
        lines.setdefault(file, {}).update(batch)
        if fate == "dropped after":
            lost.add((writer, rollout, span_id))
    for (writer, rollout), stored in lines.items():
        kept = {span_id: line for span_id, line in stored.items() if (writer, rollout, span_id) not in lost}
        spans = [span_of(span_id, dict(attributes)) for span_id, attributes in kept.items()]
        order.shuffle(spans)
        gaps = {gap.span_id: gap.problem for gap in whole_requests(spans)}
        for span in spans:
            if span.span_id in gaps:
                assert BODY not in span.attributes
                assert any(f"span {gone}:" in gaps[span.span_id] for _, _, gone in lost)
            else:
                assert span.attributes == {BODY: texts[writer, rollout, span.span_id]}
        if not any(key[:2] == (writer, rollout) for key in lost):
            assert gaps == {}
