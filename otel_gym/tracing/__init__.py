"""How spans are made, stored and sent: pipeline, recorder, the OTLP copy, the API for agent code."""

from otel_gym.tracing.propagators import load_propagators

# Before anything of OpenTelemetry that reads OTEL_PROPAGATORS.
load_propagators()
