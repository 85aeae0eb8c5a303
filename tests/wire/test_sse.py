"""Framing: whatever the chunks are, the events are those of the standard."""

from __future__ import annotations

import pytest

from otel_gym.wire import ServerSentEvent, SseFramer


def frame(*chunks: bytes, **options: int) -> list[ServerSentEvent]:
    framer = SseFramer(**options)
    events = [event for chunk in chunks for event in framer.feed(chunk)]
    return events + framer.close()


def texts(*chunks: bytes) -> list[str]:
    return [event.data for event in frame(*chunks)]


def bytewise(stream: bytes) -> list[bytes]:
    return [stream[place : place + 1] for place in range(len(stream))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    stream = end.join([b"data: a", b"", b"data: b", b"", b""])
    assert texts(stream) == ["a", "b"]
    assert texts(*bytewise(stream)) == ["a", "b"]
    assert all(event.complete for event in frame(stream))


def test_cjk_character_cut_between_chunks_is_whole() -> None:
    stream = "data: Wörter 北京 😀\n\n".encode()
    for cut in range(len(stream)):
        assert texts(stream[:cut], stream[cut:]) == ["Wörter 北京 😀"]


def test_crlf_pair_cut_between_chunks_is_one_line_end() -> None:
    assert texts(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_event_after_lone_carriage_returns_needs_no_further_byte() -> None:
    framer = SseFramer()
    assert [event.data for event in framer.feed(b"data: a\r\r")] == ["a"]
    assert framer.feed(b"\n") == []


def test_line_separators_inside_text_are_text() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"
    assert texts(f"data: {text}\n\n".encode()) == [text]


def test_one_byte_order_mark_is_dropped_and_no_other() -> None:
    mark = b"\xef\xbb\xbf"
    assert texts(mark + b"data: a\n\n") == ["a"]
    assert texts(*bytewise(mark + b"data: a\n\n")) == ["a"]
    assert texts(mark + mark + b"data: a\n\n") == []
    assert texts(b"data: a\n\n" + mark + b"data: b\n\n") == ["a"]
    assert texts(mark + b"data: a") == ["a"]


def test_comments_ids_and_retries_are_no_data() -> None:
    assert texts(b": keep-alive\n\nid: 1\nretry: 3000\ndata: a\n: note\nunknown: x\n\n") == ["a"]


def test_data_lines_are_joined_with_line_feeds() -> None:
    assert texts(b"data: {\ndata:\ndata\ndata:  }\n\n") == ["{\n\n\n }"]


def test_only_one_space_after_the_colon_is_syntax() -> None:
    assert texts(b"data:a\n\ndata: a\n\ndata:  a\n\n") == ["a", "a", " a"]


def test_event_name_is_the_last_one_given() -> None:
    assert [event.name for event in frame(b"event: a\nevent: b\ndata: x\n\ndata: y\n\n")] == ["b", None]


def test_name_after_its_data_counts() -> None:
    assert frame(b"data: x\nevent: done\n\n")[0].name == "done"


def test_event_with_a_name_and_no_data_is_returned() -> None:
    assert [(event.name, event.data) for event in frame(b"event: message_stop\n\ndata:\n\n")] == [("message_stop", "")]


def test_last_event_without_blank_line_is_returned_as_incomplete() -> None:
    events = frame(b"data: a\n\ndata: b\n")
    assert [(event.data, event.complete) for event in events] == [("a", True), ("b", False)]
    assert [event.data for event in frame(b"data: b")] == ["b"]


def test_events_say_where_they_end() -> None:
    stream = b"\xef\xbb\xbfdata: a\r\n\r\n: x\n\ndata: b\r\rdata: c"
    ends = [14, 28, 35]
    assert [event.end for event in frame(stream)] == ends
    # A CRLF that is cut ends with its CR.
    assert [event.end for event in frame(*bytewise(stream))] == [ends[0] - 1, *ends[1:]]


def test_broken_utf8_is_replaced_and_nothing_is_lost() -> None:
    assert texts(b"data: a\xff\xe4b\n\ndata: c\n\n") == ["a\ufffd\ufffdb", "c"]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000])
def test_event_beyond_the_size_bound_is_dropped_and_counted(chunk_bytes: int) -> None:
    stream = b"data: a\n\nevent: big\ndata: " + b"x" * 100 + b"\ndata: more\n\ndata: b\n\n"
    framer = SseFramer(max_event_bytes=50)
    events = []
    for start in range(0, len(stream), chunk_bytes):
        events += framer.feed(stream[start : start + chunk_bytes])
    assert [(event.name, event.data) for event in events] == [(None, "a"), (None, "b")]
    assert events[-1].end == len(stream)
    assert framer.dropped_events == 1


def test_many_small_lines_count_towards_the_size_bound() -> None:
    framer = SseFramer(max_event_bytes=50)
    assert framer.feed(b"data: 12345\n" * 20 + b"\n") == []
    assert framer.dropped_events == 1
