"""``otel-gym show``: the span tree of one rollout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from otel_gym import conventions as names
from otel_gym.cli.common import AsJson, Directory, Run, console, early_leaving, open_store, print_json, reader
from otel_gym.cli.formats import count, milliseconds, number, utc
from otel_gym.content import printable, safe_json
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.span import KIND_SERVER, STATUS_ERROR, StoredSpan
from otel_gym.views.agent_tree import OPERATION, is_agent, is_step, is_tool
from otel_gym.views.selection import find_rollout
from otel_gym.views.span_tree import SpanNode, grouped_by_agent, span_tree
from otel_gym.views.summary import is_streamed

ARGUMENTS_SHOWN = 60
BAR_WIDTH = 32
BAR_STYLES = {"chat": "cyan", "execute_tool": "magenta", "invoke_agent": "green"}


@reader
def show(
    rollout: Annotated[
        str, typer.Argument(metavar="[RUN/]ROLLOUT", help="As `otel-gym ls` lists it.", show_default=False)
    ],
    directory: Directory = None,
    run: Run = None,
    json: AsJson = False,
) -> Store:
    """Show the spans of one rollout as a tree: times from its start, tokens, tool calls, errors.

    A call that reached the model server by URL prefix alone has no parent span; it stands under the rollout that was
    running when it came. Of several executions under one id the newest finished one counts; spans of the others, and of
    none for certain, are marked. A span that never ended is `unfinished`, with what was known when it began.

    \b
    Example:
        otel-gym show 2-0
        otel-gym show 20261130T022338Z-9f3a/2-0 --json
    """
    store = open_store(directory)
    found = find_rollout(store, rollout, run)
    top = span_tree(found)
    with early_leaving():
        if json:
            print_json(_row(node, depth) for node, depth in _walk(top, 0))
        elif any(is_agent(span) or is_step(span) for span in found.spans):
            console().print(timeline(found, grouped_by_agent(top, found.spans)))
        else:
            console().print(rollout_tree(found, grouped_by_agent(top, found.spans)))
    return store


def rollout_tree(rollout: RolloutSpans, top: list[SpanNode]) -> Tree:
    start_ns = rollout.spans[0].start_ns
    tree = Tree(Text.assemble((printable(rollout.address), "bold"), f"  {utc(start_ns / 10**9)}"), guide_style="dim")
    for node in top:
        _grow(tree, node, start_ns)
    return tree


def timeline(rollout: RolloutSpans, top: list[SpanNode]) -> Table:
    """The same tree, and beside each span when it ran: bars that stand over each other ran at the same time."""
    spans = rollout.spans
    start_ns, end_ns = spans[0].start_ns, max(span.end_ns or span.start_ns for span in spans)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(" " * BAR_WIDTH, Text.assemble((printable(rollout.address), "bold"), f"  {utc(start_ns / 10**9)}"))
    for node, guides in _with_guides(top, ""):
        bar = _bar(node.span, start_ns, end_ns)
        grid.add_row(bar, Text.assemble((guides, "dim"), _label(node, start_ns)))
    return grid


def _with_guides(nodes: list[SpanNode], above: str) -> Iterator[tuple[SpanNode, str]]:
    ordered = sorted(nodes, key=_order)
    for node in ordered:
        is_last = node is ordered[-1]
        yield node, above + ("└── " if is_last else "├── ")
        yield from _with_guides(node.children, above + ("    " if is_last else "│   "))


def _order(node: SpanNode) -> tuple[int, int]:
    """By time, and where a source gives none by the place in it."""
    index = node.span.attributes.get(names.SOURCE_INDEX)
    return node.span.start_ns, index if type(index) is int else 0


def _bar(span: StoredSpan, start_ns: int, end_ns: int) -> Text:
    """Where in the rollout's time it ran; one that never ended runs out in dots."""
    per_cell = max(1, end_ns - start_ns) / BAR_WIDTH
    begin = min(BAR_WIDTH - 1, int((span.start_ns - start_ns) / per_cell))
    end = BAR_WIDTH if span.end_ns is None else max(begin + 1, round((span.end_ns - start_ns) / per_cell))
    cells = ("·" if span.end_ns is None else "━") * (min(end, BAR_WIDTH) - begin)
    style = "red" if span.status == STATUS_ERROR else BAR_STYLES.get(str(span.attributes.get(OPERATION)), "dim")
    return Text.assemble(" " * begin, (cells, style), " " * (BAR_WIDTH - begin - len(cells)))


