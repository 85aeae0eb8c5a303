"""bench/reports.py and bench/replay_wire.py on shapes that people send: driven, or said not to be, no traceback."""

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHUNK = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "alpha"}, "finish_reason": "stop"}]}
ROWS = """{"file":"a","rollout_id":"0-0","content":null,"finish_reason":null,"tool_calls":[],"metadata":{}}
{"file":"b","rollout_id":"0-1","content":[{"type":"text","text":"x"}],"finish_reason":"stop","metadata":{"k":{}}}
{"file":"b","content":"x","tool_calls":[{"name":"ls"}],"metadata":null}
"""
STREAM = f"data: {json.dumps(CHUNK)}\r\n\r\ndata: [DONE]\r\n\r\n"


def run(script, folder):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    paths = [str(ROOT), environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, ROOT / "bench" / script, folder],
        capture_output=True,
        text=True,
        env={**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


def verdicts(folder, reports):
    for name, (files, expected) in reports.items():
        report = folder / name
        report.mkdir()
        for file, content in {**files, "expected.json": expected}.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (report / file).write_bytes(text.encode())
    done = run("reports.py", folder)
    assert "Traceback" not in done.stderr, done.stderr
    lines = [line.split(": ") for line in done.stdout.split("\n") if ": " in line and not line.startswith(" ")]
    return {name: verdict for name, verdict, *_ in lines}


def test_reports_of_every_shape_are_judged(tmp_path):
    chat = {"dialect": "chat", "text": "alpha"}
    cut = [part.encode().hex() for part in STREAM.partition("\r")]
    hang_up = [
        {"dir": "receive", "type": "http.request", "body": "{}", "more_body": False},
        {
            "dir": "send",
            "type": "http.response.start",
            "status": 200,
            "headers": [["content-type", "text/event-stream"]],
        },
        {"dir": "send", "type": "http.response.body", "body": f"data: {json.dumps(CHUNK)}\n\n", "more_body": True},
    ]
    reports = {
        "nulls": ({"stream.sse": STREAM}, {**chat, "logprobs": None, "signature": None, "stop_sequence": None}),
        "null-that-is-said": ({"stream.sse": STREAM}, {**chat, "id": None}),
        "unknown-key": ({"stream.sse": STREAM}, {**chat, "sharpness": None}),
        "split-alone": ({"crlf_split.json": cut}, {**chat, "stream_truncated": False}),
        "split-differs": ({"crlf_split.json": cut}, {**chat, "text": "beta"}),
        "raises": (
            {"asgi_messages.json": hang_up, "exception.json": {"kind": "CancelledError"}},
            {**chat, "error_category": "cancelled", "ended_spans": 1, "records": 1},
        ),
        "types-change": ({"rows.jsonl": ROWS}, {"rows": 3, "read_together_rows": 3, "round_trip_equal": True}),
        "types-told": ({"rows.jsonl": ROWS}, {"finish_reason_type": "string", "content_type": "string", "rows": 2}),
    }
    assert verdicts(tmp_path, reports) == {
        "nulls": "right",
        "null-that-is-said": "wrong",
        "unknown-key": "not driven",
        "split-alone": "right",
        "split-differs": "wrong",
        "raises": "right",
        "types-change": "right",
        "types-told": "wrong",
    }


WIRE = {
    "method": "POST",
    "path": "/v1/messages",
    "query": "",
    "request_headers": [["content-type", "application/json"]],
    "request_body": {"model": "m"},
    "status": 200,
    "response_headers": [["content-type", "text/event-stream"]],
    "chunks": [[1.0, "data: {}\n\n"]],
    "ended": "complete",
}
ODD = [
    {"ended": "timeout"},
    {"ended": None},
    {"request_body": "x\ud83d"},
    {"chunks": [[1.0, "x\ud800"]]},
    {"chunks": None},
    {"request_headers": {"x-session-id": "s"}},
    {"request_headers": [["x-session-id", "\u2028\u00e9"]], "response_headers": [["x", "\u4e2d"]]},
    {"status": None, "response_headers": None, "ended": "server_drop_no_response"},
    {"path": "/v1/messages?beta=true"},
    {"path": "/ng-rollout/x/training-token-capture/v1/messages"},
]


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
def test_odd_recording_is_replayed_and_recorded(tmp_path, odd):
    (tmp_path / "wire.jsonl").write_text(json.dumps({**WIRE, **odd}) + "\n", "utf-8")
    done = run("replay_wire.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("1 model calls, 1 records, 0 missing")


def test_call_under_a_refused_id_is_uncaptured_and_not_missing(tmp_path):
    refused = {**WIRE, "path": "/ng-rollout/.hidden/v1/messages"}
    (tmp_path / "wire.jsonl").write_text(f"{json.dumps(WIRE)}\n{json.dumps(refused)}\n", "utf-8")
    done = run("replay_wire.py", tmp_path)
    assert "1 calls under an id that is refused" in done.stdout
    assert (done.returncode, done.stdout.rstrip().split("\n")[-1]) == (0, "1 model calls, 1 records, 0 missing")


def test_line_that_is_no_json_is_said_and_the_rest_is_replayed(tmp_path):
    (tmp_path / "wire.jsonl").write_text(f'{json.dumps(WIRE)}\n{{"method": "PO', "utf-8")
    done = run("replay_wire.py", tmp_path)
    assert "line 2: no JSON object" in done.stdout
    assert done.returncode == 1
    assert done.stdout.rstrip().endswith("1 model calls, 1 records, 0 missing")


@pytest.mark.parametrize("script", sorted((ROOT / "bench").glob("*.py")), ids=lambda script: script.name)
def test_what_a_script_takes_from_the_package_is_there(script):
    """Most scripts run for minutes and only by hand: a name that moved would be found there."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "otel_gym":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"
