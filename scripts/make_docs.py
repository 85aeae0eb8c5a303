"""Writes docs/conventions.md, docs/settings.md, the columns in docs/store.md and docs/cli.md, the dialects in
docs/foreign-spans.md, and the reference in docs/python.md.

    python scripts/make_docs.py [--check]

``--check`` writes nothing and fails if a file is not what the code says.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import otel_gym
from otel_gym.conventions import GYM_ATTRIBUTES, SCHEMA_URL
from otel_gym.dynamo_settings import AGENT_VARIABLES, REQUEST_VARIABLES
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.settings import SETTINGS
from otel_gym.store.foreign import DIALECTS, genai
from otel_gym.store.rows import COLUMNS, SCHEMA_VERSION
from otel_gym.store.schema import SCHEMA
from otel_gym.views.model_calls_export import COLUMNS as EXPORT_COLUMNS

ROOT = Path(__file__).resolve().parent.parent
NOTICE = "<!-- Made by scripts/make_docs.py: change the table in {source}, then run `make docs`. -->"


def conventions() -> str:
    rows = ((f"`{a.name}`", a.type, a.meaning, f"`{a.example}`") for a in GYM_ATTRIBUTES)
    return f"""# Attributes

{NOTICE.format(source="otel_gym/conventions.py")}

`gen_ai.*`, `openai.*`, `error.type`, `http.*` and `server.*` are those of the OpenTelemetry conventions
(schema `{SCHEMA_URL}`); none of them is invented here. What the conventions lack is `gym.*`. An attribute that is
absent is unknown; 0 is never written for unknown.

{_table(("attribute", "type", "meaning", "example"), rows)}
"""


def settings() -> str:
    rows = ((f"`{s.name}`", s.meaning, s.default, s.accepted) for s in SETTINGS)
    dynamo = (
        (", else ".join(f"`{name}`" for name in each.names), each.meaning, each.default)
        for each in (*AGENT_VARIABLES.values(), *REQUEST_VARIABLES.values())
    )
    return f"""# Settings

{NOTICE.format(source="otel_gym/settings.py")}

Environment variables, read when tracing starts. A value that is refused is said once, and the default is used; a
name that is misspelt is said once with the nearest name that is right. The standard `OTEL_*` variables keep their
meaning, `OTEL_SDK_DISABLED=true` turns everything off.

{_table(("variable", "what it does", "default", "accepted"), rows)}

## Dynamo's variables

In a traced process they write [Dynamo's trace files](dynamo.md#writing-dynamos-trace-files) too. Names, truth (`1`,
`true`, `on`, `yes`) and defaults are Dynamo's: a number that is none counts as not set, and is not said.

{_table(("variable", "what it does", "default"), dynamo)}
"""


REFERENCE = (
    "<!-- What follows is made by scripts/make_docs.py from the docstrings: change those, then run `make docs`. -->\n"
)


def python() -> str:
    """The page as it was written by hand down to the reference, which is made anew."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    by_hand, notice, _ = page.partition(REFERENCE)
    return f"{by_hand}{notice}\n" + "\n\n".join(_entries()) + "\n"


def _entries() -> Iterator[str]:
    for name in otel_gym.__all__:
        item = getattr(otel_gym, name)
        if isinstance(item, type):
            yield f"### `{name}`\n\n{_prose(item)}"
            yield from (f"#### `{name}.{member}`\n\n{_prose(value)}" for member, value in _members(item))
        elif callable(item):
            yield f"### `{name}{_signature(item)}`\n\n{_prose(item)}"


def _members(item: type) -> Iterator[tuple[str, object]]:
    for name, value in vars(item).items():
        if name.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            yield name, value
        elif inspect.isfunction(value):
            yield f"{name}{_signature(value)}", value


def _signature(function: Callable[..., object]) -> str:
    with_defaults = re.sub(r"= '([^']*)'", r'= "\1"', str(inspect.signature(function)))
    text = with_defaults.replace("'", "")
    return text.replace("(self, ", "(").replace("(self)", "()")


