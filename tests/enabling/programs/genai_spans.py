"""A program that an instrumentation of others traces, by OpenTelemetry's API alone."""

from opentelemetry import trace

tracer = trace.get_tracer("third.party")
call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gym.rollout.id": "7-0"}
with tracer.start_as_current_span("chat m", attributes=call):
    pass
provider = trace.get_tracer_provider()
print(type(getattr(provider, "id_generator", None)).__name__)
