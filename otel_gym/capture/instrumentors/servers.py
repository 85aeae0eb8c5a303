"""Model servers on Starlette or FastAPI: each application captures its model calls, as ``instrument_app`` makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from otel_gym.capture.instrumentors.imports import forget, when_imported
from otel_gym.capture.instrumentors.library import LibraryInstrumentor
from otel_gym.capture.middleware import instrument_app
from otel_gym.identity import URL_PREFIX
from otel_gym.tracing.logs import log_once


class StarletteInstrumentor(LibraryInstrumentor):
    """Every application gets the middleware when it builds its stack, which is before its first request.

    So it does not matter who made the application, from which class, and when: a worker of uvicorn that imports it by
    name as well. An instrumentation that stands around the stack (contrib's for FastAPI) makes the SERVER span, ours
    joins it.
    """

    module = "starlette.applications"
    requires = "starlette >= 0.27"

    def _instrument(self, **options: Any) -> None:
        super()._instrument(**options)
        when_imported("fastapi.applications", self._patch_fastapi)

    def _uninstrument(self, **options: Any) -> None:
        forget("fastapi.applications", self._patch_fastapi)
        super()._uninstrument(**options)

    def _patch(self, module: Any) -> None:
        self._replace(module.Starlette, "build_middleware_stack", _capturing)

    def _patch_fastapi(self, module: Any) -> None:  # it builds its stack itself
        self._replace(module.FastAPI, "build_middleware_stack", _capturing)


def _capturing(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(build)
    def build_capturing(app: Any) -> Any:
        try:
            instrument_app(app, strips_prefix=not serves_prefix(app))
        except Exception:
            log_once("an application could not be instrumented")
        return build(app)

    return build_capturing


def serves_prefix(app: Any) -> bool:
    """Whether the application has routes of its own for ``/ng-rollout/<id>``: then it is given paths as they came."""
    return any(str(getattr(route, "path", "")).startswith(URL_PREFIX) for route in app.routes)
