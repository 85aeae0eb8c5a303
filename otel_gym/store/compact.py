"""Live files → parts: many whole rollouts a file, each span in exactly one of them.

The one step that counts is the rename of a finished part into ``parquet/``: before it the spans are in their live files
alone, after it the part's own footer says which bytes of which files it holds, and nobody compacts those again. So a
kill at any moment leaves nothing to repair: what lies in ``compacting/`` is thrown away by the next compaction, and
live files go only after every part that holds their bytes was read back from disk.

Live files grow meanwhile: a part holds whole lines up to where the file ended when it was planned, and later lines go
to a later part. A line that repeats a span of an earlier part is dropped, or takes its place if it says more.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from otel_gym.media import REFERENCE
from otel_gym.store.folders import FILE_MODE, make_folder, sync
from otel_gym.store.layout import BLOBS, COMPACTING, LIVE_SUFFIX, MANIFEST, PARQUET, rollout_folder
from otel_gym.store.live_files import (
    LineReader,
    LiveFile,
    end_of_line,
    end_of_lines,
    fingerprint,
    first_run_id,
    live_files,
    may_be_written,
    opened,
    other_line_files,
)
from otel_gym.store.locks import LockedError, locked
from otel_gym.store.media import references
from otel_gym.store.otlp_json import MalformedLineError, spans_of_line
from otel_gym.store.parquet import (
    Claim,
    PartError,
    PartWriter,
    damage_sealed,
    parquet_rows,
    part_name,
    part_paths,
    read_footer,
    verify_part,
)
from otel_gym.store.repair import Damage, problem_of
from otel_gym.store.rows import REQUEST, RESPONSE, ROLLOUT, RUN, SPAN, TRACE, LineRows, Row, rank
from otel_gym.store.span import StoredSpan
from otel_gym.store.whole_requests import RequestsInOrder

__all__ = [
    "Compaction",
    "Left",
    "LockedError",
    "PartError",
    "SealedFile",
    "compact",
    "remove_sealed",
    "seal",
    "seal_rest",
]

# Lines of live files that go into one part. All rows of a part are in memory until it is written.
PART_BYTES = 256 * 1024 * 1024
# A writer on another host that has written nothing for so long is taken for ended.
IDLE_S = 3600.0
REQUEST_BODY_KEY = b'"gym.request.body"'
SEAL_WAIT_S = 600.0

# Said of one file and of many.
STILL_WRITTEN = "a process may still write there"

_STAYS = "it stays in its live file alone"
_NO_REQUEST = "its span is sealed without the request"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Left:
    """A live file that was not, or not wholly, compacted or removed, and why."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A live file of which the parts hold everything up to ``end``."""

    path: Path
    end: int


@dataclass(slots=True)
class Compaction:
    """What was done. ``duplicates``: lines that said again what a kept one says.

    ``left_out``: files that hold spans in a form that is not sealed: compressed, or not named ``.jsonl``.
    """

    spans: int = 0
    duplicates: int = 0
    rollouts: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    parts: list[Path] = field(default_factory=list)
    sealed: list[SealedFile] = field(default_factory=list)
    removed: int = 0
    left: list[Left] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def compact(
    directory: Path,
    *,
    into: Path | None = None,
    by_rollout: bool = False,
    remove: bool = False,
    idle_s: float = IDLE_S,
) -> Compaction:
    """Seals what the store at ``directory`` holds in live files whose writers have ended.

    into        another store, to whose parts everything goes, the parts and media of this one included
    by_rollout  one part a rollout, for who hands single ones on; costs many times the time and twice the bytes
    remove      deletes live files whose every span stands in parts that were read back from disk
    idle_s      how long a writer elsewhere must have been silent to be taken for ended

    Raises LockedError, PartError (a part that cannot be read), OSError; what was committed before stays.
    """
    target = directory if into is None else into
    with ExitStack() as locks:
        for store in sorted({directory.resolve(), target.resolve()}):
            locks.enter_context(locked(store))
        work = _Work(directory, target, by_rollout)
        taken = work.take(live_files(directory), lambda file: not may_be_written(file, idle_s), is_ended=True)
        work.run(taken)
        work.done.left_out += other_line_files(directory)
        if remove:
            work.remove(taken)
        return work.done


