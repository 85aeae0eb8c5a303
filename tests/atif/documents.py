"""ATIF documents for tests: small ones by hand, and any valid one by hypothesis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "atif"
VALID = sorted((FIXTURES / "valid").glob("*.json"))

Json = dict[str, Any]


def document(*steps: Json, **fields: Any) -> Json:
    """A document with these steps, numbered."""
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "toy", "version": "1"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        **fields,
    }


def user(message: Any = "go", **fields: Any) -> Json:
    return {"source": "user", "message": message, **fields}


def agent(message: Any = "ok", **fields: Any) -> Json:
    return {"source": "agent", "message": message, **fields}


def call(call_id: str, name: str = "ls", **arguments: Any) -> Json:
    return {"tool_call_id": call_id, "function_name": name, "arguments": arguments}


def results(*found: Json) -> Json:
    return {"results": list(found)}


def read(path: Path) -> Json:
    value: Json = json.loads(path.read_text())
    return value


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_words = st.sampled_from(["m-1", "ls", "a", "sub", "café", "x.y", "0"])
_counts = st.integers(0, 2**53)
_numbers = st.integers(-5, 5) | st.floats(-1e6, 1e6)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
_extras = st.dictionaries(st.sampled_from(["reward", "note", "context_management", "error", "k"]), _json, max_size=2)


def _objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Json]:
    """Any of the optional fields may be absent, or null."""
    return st.fixed_dictionaries(required, optional={name: value | st.none() for name, value in optional.items()})


_images = st.fixed_dictionaries({"media_type": st.just("image/png"), "path": _words.filter(bool)})
_audio = st.fixed_dictionaries(
    {"media_type": st.sampled_from(["audio/wav", "audio/mp3"]), "path": _words},
    optional={"duration_sec": st.floats(0, 100)},
)
_parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"source": st.none()}),
    st.fixed_dictionaries({"type": st.just("image"), "source": _images}, optional={"text": st.none()}),
    st.fixed_dictionaries({"type": st.just("audio"), "source": _audio}),
)
_contents = texts | st.lists(_parts, max_size=3)
_refs = st.lists(
    st.fixed_dictionaries(
        {"trajectory_path": _words}, optional={"trajectory_id": _words | st.none(), "extra": _extras | st.none()}
    ),
    max_size=2,
)
_metrics = _objects(
    {},
    {
        "prompt_tokens": _counts,
        "completion_tokens": _counts,
        "cached_tokens": _counts,
        "cost_usd": st.integers(0, 3) | st.floats(0, 100),
        "prompt_token_ids": st.lists(st.integers(0, 9), max_size=3),
        "completion_token_ids": st.lists(st.integers(0, 9), max_size=3),
        "logprobs": st.lists(_numbers, max_size=3),
        "extra": _extras | st.just({"reasoning_tokens": 3, "cache_creation_input_tokens": 2}),
    },
)
_calls = _objects(
    {"tool_call_id": _words, "function_name": texts, "arguments": st.dictionaries(texts, _json, max_size=2)},
    {"extra": _extras},
)
_tools = _extras | st.fixed_dictionaries(
    {"type": st.just("function"), "function": st.fixed_dictionaries({"name": texts}, optional={"strict": st.none()})}
)
_shared = {
    "timestamp": st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T05:04:05.123456+02:00", "2026-01-02T03:04:05"]),
    "is_copied_context": st.booleans(),
    "extra": _extras,
}


def _observations(call_ids: list[str]) -> st.SearchStrategy[Json]:
    ids = st.sampled_from([*call_ids, "unknown"])
    one = _objects(
        {}, {"source_call_id": ids, "content": _contents, "subagent_trajectory_ref": _refs, "extra": _extras}
    )
    return st.fixed_dictionaries({"results": st.lists(one, max_size=3)})


@st.composite
def _steps(draw: st.DrawFn) -> Json:
    source = draw(st.sampled_from(["user", "system", "agent", "agent", "agent"]))
    step = draw(_objects({"source": st.just(source), "message": _contents}, _shared))
    calls: list[Json] = []
    if source == "agent":
        counted = draw(st.sampled_from([0, 1, 3, None]))
        told = _objects(
            {}, {"model_name": texts, "reasoning_effort": texts | _numbers, "tool_calls": st.lists(_calls, max_size=3)}
        )
        step |= draw(told)
        calls = step.get("tool_calls") or []
        if counted != 0:
            step |= draw(_objects({}, {"reasoning_content": texts, "metrics": _metrics}))
        step |= {} if counted is None else {"llm_call_count": counted}
    if draw(st.booleans()):
        step["observation"] = draw(_observations([each["tool_call_id"] for each in calls]))
    return step


@st.composite
def valid_documents(draw: st.DrawFn, depth: int = 1) -> Json:
    steps = draw(st.lists(_steps(), min_size=1, max_size=5))
    made = draw(
        _objects(
            {
                "schema_version": st.sampled_from(["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.7", "ATIF-v1.8"]),
                "agent": _objects(
                    {"name": texts, "version": texts},
                    {"model_name": texts, "tool_definitions": st.lists(_tools, max_size=2), "extra": _extras},
                ),
                "steps": st.just([{"step_id": number, **step} for number, step in enumerate(steps, 1)]),
            },
            {
                "session_id": texts,
                "trajectory_id": texts,
                "notes": texts,
                "continued_trajectory_ref": texts,
                "final_metrics": _objects(
                    {},
                    {
                        "total_prompt_tokens": _counts,
                        "total_completion_tokens": _counts,
                        "total_cached_tokens": _counts,
                        "total_cost_usd": st.floats(0, 9),
                        "total_steps": _counts,
                        "extra": _extras,
                    },
                ),
                "extra": _extras,
            },
        )
    )
    if depth:
        subagents = draw(st.lists(valid_documents(depth - 1), max_size=2) | st.none())
        if subagents is not None:
            made["subagent_trajectories"] = [{**each, "trajectory_id": f"sub{at}"} for at, each in enumerate(subagents)]
    return made
