"""NeMo Gym, unmodified: one trace a rollout across collector, environment, agent, model and resources servers."""

from __future__ import annotations

from typing import Any

from otel_gym.capture.instrumentors.library import LibraryInstrumentor


class NemoGymInstrumentor(LibraryInstrumentor):
    module = "nemo_gym.server_utils"
    requires = "nemo-gym >= 0.6"

    def _patch(self, module: Any) -> None:
        """Comes with the next step."""
