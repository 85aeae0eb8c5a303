"""``otel-gym import otlp``: files that a real Collector wrote (fixtures), answers of Tempo, and damage in them."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import Result
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.span import StoredSpan
from tests.otlp.conftest import spans_by_rollout
from tests.otlp.messages import TRACE, full_request, request, span

FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"
COLLECTOR_FILES = ("collector.json", "collector.json.zst", "collector.pb", "collector.pb.zst")
R059 = (
    '{"batches":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"gym"}}]},"scopeSpans":[{'
    '"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"chat toy-1",'
    '"kind":"SPAN_KIND_CLIENT","startTimeUnixNano":"1777312801000000001","endTimeUnixNano":1777312801500000001,'
    '"attributes":[{"key":"gen_ai.usage.input_tokens","value":{"intValue":"12"}},'
    '{"key":"gen_ai.usage.output_tokens","value":{"intValue":3}}]}]}]}]}'
)

Import = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def take(store: Path) -> Import:
    """Imports into ``store``."""

    def run(*arguments: object, source: str = "otlp") -> Result:
        return CliRunner().invoke(app, ["import", source, *map(str, arguments), "--dir", str(store)])

    return run


def written(path: Path, content: str | bytes | dict[str, Any]) -> Path:
    text = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def in_hex(message: Any) -> dict[str, Any]:
    """OTLP/JSON, whose ids are hex; protobuf's own JSON has base64."""

    def of(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: of(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [of(item) for item in value]
        return base64.b64decode(value).hex() if key in ("traceId", "spanId", "parentSpanId") else value

    found: dict[str, Any] = of(MessageToDict(message))
    return found


@pytest.mark.parametrize("name", COLLECTOR_FILES)
def test_every_form_that_a_collector_writes_gives_the_same_spans(name: str, take: Import, store: Path) -> None:
    result = take(FIXTURES / name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1-0: 3 new spans\n2-0: 1 new span\n", "")
    one, two, three = spans_by_rollout(store)["1-0"]
    assert one.attributes[""] == "no name" and one.attributes["bytes"] == b"\x00\xff"
    assert (one.kind, one.trace_state, one.flags, one.dropped_attributes) == (0, "a=b", 0x301, 3)
    assert (one.origin.scope_version, one.origin.resource_schema_url) == ("1.2", "https://example.com/resource")
    assert (one.links[0].trace_state, one.links[0].dropped, one.events[0].dropped) == ("c=d", 4, 1)
    assert (two.attributes["t"], three.parent_span_id) == ("x" * 3000, two.span_id)
    assert take(*(FIXTURES / other for other in COLLECTOR_FILES)).stdout == "1-0: nothing new\n2-0: nothing new\n"


def test_nothing_is_new_after_the_store_was_compacted(take: Import, store: Path) -> None:
    command = [sys.executable, "-m", "otel_gym.cli", "import", "otlp", str(FIXTURES / "collector.json")]
    subprocess.run([*command, "--dir", str(store)], check=True, capture_output=True)
    compacted = CliRunner().invoke(app, ["compact", "--remove", "--dir", str(store)])
    assert compacted.exit_code == 0, compacted.output
    assert any(store.glob("parquet/*.parquet"))
    assert take(FIXTURES / "collector.pb").stdout == "1-0: nothing new\n2-0: nothing new\n"


def test_tempos_first_api_has_batches_numbers_as_texts_and_names_of_kinds(
    take: Import, store: Path, tmp_path: Path
) -> None:
    """R059."""
    assert take(written(tmp_path / "tempo.json", R059), "--rollout", "1-0", "--run", "r").exit_code == 0
    [stored] = spans_by_rollout(store)["1-0"]
    assert (stored.kind, stored.start_ns, stored.end_ns) == (3, 1777312801000000001, 1777312801500000001)
    assert [stored.attributes[f"gen_ai.usage.{name}_tokens"] for name in ("input", "output")] == [12, 3]
    assert (stored.rollout_id, stored.run_id) == ("1-0", "r")


@pytest.mark.parametrize(
    "form", ["base64 and batches", "envelope", "snake", "pretty", "array of lines", "gzip", "proto"]
)
def test_forms_of_others_are_read(form: str, take: Import, store: Path, tmp_path: Path) -> None:
    message = request(span(1, 9, attributes={"gym.rollout.id": "1-0", "n": 5}), span(2, 1))
    path = tmp_path / "traces"
    if form == "base64 and batches":
        written(path, {"batches": MessageToDict(message)["resourceSpans"]})
    elif form == "envelope":
        written(path, {"trace": MessageToDict(message), "metrics": {}})
    elif form == "snake":
        written(path, MessageToDict(message, preserving_proto_field_name=True))
    elif form == "pretty":
        written(path, json.dumps(in_hex(message), indent=2))
    elif form == "array of lines":
        written(
            path,
            "".join(
                json.dumps(in_hex(request(each))) + "\n" for each in message.resource_spans[0].scope_spans[0].spans
            )[:-1],
        )
    elif form == "gzip":
        written(path, gzip.compress(json.dumps(in_hex(message)).encode()))
    else:
        written(path, message.SerializeToString())
    result = take(path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1-0: 2 new spans\n", "")
    one, two = spans_by_rollout(store)["1-0"]
    assert (one.trace_id, one.span_id, one.parent_span_id) == (TRACE.hex(), "0" * 15 + "1", "0" * 15 + "9")
    assert two.parent_span_id == one.span_id


def test_damage_costs_what_is_damaged_and_is_said_with_its_place(take: Import, store: Path, tmp_path: Path) -> None:
    lines = [json.dumps(in_hex(request(span(n, attributes={"gym.rollout.id": "1-0"})))).encode() for n in (1, 2, 3, 4)]
    bad_id = lines[3].replace(TRACE.hex().encode(), b"12")
    content = lines[0] + b"\n" + lines[1][:80] + b"\n" + lines[2] + lines[1] + b"\n" + bad_id + b"\n" + lines[3]
    path = written(tmp_path / "cut.jsonl", content)
    result = take(path)
    assert (result.exit_code, result.stdout) == (1, "1-0: 4 new spans\n")
    assert f"{path}:2: 80 bytes of a record that was cut off" in result.stderr
    assert f"{path}:4: a span is refused: traceId '12' is none" in result.stderr


@pytest.mark.parametrize("name", ["collector.pb", "collector.pb.zst", "collector.json.zst"])
def test_a_last_message_that_is_cut_costs_itself_alone(name: str, take: Import, tmp_path: Path) -> None:
    path = written(tmp_path / name, (FIXTURES / name).read_bytes()[:-10])
    result = take(path)
    assert result.exit_code == 1 and f"{path}: message 3 is cut" in result.stderr
    assert result.stdout == "1-0: 3 new spans\n"


def test_a_message_in_the_middle_that_is_damaged_costs_itself_alone(take: Import, tmp_path: Path) -> None:
    content = bytearray((FIXTURES / "collector.pb").read_bytes())
    second = 4 + int.from_bytes(content[:4], "big")
    content[second + 4 : second + 8] = b"\xff\xff\xff\xff"
    result = take(written(tmp_path / "traces.pb", bytes(content)))
    assert result.exit_code == 1 and "message 2: no OTLP message in protobuf" in result.stderr
    assert result.stdout == "1-0: 1 new span\n2-0: 1 new span\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", "no OTLP: JSON or protobuf of OTLP"),
        ('{"a": 1}', "no OTLP: a JSON object with the list resourceSpans is asked for"),
        ("{broken", "no JSON"),
        (b"\x0a\xff", "no OTLP message in protobuf"),
        (zstandard.compress(b"hello"), "no OTLP"),
    ],
)
def test_what_is_no_otlp_ends_with_2(content: str | bytes, said: str, take: Import, tmp_path: Path) -> None:
    path = written(tmp_path / "other", content)
    result = take(path)
    assert result.exit_code == 2 and f"{path}: " in result.stderr and said in result.stderr
    assert take(tmp_path / "missing").exit_code == 2


def test_a_folder_is_read_and_other_files_in_it_are_said(take: Import, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    written(folder / "sub" / "a.pb", full_request().SerializeToString())
    written(folder / "readme.txt", "hello")
    result = take(folder)
    assert (result.exit_code, result.stdout) == (1, "1-0: 1 new span\n")
    assert result.stderr.count("\n") == 1 and "readme.txt: no OTLP" in result.stderr


def test_a_cut_copy_does_not_replace_the_whole_span(take: Import, store: Path, tmp_path: Path) -> None:
    whole = {"gym.rollout.id": "1-0", "gym.request.body": "a" * 5000, "gym.response.body": "b"}
    cut = {"gym.rollout.id": "1-0", "gym.otlp.cut": ["x=5000"]}
    for number, attributes in enumerate((whole, cut, whole | {"more": 1})):
        path = written(tmp_path / f"{number}.json", in_hex(request(span(1, attributes=attributes))))
        said = take(path).stdout
        assert said == ("1-0: 1 new span\n", "1-0: nothing new\n", "1-0: 0 new spans, 1 changed\n")[number]
    [stored] = spans_by_rollout(store)["1-0"]
    assert stored.attributes["more"] == 1 and stored.body("gym.request.body") == "a" * 5000


def test_spans_of_no_rollout_are_said(take: Import, tmp_path: Path) -> None:
    result = take(written(tmp_path / "a.json", in_hex(request(span(1), span(3, 2)))))
    assert (result.exit_code, result.stdout) == (0, "unassigned: 2 new spans\n")
    assert "2 spans of no rollout" in result.stderr


def test_an_id_that_may_name_no_folder_stays_out_of_paths(take: Import, store: Path, tmp_path: Path) -> None:
    take(written(tmp_path / "a.json", in_hex(request(span(1, attributes={"gym.rollout.id": "../../x"})))))
    assert [stored.attributes["gym.rollout.id"] for stored in spans_by_rollout(store)["unassigned"]] == ["../../x"]


class _Tempo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_known = self.path.startswith("/api/traces/")
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(R059.encode() if is_known else b"trace not found")

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def tempo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Tempo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def test_an_url_is_read(take: Import, store: Path, tempo: str) -> None:
    assert take(f"http://{tempo}/api/traces/1", "--rollout", "1-0").stdout == "1-0: 1 new span\n"
    result = take(f"http://user:hunter22@{tempo}/other?token=hunter22")
    assert result.exit_code == 2 and "HTTP 404: trace not found" in result.stderr
    assert "hunter22" not in result.stderr
    assert take("http://127.0.0.1:1/x").exit_code == 2


def names(spans: list[StoredSpan]) -> list[str]:
    return [each.name for each in spans]


def test_jaegers_answer_becomes_the_same_tree(take: Import, store: Path) -> None:
    """As the real Jaeger 1.76 gave it of a demo rollout."""
    result = take(FIXTURES / "jaeger.json", source="jaeger")
    assert (result.exit_code, result.stdout) == (0, "0-0: 5 new spans\n")
    spans = spans_by_rollout(store)["0-0"]
    root, *below = spans
    assert (root.name, root.kind, root.parent_span_id, root.scope_name) == ("rollout", 1, None, "otel_gym")
    assert root.attributes["gym.reward"] == 1.0 and root.run_id is not None
    assert root.start_ns % 1000 == 0
    assert {each.kind for each in below} == {2, 3} and all(each.parent_span_id for each in below)
    assert {each.resource["service.name"] for each in spans} == {"otel-gym-demo", "otel-gym-proxy"}
    assert take(FIXTURES / "jaeger.json", source="jaeger").stdout == "0-0: nothing new\n"


JAEGER_SPAN: dict[str, Any] = {
    "traceID": "abc",
    "spanID": "2",
    "operationName": "call",
    "references": [
        {"refType": "FOLLOWS_FROM", "traceID": "abc", "spanID": "7"},
        {"refType": "CHILD_OF", "traceID": "abc", "spanID": "1"},
        {"refType": "CHILD_OF", "traceID": "def", "spanID": "8"},
    ],
    "startTime": 1790000000000001,
    "duration": 3,
    "tags": [
        {"key": "gym.rollout.id", "type": "string", "value": "1-0"},
        {"key": "big", "type": "int64", "value": "9007199254740993"},
        {"key": "float", "type": "float64", "value": 1},
        {"key": "yes", "type": "bool", "value": True},
        {"key": "bytes", "type": "binary", "value": "AP8="},
        {"key": "error", "type": "bool", "value": True},
        {"key": "otel.status_description", "type": "string", "value": "broken"},
        {"key": "span.kind", "type": "string", "value": "client"},
    ],
    "logs": [
        {
            "timestamp": 1790000000000002,
            "fields": [
                {"key": "event", "type": "string", "value": "first"},
                {"key": "n", "type": "int64", "value": 2},
            ],
        }
    ],
    "processID": "p1",
}


def test_all_of_jaegers_forms_come_back(take: Import, store: Path, tmp_path: Path) -> None:
    processes = {"p1": {"serviceName": "svc", "tags": [{"key": "host.name", "type": "string", "value": "h"}]}}
    document = {"data": [{"traceID": "abc", "spans": [JAEGER_SPAN, {"spanID": 5}], "processes": processes}]}
    result = take(written(tmp_path / "jaeger.json", document), source="jaeger")
    assert result.exit_code == 1 and "a span is refused: a span that does not follow Jaeger's JSON" in result.stderr
    [stored] = spans_by_rollout(store)["1-0"]
    assert (stored.trace_id, stored.span_id) == ("0" * 29 + "abc", "0" * 15 + "2")
    assert stored.parent_span_id == "0" * 15 + "1"
    assert [link.span_id[-1] for link in stored.links] == ["7", "8"]
    assert (stored.start_ns, stored.end_ns) == (1790000000000001000, 1790000000000004000)
    assert (stored.kind, stored.status, stored.status_message) == (3, 2, "broken")
    expected = {"gym.rollout.id": "1-0", "big": 9007199254740993, "float": 1.0, "yes": True, "bytes": b"\x00\xff"}
    assert stored.attributes == expected and type(stored.attributes["float"]) is float
    assert (stored.events[0].name, stored.events[0].time_unix_nano) == ("first", 1790000000000002000)
    assert stored.events[0].attributes == {"n": 2}
    assert stored.resource == {"service.name": "svc", "host.name": "h"}


def test_what_jaeger_says_is_wrong_is_told(take: Import, tmp_path: Path) -> None:
    said = {"data": None, "errors": [{"code": 500, "msg": "no storage"}]}
    result = take(written(tmp_path / "jaeger.json", said), source="jaeger")
    assert result.exit_code == 2 and "no storage" in result.stderr


def test_a_store_is_imported_whole_also_where_its_requests_grew(take: Import, store: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    bodies = ['{"m":[' + ",".join(f'"{"x" * 2000} {n}"' for n in range(count)) + "]}" for count in (5, 6, 7)]
    said = [{"gym.rollout.id": "1-0", "gym.request.body": body} for body in bodies]
    whole = written(
        tmp_path / "whole.json", in_hex(request(*(span(n, attributes=each) for n, each in enumerate(said, 1))))
    )
    assert CliRunner().invoke(app, ["import", "otlp", str(whole), "--dir", str(source)]).exit_code == 0
    [file] = source.glob("spans/*/*.jsonl")
    assert b"gym.request.body.base" in file.read_bytes()
    for path, expected in ((file, "1-0: 3 new spans\n"), (source, "1-0: nothing new\n"), (whole, "1-0: nothing new\n")):
        result = take(path)
        assert (result.exit_code, result.stdout, result.stderr) == (0, expected, "")
    assert [each.body("gym.request.body") for each in spans_by_rollout(store)["1-0"]] == bodies


def lines_of_spans(count: int) -> list[bytes]:
    messages = [in_hex(request(span(n, attributes={"gym.rollout.id": "1-0"}))) for n in range(1, count + 1)]
    return [json.dumps(message).encode() + b"\n" for message in messages]


@pytest.mark.parametrize("pack", [zstandard.compress, gzip.compress])
def test_a_packed_file_that_is_cut_says_so_and_keeps_what_comes_before(
    pack: Callable[[bytes], bytes], take: Import, tmp_path: Path
) -> None:
    """A .zst cut at two thirds, or within its third frame, ended with 0 and said nothing."""
    lines = [line.replace(b"chat", os.urandom(300).hex().encode()) for line in lines_of_spans(3000)]
    packed = pack(b"".join(lines))
    result = take(written(tmp_path / "cut", packed[: len(packed) * 2 // 3]))
    assert result.exit_code == 1 and "cut: the packed file is cut or damaged: " in result.stderr
    assert int(result.stdout.split()[1].replace(",", "")) > 1900
    frames = b"".join(map(pack, lines[:3]))
    result = take(written(tmp_path / "frames", frames[:-10]), "--run", "frames")
    assert result.exit_code == 1 and "end-of-" in result.stderr
    assert take(written(tmp_path / "whole", frames)).exit_code == 0


def test_a_pipe_is_read(take: Import, tmp_path: Path) -> None:
    """``<(zcat traces.gz)`` was called a stdout that cannot be written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"".join(lines_of_spans(2)),))
    writer.start()
    result = take(pipe)
    writer.join()
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1-0: 2 new spans\n", "")
    result = take("/dev/null")
    assert result.exit_code == 2 and "/dev/null: neither a file nor a folder" in result.stderr


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (1, 2, 0, 3)])
def test_metrics_and_logs_between_spans_are_passed_over(order: tuple[int, ...], take: Import, tmp_path: Path) -> None:
    """A Collector's file of all signals was refused, or each line of another signal was called damage twice."""
    one, two = lines_of_spans(2)
    lines = (one, b'{"resourceMetrics":[{"resource":{}}]}\n', b'{"resourceLogs":[{"resource":{}}]}\n', two)
    path = written(tmp_path / "all.json", b"".join(lines[number] for number in order))
    result = take(path)
    assert (result.exit_code, result.stdout) == (0, "1-0: 2 new spans\n")
    assert result.stderr == f"otel-gym: {path}: 2 messages of metrics, logs or profiles passed over\n"


def test_a_line_of_another_kind_is_skipped_wherever_it_stands(take: Import, tmp_path: Path) -> None:
    """As the first line it cost the whole file."""
    one, two = lines_of_spans(2)
    path = written(tmp_path / "mixed.json", b'{"a": 1}\n' + one + b'{"b": 1}\n' + two)
    result = take(path)
    assert (result.exit_code, result.stdout) == (1, "1-0: 2 new spans\n")
    places = [line.split(": ")[1] for line in result.stderr.splitlines()]
    assert places == [f"{path}:1", f"{path}:3"]


def test_a_byte_order_mark_and_blank_lines_are_no_fault(take: Import, tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + b"".join(lines_of_spans(2))
    assert take(written(tmp_path / "bom.json", content)).stdout == "1-0: 2 new spans\n"
    for blank in (b"", b"\n\n\n", b"\xef\xbb\xbf\n"):
        result = take(written(tmp_path / "blank.json", blank))
        assert (result.exit_code, result.output) == (0, "")


def test_a_tag_without_a_key_costs_itself_alone(take: Import, store: Path, tmp_path: Path) -> None:
    """It cost the span, with ``KeyError: 'key'``."""
    tags = [
        {"key": "gym.rollout.id", "type": "string", "value": "1-0"},
        {"type": "string", "value": "lost"},
        {"key": "n", "type": "int64", "value": "many"},
    ]
    one = {"traceID": "1" * 32, "spanID": "2" * 16, "operationName": "x", "startTime": 1, "duration": 1, "tags": tags}
    path = written(tmp_path / "jaeger.json", {"data": [{"traceID": "1" * 32, "spans": [one], "processes": {}}]})
    result = take(path, source="jaeger")
    assert (result.exit_code, result.stdout) == (1, "1-0: 1 new span\n")
    assert "2 tags are left out: one has no key" in result.stderr
    assert set(spans_by_rollout(store)["1-0"][0].attributes) == {"gym.rollout.id"}


@pytest.mark.parametrize("length", [123, 91])
def test_protobuf_whose_first_bytes_read_as_a_blank_line_and_json(length: int, take: Import, tmp_path: Path) -> None:
    message = request(span(1, attributes={"gym.rollout.id": "1-0"}))
    group = message.resource_spans[0]
    del group.resource.attributes[:]
    one = group.scope_spans[0].spans[0]
    one.name = ""
    one.name = "x" * (length - group.ByteSize() - 2)
    content = message.SerializeToString()
    assert content[1] == length
    result = take(written(tmp_path / "small.pb", content))
    assert (result.exit_code, result.stdout) == (0, "1-0: 1 new span\n")
