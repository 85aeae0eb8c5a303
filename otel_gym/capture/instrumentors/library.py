"""What all instrumentors share: they wait for their library, and put its functions back as they were."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from otel_gym.capture.instrumentors.imports import forget, when_imported


class LibraryInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """``module``: what is waited for; ``requires``: the library as a package, with the oldest version that will do."""

    module: str
    requires: str

    def __init_subclass__(cls) -> None:
        cls._instance = None  # each its own: a subclass would be handed the one of its parent

    def __init__(self) -> None:
        if not hasattr(self, "_replaced"):  # the instrumentor of a class is one object, made once and asked for often
            self._replaced: list[tuple[Any, str, Any, Any]] = []

    def instrumentation_dependencies(self) -> Collection[str]:
        return [self.requires]

    def instrument(self, **options: Any) -> None:
        """Once, however often it is called: by an entry point, by ``otel-gym run``, by hand."""
        if not self.is_instrumented_by_opentelemetry:
            # Who brings us in by hand need not have the library; an entry point is left out where it is missing.
            options.setdefault("skip_dep_check", not options.get("raise_exception_on_conflict"))
            super().instrument(**options)

    def _instrument(self, **options: Any) -> None:
        when_imported(self.module, self._patch)

    def _uninstrument(self, **options: Any) -> None:
        forget(self.module, self._patch)
        while self._replaced:
            owner, name, ours, theirs = self._replaced.pop()
            if vars(owner).get(name) is ours:  # else another's wrapper stands around ours, which then passes on
                setattr(owner, name, theirs)

    def _patch(self, module: Any) -> None:
        """Replaces what the library's calls go through."""
        raise NotImplementedError

    def _replace(self, owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
        """``owner.name`` becomes ``wrapped`` of what it was; where it is inherited, nothing is done."""
        theirs = vars(owner).get(name)
        if theirs is None:
            return
        ours = wrapped(theirs)
        setattr(owner, name, ours)
        self._replaced.append((owner, name, ours, theirs))
