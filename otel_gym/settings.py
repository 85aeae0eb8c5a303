"""What the environment says: every ``OTEL_GYM_*`` variable, read once and checked.

A wrong value is said with the values that are right, and the default is used: tracing never stops
the program that it watches.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.id_rules import ID_PATTERN, LATEST, is_valid_run_id
from otel_gym.redaction import DEFAULT_RULES, RedactionRules, read_rules

logger = logging.getLogger("otel_gym")

DEFAULT_DIRECTORY = "otel_gym_store"
DEFAULT_QUEUE_BYTES = 64 * 1024 * 1024
DEFAULT_EXIT_TIMEOUT_S = 2.0
DEFAULT_SEAL_AFTER_S = 300.0
# Among OTEL_GYM_PROPAGATE_HOSTS: this machine and private networks.
PRIVATE_HOSTS = "private"

# A name, an address or a glob of one; neither a URL nor a port.
_HOST_PATTERN = re.compile(r"\[?[\w.*?:-]+\]?(?<!:)")
DEFAULT_OTLP_ATTRIBUTE_BYTES = 2000
# Receivers refuse messages above 4 MiB by default; what frames a message needs some room.
DEFAULT_OTLP_BATCH_BYTES = 4 * 1024 * 1024 - 256 * 1024

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
SWITCH_WORDS = "1, true, yes, on, or 0, false, no, off"


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: what it does, its default, and how its text is read (ValueError: refused)."""

    name: str
    meaning: str
    default: str
    read: Callable[[str], Any]
    accepted: str


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = text.strip().lower()
        if word in words:
            return word
        raise ValueError(text)

    return read


def _run_id(text: str) -> str:
    if is_valid_run_id(text):
        return text
    raise ValueError(text)


def _hosts(text: str) -> tuple[str, ...]:
    """Names and globs in lower case; none for ``none``."""
    hosts = tuple(host.strip().lower() for host in text.split(",") if host.strip())
    if not hosts or any(not _HOST_PATTERN.fullmatch(host) for host in hosts):
        raise ValueError(text)
    if "none" in hosts and len(hosts) > 1:
        raise ValueError(text)
    return () if hosts == ("none",) else hosts


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError(text)
        return number

    return read


# Below it the ids and times of one span would not fit.
_LEAST_BATCH_BYTES = 128 * 1024


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError(text)
    return number


