"""Makes tests/fixtures/foreign anew: spans of real instrumentations, and what their calls were on the wire.

    python bench/foreign_samples.py ENVIRONMENTS [SAMPLE ...] [--corpus DIR]

Each sample's packages are installed into an environment of its own below ENVIRONMENTS (once; about 3 minutes each for
the larger ones). Their clients talk to the scripted model server through ``otel-gym proxy``, whose records are the
truth. Claude Code's and Codex's samples come from a recorded session each, in ``--corpus``, with the wire beside it.

Left out of the spans, which are as they came otherwise: stack traces, and what a resource tells of the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.demo.model_server import running_model_server
from otel_gym.demo.run import running_proxy
from otel_gym.records.model_call import ModelCallRecord, build_model_call_record
from otel_gym.store.reader import open_store
from otel_gym.views.model_calls import model_call_records
from otel_gym.wire.exchange import Exchange
from transcript_wire import headers_of, request_of, response_body

BENCH = Path(__file__).parent
FIXTURES = BENCH.parent / "tests" / "fixtures" / "foreign"
SDK = ("opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp-proto-common==1.45.2")
ROLLOUT = "/ng-rollout/0-0"
# Of a record: what a span may tell, and by what the two are found to be one call.
TRUTH = (
    "response_id",
    "model",
    "dialect",
    "status_code",
    "response_status",
    "finish_reason",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "cache_creation_tokens",
    "error_category",
    "tool_calls",
    "reasoning_content",
    "started_at",
)
KEPT_RESOURCE = ("service.", "gym.", "agentlightning.", "telemetry.")


@dataclass(frozen=True, slots=True)
class Sample:
    """``arguments`` go before the model server's URL and the file to write."""

    packages: tuple[str, ...]
    script: str
    arguments: tuple[str, ...] = ()
    environment: str = ""


OPENAI, ANTHROPIC = "openai==3.57.0", "anthropic==2.14.0"
OF_TRACELOOP = ("opentelemetry-instrumentation-openai==0.62.4", "opentelemetry-instrumentation-anthropic==0.62.4")
OF_TRACELOOP_BEFORE = ("opentelemetry-instrumentation-openai==0.40.14", "openai<2", "setuptools<81")
OF_PHOENIX = ("openinference-instrumentation-openai==0.1.66", "openinference-instrumentation-anthropic==3.1.0")
CLIENTS = (*SDK, *OF_TRACELOOP, *OF_PHOENIX, OPENAI, ANTHROPIC)
EMITTER, RELAY, LIGHTNING = "foreign_emitter.py", "foreign_relay.py", "foreign_lightning.py"
RELAY_PACKAGES = ("nemo-relay==0.10.4",)

SAMPLES: dict[str, Sample] = {
    "openllmetry-openai": Sample(CLIENTS, EMITTER, ("openllmetry-openai",), "clients"),
    "openllmetry-anthropic": Sample(CLIENTS, EMITTER, ("openllmetry-anthropic",), "clients"),
    "openllmetry-0.40-openai": Sample((*SDK, *OF_TRACELOOP_BEFORE), EMITTER, ("openllmetry-openai-chat",)),
    "openinference-openai": Sample(CLIENTS, EMITTER, ("openinference-openai",), "clients"),
    "openinference-anthropic": Sample(CLIENTS, EMITTER, ("openinference-anthropic",), "clients"),
    "anthropic-client": Sample(CLIENTS, EMITTER, ("anthropic-native",), "clients"),
    "genai-openai": Sample(
        (*SDK, "opentelemetry-instrumentation-genai-openai==1.3b0", OPENAI), EMITTER, ("genai-openai",)
    ),
    "nemo-relay-full": Sample(RELAY_PACKAGES, RELAY, ("full",), "relay"),
    "nemo-relay-gen_ai": Sample(RELAY_PACKAGES, RELAY, ("gen_ai",), "relay"),
    "nemo-relay-openinference": Sample(RELAY_PACKAGES, RELAY, ("openinference",), "relay"),
    "agent-lightning": Sample(("agentlightning==0.3.0", "openai<2"), LIGHTNING),
    "two-on-openai": Sample(CLIENTS, EMITTER, ("openllmetry-openai-chat+openinference-openai",), "clients"),
    "three-on-anthropic": Sample(
        CLIENTS, EMITTER, ("anthropic-native+openllmetry-anthropic+openinference-anthropic",), "clients"
    ),
}
# Sample → folder of the corpus, and the names of the spans that are kept with all above them; empty: all are.
CODEX_SPANS = frozenset({"codex.sampling", "handle_responses", "exec_command", "stream_request", "codex.exec"})
RECORDED: dict[str, tuple[str, frozenset[str]]] = {
    "claude-code": ("claude_code/otel_traces", frozenset()),
    "codex": ("codex/otel", CODEX_SPANS | {"model_client.stream_responses_api"}),
}


