"""Every configuration of collector-config/, as it is laid over others, is one that the Collector takes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from otel_gym.conventions import CONTENT_ATTRIBUTES, GYM_ATTRIBUTES

from .conftest import parts, services

ROOT = Path(__file__).parents[2]
LAID = [
    ("rollout-store.yaml",),
    ("rollout-store.yaml", "slim-copy.yaml"),
    ("rollout-store.yaml", "slim-copy.yaml", "tail-sampling.yaml"),
    ("rollout-store.yaml", "metrics.yaml"),
    ("rollout-store.yaml", "slim-copy.yaml", "metrics.yaml"),
    ("rollout-store.yaml", "kafka-agent.yaml"),
    ("rollout-store.yaml", "kafka-gateway.yaml"),
]
# Of other programs than the Collector.
OTHERS = {"builder.yaml", "jaeger.yaml", "prometheus.yaml", "tempo.yaml"}


# What docs/collector.md sets besides.
SET = {
    (): LAID,
    ("service::pipelines::traces/slim::exporters=[otlp_grpc/jaeger]",): [("rollout-store.yaml", "slim-copy.yaml")],
    ("service::pipelines::traces/slim::receivers=[kafka]",): [
        ("rollout-store.yaml", "kafka-gateway.yaml", "slim-copy.yaml", "tail-sampling.yaml")
    ],
}


@pytest.mark.parametrize(
    ("settings", "configurations"), [(settings, laid) for settings, several in SET.items() for laid in several]
)
def test_the_collector_takes_it(
    collector_program: Path, settings: tuple[str, ...], configurations: tuple[str, ...], tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [collector_program, "validate", *services.collector_arguments(configurations, settings)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    page = (ROOT / "docs" / "collector.md").read_text()
    assert all(f"'{setting}'" in page for setting in settings)


def test_every_variable_is_explained() -> None:
    page = (ROOT / "docs" / "collector.md").read_text()
    for name in {name for laid in LAID for name in laid}:
        for variable in re.findall(r"\$\{env:(\w+)", (ROOT / "collector-config" / name).read_text()):
            assert variable in page, f"{name}: {variable}"


def test_every_configuration_of_the_folder_is_checked() -> None:
    there = {path.name for path in (ROOT / "collector-config").glob("*.yaml")}
    assert there - OTHERS == {name for laid in LAID for name in laid}


def test_the_manifest_names_exactly_what_the_configurations_use() -> None:
    folder = ROOT / "collector-config"
    used = set()
    for name in {name for laid in LAID for name in laid}:
        configuration = yaml.safe_load((folder / name).read_text())
        for kind in ("receivers", "processors", "connectors", "exporters", "extensions"):
            used |= {(kind, part.split("/")[0].replace("_", "")) for part in configuration.get(kind, {})}
    manifest = yaml.safe_load((folder / "builder.yaml").read_text())
    built = set()
    for kind in ("receivers", "processors", "connectors", "exporters", "extensions"):
        for module in manifest[kind]:
            part = module["gomod"].split(" ")[0].rsplit("/", 1)[1].removesuffix(kind.removesuffix("s"))
            built.add((kind, part))
    renamed = {("exporters", "otlpgrpc"): ("exporters", "otlp")}
    assert {renamed.get(part, part) for part in used} == built


def test_defaults_stay_on_this_machine() -> None:
    """What listens does so on 127.0.0.1 unless the environment says otherwise."""
    for name in {name for laid in LAID for name in laid} | {"jaeger.yaml"}:
        text = (ROOT / "collector-config" / name).read_text()
        assert "0.0.0.0" not in text, name
        assert all("127.0.0.1" in line for line in text.splitlines() if "endpoint:" in line and "ENDPOINT" in line), (
            name
        )


def test_the_slim_copy_leaves_out_all_that_our_own_leaves_out() -> None:
    slim = yaml.safe_load((ROOT / "collector-config" / "slim-copy.yaml").read_text())["processors"]["transform/slim"]
    for group in slim["trace_statements"]:
        [pattern] = re.findall(r'^delete_matching_keys\(attributes, "(.*)"\)$', "\n".join(group["statements"]), re.M)
        kept = {name for name in CONTENT_ATTRIBUTES if re.search(pattern, name) is None}
        assert kept == set(), group["context"]
        taken = {attribute.name for attribute in GYM_ATTRIBUTES if re.search(pattern, attribute.name)}
        assert not taken & {"gym.rollout.id", "gym.run.id", "gym.reward", "gym.step.index", "gym.model_call.id"}


def test_a_part_that_is_not_built_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICES_CACHE", str(tmp_path))
    assert "make services" in parts.COLLECTOR.lacks()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert parts.COLLECTOR.lacks() == "Collector is not built (make services, which needs Go)"
    assert parts.KAFKA.lacks() == "Kafka is not built (make services, which needs Maven and Java)"
