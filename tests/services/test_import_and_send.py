"""`otel-gym send` into the real Jaeger and Collector, and what they give back through `otel-gym import`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.reader import Store

from .conftest import awaited, ids_of, needed, parts, services


def run(*arguments: object) -> None:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output


def trees(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    """What Jaeger keeps of each span: microseconds, and no shape of values."""
    store = Store(directory)
    return {
        rollout.rollout_id: sorted(
            (each.span_id, each.parent_span_id, each.name, each.kind, each.start_ns // 1000, each.status)
            for each in rollout.spans
        )
        for rollout in store.rollouts()
    }


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_jaeger_gives_back_each_span_that_was_sent(demo_store: Path, tmp_path: Path, protocol: str) -> None:
    needed(parts.JAEGER)
    jaeger = services.new_jaeger(tmp_path)
    with services.running(jaeger):
        endpoint = jaeger.grpc_endpoint if protocol == "grpc" else jaeger.http_url
        run("send", "--endpoint", endpoint, "--protocol", protocol, "--dir", demo_store)
        sent = ids_of(demo_store)
        query = f"{jaeger.query_url}/api/traces?service=otel-gym-demo&limit=1000&raw=true"

        def imported() -> bool:
            run("import", "jaeger", query, "--dir", tmp_path / "store")
            return ids_of(tmp_path / "store") == sent

        assert awaited(imported, 20)
        assert trees(tmp_path / "store") == trees(demo_store)
        trace_id = next(iter(sent["0-0"]))[0]
        run("import", "otlp", f"{jaeger.query_url}/api/v3/traces/{trace_id}", "--dir", tmp_path / "v3")
        assert trees(tmp_path / "v3") == {"0-0": trees(demo_store)["0-0"]}


def test_a_collector_gives_back_each_span_whole(demo_store: Path, tmp_path: Path) -> None:
    needed(parts.COLLECTOR)
    collector = services.new_collector(tmp_path, "rollout-store.yaml")
    with services.running(collector):
        whole = ("--content", "--attribute-bytes", "0")
        run("send", "--endpoint", collector.grpc_endpoint, "--protocol", "grpc", *whole, "--dir", demo_store)
        assert awaited(lambda: ids_of(collector.store) == ids_of(demo_store), 20)
    run("import", "otlp", collector.store / "spans", "--dir", tmp_path / "store")
    assert trees(tmp_path / "store") == trees(demo_store)
