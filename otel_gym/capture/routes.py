"""What the path of a request says: the rollout that it names, and whether a model is called."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, NamedTuple

from otel_gym.id_rules import is_valid_id, refusal_of
from otel_gym.identity import split_url_prefix, strip_raw_url_prefix
from otel_gym.tracing.logs import log_once
from otel_gym.wire.dialects import DIALECTS, dialect_for_path, is_near_miss
from otel_gym.wire.exchange import DialectName

Scope = MutableMapping[str, Any]


class Route(NamedTuple):
    """What a path says. ``prefix_id`` is the id of its URL prefix as it stands there, ``path`` the one without it.

    ``refused_id`` is that id where it may not name a rollout; ``is_mounted``: the prefix stood behind the root path;
    ``is_near_miss``: a POST there is likely a model call, on a path that is not captured.
    """

    prefix_id: str | None
    refused_id: str | None
    path: str
    raw_path: bytes
    is_mounted: bool
    dialect: DialectName | None
    is_near_miss: bool


@lru_cache(maxsize=1024)  # a rollout asks for one path again and again
def route_of(path: str, root: str) -> Route:
    """Of a mounted app the prefix stands behind its root path."""
    mount = root if root and path.startswith(f"{root}/") else ""
    prefix_id, rest = split_url_prefix(path.removeprefix(mount))
    path = mount + rest if prefix_id is not None else path
    asked_for = path.removeprefix(root)
    dialect = dialect_for_path(asked_for)
    refused_id = None if prefix_id is None or is_valid_id(prefix_id) else prefix_id
    name = dialect.name if dialect else None
    return Route(prefix_id, refused_id, path, path.encode(), bool(mount), name, is_near_miss(asked_for))


def without_prefix(scope: Scope, route: Route) -> Scope:
    """A copy of the scope without the prefix; the scope itself where there is none."""
    if route.prefix_id is None:
        return scope
    raw_path = scope.get("raw_path")
    if raw_path:
        raw_path = route.raw_path if route.is_mounted else strip_raw_url_prefix(raw_path, route.raw_path)
    return {**scope, "path": route.path, "raw_path": raw_path}


_refusals_said: set[str] = set()


def say_refused(rollout_id: str) -> None:
    """The first of each kind, by its reason: clients that make one bad id make many."""
    reason = refusal_of(rollout_id)
    if reason is not None and reason not in _refusals_said:
        _refusals_said.add(reason)
        log_once(
            f"the rollout id {rollout_id[:80]!r} in a URL is refused, its calls count as without one: {reason}",
            with_traceback=False,
        )


_CAPTURED_PATHS = ", ".join(dialect.path for dialect in DIALECTS.values())


def say_near_miss(path: str) -> None:
    log_once(
        f"POST {path[:80]} looks like a model call and is not captured, as {_CAPTURED_PATHS} are; "
        "does the client's base URL lack /v1?",
        kind="a path that is not captured",
        with_traceback=False,
    )
