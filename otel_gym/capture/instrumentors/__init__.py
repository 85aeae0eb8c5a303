"""What makes programs traced that know nothing of it: instrumentors of OpenTelemetry's kind, one for each library.

They are the package's ``opentelemetry_instrumentor`` entry points, so ``opentelemetry-instrument`` finds them; and
``INSTRUMENTORS`` is the same table for whoever brings them in without an installed package. ``instrument()`` may be
called before its library is imported, at any time after, and twice: it imports nothing that the program does not.
"""

from __future__ import annotations

# Module of the library → "module:Class" of its instrumentor.
INSTRUMENTORS: dict[str, str] = {
    "starlette": "otel_gym.capture.instrumentors.servers:StarletteInstrumentor",
    "httpx": "otel_gym.capture.instrumentors.clients:HttpxInstrumentor",
    "httpx2": "otel_gym.capture.instrumentors.clients:Httpx2Instrumentor",
    "aiohttp": "otel_gym.capture.instrumentors.clients:AiohttpInstrumentor",
    "requests": "otel_gym.capture.instrumentors.clients:RequestsInstrumentor",
    "nemo_gym": "otel_gym.capture.instrumentors.nemo_gym:NemoGymInstrumentor",
}