def seal(
    directory: Path,
    writer: str,
    rollout_ids: Iterable[str],
    *,
    wait_s: float = SEAL_WAIT_S,
) -> Compaction:
    """Seals the files of one writer, the caller's own, of these rollouts: in one part, if they fit.

    May run beside the thread that writes them: lines that come meanwhile stay for a later part. Nothing is deleted;
    give ``sealed`` of the result to ``remove_sealed`` where no line can be written at the same time.
    """
    with locked(directory, wait_s):
        files = [
            LiveFile(rollout_folder(directory, rollout_id) / f"{writer}{LIVE_SUFFIX}", rollout_id)
            for rollout_id in sorted(set(rollout_ids))
        ]
        work = _Work(directory, directory, False)
        work.run(work.take((file for file in files if file.path.exists()), lambda file: True, is_ended=False))
        return work.done


def seal_rest(directory: Path, into: Path, parts: Sequence[Path]) -> Compaction:
    """Writes what ``parts`` of the store do not hold into parts below ``into``, a folder of the caller's.

    The store is only read: its media stays, and so does everything else. Writers may be at work.
    """
    work = _Work(directory, into, False, copies_media=False)
    taken = work.take(live_files(directory), lambda file: True, is_ended=True)
    work.know_parts_elsewhere(parts)
    work.make_parts(taken)
    return work.done


def remove_sealed(files: Iterable[SealedFile]) -> list[SealedFile]:
    """Deletes live files that have not grown since they were sealed; returns those that have.

    To be called by the thread that writes them, or after its end. Their folders stay: others may be about to write.
    """
    grown = []
    for file in files:
        with suppress(FileNotFoundError):
            if file.path.stat().st_size == file.end:
                file.path.unlink()
            else:
                grown.append(file)
    return grown


@dataclass(frozen=True, slots=True)
class _Range:
    """Whole lines of a live file that no part holds yet."""

    file: LiveFile
    start: int
    end: int
    run_id: str | None = None  # as its first line says

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class _Rollout:
    """What goes into parts for one rollout id: lines of live files, or rows of another store's part."""

    rollout_id: str
    ranges: list[_Range] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    rows_bytes: int = 0
    claims: list[Claim] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.rows_bytes + sum(part.size for part in self.ranges)


