"""``otel-gym doctor``: what is wrong with a store and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otel_gym.cli.common import (
    DAMAGED,
    AsJson,
    CommandError,
    Directory,
    early_leaving,
    named_folder,
    open_folder,
    print_json,
    print_lines,
    said_failures,
)
from otel_gym.cli.formats import counted
from otel_gym.settings import EffectiveSetting, effective_settings, read_settings
from otel_gym.tracing.otlp import told_exports
from otel_gym.views.health import Health, examine

if TYPE_CHECKING:
    from otel_gym.bootstrap.explain import Explained

SHOWN = 20

_CURE = (
    "what to do: nothing, if you can do without; else copy the files anew where they came from elsewhere, or run these "
    "rollouts again"
)


def doctor(
    directory: Annotated[
        Path | None,
        typer.Argument(
            parser=named_folder,
            metavar="[DIR]",
            help="The store.  [default: OTEL_GYM_DIR, else ./otel_gym_store]",
            show_default=False,
        ),
    ] = None,
    named: Directory = None,
    json: AsJson = False,
) -> None:
    """Examine a store and the settings: what is damaged, what was dropped, what never ended, and what to do.

    Reads the whole store and changes nothing. Ends with 0 if nothing was lost, 1 if something was (damage, spans that
    could not be written, bodies that were cut), 2 if there is no store.

    \b
    Example:
        otel-gym doctor --dir ./otel_gym_store
        otel-gym doctor --json
    """
    settings = read_settings()
    effective = effective_settings()
    with said_failures():
        if directory is not None and named is not None and directory != named:
            raise CommandError(f"{directory} or --dir {named}? give one of them")
        folder = directory or named or settings.directory
        try:
            health = examine(open_folder(folder))
            with early_leaving():
                _print_health(folder, health, json)
        finally:  # the settings are told all the same
            with early_leaving():
                _print_settings(effective, settings.problems, json)
        if health.has_losses:
            raise typer.Exit(DAMAGED)


def _print_health(folder: Path, health: Health, json: bool) -> None:
    if json:
        print_json(_rows(health))
    else:
        print_lines([*_report(folder, health), ""])


def _print_settings(effective: list[EffectiveSetting], problems: tuple[str, ...], json: bool) -> None:
    from otel_gym.bootstrap.explain import explained  # slow to load: it knows every way of tracing

    exports = told_exports(read_settings())
    parts = explained()
    if json:
        print_json({"kind": "enabling", **asdict(part)} for part in parts)
        print_json({"kind": "otlp", "signal": signal, **told} for signal, told in exports.items())
        print_json({"kind": "setting", **asdict(each)} for each in effective)
        print_json({"kind": "setting_problem", "problem": problem} for problem in problems)
    else:
        print_lines([*_enabling(parts), "", *_exports(exports), "", *_configuration(effective, problems)])


def _enabling(parts: Sequence[Explained]) -> Iterator[str]:
    yield "what would be turned on here"
    width = max(len(part.name) for part in parts)
    for part in parts:
        problem = f"; {part.problem}" if part.problem else ""
        yield f"  {'!' if part.problem else ' '} {part.name:<{width}}  {part.value}{problem}"


def _exports(exports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "OTLP (where the TracerProvider is otel_gym's)"
    for signal, told in exports.items():
        if told["endpoint"] is None:
            yield f"  {'!' if told['is_wrong'] else ' '} {signal}: not sent: {told['why']}"
            continue
        yield f"    {signal}: to {told['endpoint']} by {told['protocol']} ({told['why']})"
        if "attribute_bytes" in told:
            cut = f"cut at {told['attribute_bytes']:,} bytes" if told["attribute_bytes"] else "not cut"
            content = "with" if told["content"] else "without"
            yield f"      attributes {cut}, {content} content, messages of {told['batch_bytes']:,} bytes at most"


def _configuration(effective: list[EffectiveSetting], problems: tuple[str, ...]) -> Iterator[str]:
    yield "settings (* set in this environment)"
    width = max(len(each.name) for each in effective)
    for each in effective:
        yield f"  {'*' if each.is_set else ' '} {each.name:<{width}}  {each.value}"
    for problem in problems:
        yield f"  ! {problem}"


def _report(folder: Path, health: Health) -> Iterator[str]:
    yield f"store {folder}: {counted(health.rollouts, 'rollout')}, {counted(health.spans, 'span')}"
    yield from _section("damage", [str(damage) for damage in health.damage])
    if health.damage:
        yield f"  {_CURE}"
    numbers = [f"{each.name}: {each.number:,} by {each.writer}; {each.cure}" for each in health.counted]
    yield from _section("dropped or not captured", numbers)
    setups = [f"setup: {_named(each.writers)}: {each.finding}; {each.cure}" for each in health.setups]
    found = [
        f"{each.kind}: {each.run_id + '/' if each.run_id else ''}{each.rollout_id}: {each.finding}; {each.cure}"
        for each in health.findings
    ]
    yield from _section("to know", setups + found)
    yield _verdict(health)


def _verdict(health: Health) -> str:
    if health.has_losses:
        said = "something was lost: see above"
    else:
        said = "nothing was lost" if not health.unfinished_calls else "nothing that was written is lost"
        if any(each.name.startswith("otlp_") for each in health.counted):
            said += " of the store; the OTLP copy lacks what stands above"
    if not health.unfinished_calls:
        return said
    have = "has" if health.unfinished_calls == 1 else "have"
    return f"{said}; {counted(health.unfinished_calls, 'model call')} {have} not ended: see `unfinished`"


def _section(title: str, lines: list[str]) -> Iterator[str]:
    yield f"{title}: {len(lines) or 'none'}"
    yield from (f"  {line}" for line in lines[:SHOWN])
    if len(lines) > SHOWN:
        yield f"  … {len(lines) - SHOWN} more: otel-gym doctor --json lists all"


def _named(writers: Sequence[str]) -> str:
    return writers[0] if len(writers) == 1 else f"{writers[0]} and {len(writers) - 1:,} more"


def _rows(health: Health) -> Iterator[dict[str, Any]]:
    yield {"kind": "store", "rollouts": health.rollouts, "spans": health.spans, "has_losses": health.has_losses}
    for damage in health.damage:
        yield {"kind": "damage", **asdict(damage), "path": str(damage.path)}
    for each in health.counted:
        yield {"kind": "counted", **asdict(each), "is_loss": each.is_loss, "cure": each.cure}
    for setup in health.setups:
        yield {"kind": "setup", **asdict(setup), "finding": setup.finding}
    yield from (asdict(finding) for finding in health.findings)
