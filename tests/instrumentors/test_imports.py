"""Acting on a library when the program imports it, never before."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from otel_gym.capture.instrumentors.imports import forget, when_imported


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package that nobody has imported."""
    (tmp_path / "a_library").mkdir()
    (tmp_path / "a_library" / "__init__.py").write_text("from a_library.inner import value\nwhole = True\n")
    (tmp_path / "a_library" / "inner.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("a_library", "a_library.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "a_library"


def test_an_action_waits_for_the_whole_module_and_comes_once(library):
    seen: list[bool] = []
    when_imported(library, lambda module: seen.append(module.whole))
    assert seen == [] and library not in sys.modules
    module = import_module(library)
    import_module(library)
    assert seen == [True]
    assert module.__loader__ is module.__spec__.loader  # the real one: resources and inspect ask it
    when_imported(library, lambda module: seen.append(module.whole))
    assert seen == [True, True]


def test_an_action_that_brings_another_for_the_same_module_was_its_last(library):
    """`otel-gym run` instruments a library when it is imported, and the instrumentor waits for that very import."""
    seen: list[str] = []

    def instrument(module: ModuleType) -> None:
        seen.append("instrument")
        when_imported(library, lambda module: seen.append("patch"))

    when_imported(library, instrument)
    import_module(library)
    assert seen == ["instrument", "patch"]


def test_a_module_within_a_package_is_waited_for_by_itself(library):
    seen: list[int] = []
    when_imported(f"{library}.inner", lambda module: seen.append(module.value))
    import_module(library)
    assert seen == [1]


def test_an_action_that_fails_does_not_fail_the_import(library):
    seen: list[str] = []
    when_imported(library, lambda module: 1 / 0)
    when_imported(library, lambda module: seen.append(module.__name__))
    assert import_module(library).whole
    assert seen == [library]


def test_an_action_that_was_taken_back_does_not_come(library):
    seen: list[str] = []

    def action(module: ModuleType) -> None:
        seen.append(module.__name__)

    when_imported(library, action)
    forget(library, action)
    import_module(library)
    assert seen == []


def test_a_module_that_does_not_exist_is_still_missing():
    when_imported("no_such_library", lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        import_module("no_such_library")
