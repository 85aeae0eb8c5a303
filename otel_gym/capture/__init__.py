"""Nothing of OpenTelemetry that reads propagators is imported before this."""

from otel_gym.tracing.propagators import load_propagators

load_propagators()
