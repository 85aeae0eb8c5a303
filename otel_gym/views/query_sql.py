"""The SQL of ``views.query``. What it needs beside the views stands in a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from otel_gym.conventions import (
    BODY_BYTES,
    REQUEST_BODY,
    RESPONSE_BODY,
    REWARD_SPAN,
    REWARD_TIME,
    ROLLOUT_SPAN,
    SCOPE_NAME,
    TIME_KNOWN,
)

SCHEMA = "otel_gym"
# What the sealed form says of any later time, of which there is none in a trace.
LAST_NS = 2**63 - 1

# --- spans

_IDS = "rollout_id, trace_id, span_id"


def _has(name: str) -> str:
    return f"""attributes LIKE '%"{name}":%'"""


# Ended, nothing cut off, bodies at hand: as ``store.reader`` ranks them.
IDS_AND_RANK = f"""{_IDS}, end_ns IS NOT NULL AS ended,
    NOT coalesce(dropped_attributes IS NOT NULL OR {_has(REQUEST_BODY + BODY_BYTES)}
                 OR {_has(RESPONSE_BODY + BODY_BYTES)}, false) AS whole,
    (request_body IS NOT NULL)::INT + (response_body IS NOT NULL)::INT AS bodies"""


def repeated(scans: Sequence[str]) -> str:
    """The ids that stand in several scans, or in one of what is not sealed more than once."""
    made = " UNION ALL ".join(scan.replace("*", _IDS, 1) for scan in scans[:-1]) or None
    last = scans[-1].replace("*", _IDS, 1)
    everything = last if made is None else f"{made} UNION ALL {last}"
    known = last if made is None else made
    return f"""CREATE TABLE {SCHEMA}.repeated AS SELECT {_IDS} FROM ({everything})
        WHERE rollout_id IN (SELECT rollout_id FROM ({known})) GROUP BY ALL HAVING count(*) > 1"""


def losers(numbered: Sequence[str]) -> str:
    rows = " UNION ALL ".join(f"SELECT * FROM ({each}) SEMI JOIN {SCHEMA}.repeated USING ({_IDS})" for each in numbered)
    return f"""CREATE TABLE {SCHEMA}.ranked AS SELECT {_IDS}, scan, row_number() OVER (
        PARTITION BY {_IDS} ORDER BY ended DESC, whole DESC, bodies DESC, scan DESC) AS place FROM ({rows})"""


def losers_of(scan: int) -> str:
    return f"""CREATE TABLE {SCHEMA}.losers_{scan} AS SELECT {_IDS} FROM {SCHEMA}.ranked
        WHERE scan = {scan} AND place > 1"""


# --- spans as the readers read them

_INFERENCE = "('chat', 'generate_content', 'text_completion')"
_OTHERS = f"FROM spans WHERE scope IS DISTINCT FROM '{SCOPE_NAME}'"
_SHAPE = """scope, name, operation, status, events IS NOT NULL AS has_events,
    coalesce(json_keys(attributes)::VARCHAR, '') AS keys"""

# Of the spans of others one of each shape, by whose reading it is told how the rest is read.
SHAPES = f"SELECT {_SHAPE}, min((trace_id, span_id)) AS first {_OTHERS} GROUP BY ALL"


def shape_rows(columns: Sequence[str]) -> str:
    return f"""SELECT {", ".join(columns)} FROM spans
        WHERE (trace_id, span_id) IN (SELECT first FROM {SCHEMA}.shapes) AND scope IS DISTINCT FROM '{SCOPE_NAME}'"""


# Rollouts of which the readers' own code has to say what their spans and calls are: with spans of others that it
# changes, or with calls that were not captured, where several spans may tell of one.
TOLD = f"""CREATE TABLE {SCHEMA}.told AS
    SELECT DISTINCT rollout_id FROM (SELECT rollout_id, {_SHAPE} {_OTHERS}) AS s
    SEMI JOIN {SCHEMA}.changed AS c ON s.scope IS NOT DISTINCT FROM c.scope AND s.name = c.name
        AND s.operation IS NOT DISTINCT FROM c.operation AND s.status = c.status
        AND s.has_events = c.has_events AND s.keys = c.keys
    UNION
    SELECT rollout_id FROM spans WHERE operation IN {_INFERENCE} GROUP BY rollout_id
    HAVING bool_or(model_call_id IS NULL) AND (
        bool_or(model_call_id IS NOT NULL) OR count(response_id) > count(DISTINCT response_id)
        OR bool_or(response_id IS NULL AND input_tokens IS NULL AND output_tokens IS NULL
                   AND cache_read_tokens IS NULL AND cache_write_tokens IS NULL AND reasoning_tokens IS NULL))
    UNION
    SELECT DISTINCT rollout_id FROM spans AS s
    SEMI JOIN (SELECT rollout_id, trace_id, parent_span_id AS span_id FROM spans WHERE parent_span_id IS NOT NULL)
    USING ({_IDS}) WHERE operation IN {_INFERENCE} AND model_call_id IS NULL"""

CHANGED = f"INSERT INTO {SCHEMA}.changed FROM {SCHEMA}.shapes WHERE first = row(?::VARCHAR, ?::VARCHAR)"
NOTHING_CHANGED = f"CREATE TABLE {SCHEMA}.changed AS FROM {SCHEMA}.shapes WHERE false"


def told_rows(columns: Sequence[str]) -> str:
    return f"""SELECT {", ".join(columns)} FROM spans SEMI JOIN {SCHEMA}.told USING (rollout_id)
        ORDER BY rollout_id, start_ns, span_id"""


def gym_spans(told: str | None) -> str:
    """``told``: a scan of the spans of those rollouts, as they are read."""
    rest = f"SELECT * FROM spans ANTI JOIN {SCHEMA}.told USING (rollout_id)"
    either = "SELECT * FROM spans" if told is None else f"{rest} UNION ALL {told}"
    return f"CREATE VIEW {SCHEMA}.gym_spans AS {either}"


# --- which spans count

PAIRS = f"SELECT run_id, rollout_id FROM spans ANTI JOIN {SCHEMA}.told USING (rollout_id) GROUP BY ALL"

MARKS = f"""SELECT rollout_id, run_id, trace_id, span_id, parent_span_id, name, start_ns, end_ns, status, reward
    FROM spans ANTI JOIN {SCHEMA}.told USING (rollout_id)
    WHERE name IN ('{ROLLOUT_SPAN}', '{REWARD_SPAN}') ORDER BY rollout_id, start_ns, span_id"""

HARD_SPANS = f"""SELECT rollout_id, run_id, trace_id, span_id, parent_span_id, name, start_ns, end_ns, status, reward
    FROM spans SEMI JOIN {SCHEMA}.hard USING (rollout_id) ORDER BY rollout_id, start_ns, span_id"""

REWARD_TIMES = f"""SELECT trace_id, span_id, try_cast(json_extract_string(attributes, '$."{REWARD_TIME}"') AS BIGINT)
    FROM spans SEMI JOIN {SCHEMA}.hard USING (rollout_id)
    WHERE name = '{ROLLOUT_SPAN}' AND {_has(REWARD_TIME)}"""


def placed_spans(has_hard: bool) -> str:
    """Each span with its run, its execution, and whether it is of what does not count."""
    easy = f"""SELECT p.run_id, p.execution, NOT p.counts AS superseded, s.* EXCLUDE (run_id)
        FROM {SCHEMA}.gym_spans AS s JOIN {SCHEMA}.places AS p
        ON p.rollout_id = s.rollout_id AND coalesce(p.named_run, '') = coalesce(s.run_id, '')"""
    hard = f"""SELECT p.run_id, p.execution, NOT p.counts AS superseded, s.* EXCLUDE (run_id)
        FROM {SCHEMA}.gym_spans AS s JOIN {SCHEMA}.placed AS p USING ({_IDS})"""
    return f"CREATE VIEW {SCHEMA}.placed_spans AS {easy}" + (f" UNION ALL {hard}" if has_hard else "")


# --- captured calls above others: a call that was captured twice on its way is that of the inner capture

# Those with spans below them; nearly always there are none.
ABOVE = f"""CREATE TABLE {SCHEMA}.above AS SELECT {_IDS} FROM spans ANTI JOIN {SCHEMA}.told USING (rollout_id)
    SEMI JOIN (SELECT rollout_id, trace_id, parent_span_id AS span_id FROM spans WHERE parent_span_id IS NOT NULL)
    USING ({_IDS}) WHERE operation IN {_INFERENCE} AND model_call_id IS NOT NULL"""

LINKS = f"""CREATE TABLE {SCHEMA}.links AS
    SELECT {_IDS}, parent_span_id, model_call_id IS NOT NULL AS captured FROM spans
    WHERE parent_span_id IS NOT NULL AND trace_id IN (SELECT trace_id FROM {SCHEMA}.above)"""

ABOVE_CAPTURED = f"""INSERT INTO {SCHEMA}.no_calls
    WITH RECURSIVE below AS (
        SELECT {_IDS}, span_id AS top, false AS captured FROM {SCHEMA}.above
        UNION
        SELECT l.rollout_id, l.trace_id, l.span_id, b.top, l.captured FROM {SCHEMA}.links AS l
        JOIN below AS b ON l.rollout_id = b.rollout_id AND l.trace_id = b.trace_id AND l.parent_span_id = b.span_id
    )
    SELECT DISTINCT rollout_id, trace_id, top FROM below WHERE captured"""

# --- the views

# Spans of which their source gives no time: what stands there is that of the one before.
TIMELESS = f"""CREATE TABLE {SCHEMA}.timeless AS
    SELECT DISTINCT {_IDS} FROM {SCHEMA}.gym_spans WHERE attributes LIKE '%"{TIME_KNOWN}":false%'"""

# Runs of which tools were traced: there a rollout without a run of a tool had none, elsewhere nobody can say.
TOOL_RUNS = f"""CREATE TABLE {SCHEMA}.tool_runs AS
    SELECT DISTINCT coalesce(run_id, '') AS run_id FROM {SCHEMA}.placed_spans WHERE operation = 'execute_tool'"""

_PLACE = ("run_id", "rollout_id", "execution", "superseded")
_SPAN = ("trace_id", "span_id", "parent_span_id", "service", "step_index", "agent", "conversation_id")
_TIMES = ("start_ns", "end_ns", "start_time", "end_time", "duration_ms")
_END = ("status", "status_message", "error_type")

MODEL_CALLS = (
    *_PLACE,
    "model_call_id",
    "provider",
    "request_model",
    "response_model",
    "response_id",
    "dialect",
    "streamed",
    "http_status",
    "finish_reasons",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "time_to_first_chunk_s",
    *_TIMES,
    *_END,
    "error_category",
    *_SPAN,
    "request_body",
    "response_body",
    "system_instructions",
    "input_messages",
    "output_messages",
    "tool_definitions",
    "prompt_token_ids",
    "generation_token_ids",
    "generation_log_probs",
    "attributes",
)
TOOLS = (
    *_PLACE,
    "tool",
    "tool_call_id",
    *_TIMES,
    *_END,
    *_SPAN,
    "tool_arguments",
    "tool_result",
    "attributes",
)
ROLLOUTS = (
    *_PLACE,
    "task_index",
    "rollout_index",
    "attempt",
    "reward",
    "status",
    "calls",
    "failed_calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "tool_calls",
    "failed_tools",
    "spans",
    *_TIMES,
)

# Beside what each is made from.
_KNOWN_TIMES = {"start_ns": "start_ns", "end_ns": "end_ns", "start_time": "start_ns", "end_time": "end_ns"}
_DURATION = "(end_ns - start_ns) / 1e6"
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def views(every: bool) -> Iterator[str]:
    counting = "" if every else "AND NOT superseded"
    known = ", ".join(
        f"CASE WHEN t.span_id IS NULL AND s.{of} < {LAST_NS} THEN s.{name} END AS {name}"
        for name, of in _KNOWN_TIMES.items()
    )
    calls = f"operation IN {_INFERENCE} AND NOT is_no_call {counting}"
    yield f"""CREATE VIEW {SCHEMA}.told_spans AS
        SELECT s.* REPLACE ({known}), n.span_id IS NOT NULL AS is_no_call,
            s.end_ns IS NULL AS is_open FROM {SCHEMA}.placed_spans AS s
        LEFT JOIN (SELECT DISTINCT * FROM {SCHEMA}.no_calls) AS n USING ({_IDS})
        LEFT JOIN {SCHEMA}.timeless AS t USING ({_IDS})"""
    yield f"CREATE VIEW model_calls AS SELECT {_listed(MODEL_CALLS)} FROM {SCHEMA}.told_spans WHERE {calls}"
    yield f"""CREATE VIEW tools AS SELECT {_listed(TOOLS)} FROM {SCHEMA}.told_spans
        WHERE operation = 'execute_tool' {counting}"""
    yield f"CREATE VIEW rollouts AS {_rollouts(every)}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"{_DURATION} AS duration_ms" if name == "duration_ms" else name for name in columns)


def _rollouts(every: bool) -> str:
    call = f"operation IN {_INFERENCE} AND NOT is_no_call"
    tokens = ", ".join(f"sum({name}) FILTER ({call})::BIGINT AS {name}" for name in _TOKENS)
    counting = "" if every else "WHERE NOT superseded AND rollout_id <> 'unassigned'"
    failed = "(status = 'ERROR' OR error_type IS NOT NULL)"
    sums = f"""SELECT run_id, rollout_id, execution, bool_and(superseded) AS superseded, count(*) AS spans,
            count(*) FILTER ({call}) AS calls, count(*) FILTER ({call} AND {failed}) AS failed_calls, {tokens},
            count(*) FILTER (operation = 'execute_tool') AS tool_runs,
            count(*) FILTER (operation = 'execute_tool' AND {failed}) AS failed_runs,
            min(start_ns) AS first_ns, max(end_ns) AS last_ns, bool_or(is_open) AS is_open,
            bool_or(span_id = execution AND start_ns IS NOT NULL) AS is_timed
        FROM {SCHEMA}.told_spans {counting} GROUP BY run_id, rollout_id, execution"""
    return f"""SELECT {_listed(ROLLOUTS)} FROM (
        SELECT s.*, CASE WHEN r.run_id IS NOT NULL THEN s.tool_runs END AS tool_calls,
            CASE WHEN r.run_id IS NOT NULL THEN s.failed_runs END AS failed_tools,
            e.task_index, e.rollout_index, e.attempt, e.reward,
            coalesce(e.root_status, CASE WHEN s.is_open THEN 'unfinished' END) AS status,
            CASE WHEN e.execution IS NULL THEN s.first_ns WHEN s.is_timed THEN e.root_start_ns END AS start_ns,
            CASE WHEN e.execution IS NULL THEN s.last_ns WHEN s.is_timed THEN e.root_end_ns END AS end_ns,
            make_timestamptz(start_ns // 1000) AS start_time, make_timestamptz(end_ns // 1000) AS end_time
        FROM ({sums}) AS s LEFT JOIN {SCHEMA}.executions AS e
        ON e.rollout_id = s.rollout_id AND coalesce(e.run_id, '') = coalesce(s.run_id, '')
           AND coalesce(e.execution, '') = coalesce(s.execution, '')
        LEFT JOIN {SCHEMA}.tool_runs AS r ON r.run_id = coalesce(s.run_id, ''))"""
