"""Takes secrets out of what is recorded, before it is written or sent.

Works on the text itself, whatever it is: JSON, JSON inside JSON strings (escaped any number of times), server-sent
events, form text, headers, a shell's output. Only the secret is replaced, by ``[redacted]``: JSON stays JSON, and all
else stays as it was, byte for byte.

What it does not know: a secret without a shape or a name; one that is split over two events of a stream (the text that
is put together from them is cleaned, the body as it came is not); one inside base64 or compressed data.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from otel_gym.content import MOST_REMEMBERED_NAMES
from otel_gym.secret_rules import (
    DEFAULT_ANCHORS,
    REACH_BEFORE,
    REACH_BEHIND,
    REDACTED,
    TEXTS_SEPARATOR,
    Anchor,
    Finding,
    anchors_of_name,
    findings_at,
    is_secret_name,
    is_secret_option,
)

_OFF = frozenset({"0", "off", "false", "no"})
_ON = frozenset({"1", "on", "true", "yes"})
_ITEM = re.compile(r"\s*(/(?:\\.|[^/\\])+/|[^,]+)\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class RedactionRules:
    """``defaults``: the rules of ``secret_rules``. ``names`` and ``patterns`` come on top of them."""

    defaults: bool = True
    names: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()


DEFAULT_RULES = RedactionRules()


def read_rules(text: str) -> RedactionRules:
    """``my_field,X-Team-Key,/EMP-\\d{6}/``: names and regular expressions; ``0`` or ``off`` drops the defaults.

    A slash inside a regular expression is written ``\\/``. ValueError for one that does not compile.
    """
    defaults, names, patterns = True, [], []
    for item in map(str.strip, _ITEM.findall(text)):
        if item.lower() in _OFF:
            defaults = False
        elif item.startswith("/") and item.endswith("/") and len(item) > 2:
            try:
                patterns.append(re.compile(item[1:-1].replace("\\/", "/")))
            except re.error as error:
                raise ValueError(f"{item}: {error}") from None
        elif item and item.lower() not in _ON:
            names.append(item)
    return RedactionRules(defaults, tuple(names), tuple(patterns))


class Redactor:
    """Takes the secrets out; what holds none comes back as the very same object.

    Of a ``series`` of texts that grow out of each other (the requests of an agent) each part is looked at once.
    """

    def __init__(self, rules: RedactionRules = DEFAULT_RULES) -> None:
        given = [anchor for name in rules.names for anchor in anchors_of_name(name)]
        self._anchors = (*(DEFAULT_ANCHORS if rules.defaults else ()), *given)
        self._defaults = rules.defaults
        self.has_own_rules = bool(rules.names or rules.patterns)
        self._names = frozenset(map(_normal, rules.names))
        self._patterns = rules.patterns
        self._clean_names: set[tuple[Any, ...]] = set()
        self._known_names: dict[str, bool] = {}
        self._clean_texts: set[str] = set()
        self._seen = _SeenTexts()

    def text(self, text: str, series: str | None = None) -> str:
        if len(text) <= _SHORT:
            return self._short_text(text)
        return self._text(text, series)

    def _text(self, text: str, series: str | None = None) -> str:
        if self._anchors:
            findings = self._findings(text) if series is None else self._seen.findings(series, text, self._findings)
            if findings:
                text = _replaced(text, findings)
        return self._without_patterns(text) if self._patterns else text

    def _short_text(self, text: str) -> str:
        """Names of spans, models, tools: the same ones again and again."""
        if text in self._clean_texts:
            return text
        redacted = self._text(text)
        if redacted is text:
            _room_in(self._clean_texts).add(text)
        return redacted

    def value(self, value: Any) -> Any:
        """An attribute value: a text, a list, a map, bytes."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            text = value.decode("latin-1")  # keeps every byte, and secrets are ASCII
            redacted = self.text(text)
            return value if redacted is text else redacted.encode("latin-1", "replace")
        if isinstance(value, Mapping):
            return self.attributes(value)
        if isinstance(value, list | tuple):
            items = [self.value(item) for item in value] if not self._defaults else self._arguments(value)
            return value if all(map(_is, items, value)) else items
        return value

    def _arguments(self, items: Sequence[Any]) -> list[Any]:
        """Items of a list, which may be the arguments of a command: what stands behind ``--api-key`` is a secret."""
        redacted, is_secret = [], False
        for item in items:
            is_text = isinstance(item, str)
            hides = is_secret and is_text and not item.startswith("-")
            redacted.append(_hidden(item) if hides else self.value(item))
            is_secret = is_text and len(item) <= _SHORT and is_secret_option(item)
        return redacted

    def attributes(self, attributes: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """By name as well as by value."""
        if not (self._anchors or self._patterns) or self._are_clean(attributes):
            return attributes
        redacted = {self._clean_name(name): self._attribute(name, value) for name, value in attributes.items()}
        is_clean = redacted.keys() == attributes.keys()
        return attributes if is_clean and all(map(_is, redacted.values(), attributes.values())) else redacted

    def _clean_name(self, name: Any) -> Any:
        """Names can hold secrets too, where a map's keys are a program's; those that readers look for stay."""
        return self.text(name) if isinstance(name, str) and not name.startswith(_READ_NAMES) else name

    def _are_clean(self, attributes: Mapping[Any, Any]) -> bool:
        """One pass over all texts at once, since most have no secret; False also where that cannot be told so."""
        names = tuple(attributes)
        if names not in self._clean_names:
            if any(map(self._is_secret_name, names)) or not all(map(_is, map(self._clean_name, names), names)):
                return False
            if len(names) <= MOST_REMEMBERED_NAMES:
                _room_in(self._clean_names).add(names)
        values = attributes.values()
        texts = [value for value in values if type(value) is str]
        kinds = set(map(type, values))
        if not kinds <= _SIMPLE:
            if not kinds <= _SIMPLE_OR_ITEMS:
                return False
            for items in [value for value in values if type(value) in _ITEMS]:
                if not _SIMPLE.issuperset(map(type, items)):
                    return False
                texts += [item for item in items if type(item) is str]
        return not texts or self.are_clean(texts)

    def are_clean(self, texts: Sequence[str]) -> bool:
        """That ``text`` would give each back as it is; False also where that cannot be told in one pass."""
        if self._anchors and self._findings(TEXTS_SEPARATOR.join(texts)):
            return False
        return not self._patterns or all(self._without_patterns(text) is text for text in texts)

    def _attribute(self, name: Any, value: Any) -> Any:
        return _hidden(value) if self._is_secret_name(name) else self.value(value)

    def _is_secret_name(self, name: Any) -> bool:
        if not isinstance(name, str):
            return False
        if len(name) > _SHORT:
            return self._says_secret(name)
        known = self._known_names.get(name)
        if known is None:
            known = _room_in(self._known_names)[name] = self._says_secret(name)
        return known

    def _says_secret(self, name: str) -> bool:
        by_rule = self._defaults and is_secret_name(name)
        return by_rule or not self._names.isdisjoint((_normal(name), _normal(name.rpartition(".")[2])))

    def _findings(self, text: str, begin: int = 0, end: int | None = None) -> list[Finding]:
        """Those whose anchor stands in ``text[begin:end]``, in order, none inside another."""
        stop = len(text) if end is None else end
        findings: list[Finding] = []
        for anchor in self._anchors:
            literal, pattern, is_common = anchor
            if not is_common and text.find(literal, begin, stop) < 0:
                continue
            first = pattern.search(text, begin)
            if first is None or first.start() >= stop:
                continue
            at = first.start()
            matches = pattern.finditer(text, at) if is_common else _matches(anchor, text, at, stop)
            cover = _NOTHING
            for match in matches:
                if match.start() >= stop:
                    break
                if cover.begin <= match.start() < cover.end:
                    continue
                found = list(findings_at(text, match))
                if found:
                    findings += found
                    cover = found[0]  # what lies between several is looked at
        return _disjoint(findings)

    def _without_patterns(self, text: str) -> str:
        """By the user's regular expressions. In JSON they see its strings decoded, so that JSON stays JSON."""
        if _LIKE_JSON.match(text) is None:
            redacted = self._without_matches(text)
        elif _is_json(text):
            redacted = _STRING_OR_NUMBER.sub(self._json_token, text)
        elif all(map(_is_json_line, lines := text.split("\n"))):
            redacted = "\n".join(map(self._line_without_patterns, lines))
        else:  # what only looks like JSON, or JSON with a fault: there is nothing to keep whole
            redacted = self._without_matches(_STRING.sub(self._json_token, text))
        return text if redacted == text else redacted

    def _line_without_patterns(self, line: str) -> str:
        begin = len(_DATA_FIELD) if line.startswith(_DATA_FIELD) else 0
        if _is_json(line[begin:]):
            return line[:begin] + self._without_patterns(line[begin:])
        return self._without_matches(_STRING.sub(self._json_token, line))

    def _without_matches(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def _json_token(self, match: re.Match[str]) -> str:
        """A string, which may be cut off, or a number, without what is to be taken out of it."""
        token, cut, is_closed = match[0], match["cut"] or "", match["closed"] is not None
        if not token.startswith('"'):
            content = token
        elif is_closed and "\\" not in token:
            content = token[1:-1]
        else:
            try:
                content = json.loads(token if is_closed else token.removesuffix(cut) + '"')
            except ValueError:
                return token
        redacted = self._without_patterns(content)
        if redacted == content:
            return token
        written = json.dumps(redacted, ensure_ascii=token.isascii() or "\\u" in token)
        return written if is_closed or content is token else written[:-1] + cut


def redactor_from(rules: RedactionRules) -> Redactor:
    return Redactor(rules)


# What is remembered as clean: texts up to this length, and this many of them.
_SHORT = 100
_KNOWN = 4096

_NOTHING = Finding(0, 0)
_READ_NAMES = ("gym.", "nemo.gym.", "gen_ai.")
_SIMPLE = frozenset({str, int, float, bool, type(None)})
_ITEMS = frozenset({tuple, list})
_SIMPLE_OR_ITEMS = _SIMPLE | _ITEMS

# Strings of JSON, also one that is cut off: else each of the quotes in it would be tried as the start of another.
_STRING = re.compile(
    r'"(?:[^"\\\n]|\\u[0-9a-fA-F]{4}|\\[^u\n])*+(?:(?P<closed>")|(?P<cut>(?:\\(?:u[0-9a-fA-F]{0,3})?)?))'
)
_STRING_OR_NUMBER = re.compile(rf"{_STRING.pattern}|-?\d[\d.eE+-]*+")
_ESCAPE_LENGTH = len("\\u0000")
_DATA_FIELD = "data:"
_LIKE_JSON = re.compile(r"\s*+[\[{]|data:|event:|id:|retry:|:")
_EVENT_LINE = re.compile(r"\s*+\Z|data:|event:|id:|retry:|:")


def _is_json(text: str) -> bool:
    """Whether it is an object or array of JSON, or the beginning of one that was cut off."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        # Numbers are not read, which would take quadratic time.
        json.loads(text, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        is_cut_escape = error.msg.startswith("Invalid \\uXXXX escape") and error.pos > len(text) - _ESCAPE_LENGTH
        return is_cut_escape or error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())
    except RecursionError:
        return False
    return True


def _is_json_line(line: str) -> bool:
    """Of server-sent events, or of lines of JSON."""
    return _EVENT_LINE.match(line) is not None or _is_json(line)


_Known = TypeVar("_Known", set[Any], dict[Any, Any])


def _room_in(known: _Known) -> _Known:
    if len(known) >= _KNOWN:
        known.clear()
    return known


def _is(one: Any, other: Any) -> bool:
    return one is other


def _hidden(value: Any) -> Any:
    """What stands under a secret's name, whatever it is; what is empty is no secret."""
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    return value if value is None or value == "" or isinstance(value, bool) else REDACTED


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")


def _matches(anchor: Anchor, text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    literal, match_at = anchor.literal, anchor.pattern.match
    stop = end + len(literal) - 1
    at = text.find(literal, begin, stop)
    while at >= 0:
        match = match_at(text, at)
        if match is not None:
            yield match
        at = text.find(literal, at + 1, stop)


def _disjoint(findings: list[Finding]) -> list[Finding]:
    """In order; of those that overlap, one that covers them all."""
    findings.sort()
    disjoint: list[Finding] = []
    for finding in findings:
        last = disjoint[-1] if disjoint else None
        if last is None or finding.begin >= last.end:
            disjoint.append(finding)
        elif finding.end > last.end:
            disjoint[-1] = last._replace(end=finding.end)
    return disjoint


def _replaced(text: str, findings: Iterable[Finding]) -> str:
    parts, at = [], 0
    for finding in findings:
        parts += [text[at : finding.begin], finding.replacement]
        at = finding.end
    return "".join(parts) + text[at:]


# A text that grew out of one that was seen before is looked at only where it is new, and this far around it: no rule
# decides on more than that.
_CONTEXT = 20 * 1024
_REMEMBER_FROM = 3 * _CONTEXT
_REMEMBERED_CHARACTERS = 32 * 1024 * 1024

_Find = Callable[..., list[Finding]]


class _SeenTexts:
    """The last text of each series and what was found in it, within a bound of characters.

    Without a lock, which a fork could leave locked: each step on the table is one that no other thread can cut in two.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[str, tuple[str, list[Finding]]] = OrderedDict()

    def findings(self, series: str, text: str, find: _Find) -> list[Finding]:
        if len(text) < _REMEMBER_FROM:
            return find(text)
        known = self._texts.pop(series, None)
        findings = _findings_of_grown(text, *known, find) if known is not None else None
        if findings is None:
            findings = find(text)
        self._texts[series] = (text, findings)
        excess = sum(len(each) for each, _ in list(self._texts.values())) - _REMEMBERED_CHARACTERS
        for oldest in list(self._texts) if excess > 0 else ():
            forgotten = self._texts.pop(oldest, None)
            excess -= len(forgotten[0]) if forgotten else 0
            if excess <= 0:
                break
        return findings


def _findings_of_grown(text: str, old: str, old_findings: list[Finding], find: _Find) -> list[Finding] | None:
    """What is in ``text``, by what was in ``old``, whose head and tail it shares; None where that cannot be told."""
    shortest = min(len(text), len(old))
    head = _shared(shortest, lambda begin, end: text[begin:end] == old[begin:end])
    tail = _shared(shortest - head, lambda begin, end: text[-end : len(text) - begin] == old[-end : len(old) - begin])
    begin, end = max(0, head - _CONTEXT), min(len(text), len(text) - tail + _CONTEXT)
    moved = len(text) - len(old)
    before: list[Finding] = []
    for finding in reversed(old_findings):
        if finding.end <= begin:
            before.append(finding)
        elif finding.begin - REACH_BEFORE < begin:
            begin = max(0, finding.begin - REACH_BEFORE)  # its name may stand there
    if end - begin > len(text) // 2:
        return None
    behind: list[Finding] = []
    for finding in old_findings if end < len(text) else ():
        old_end = end - moved
        if finding.end + REACH_BEHIND >= old_end:
            if finding.begin < old_end - _CONTEXT // 2 or finding.begin < old_end < finding.end:
                return None  # it, or what it covered, may be something else now
            behind.append(finding._replace(begin=finding.begin + moved, end=finding.end + moved))
    between = find(text, begin, end)
    if any(finding.end > end for finding in between):
        return None
    return _disjoint(before + between + behind)


def _shared(most: int, are_same: Callable[[int, int], bool]) -> int:
    """How many characters two texts share, by halving, so that C compares them."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if are_same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low
