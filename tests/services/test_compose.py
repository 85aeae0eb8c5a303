"""docker-compose.yml and what Tempo, Prometheus and Grafana are given, as far as that can be told unrun."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from .conftest import needed, parts

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "collector-config"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DASHBOARD = json.loads((CONFIG / "grafana" / "dashboards" / "rollouts.json").read_text())

TARGET = {
    "type": "object",
    "required": ["refId", "datasource"],
    "oneOf": [{"required": ["expr"]}, {"required": ["query", "queryType"]}],
}
PANEL = {
    "type": "object",
    "required": ["id", "title", "type", "datasource", "gridPos", "targets", "fieldConfig"],
    "properties": {
        "type": {"enum": ["timeseries", "bargauge", "table"]},
        "datasource": {"$ref": "#/$defs/datasource"},
        "gridPos": {
            "type": "object",
            "required": ["x", "y", "w", "h"],
            "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 100},
        },
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
    },
}
DASHBOARD_SCHEMA = {
    "$defs": {
        "datasource": {
            "type": "object",
            "required": ["type", "uid"],
            "properties": {"uid": {"enum": ["prometheus", "tempo", "jaeger"]}},
        }
    },
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "time", "templating"],
    "properties": {
        "uid": {"type": "string", "maxLength": 40},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "items": PANEL},
    },
}


def closed(**properties: Any) -> dict[str, Any]:
    """An object that has these and nothing else."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


ADDRESS = {"type": "string", "pattern": r"^0\.0\.0\.0:\d+$"}
NUMBER = {"type": "integer", "minimum": 1}
PLACE = {"type": "string", "pattern": "^/var/tempo/"}
# Those of Tempo's settings that are used here, by its configuration manual: a name that is misspelt ends its start.
TEMPO_SCHEMA = closed(
    server=closed(http_listen_port={"const": 3200}),
    distributor=closed(
        receivers=closed(otlp=closed(protocols=closed(grpc=closed(endpoint=ADDRESS), http=closed(endpoint=ADDRESS))))
    ),
    ingester=closed(max_block_duration={"type": "string"}),
    compactor=closed(compaction=closed(block_retention={"type": "string"})),
    storage=closed(trace=closed(backend={"const": "local"}, wal=closed(path=PLACE), local=closed(path=PLACE))),
    overrides=closed(
        defaults=closed(
            **{"global": closed(max_bytes_per_trace=NUMBER)},
            ingestion=closed(max_traces_per_user=NUMBER, rate_limit_bytes=NUMBER, burst_size_bytes=NUMBER),
        )
    ),
    usage_report=closed(reporting_enabled={"const": False}),
)
PROMETHEUS_SCHEMA = closed(
    **{"global": closed(scrape_interval={"type": "string"})},
    scrape_configs={
        "type": "array",
        "items": closed(
            job_name={"type": "string"},
            honor_labels={"type": "boolean"},
            static_configs={"type": "array", "items": closed(targets={"type": "array"})},
        ),
    },
)
DATASOURCES_SCHEMA = closed(
    apiVersion={"const": 1},
    datasources={
        "type": "array",
        "items": closed(
            name={"type": "string"},
            uid={"type": "string"},
            type={"enum": ["prometheus", "tempo", "jaeger"]},
            access={"const": "proxy"},
            url={"type": "string", "pattern": "^http://"},
            isDefault={"type": "boolean"},
            jsonData={"type": "object"},
        ),
    },
)
PROVIDERS_SCHEMA = closed(
    apiVersion={"const": 1},
    providers={
        "type": "array",
        "items": closed(
            name={"type": "string"},
            type={"const": "file"},
            allowUiUpdates={"type": "boolean"},
            options=closed(path={"type": "string"}),
        ),
    },
)


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("tempo.yaml", TEMPO_SCHEMA),
        ("prometheus.yaml", PROMETHEUS_SCHEMA),
        ("grafana/datasources.yaml", DATASOURCES_SCHEMA),
        ("grafana/providers.yaml", PROVIDERS_SCHEMA),
        ("grafana/dashboards/rollouts.json", DASHBOARD_SCHEMA),
    ],
)
def test_configurations_of_parts_that_do_not_run_here_have_the_form_that_they_take(
    file: str, schema: dict[str, Any]
) -> None:
    jsonschema.validate(yaml.safe_load((CONFIG / file).read_text()), schema)


def test_compose_takes_the_file(tmp_path: Path) -> None:
    """By the library that `docker compose config` is made of."""
    needed(parts.COMPOSE)
    done = subprocess.run([parts.COMPOSE.path, "docker-compose.yml"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(COMPOSE["services"])


def test_every_image_has_its_version_and_what_listens_does_so_on_this_machine() -> None:
    for name, service in COMPOSE["services"].items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_every_file_that_is_mounted_is_there_and_every_file_that_is_named_is_mounted() -> None:
    for name, service in COMPOSE["services"].items():
        mounted = {}
        for volume in service.get("volumes", []):
            source, target = re.fullmatch(r"(.+?):(/[^:]+)(?::ro)?", volume).groups()
            if source.startswith("./"):
                assert (ROOT / source).exists(), f"{name}: {source}"
                mounted[target] = ROOT / source
        for word in map(str, service.get("command", [])):
            path = word.partition("=")[2]
            if path.startswith("/etc/"):
                folder, _, file = path.rpartition("/")
                assert (mounted[folder] / file).exists(), f"{name}: {path}"


def test_every_variable_that_compose_sets_is_one_that_a_configuration_reads() -> None:
    for service in ("collector", "jaeger"):
        files = [word.rpartition("/")[2] for word in COMPOSE["services"][service]["command"]]
        read = set(re.findall(r"env:(\w+)", "".join((CONFIG / file).read_text() for file in files)))
        assert set(COMPOSE["services"][service]["environment"]) <= read, service


def test_health_asks_every_part() -> None:
    [check] = [word for word in COMPOSE["services"]["health"]["healthcheck"]["test"] if "wget" in word]
    assert set(re.findall(r"(\w+):\d+/", check)) == set(COMPOSE["services"]) - {"health"}