def _grow(tree: Tree, node: SpanNode, start_ns: int) -> None:
    branch = tree.add(_label(node, start_ns))
    for child in sorted(node.children, key=_order):
        _grow(branch, child, start_ns)


def _label(node: SpanNode, start_ns: int) -> Text:
    span = node.span
    duration = None if span.end_ns is None else (span.end_ns - span.start_ns) / 10**6
    took = "unfinished" if duration is None else milliseconds(duration)
    began = milliseconds((span.start_ns - start_ns) / 10**6)
    label = Text.assemble(
        (printable(_named(node)), "cyan"), f"  {began if began.startswith('-') else '+' + began}  {took}"
    )
    if not node.counts:
        label.append("  does not count", "yellow")
    if node.clock_skew:
        label.append("  starts before its parent: clocks differ", "yellow")
    if node.reward is not None:
        label.append(f"  reward {number(node.reward)}", "green")
    if is_tool(span):
        arguments = span.attributes.get("gen_ai.tool.call.arguments")
        label.append(printable(f"  {_short(str(arguments))}") if arguments is not None else "", "magenta")
    if node.record is not None:
        _append_call(label, node.record, is_streamed(span))
    error = span.attributes.get("error.type")
    if span.status == STATUS_ERROR or error:
        said = f"  {error or 'error'}{': ' + span.status_message if span.status_message else ''}"
        label.append(printable(said), "red")
    return label


def _named(node: SpanNode) -> str:
    """A SERVER span that is named by its method alone, with the path that was asked for; an open call with its model,
    by which it is named at its end."""
    span, record = node.span, node.record
    if is_step(span) and names.STEP_INDEX in span.attributes:
        return f"{span.name} {span.attributes[names.STEP_INDEX]}"
    if span.end_ns is None and record is not None and record.model is not None and record.model not in span.name:
        return f"{span.name} {record.model}"
    path = span.attributes.get("url.path") or span.attributes.get("http.target")
    is_bare = span.kind == KIND_SERVER and "/" not in span.name
    return f"{span.name} {path}" if is_bare and isinstance(path, str) else span.name


def _append_call(label: Text, record: ModelCallRecord, streamed: bool) -> None:
    if record.tokens_in is not None or record.tokens_out is not None:
        cached = f" ({count(record.cached_tokens)} cached)" if record.cached_tokens else ""
        label.append(f"  {count(record.tokens_in)}{cached} → {count(record.tokens_out)} tokens")
    if streamed and record.latency_ttft_ms is not None:
        label.append(f"  first token {milliseconds(record.latency_ttft_ms)}", "dim")
    for call in record.tool_calls or ():
        label.append(printable(f"  ⚒ {call.name}({_short(safe_json(call.arguments))})"), "magenta")
    if record.error_category is not None:
        label.append(printable(f"  {record.error_category}"), "red")


def _short(text: str) -> str:
    return text if len(text) <= ARGUMENTS_SHOWN else text[: ARGUMENTS_SHOWN - 1] + "…"


def _walk(nodes: list[SpanNode], depth: int) -> Iterator[tuple[SpanNode, int]]:
    for node in sorted(nodes, key=_order):
        yield node, depth
        yield from _walk(node.children, depth + 1)


def _row(node: SpanNode, depth: int) -> dict[str, Any]:
    """A span; of a model call with its figures, its bodies are left to `export model-calls`."""
    span, record = node.span, node.record
    row: dict[str, Any] = {
        "depth": depth,
        "name": span.name,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "unfinished": span.end_ns is None,
        "counts": node.counts,
        "clock_skew": node.clock_skew,
        "status": {0: "unset", 1: "ok", 2: "error"}.get(span.status, "unset"),
        "attributes": {name: value for name, value in span.attributes.items() if not name.endswith(".body")},
    }
    if record is not None:
        calls = record.tool_calls
        row["tool_calls"] = None if calls is None else [dict(call) for call in calls]
    return row
