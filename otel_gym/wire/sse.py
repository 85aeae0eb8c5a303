"""Server-sent events from bytes: chunks in, whole events out, no I/O.

The rules are those of the HTML standard (9.2.6), read on bytes:

* a line ends with LF, CRLF or a bare CR; a CRLF that a chunk boundary cuts in two is one line end;
* U+0085, U+2028 and their like end nothing, so text is split before it is decoded (R001);
* one byte order mark before the first line is dropped, no other;
* ``data`` lines are joined with LF; at most one space after the colon belongs to the syntax;
* comments, ``id``, ``retry`` and unknown fields carry nothing that a record needs;
* a blank line ends an event.

Two deviations, both because a record must say what was sent: an event that has a name but no data
is returned (NeMo Gym takes its name for a terminal event), and so is a last event whose blank line
never came, marked ``complete=False``.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 64 * 1024 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(slots=True)
class ServerSentEvent:
    """One event.

    ``name`` is None where no ``event`` line came; ``complete`` says that the blank line did;
    ``end`` counts the bytes of the body up to the event's end.
    """

    name: str | None
    data: str
    complete: bool = True
    end: int = 0


class SseFramer:
    """Feed it the body chunk by chunk; it returns the events that each chunk completed.

    Time is linear in the bytes whatever the chunks are. Memory is bounded: an event that grows
    beyond ``max_event_bytes`` is dropped and counted in ``dropped_events``, and framing goes on
    with the next one.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_event_bytes",
        "_max_event_bytes",
        "_name",
        "_position",
        "_skipping",
        "_tail",
        "_tail_bytes",
        "dropped_events",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.dropped_events = 0
        self._max_event_bytes = max_event_bytes
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._position = 0
        self._after_cr = False
        self._at_start = True
        self._name: bytes | None = None
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take a chunk; return the events that its bytes completed."""
        if not chunk:
            return []
        if self._after_cr:
            self._after_cr = False
            if chunk[0] == 10:
                self._position += 1
                chunk = chunk[1:]
        events: list[ServerSentEvent] = []
        for ended_line in self._whole_lines(chunk):
            self._position += len(ended_line)
            line = ended_line.rstrip(b"\r\n")
            if line:
                self._take_line(line)
                continue
            event = self._finish_event(complete=True)
            if event is not None:
                events.append(event)
        return events

    def close(self) -> list[ServerSentEvent]:
        """The body has ended: return the event that was left without its blank line, if any."""
        if self._tail:
            self._position += self._tail_bytes
            self._take_line(self._first_line_without_mark(b"".join(self._tail)))
            self._tail.clear()
            self._tail_bytes = 0
        event = self._finish_event(complete=False)
        return [] if event is None else [event]

    def _whole_lines(self, chunk: bytes) -> list[bytes]:
        if b"\n" not in chunk and b"\r" not in chunk:
            self._keep_tail(chunk)
            return []
        if self._tail:
            self._tail.append(chunk)
            chunk = b"".join(self._tail)
            self._tail.clear()
            self._tail_bytes = 0
        # bytes.splitlines knows LF, CRLF and CR, and nothing else.
        lines = chunk.splitlines(keepends=True)
        last = chunk[-1]
        if last == 13:
            self._after_cr = True
        elif last != 10:
            self._keep_tail(lines.pop())
        if self._at_start and lines:
            self._position += len(lines[0])
            lines[0] = self._first_line_without_mark(lines[0])
            self._position -= len(lines[0])
        return lines

    def _first_line_without_mark(self, line: bytes) -> bytes:
        if not self._at_start:
            return line
        self._at_start = False
        return line.removeprefix(_BYTE_ORDER_MARK)

    def _keep_tail(self, piece: bytes) -> None:
        if not piece:
            return
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        if self._event_bytes + self._tail_bytes > self._max_event_bytes:
            self._drop_event()
            self._position += self._tail_bytes - 1
            # What is still to come of this line then reads as a comment.
            self._tail = [b":"]
            self._tail_bytes = 1

    def _drop_event(self) -> None:
        if not self._skipping:
            self.dropped_events += 1
        self._skipping = True
        self._name = None
        self._data.clear()
        self._event_bytes = 0

    def _take_line(self, line: bytes) -> None:
        if self._skipping:
            return
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._event_bytes += len(line)
            if self._event_bytes > self._max_event_bytes:
                self._drop_event()
            return
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.removeprefix(b" ")
        elif field == b"data":
            self._data.append(b"")

    def _finish_event(self, *, complete: bool) -> ServerSentEvent | None:
        name, data = self._name, self._data
        self._skipping = False
        if name is None and not data:
            return None
        text = (data[0] if len(data) == 1 else b"\n".join(data)).decode("utf-8", "replace")
        self._name = None
        self._data = []
        self._event_bytes = 0
        if not name:
            return ServerSentEvent(None, text, complete, self._position) if text else None
        return ServerSentEvent(name.decode("utf-8", "replace"), text, complete, self._position)