class _Work:
    def __init__(self, directory: Path, target: Path, by_rollout: bool, *, copies_media: bool = True) -> None:
        self.directory, self.target, self.by_rollout = directory, target, by_rollout
        self.copies_media = copies_media and target != directory
        self.requests = RequestsInOrder()
        self.rollouts: set[tuple[str | None, str]] = set()
        self.lines, self.reader = LineRows(self.requests), LineReader()
        self._temporaries = 0
        self.done = Compaction()
        # Of the target, and of no more rollouts than are at hand: what its parts hold, and in which they do.
        self.claims: dict[tuple[str, str], set[Claim]] = {}
        self.parts_of: dict[str, set[Path]] = {}
        self.claimed_by: dict[Claim, Path] = {}
        self.is_ended = False
        # Bytes that another store's parts hold: those parts are read instead.
        self.elsewhere: dict[tuple[str, str], set[Claim]] = {}
        self._claims_of: dict[Path, tuple[Claim, ...]] = {}
        shutil.rmtree(target / COMPACTING, ignore_errors=True)

    # --- planning

    def take(
        self, files: Iterable[LiveFile], is_ready: Callable[[LiveFile], bool], *, is_ended: bool
    ) -> list[tuple[LiveFile, int]]:
        """The files to be compacted, each with its size now."""
        taken = []
        for file in files:
            with suppress(FileNotFoundError):
                if is_ready(file):
                    taken.append((file, file.path.stat().st_size))
                else:
                    self.done.left.append(Left(file.path, STILL_WRITTEN))
        self.is_ended = is_ended
        return taken

    def run(self, taken: list[tuple[LiveFile, int]]) -> None:
        wanted = {file.rollout_id for file, _ in taken}
        if self.target != self.directory:
            wanted |= self.know_parts_elsewhere(part_paths(self.directory))
        if self.is_ended:
            for path in part_paths(self.directory):
                self.done.damage += damage_sealed(path)
        for path in part_paths(self.target):
            self._know(path, read_footer(path).claims, wanted)
        rollouts = self._rollouts(taken)
        for group in self._groups_of_parts():
            self._compact_parts(group, rollouts)
        self._make_parts(rollouts)

    def know_parts_elsewhere(self, parts: Iterable[Path]) -> set[str]:
        """Notes what the parts of another store than the target hold; returns of which rollouts."""
        self._claims_of = {path: read_footer(path).claims for path in parts}
        claims = [claim for found in self._claims_of.values() for claim in found]
        for claim in claims:
            self.elsewhere.setdefault((claim.rollout_id, claim.file), set()).add(claim)
        return {claim.rollout_id for claim in claims}

    def make_parts(self, taken: list[tuple[LiveFile, int]]) -> None:
        """Of what no part holds, as far as is known."""
        self._make_parts(self._rollouts(taken))

    def _make_parts(self, rollouts: dict[str, _Rollout]) -> None:
        for batch in self._batches(rollouts.values()):
            self._make_part(batch)

    def _know(self, part: Path, claims: Iterable[Claim], wanted: set[str] | None = None) -> None:
        for claim in claims:
            if wanted is None or claim.rollout_id in wanted:
                self.claims.setdefault((claim.rollout_id, claim.file), set()).add(claim)
                self.parts_of.setdefault(claim.rollout_id, set()).add(part)
                self.claimed_by[claim] = part

    def _rollouts(self, taken: list[tuple[LiveFile, int]]) -> dict[str, _Rollout]:
        rollouts: dict[str, _Rollout] = {}
        for file, size in taken:
            with suppress(FileNotFoundError):
                found = self._range(file, size)
                if found.size:
                    rollouts.setdefault(file.rollout_id, _Rollout(file.rollout_id)).ranges.append(found)
                elif found.end and found.end == size:
                    self.done.sealed.append(SealedFile(file.path, found.end))
        return rollouts

    def _range(self, file: LiveFile, size: int) -> _Range:
        with opened(file.path) as descriptor:
            start, claims = self._claimed_end(descriptor, file, size)
            end = end_of_lines(descriptor, start, size)
            if self.is_ended:
                for claim in claims:
                    if claim.damaged:  # said each time, not only when it was sealed
                        self._rows_of_range(descriptor, _Range(file, claim.start, claim.end))
                if end < size and self._is_whole_line(descriptor, end, size):
                    end = size
                elif end < size:
                    problem = problem_of(os.pread(descriptor, size - end, end), at_end_of_file=True)
                    self.done.damage.append(Damage(file.path, 0, problem, _STAYS, end))
            return _Range(file, start, end, first_run_id(descriptor, start))

    def _is_whole_line(self, descriptor: int, start: int, end: int) -> bool:
        """Whether a writer that has ended left a last line that lacks nothing but its newline."""
        try:
            return all(self.lines.rows(line, "") for line in self.reader.lines(descriptor, start, end))
        except MalformedLineError:
            return False

    def _claimed_end(self, descriptor: int, file: LiveFile, size: int) -> tuple[int, list[Claim]]:
        """Up to where parts hold the file, without a gap, and the claims that say so."""
        key = (file.rollout_id, file.name)
        claims = self.claims.get(key, set()) | self.elsewhere.get(key, set())
        end = 0
        used: list[Claim] = []
        while True:
            fitting = [claim for claim in claims if claim.start == end < claim.end <= size]
            claim = next((c for c in fitting if fingerprint(descriptor, c.start, c.end) == c.fingerprint), None)
            if claim is None:
                return end, used
            end = claim.end
            used.append(claim)

    def _batches(self, rollouts: Iterable[_Rollout]) -> Iterator[list[_Rollout]]:
        batch: list[_Rollout] = []
        size = 0
        for rollout in rollouts:
            for piece in _pieces(rollout):
                if batch and (self.by_rollout or size + piece.size > PART_BYTES):
                    yield batch
                    batch, size = [], 0
                batch.append(piece)
                size += piece.size
        if batch:
            yield batch

    # --- from another store's parts

    def _groups_of_parts(self) -> Iterator[list[Path]]:
        """Parts that the target lacks, oldest first, as many together as make one part of the usual size."""
        group: list[Path] = []
        size = 0
        claims_of = self._claims_of
        for path in sorted(claims_of, key=lambda path: path.stat().st_mtime_ns):
            if all(claim in self.claims.get((claim.rollout_id, claim.file), ()) for claim in claims_of[path]):
                continue
            metadata = pq.read_metadata(path)
            weight = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
            if group and size + weight > PART_BYTES:
                yield group
                group, size = [], 0
            group.append(path)
            size += weight
        if group:
            yield group

    def _compact_parts(self, group: list[Path], rollouts: dict[str, _Rollout]) -> None:
        found: dict[str, _Rollout] = {}
        for path in group:
            for claim in self._claims_of[path]:
                rollout = found.setdefault(claim.rollout_id, _Rollout(claim.rollout_id))
                rollout.claims.append(claim)
            for row in parquet_rows(path):
                rollout = found.setdefault(row[ROLLOUT], _Rollout(row[ROLLOUT]))
                rollout.rows.append(row)
                rollout.rows_bytes += sum(len(cell) for cell in row if type(cell) is str)
        for rollout_id, rollout in found.items():
            if rollout_id in rollouts and rollouts[rollout_id].size <= PART_BYTES:
                rollout.ranges = rollouts.pop(rollout_id).ranges
        ordered = sorted(found.values(), key=lambda rollout: rollout.rollout_id)
        for batch in [[rollout] for rollout in ordered] if self.by_rollout else [ordered]:
            self._make_part(batch)

    # --- making one part

    def _make_part(self, batch: list[_Rollout]) -> None:
        known = self._known_spans(rollout.rollout_id for rollout in batch)
        claims: list[Claim] = []
        superseding: dict[Path, dict[Key, Row]] = {}
        blobs: set[str] = set()
        writer = self._writer(_first_run(batch))
        for rollout in batch:
            rows, rollout_claims = self._rows(rollout)
            claims += rollout.claims + rollout_claims
            kept = self._new_rows(rows, known.get(rollout.rollout_id, {}), superseding)
            if self.copies_media:
                blobs.update(_blobs_of(kept))
            writer.add(kept, rollout.size)
            self.done.spans += len(kept)
            self.rollouts.update(_rollouts_of(kept))
            self.done.duplicates += len(rows) - len(kept)
            self.done.bytes_read += rollout.size - rollout.rows_bytes
        if not claims:
            return
        self._copy_blobs(blobs)
        for part, better in superseding.items():
            self._replace_rows(part, better)
        self._commit(writer, claims)
        self.done.rollouts = len(self.rollouts)
        for rollout in batch:
            self.done.sealed += [SealedFile(part.file.path, part.end) for part in rollout.ranges]

    def _writer(self, first_run: str | None) -> PartWriter:
        """Writes beside the parts; two may be at work at once."""
        for folder in (PARQUET, COMPACTING, MANIFEST):
            make_folder(self.target / folder, synced=True)
        self._temporaries += 1
        return PartWriter(self.target / COMPACTING / f"{self._temporaries}.{os.getpid()}.parquet", first_run)

    def _rows(self, rollout: _Rollout) -> tuple[list[Row], list[Claim]]:
        rows, rollout.rows = rollout.rows, []  # not kept once they are written
        claims = []
        for part in rollout.ranges:
            with suppress(FileNotFoundError):  # its writer sealed and deleted it meanwhile
                with opened(part.file.path) as descriptor:
                    mark = fingerprint(descriptor, part.start, part.end)
                    found, damaged = self._rows_of_range(descriptor, part)
                rows += found
                claims.append(Claim(rollout.rollout_id, part.file.name, part.start, part.end, mark, damaged))
        return rows, claims

    def _rows_of_range(self, descriptor: int, part: _Range) -> tuple[list[Row], int]:
        """The rows of its lines, and how many lines gave none, or one without its request."""
        rows: list[Row] = []
        damaged = 0
        self._note_earlier_requests(descriptor, part.start)
        for number, line in enumerate(self.reader.lines(descriptor, part.start, part.end), 1):
            try:
                if len(line) > 1 or bytes(line).strip():
                    rows += self.lines.rows(line, part.file.rollout_id)
            except MalformedLineError as error:
                damaged += 1
                rows += self.lines.rows_of_spans(error.spans, part.file.rollout_id)
                where = f"counted from byte {part.start}: " if part.start else ""
                self.done.damage.append(Damage(part.file.path, number, f"{where}{error}", _STAYS))
        damaged += len(self.requests.gaps)
        self.done.damage += [Damage(part.file.path, 0, str(gap), _NO_REQUEST) for gap in self.requests.gaps]
        self.requests.gaps = []
        return rows, damaged

    def _note_earlier_requests(self, descriptor: int, start: int) -> None:
        """A request may have grown out of one that an earlier part holds; its line is still in the file."""
        self.requests.begin_file()
        for line in self.reader.lines(descriptor, 0, start):
            if REQUEST_BODY_KEY in bytes(line):
                for span in _readable_spans(bytes(line)):
                    self.requests.note(span)

    def _known_spans(self, rollout_ids: Iterable[str]) -> dict[str, dict[Key, Path]]:
        """The spans of these rollouts that parts of the target hold already, with their part."""
        wanted: dict[Path, set[str]] = {}
        for rollout_id in rollout_ids:
            for part in self.parts_of.get(rollout_id, ()):
                wanted.setdefault(part, set()).add(rollout_id)
        known: dict[str, dict[Key, Path]] = {}
        for part, rollouts in wanted.items():
            filters = [("rollout_id", "in", sorted(rollouts))]
            columns = ["rollout_id", "trace_id", "span_id"]
            table = pq.read_table(part, columns=columns, filters=filters, partitioning=None)
            for rollout_id, trace_id, span_id in zip(*(table[name].to_pylist() for name in columns), strict=True):
                known.setdefault(rollout_id, {})[trace_id, span_id] = part
        return known

    def _new_rows(self, rows: list[Row], known: dict[Key, Path], superseding: dict[Path, dict[Key, Row]]) -> list[Row]:
        """Each span once, and none that a part holds; what says more than a part's row is put aside for it."""
        best: dict[Key, Row] = {}
        for row in rows:
            key = (row[TRACE], row[SPAN])
            other = best.get(key)
            if other is None or rank(row) >= rank(other):
                best[key] = row
        if known:
            for key in best.keys() & known.keys():
                superseding.setdefault(known[key], {})[key] = best.pop(key)
        return list(best.values())

    def _replace_rows(self, part: Path, better: dict[Key, Row]) -> None:
        """Writes ``part`` anew, under its name and with its claims, where a later line says more or something else."""
        changed = False
        rows = []
        for row in parquet_rows(part):
            found = better.get((row[TRACE], row[SPAN]))
            if found is not None and found[ROLLOUT] == row[ROLLOUT] and _says_more(found, row):
                row, changed = found, True
            rows.append(row)
        if changed:
            writer = self._writer(rows[0][RUN])
            writer.add(rows, 4096 * len(rows))
            self._put(writer, part, list(read_footer(part).claims))

    def _commit(self, writer: PartWriter, claims: list[Claim]) -> None:
        path = self.target / PARQUET / part_name(claims)
        self._put(writer, path, claims)
        self._know(path, claims)
        self.done.parts.append(path)
        self.done.bytes_written += path.stat().st_size

    def _put(self, writer: PartWriter, path: Path, claims: list[Claim]) -> None:
        """Makes the part appear under its name, whole and on disk."""
        temporary = writer.path
        writer.close(claims)
        temporary.chmod(FILE_MODE)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
        self._write_manifest(path, writer.rows, claims)

    def _write_manifest(self, part: Path, rows: int, claims: list[Claim]) -> None:
        path = self.target / MANIFEST / f"{part.stem}.json"
        temporary = self.target / COMPACTING / f"{path.name}.{os.getpid()}"
        entry = {
            "part": part.name,
            "bytes": part.stat().st_size,
            "spans": rows,
            "rollouts": len({claim.rollout_id for claim in claims}),
            "holds": [claim._asdict() for claim in sorted(claims)],
        }
        temporary.write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    # --- media

    def _copy_blobs(self, names: set[str]) -> None:
        """Media that the part's rows name, to the target's folder, before the part."""
        if not names:
            return
        source, target = self.directory / BLOBS, self.target / BLOBS
        make_folder(target, synced=True)
        make_folder(self.target / COMPACTING, synced=True)
        for name in sorted(names):
            if (target / name).exists():
                continue
            temporary = self.target / COMPACTING / f"{name}.{os.getpid()}"
            try:
                shutil.copyfile(source / name, temporary)
                temporary.chmod(FILE_MODE)
            except FileNotFoundError:
                self.done.damage.append(Damage(source / name, 0, "media that a span names is missing", "look for it"))
                continue
            sync(temporary)
            os.replace(temporary, target / name)
        sync(target)

    # --- removing

    def remove(self, taken: list[tuple[LiveFile, int]]) -> None:
        """Deletes the files that verified parts of the target hold to their last byte."""
        verified: dict[Path, bool] = {}
        self.elsewhere = {}
        for part in self._claims_of:
            if all(self._is_held(claim, verified) for claim in self._claims_of[part]):
                part.unlink()
                (self.directory / MANIFEST / f"{part.stem}.json").unlink(missing_ok=True)
                self.done.removed += 1
        for file, taken_size in taken:
            why = self._why_kept(file, taken_size, verified)
            if why is None:
                file.path.unlink()
                self.done.removed += 1
            elif file.path.exists():
                self.done.left.append(Left(file.path, why))
        if not any(left.why == STILL_WRITTEN for left in self.done.left):
            for folder in {file.path.parent for file, _ in taken}:
                with suppress(OSError):  # not empty
                    folder.rmdir()

    def _why_kept(self, file: LiveFile, taken: int, verified: dict[Path, bool]) -> str | None:
        try:
            size = file.path.stat().st_size
            with opened(file.path) as descriptor:
                end, claims = self._claimed_end(descriptor, file, size)
        except FileNotFoundError:
            return "gone"
        if end != size:
            return "grown meanwhile" if size > taken else "torn at the end"
        if any(claim.damaged for claim in claims):
            return "lines that cannot be read whole"
        if not all(self._is_held(claim, verified) for claim in claims):
            return "a part that holds these spans cannot be read back"
        return None

    def _is_held(self, claim: Claim, verified: dict[Path, bool]) -> bool:
        """Whether a part of the target holds the claim, and was read back whole."""
        part = self.claimed_by.get(claim)
        if part is not None and part not in verified:
            verified[part] = self._is_whole(part)
        return part is not None and verified[part]

    def _is_whole(self, part: Path) -> bool:
        try:
            verify_part(part)
            return True
        except PartError as error:
            self.done.damage.append(Damage(part, 0, str(error), "its live files are kept; delete it, compact again"))
            return False