def python_of(environments: Path, name: str, sample: Sample) -> Path:
    folder = environments / (sample.environment or name)
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"{name}: installing {', '.join(sample.packages)}", file=sys.stderr)
        venv.create(folder, with_pip=True)
        for packages in (sample.packages[:1], sample.packages[1:]):  # agentlightning asks for an openai it fails with
            if packages:
                subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def make_sample(environments: Path, name: str) -> None:
    sample = SAMPLES[name]
    python = python_of(environments, name, sample)
    environment = {**os.environ, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}
    with tempfile.TemporaryDirectory() as scratch:
        out, store = Path(scratch) / "out.jsonl", Path(scratch) / "store"
        with running_model_server() as (_, server), running_proxy(server, store, "r") as proxy:
            command = [python, BENCH / sample.script, *sample.arguments, proxy + ROLLOUT, out]
            subprocess.run(command, check=True, env=environment, cwd=scratch)
        [rollout] = open_store(store).rollouts()
        truth = model_call_records(rollout)
        write(name, map(json.loads, out.read_text(encoding="utf-8").splitlines()), truth)


def make_recorded(corpus: Path, name: str) -> None:
    folder, kept = RECORDED[name]
    documents = (json.loads(line).get("payload") for line in (corpus / folder / "otlp.jsonl").open(encoding="utf-8"))
    spans = [each for each in documents if isinstance(each, dict) and "resourceSpans" in each]
    lines = map(json.loads, (corpus / folder / "wire.jsonl").open(encoding="utf-8"))
    write(name, only(spans, kept) if kept else iter(spans), list(records_of_wire(lines)))


def records_of_wire(lines: Iterator[dict[str, Any]]) -> Iterator[ModelCallRecord]:
    for line in lines:
        dialect = {"messages": "messages", "responses": "responses"}.get(str(line["path"]).rpartition("/")[2])
        if dialect is None or line["method"] != "POST":
            continue
        headers = headers_of(line, "response_headers")
        exchange = Exchange(
            dialect=dialect,
            model_call_id=headers.get("request-id") or headers.get("x-request-id") or "",
            started_unix_nano=round(line["t_start"] * 10**9),
            request_body=json.dumps(request_of(line)).encode(),
            status_code=line["status"],
            response_content_type=headers.get("content-type"),
            chunks=[(0, response_body(line))],
            returned_ns=1,
        )
        yield build_model_call_record(exchange, 0)


def only(documents: list[dict[str, Any]], kept: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The spans of these names, and all above them."""
    spans = {span["spanId"]: span for document in documents for span in spans_of(document)}
    wanted = set()
    for span in spans.values():
        above = span if span["name"] in kept else None
        while above is not None and above["spanId"] not in wanted:
            wanted.add(above["spanId"])
            above = spans.get(above.get("parentSpanId") or "")
    for document in documents:
        for resource in document["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                scope["spans"] = [span for span in scope["spans"] if span["spanId"] in wanted]
        if any(spans_of(document)):
            yield document


def spans_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def write(name: str, documents: Iterator[dict[str, Any]], truth: list[ModelCallRecord]) -> None:
    FIXTURES.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(trimmed(document), ensure_ascii=False, separators=(",", ":")) for document in documents]
    packed = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    (FIXTURES / f"{name}.jsonl.gz").write_bytes(packed)
    rows = ({**record.model_dump(include=set(TRUTH)), "request_id": request_id_of(record)} for record in truth)
    rows = (json.dumps(row, ensure_ascii=False) for row in rows)
    (FIXTURES / f"{name}.truth.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    print(f"{name}: {sum(len(list(spans_of(json.loads(line)))) for line in lines)} spans, {len(truth)} calls")


def request_id_of(record: ModelCallRecord) -> str | None:
    """Of a recorded session, whose exchanges are named by it."""
    call_id = record.model_call_id or ""
    return call_id if call_id.startswith("req_") else None


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    for resource in document["resourceSpans"]:
        said = resource.get("resource", {})
        said["attributes"] = [each for each in said.get("attributes", []) if each["key"].startswith(KEPT_RESOURCE)]
    for span in spans_of(document):
        for event in span.get("events", []):
            attributes = event.get("attributes", [])
            event["attributes"] = [each for each in attributes if each["key"] != "exception.stacktrace"]
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", type=Path)
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=", ".join([*SAMPLES, *RECORDED]))
    parser.add_argument("--corpus", type=Path)
    given = parser.parse_args()
    for name in given.samples or SAMPLES:
        if name in RECORDED:
            make_recorded(given.corpus, name)
        else:
            make_sample(given.environments.absolute(), name)
    if given.corpus is not None and not given.samples:
        for name in RECORDED:
            make_recorded(given.corpus, name)


if __name__ == "__main__":
    main()
