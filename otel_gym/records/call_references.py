"""An agent's references to model calls → the calls themselves: exact keys alone, everything else a named gap.

A reference names a call by its ``model_call_id``, or by the model server and the ``response_id``. What names none or
several, and calls that several owners claim or none does, are told and never guessed; the codes are NeMo Gym's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNMATCHED = "model_call_reference_unmatched"
AMBIGUOUS = "model_call_reference_ambiguous"
CONFLICT = "model_call_reference_conflict"
UNOWNED = "model_call_ownership_unavailable"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallReference:
    """``owner``: the invocation or step whose call it is."""

    owner: Any
    model_call_id: str | None = None
    model_ref: Any = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReferenceGap:
    """``detail``: the id by which the call is named. ``owner`` None: a call that nobody claims."""

    code: str
    owner: Any
    detail: str | None


@dataclass(slots=True)
class JoinedReferences:
    """``joined``: each reference that is sure, with the call; ``unowned``: calls that none of them is of."""

    joined: list[tuple[CallReference, Json]] = field(default_factory=list)
    gaps: list[ReferenceGap] = field(default_factory=list)
    unowned: list[Json] = field(default_factory=list)


def join_references(references: Iterable[CallReference], calls: Sequence[Json]) -> JoinedReferences:
    """``calls`` have the fields of a ModelCallRecord. A call is one owner's, who may name it more than once."""
    found = JoinedReferences()
    claims: dict[int, list[tuple[CallReference, Json]]] = {}
    for reference in references:
        matching = [call for call in calls if _names(reference, call)]
        if len(matching) == 1:
            claims.setdefault(id(matching[0]), []).append((reference, matching[0]))
        else:
            code = AMBIGUOUS if matching else UNMATCHED
            found.gaps.append(ReferenceGap(code, reference.owner, reference.model_call_id or reference.response_id))
    owned = set()
    for call_id, claimed in claims.items():
        if len({repr(reference.owner) for reference, _ in claimed}) == 1:
            found.joined.append(claimed[0])
            owned.add(call_id)
        else:
            found.gaps += [ReferenceGap(CONFLICT, each.owner, call.get("model_call_id")) for each, call in claimed]
    found.unowned = [call for call in calls if id(call) not in owned]
    found.gaps += [ReferenceGap(UNOWNED, None, call.get("model_call_id")) for call in found.unowned]
    return found


def _names(reference: CallReference, call: Json) -> bool:
    """All that the reference says holds of the call, and that is enough to name one."""
    if reference.model_call_id is not None:
        if reference.model_call_id != call.get("model_call_id"):
            return False
        return reference.model_ref in (None, call.get("model_ref")) and reference.response_id in (
            None,
            call.get("response_id"),
        )
    if reference.response_id is None or reference.response_id != call.get("response_id"):
        return False
    return bool(reference.model_ref == call.get("model_ref"))


def references_of_observations(observations: Any) -> list[CallReference]:
    """Those of a rollout row's ``ng_agent_observations``: of each invocation the calls that it names."""
    records = observations.get("records") if isinstance(observations, dict) else None
    found = []
    for record in records if isinstance(records, list) else ():
        calls = record.get("model_calls") if isinstance(record, dict) else None
        owner = record.get("invocation_id") if isinstance(record, dict) else None
        for named in calls if isinstance(calls, list) and isinstance(owner, str) else ():
            if isinstance(named, dict):
                model_call_id, response_id = (_text(named.get(key)) for key in ("model_call_id", "response_id"))
                found.append(CallReference(owner, model_call_id, named.get("model_ref"), response_id))
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
