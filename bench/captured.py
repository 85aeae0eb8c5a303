"""Calls through ``ModelCallCapture`` into a store on disk, and what is rebuilt from it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import otel_gym
from otel_gym import conventions
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.reader import Store, StoreError
from otel_gym.store.span import StoredSpan
from otel_gym.views.model_calls import model_calls
from scripted import Application, VirtualClock

MODEL_REF = {"type": "responses_api_models", "name": "policy_model"}


@dataclass(frozen=True)
class StoredCall:
    """A model call as the store tells it: its rollout, its record, its span."""

    rollout_id: str
    record: ModelCallRecord
    span: StoredSpan

    def request_headers(self) -> dict[str, list[str]]:
        prefix = conventions.REQUEST_HEADER
        attributes = self.span.attributes.items()
        return {name.removeprefix(prefix): value for name, value in attributes if name.startswith(prefix)}


def always(call_id: str) -> Callable[[Mapping[str, Any]], str]:
    """A source of call ids that gives this one."""
    return lambda _scope: call_id


class CaptureSession:
    """Capture switched on for this process, writing into ``directory``."""

    def __init__(self, directory: Path, run_id: str) -> None:
        self.directory = directory
        self.pipeline = otel_gym.configure(directory=directory, run_id=run_id)

    def wrap(
        self,
        application: Application,
        clock: VirtualClock,
        call_id: Callable[[Mapping[str, Any]], str],
        **options: Any,
    ) -> Application:
        captured: Application = ModelCallCapture(
            application, model_ref=MODEL_REF, clock=clock, call_id=call_id, **options
        )
        return captured

    def calls(self) -> list[StoredCall]:
        """Every model call of the store, read from its files after a flush."""
        otel_gym.flush()
        try:
            store = Store(self.directory)
        except StoreError:
            return []
        return [
            StoredCall(rollout.rollout_id, call.record, call.span)
            for rollout in store.rollouts()
            for call in model_calls(rollout)
        ]