SETTINGS: tuple[Setting, ...] = (
    Setting("OTEL_GYM", "turns tracing into the store on (1) or off (0)", "off", _switch, SWITCH_WORDS),
    Setting(
        "OTEL_GYM_DIR",
        "folder of the store; one that holds other things is refused by commands that write, and said once in traced "
        "programs, whose spans are put beside them",
        f"./{DEFAULT_DIRECTORY}",
        Path,
        "a path",
    ),
    Setting("OTEL_GYM_RUN_ID", "names the launch; new for each", "none", _run_id, f"{ID_PATTERN}; not `{LATEST}`"),
    Setting(
        "OTEL_GYM_CAPTURE_UNASSIGNED",
        "stores model calls that carry no rollout id, under the first session of their harness, else `unassigned`",
        "0 (1 in the proxy)",
        _switch,
        SWITCH_WORDS,
    ),
    Setting(
        "OTEL_GYM_CONTENT_ONCE",
        "stores what a request adds to an earlier one, and media once, in blobs/; 0: each body whole in its line",
        "1",
        _switch,
        "1 or 0",
    ),
    Setting(
        "OTEL_GYM_FSYNC",
        "when lines are forced to the disk: `never`, once a `group` of lines, `always` (each line)",
        "never",
        _one_of("never", "group", "always"),
        "never, group or always",
    ),
    Setting(
        "OTEL_GYM_DURABILITY",
        "`sync` holds the end of an answer until its span is on disk, at most 2 s; implies FSYNC=group",
        "async",
        _one_of("async", "sync"),
        "async or sync",
    ),
    Setting(
        "OTEL_GYM_FORMAT",
        "`jsonl`; or `parquet`: a process seals its own files of a rollout when its root span ends",
        "jsonl",
        _one_of("jsonl", "parquet"),
        "jsonl or parquet",
    ),
    Setting(
        "OTEL_GYM_SEAL_AFTER",
        "with `parquet`: seals a rollout whose root span ends elsewhere when it was silent for so long, in seconds",
        str(DEFAULT_SEAL_AFTER_S),
        _seconds,
        "a number of seconds >= 0",
    ),
    Setting(
        "OTEL_GYM_CONTENT",
        "bodies of model calls: `full`; `no_media` keeps hash, type and length of images, audio and files; `none`",
        "full",
        _one_of("full", "no_media", "none"),
        "full, no_media or none",
    ),
    Setting(
        "OTEL_GYM_REDACT",
        "what is replaced by `[redacted]` on top of the default rules (keys and tokens by their shape, values under "
        "names such as `api_key`, `authorization`, `password`, `cookie`): names of JSON members, headers, form fields "
        "and attributes, and `/regular expressions/`; `0` or `off` among them drops the default rules",
        "the default rules",
        read_rules,
        "names and /regular expressions/, separated by commas, such as `x-team-key,/EMP-[0-9]{6}/`",
    ),
    Setting(
        "OTEL_GYM_QUEUE_BYTES",
        "bound of what waits for the writer, and of what waits for the OTLP endpoint; of more, the writer keeps head, "
        "length and sha256, and the OTLP copy nothing; both are counted",
        str(DEFAULT_QUEUE_BYTES),
        _at_least(1),
        "a number of bytes > 0",
    ),
    Setting(
        "OTEL_GYM_PROPAGATE_HOSTS",
        "hosts that instrumented HTTP clients tell of run, rollout and span: names or globs; `private` stands for this "
        "machine and private networks, `*` for all",
        PRIVATE_HOSTS,
        _hosts,
        "hosts without scheme and port, separated by commas, such as `private,*.example.com`; or `none`",
    ),
    Setting(
        "OTEL_GYM_EXIT_TIMEOUT",
        "longest time that the end of the process waits for the writer and the OTLP endpoint together, in seconds",
        str(DEFAULT_EXIT_TIMEOUT_S),
        _seconds,
        "a number of seconds >= 0",
    ),
    Setting(
        "OTEL_GYM_OTLP_ATTRIBUTE_BYTES",
        "longest attribute of the [OTLP copy](otlp.md), in bytes of UTF-8; longer ones are cut and marked; 0: none is",
        str(DEFAULT_OTLP_ATTRIBUTE_BYTES),
        _at_least(0),
        "a number of bytes >= 0",
    ),
    Setting(
        "OTEL_GYM_OTLP_BATCH_BYTES",
        "largest message of the OTLP copy, in bytes before compression; receivers take 4 MiB unless told otherwise",
        str(DEFAULT_OTLP_BATCH_BYTES),
        _at_least(_LEAST_BATCH_BYTES),
        f"a number of bytes >= {_LEAST_BATCH_BYTES}",
    ),
    Setting(
        "OTEL_GYM_TRACE_BLOCK_SIZE",
        "tokens of a cache block, for the replay hashes of [Dynamo's trace files](dynamo.md), which need it",
        "none",
        _at_least(1),
        "a number of tokens > 0",
    ),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}