def _prose(item: object) -> str:
    """A docstring as Markdown: names in code, and what is aligned in columns as it stands."""
    lines: list[str] = []
    for block in (inspect.getdoc(item) or "").split("\n\n"):
        is_table = re.match(r"\w+ {2,}\S", block)
        lines += ["```text", block, "```", ""] if is_table else [block.replace("``", "`"), ""]
    return "\n".join(lines).strip()


def store() -> str:
    """The page as it is, with the columns that the code has."""
    rows = (
        (
            f"`{column.name}`",
            str(SCHEMA.field(column.name).type).replace("element: ", ""),
            column.meaning,
            f"`{column.attribute}`" if column.attribute else "",
        )
        for column in COLUMNS
    )
    page = (ROOT / "docs/store.md").read_text(encoding="utf-8")
    page = _between(page, "columns", f"\n{_table(('column', 'type', 'meaning', 'attribute'), rows)}\n")
    return _between(page, "version", SCHEMA_VERSION)


EXPORT_TYPES = {"text": "string", "json": "JSON", "count": "int64", "number": "double", "flag": "bool"}
# What the export puts before a record's fields.
EXPORT_PLACE = {
    "run_id": "The launch; null where the call names none.",
    "rollout_id": "The attempt that the call belongs to, such as 7-0-a1; unassigned where it had no rollout.",
    "execution": "Span id of the rollout span that it belongs to; null where there is none, or none for certain.",
    "superseded": "Whether another attempt or execution counts instead; true only with --all, or of a named rollout.",
}


def cli() -> str:
    """The page as it is, with the columns of `export model-calls`."""
    meanings = EXPORT_PLACE | {name: field.description or "" for name, field in ModelCallRecord.model_fields.items()}
    rows = ((f"`{name}`", EXPORT_TYPES[kind], meanings[name].removesuffix(".")) for name, kind in EXPORT_COLUMNS)
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    return _between(page, "columns", f"\n{_table(('column', 'type', 'meaning'), rows)}\n")


def foreign_spans() -> str:
    """The page as it is, with the tables of the foreign dialects."""
    conventions = _dialect("The conventions' older names", "", genai.RENAMED, genai.DERIVED, ())
    dialects = (_dialect(each.name, each.made_by, each.renamed, each.derived, each.lacks) for each in DIALECTS)
    page = (ROOT / "docs/foreign-spans.md").read_text(encoding="utf-8")
    return _between(page, "dialects", "\n" + "\n".join([*dialects, conventions]))


def _dialect(
    name: str,
    made_by: str,
    renamed: Mapping[str, tuple[str, ...]],
    derived: Iterable[tuple[str, str]],
    lacks: Iterable[str],
) -> str:
    rows = [(f"`{ours}`", ", ".join(f"`{each}`" for each in theirs)) for ours, theirs in renamed.items()]
    rows += [(ours if " " in ours else f"`{ours}`", how) for ours, how in derived]
    made = f"\nOf {made_by}.\n" if made_by else ""
    cannot = "".join(f"- {each}\n" for each in lacks)
    cannot = f"\nWhat they cannot give:\n\n{cannot}" if cannot else ""
    return f"### {name}\n{made}\n{_table(('our attribute', 'read from'), rows)}\n{cannot}"


def _between(page: str, mark: str, text: str) -> str:
    """``page`` with ``text`` between the comments ``mark`` and ``/mark``."""
    pattern = re.compile(rf"(<!-- {mark}\b[^>]*-->).*?(<!-- /{mark} -->)", re.DOTALL)
    return pattern.sub(lambda found: found[1] + text + found[2], page)


PAGES: dict[str, Callable[[], str]] = {
    "docs/conventions.md": conventions,
    "docs/settings.md": settings,
    "docs/python.md": python,
    "docs/store.md": store,
    "docs/cli.md": cli,
    "docs/foreign-spans.md": foreign_spans,
}


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def stale_pages(root: Path = ROOT) -> list[str]:
    """The pages that are not what the code says."""
    return [name for name, page in PAGES.items() if not _is_fresh(root / name, page())]


def _is_fresh(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is stale")
    stale = stale_pages()
    if parser.parse_args().check:
        for name in stale:
            print(f"{name} is not what the code says: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
