"""Acts when a module has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from otel_gym.tracing.logs import log_once

Action = Callable[[ModuleType], None]


def when_imported(name: str, action: Action) -> None:
    """Calls ``action`` with the module: now if it is there already, else once it is.

    What the action raises is logged and goes no further: the import succeeds.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _act(action, module)
        return
    _finder.actions.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget(name: str, action: Action) -> None:
    """Takes back a ``when_imported`` that has not acted yet."""
    actions = _finder.actions.get(name, [])
    if action in actions:
        actions.remove(action)


class _Finder(MetaPathFinder):
    """Lets the other finders find, and acts after their loader is done."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.actions or fullname in self._asked:
            return None
        self._asked.add(fullname)
        try:
            spec = find_spec(fullname)
        except (ImportError, ValueError):
            return None
        finally:
            self._asked.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.actions)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, actions: dict[str, list[Action]]) -> None:
        self._loader = loader
        self._actions = actions

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:  # what asks the module for its loader (resources, inspect) finds the real one
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        while waiting := self._actions.pop(module.__name__, []):  # an action may bring another
            for action in waiting:
                _act(action, module)


def _act(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except Exception:
        log_once(f"{module.__name__} could not be instrumented")


_finder = _Finder()