def _readable_spans(line: bytes) -> Sequence[StoredSpan]:
    try:
        return spans_of_line(line)
    except MalformedLineError as error:
        return error.spans


def _rollouts_of(rows: list[Row]) -> set[tuple[str | None, str]]:
    """The (run, rollout) of each; a row without a run is of the only one that the others name."""
    found = {(row[RUN], row[ROLLOUT]) for row in rows}
    return {pair for pair in found if pair[0] is not None} if len(found) == 2 else found


def _first_run(batch: list[_Rollout]) -> str | None:
    """The least run id of a batch, as far as first lines and rows say."""
    runs = {row[RUN] for rollout in batch for row in rollout.rows[:1]}
    runs.update(part.run_id for rollout in batch for part in rollout.ranges)
    return None if None in runs else min(runs, default=None)


def _pieces(rollout: _Rollout) -> Iterator[_Rollout]:
    """The rollout as it is, or, where it is too large for one part, cut between lines."""
    if rollout.size <= PART_BYTES:
        yield rollout
        return
    for part in rollout.ranges:
        start = part.start
        while start < part.end:
            end = part.end
            if end - start > PART_BYTES:
                with opened(part.file.path) as descriptor:
                    end = end_of_lines(descriptor, start, start + PART_BYTES)
                    if end == start:  # a line longer than a part: to its end
                        end = end_of_line(descriptor, start, part.end)
            yield _Rollout(rollout.rollout_id, [_Range(part.file, start, end, part.run_id)])
            start = end


def _says_more(row: Row, other: Row) -> bool:
    if rank(row) != rank(other):
        return rank(row) > rank(other)
    return repr(row) != repr(other)  # not !=, by which a NaN differs from itself


def _blobs_of(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        for body in (row[REQUEST], row[RESPONSE]):
            if body is not None and REFERENCE in body:
                yield from references(body)