# Set by our own commands for the processes that they start, never by hand: what is wrong with the settings was said.
ANNOUNCED = "OTEL_GYM_ANNOUNCED"
INTERNAL_NAMES = frozenset({ANNOUNCED})


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective settings of this process. ``enabled`` None: the environment does not say."""

    enabled: bool | None = None
    directory: Path = Path(DEFAULT_DIRECTORY)
    run_id: str | None = None
    capture_unassigned: bool | None = None
    content: str = "full"
    content_once: bool = True
    fsync: str = "never"
    durability: str = "async"
    format: str = "jsonl"
    seal_after_s: float = DEFAULT_SEAL_AFTER_S
    redact: RedactionRules = DEFAULT_RULES
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    propagate_hosts: tuple[str, ...] = (PRIVATE_HOSTS,)
    exit_timeout_s: float = DEFAULT_EXIT_TIMEOUT_S
    otlp_attribute_bytes: int = DEFAULT_OTLP_ATTRIBUTE_BYTES
    otlp_batch_bytes: int = DEFAULT_OTLP_BATCH_BYTES
    trace_block_size: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def syncs(self) -> bool:
        """Whether what is written is forced to the disk."""
        return self.fsync != "never" or self.durability == "sync"


_FIELDS = {
    "OTEL_GYM": "enabled",
    "OTEL_GYM_DIR": "directory",
    "OTEL_GYM_RUN_ID": "run_id",
    "OTEL_GYM_CAPTURE_UNASSIGNED": "capture_unassigned",
    "OTEL_GYM_CONTENT": "content",
    "OTEL_GYM_CONTENT_ONCE": "content_once",
    "OTEL_GYM_FSYNC": "fsync",
    "OTEL_GYM_DURABILITY": "durability",
    "OTEL_GYM_FORMAT": "format",
    "OTEL_GYM_SEAL_AFTER": "seal_after_s",
    "OTEL_GYM_REDACT": "redact",
    "OTEL_GYM_QUEUE_BYTES": "queue_bytes",
    "OTEL_GYM_PROPAGATE_HOSTS": "propagate_hosts",
    "OTEL_GYM_EXIT_TIMEOUT": "exit_timeout_s",
    "OTEL_GYM_OTLP_ATTRIBUTE_BYTES": "otlp_attribute_bytes",
    "OTEL_GYM_OTLP_BATCH_BYTES": "otlp_batch_bytes",
    "OTEL_GYM_TRACE_BLOCK_SIZE": "trace_block_size",
}


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from ``environ`` (default: the process's own), with what is wrong in ``problems``."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    problems = [
        f"{name} is no setting; did you mean {nearest}?" if nearest else f"{name} is no setting of otel_gym"
        for name, nearest in unknown_settings(environ).items()
    ]
    for name, field_name in _FIELDS.items():
        text = environ.get(name)
        if text is None or text == "":
            continue
        setting = _BY_NAME[name]
        try:
            values[field_name] = setting.read(text)
        except ValueError:
            problems.append(f"{name}={text!r} is refused, {setting.default} is used: give {setting.accepted}")
    if values.get("enabled") and sdk_is_disabled(environ):
        values["enabled"] = False
        problems.append("OTEL_SDK_DISABLED=true: OTEL_GYM is off")
    return Settings(**values, problems=tuple(problems))


def unknown_settings(environ: Mapping[str, str]) -> dict[str, str | None]:
    """``OTEL_GYM_*`` names that are none of ours → the nearest that is (None: none is near).

    Other prefixes are not ours to judge and stay silent.
    """
    unknown = [
        name for name in environ if name.startswith("OTEL_GYM") and name not in _BY_NAME and name not in INTERNAL_NAMES
    ]
    return {name: next(iter(difflib.get_close_matches(name, _BY_NAME, 1, 0.8)), None) for name in unknown}


def captures_messages(environ: Mapping[str, str]) -> bool:
    """Whether the conventions' content attributes are asked for, by the variable that their libraries read."""
    mode = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().upper()
    return mode in ("SPAN_ONLY", "SPAN_AND_EVENT")


def sdk_is_disabled(environ: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own switch turns tracing off."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


_said: set[str] = set()


def say_once(problem: str) -> None:
    """Logs a problem the first time that this process meets it, and says it on stderr wherever its logs go."""
    if problem in _said:
        return
    _said.add(problem)
    logger.warning("otel_gym: %s", problem)
    if not _logs_to_stderr():
        with suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            print(f"otel_gym: {problem}", file=sys.stderr)


def said_settings() -> Settings:
    """Those of this process; what is wrong with them is said once, unless the command that began it has said it."""
    settings = read_settings()
    if ANNOUNCED not in os.environ:
        for problem in settings.problems:
            say_once(problem)
    return settings


def _logs_to_stderr() -> bool:
    """Whether a warning of ours is seen there already."""
    if not logger.isEnabledFor(logging.WARNING):
        return False
    if not logger.hasHandlers():
        return logging.lastResort is not None
    node: logging.Logger | None = logger
    while node is not None:
        if any(_is_stderr(handler) for handler in node.handlers):
            return True
        node = node.parent if node.propagate else None
    return False


def _is_stderr(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    return handler.level <= logging.WARNING and stream is not None and stream in (sys.stderr, sys.__stderr__)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting as it holds for this process; ``is_set``: the environment says so, else it is the default."""

    name: str
    value: str
    is_set: bool


def effective_settings(environ: Mapping[str, str] | None = None) -> list[EffectiveSetting]:
    """Every setting with its value. What is set but refused has its default."""
    environ = os.environ if environ is None else environ
    settings, defaults = read_settings(environ), Settings()
    found = []
    for name, field_name in _FIELDS.items():
        value = getattr(settings, field_name)
        is_set = value != getattr(defaults, field_name)
        found.append(EffectiveSetting(name, _shown(value) if is_set else _BY_NAME[name].default, is_set))
    return found


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return str(int(value)) if isinstance(value, bool) else str(value)
