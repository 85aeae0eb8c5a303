"""Under a TracerProvider that others made: what it takes from the store is said."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, StaticSampler
from typer.testing import CliRunner

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.cli.main import app
from otel_gym.store.reader import Store
from otel_gym.tracing.exporter import RolloutSpanExporter
from otel_gym.tracing.ids import GymIdGenerator

from ..capture.asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request
from ..conftest import LiveStore


def call_model() -> None:
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
    assert otel_gym.flush(10)


def setups_said(directory: Path) -> list[str]:
    result = CliRunner().invoke(app, ["doctor", str(directory)])
    assert result.exit_code == 0 and "nothing was lost" in result.stdout
    return [line for line in result.stdout.splitlines() if line.startswith("  setup: ")]


def test_doctor_names_what_a_provider_of_others_weakens(tmp_path):
    for _ in range(2):
        otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(), service_name="agent")
        call_model()
    (line,) = setups_said(tmp_path)
    assert "and 1 more: the TracerProvider is another's" in line
    for weakened in ("no OTLP copy", "ParentBased{root:AlwaysOnSampler", "its limits", "its ids (RandomIdGenerator)"):
        assert weakened in line
    assert "otel_gym.configure() first" in line


def test_doctor_names_only_what_is_weaker(tmp_path):
    limits = SpanLimits(max_span_attributes=SpanLimits.UNSET)
    provider = TracerProvider(ALWAYS_ON, id_generator=GymIdGenerator(), span_limits=limits)
    otel_gym.configure(directory=tmp_path, tracer_provider=provider)
    call_model()
    (line,) = setups_said(tmp_path)
    assert "no OTLP copy" in line
    assert not any(word in line for word in ("sampler", "limits", "ids"))


def test_doctor_says_that_the_exporter_alone_has_no_start_records_and_no_unsampled_spans(tmp_path):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(RolloutSpanExporter(str(tmp_path))))
    provider.get_tracer("mine").start_span("step", attributes={"gym.rollout.id": "13-0"}).end()
    (line,) = setups_said(tmp_path)
    assert "spans that never ended, and those that are not sampled, are missing" in line


def test_a_provider_of_ours_weakens_nothing(live_store: LiveStore):
    call_model()
    assert setups_said(live_store.directory) == []
    assert not (live_store.directory / "notes").exists()


def test_notes_that_cannot_be_read_are_damage_of_these_notes(live_store: LiveStore):
    call_model()
    (live_store.directory / "notes").mkdir()
    (live_store.directory / "notes" / "w.json").write_text("{")
    store = live_store.read()
    assert store.notes_by_writer() == {}
    assert [damage.problem for damage in store.damage] == ["no notes"]


def test_calls_that_the_providers_sampler_drops_are_counted_and_doctor_says_so(tmp_path):
    otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(ALWAYS_OFF))
    call_model()
    call_model()
    assert Store(tmp_path).counts() == {"dropped_calls": 2}
    result = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert "dropped_calls: 2" in result.stdout and "sampler" in result.stdout
    assert result.exit_code == 1


def test_a_provider_that_takes_the_place_of_a_freed_one_is_stored_too(tmp_path):
    for _ in range(10):
        provider = TracerProvider(shutdown_on_exit=False)
        otel_gym.configure(directory=tmp_path, tracer_provider=provider)
        provider.get_tracer("mine").start_span("step", attributes={"gym.rollout.id": "13-0"}).end()
        assert otel_gym.flush(10)
        del provider
        otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(shutdown_on_exit=False))
        gc.collect()
    assert len(list(Store(tmp_path).spans("13-0"))) == 10


class OddSampler(StaticSampler):
    def __init__(self, description: object) -> None:
        super().__init__(Decision.RECORD_AND_SAMPLE)
        self.description = description

    def get_description(self):
        if self.description is NotImplementedError:
            raise self.description
        return self.description


@pytest.mark.parametrize(
    ("description", "said"),
    [(NotImplementedError, "OddSampler"), (42, "42"), (("a", 1), "('a', 1)"), ("\ud83e", "\ufffd")],
)
def test_a_sampler_whose_description_is_no_text_broke_configure_or_lost_every_span(tmp_path, description, said):
    otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(OddSampler(description)))
    with otel_gym.rollout(1, 0):
        pass
    assert otel_gym.flush(10)
    assert len(list(Store(tmp_path).spans("1-0"))) == 1
    (notes,) = Store(tmp_path).notes_by_writer().values()
    assert notes["sampler"] == said


def test_notes_that_cannot_be_written_cost_no_span(tmp_path):
    (tmp_path / "notes").write_text("a file where the folder should be")
    otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider())
    with otel_gym.rollout(1, 0):
        pass
    assert otel_gym.flush(10)
    assert len(list(Store(tmp_path).spans("1-0"))) == 1
