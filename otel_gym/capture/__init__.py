"""The boundary of model servers: middleware, proxy, and instrumentations of servers and HTTP clients."""

from otel_gym.tracing.propagators import load_propagators

# Before anything of OpenTelemetry that reads OTEL_PROPAGATORS.
load_propagators()
