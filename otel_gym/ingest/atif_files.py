"""ATIF documents as they lie on disk: one file, several in a wrapper, a folder with continuations and subagents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from otel_gym.ingest.files import readable
from otel_gym.ingest.imported import SourceError
from otel_gym.records.atif import AtifTrajectory
from otel_gym.records.atif_lint import errors
from otel_gym.records.atif_versions import version_number


class AtifError(SourceError):
    """What is no ATIF document; the text says of which file, what is wrong with it, and what to do."""


@dataclass(slots=True)
class AtifFile:
    """A document; ``wrong``: what its lint has against it as it stands there."""

    document: AtifTrajectory
    wrong: list[str]


@dataclass(slots=True)
class AtifRun:
    """One run: the document that no other refers to, and by their names those that it leads to, itself among them.

    ``key`` is the id of the run; ``place``: where its main document lies.
    """

    key: str
    place: Path
    main: str
    files: dict[str, AtifFile]
    damage: list[str] = field(default_factory=list)


def read_runs(path: Path) -> list[AtifRun]:
    """The runs of a file or, with those below it, of a folder. AtifError where there is none; OSError."""
    if not path.is_dir():
        documents = _documents(path)
        return _runs(path.parent, documents, {**documents, **_files_beside(path, documents)})
    runs: list[AtifRun] = []
    refused: list[str] = []
    for folder in sorted({file.parent for file in path.rglob("*.json")}):
        found = _documents_of_folder(folder, refused)
        runs += _runs(folder, found, found)
    if not runs:
        raise AtifError("; ".join(refused) or f"{path}: no ATIF document in it: name a folder or file that has one")
    runs[0].damage += refused
    return runs


def is_atif(path: Path) -> bool:
    """Whether a file holds documents, whole ones. OSError."""
    try:
        return bool(_objects(path))
    except AtifError:
        return False


def _documents_of_folder(folder: Path, refused: list[str]) -> dict[str, AtifFile]:
    """Other JSON files are passed over; what was refused is added to ``refused``, and costs no other file."""
    found: dict[str, AtifFile] = {}
    for path in readable(sorted(folder.glob("*.json")), refused):
        try:
            found |= _documents(path) if _says_atif(path) else {}
        except AtifError as problem:
            refused.append(str(problem))
    return found


def _runs(folder: Path, documents: Mapping[str, AtifFile], files: Mapping[str, AtifFile]) -> list[AtifRun]:
    """Of each document that no other one refers to."""
    named = {
        name for own, file in documents.items() for name in _names_of_others(file.document, documents) if name != own
    }
    mains = [name for name in documents if name not in named]
    return [_run(folder, name, files) for name in mains or list(documents)[:1]]


def _says_atif(path: Path) -> bool:
    """Also what cannot be parsed, where it says that it is: it was cut, or broke."""
    try:
        return bool(_objects(path))
    except AtifError:
        return path.match("trajectory*.json") or b"ATIF-v" in path.read_bytes()


def _documents(path: Path) -> dict[str, AtifFile]:
    found = _objects(path)
    if not found:
        raise AtifError(f"{path}: no ATIF document: it has no agent with steps; name a file that has them")
    return {name: _validated(path, name, value) for name, value in found.items()}


def _objects(path: Path) -> dict[str, Any]:
    """The JSON objects of a file that have steps: itself, else those that it wraps, as ``file.json#name``."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise AtifError(f"{path}: no JSON: {problem}: mend it, or import again once it is whole") from None
    if _has_steps(value):
        return {path.name: value}
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return {f"{path.name}#{name}": part for name, part in inside if _has_steps(part)}


def _has_steps(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("steps"), list) and isinstance(value.get("agent"), dict)


def _validated(path: Path, name: str, value: Any) -> AtifFile:
    """3.0 is taken for a count: what is wrong yet readable is damage."""
    wrong = list(map(str, errors(value)))
    try:
        return AtifFile(AtifTrajectory.model_validate(value, strict=False), wrong)
    except ValidationError:
        raise AtifError(f"{path.parent / name}: {'; '.join(wrong[:5])}: mend it and import again") from None


def _names_of_others(document: AtifTrajectory, files: Mapping[str, AtifFile]) -> Iterator[str]:
    """Files that a document refers to, those of its embedded subagents too."""
    if document.continued_trajectory_ref is not None:
        yield document.continued_trajectory_ref
    for ref in document.refs():
        if ref.trajectory_path is not None:
            yield ref.trajectory_path
        elif ref.trajectory_id is None:
            yield from names_by_session(ref.session_id, files)
    for subagent in document.subagent_trajectories or ():
        yield from _names_of_others(subagent, files)


def names_by_session(session_id: str | None, files: Mapping[str, AtifFile]) -> list[str]:
    """How documents before 1.7 found their subagents."""
    return [
        name
        for name, file in files.items()
        if session_id is not None
        and file.document.session_id == session_id
        and version_number(file.document.schema_version) < 7
    ]


def _files_beside(path: Path, documents: Mapping[str, AtifFile]) -> dict[str, AtifFile]:
    """The files that these documents, and those found so, refer to; only such as lie in or below the same folder."""
    folder = path.parent.resolve()
    found: dict[str, AtifFile] = {}
    waiting = [file.document for file in documents.values()]
    while waiting:
        for name in _names_of_others(waiting.pop(), {}):
            file = None if name in found or name in documents else _file_in(folder, name)
            if file is not None:
                found[name] = file
                waiting.append(file.document)
    return found


def _file_in(folder: Path, name: str) -> AtifFile | None:
    try:
        path = (folder / name).resolve()
        return next(iter(_documents(path).values())) if path.is_relative_to(folder) and path.is_file() else None
    except (AtifError, OSError, ValueError):  # no document, or no name that a file can have
        return None


def _run(folder: Path, main: str, files: Mapping[str, AtifFile]) -> AtifRun:
    mine = {main: files[main]}
    waiting = [main]
    damage = []
    while waiting:
        name = waiting.pop(0)
        damage += [f"{folder / name}: {wrong}" for wrong in files[name].wrong]
        for other in _names_of_others(files[name].document, files):
            if other not in files:
                damage.append(f"{folder / other}: {name} refers to it, but there is no ATIF document: put it there")
            elif other not in mine:
                mine[other] = files[other]
                waiting.append(other)
    return AtifRun(_key(folder, main, files[main].document), folder / main, main, mine, damage)


def _key(folder: Path, name: str, document: AtifTrajectory) -> str:
    """The id of a run. A session may have several since 1.7; a document without any id is known by where it lies.

    A continuation that nothing refers to is a run of its own, by its own session id: it may be one of several.
    """
    session = document.session_id
    if session and document.trajectory_id and not document.trajectory_id.startswith(session):
        return f"{session}.{document.trajectory_id}"
    if document.trajectory_id or session:
        return str(document.trajectory_id or session)
    place = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{name.removesuffix('.json')}-{place}"
