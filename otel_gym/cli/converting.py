"""What ``otel-gym convert`` does with the paths it is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otel_gym.cli.common import CommandError, progress, said_settings
from otel_gym.cli.writing import Files, without_collector, write_files
from otel_gym.ingest.claude_code import claude_code_runs
from otel_gym.ingest.files import unreadable_text
from otel_gym.ingest.imported import SourceError
from otel_gym.ingest.sources import SOURCES
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.reader import RolloutSpans
from otel_gym.tracing.content_policy import ContentPolicy, content_policy_from
from otel_gym.views.atif import WrittenVersion, atif_files_of_run
from otel_gym.views.atif_export import atif_files

ATIF_VERSIONS: dict[str, WrittenVersion] = {"1.7": "ATIF-v1.7", "1.8": "ATIF-v1.8"}


def converted(source: str, paths: list[Path], output: Path, version: WrittenVersion) -> tuple[int, list[str]]:
    """Writes the sessions below ``paths``; returns how many, and what could not be read."""
    policy = content_policy_from(said_settings(), messages=False)
    damage: list[str] = []
    number = 0
    with progress("converting") as advancing, without_collector():
        for path in advancing(paths):
            before = number
            for name, files in _said_sessions(source, path, version, policy, damage):
                write_files(output / name, files)
                number += 1
            if number == before and not damage:
                raise CommandError(f"{path}: nothing here that can be converted")
    return number, list(dict.fromkeys(damage))


def _said_sessions(
    source: str, path: Path, version: WrittenVersion, policy: ContentPolicy, damage: list[str]
) -> Iterator[tuple[str, Files]]:
    try:
        if not path.exists():
            raise SourceError(f"{path}: no such file or folder")
        # Whoever keeps no content wants little of a document: what is left of it comes the long way.
        if source == "claude-code" and policy.bodies:
            yield from _runs(path, version, policy, damage)
        else:
            yield from _rollouts(source, path, version, policy, damage)
    except SourceError as problem:
        raise CommandError(str(problem)) from None
    except OSError as error:
        raise CommandError(unreadable_text(path, error)) from None


def _runs(path: Path, version: WrittenVersion, policy: ContentPolicy, damage: list[str]) -> Iterator[tuple[str, Files]]:
    for session in claude_code_runs(path, policy, damage):
        name = session.rollout_id
        yield name, atif_files_of_run(session.run, rollout_id=name, version=version, agent_version=session.version)


def _rollouts(
    source: str, path: Path, version: WrittenVersion, policy: ContentPolicy, damage: list[str]
) -> Iterator[tuple[str, Files]]:
    for rollout in SOURCES[source].read(path):
        damage += rollout.damage
        name = rollout.identity_id
        spans = RolloutSpans(None, name, stored_spans(rollout, None, policy))
        yield name, {file: (content,) for file, content in atif_files(spans, version).items()}
