"""What a secret looks like: by its own shape, or by the name that it stands under (``api_key``, ``Authorization`` …).

Each rule is found by its *anchor*, a letter or two that are rare in other texts, so that a clean text costs a few
passes at C speed. Only around an anchor are regular expressions tried, and every one of them takes linear time.

No rule matches the value of a field of the three model APIs other than a real secret's (``token``, ``max_tokens``,
``prompt_cache_key``, ``encrypted_content``, signatures, ids), nor base64 media.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

REDACTED = "[redacted]"

# Between texts that are looked at as one: what follows it starts a text, and no rule but that of a command's arguments
# goes across it.
TEXTS_SEPARATOR = "\n\x1e"


# How far inside an object or array secrets are looked for.
_NESTED_LENGTH = 16 * 1024
# No anchor stands further before the begin of what it leads to, nor further behind it.
REACH_BEFORE = _NESTED_LENGTH + 512
REACH_BEHIND = 512


class Finding(NamedTuple):
    """A secret: ``text[begin:end]``, and what takes its place."""

    begin: int
    end: int
    replacement: str = REDACTED


class Anchor(NamedTuple):
    """``pattern`` starts with ``literal``; the name of the group that matched says which kind of secret is there.

    A ``common`` literal is met every few words: the regular expression looks for it itself, which is then faster than
    finding it first.
    """

    literal: str
    pattern: re.Pattern[str]
    common: bool = False


def findings_at(text: str, match: re.Match[str]) -> Iterator[Finding]:
    """The secrets that a match of an anchor's pattern leads to."""
    yield from _FINDERS[str(match.lastgroup).rstrip("0123456789_")](text, match)


# ── by shape ───────────────────────────────────────────────────────────────────────────────────────────────────────

# Keys of vendors whose keys have a shape: anchor, prefix, what follows.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("-", "sk-", "[A-Za-z0-9_-]{16,}+"),  # OpenAI, Anthropic, OpenRouter, DeepSeek, LiteLLM, Langfuse
    ("-", "nvapi-", "[A-Za-z0-9_-]{20,}+"),  # NVIDIA
    ("-", "xai-", "[A-Za-z0-9]{20,}+"),
    ("-", "pplx-", "[A-Za-z0-9]{20,}+"),
    ("-", "tvly-", "[A-Za-z0-9-]{16,}+"),
    ("-", "pypi-", "[A-Za-z0-9_-]{16,}+"),
    ("-", "GOCSPX-", "[A-Za-z0-9_-]{20,}+"),  # Google's OAuth clients
    *(("-", f"gl{kind}-", "[A-Za-z0-9_.-]{20,}+") for kind in ("pat", "dt", "rt", "cbt", "ptt", "soat", "ft")),
    *(("-", f"xox{kind}-", "[A-Za-z0-9-]{10,}+") for kind in "abeprs"),  # Slack
    ("-", "xapp-", "[A-Za-z0-9-]{10,}+"),
    *(("_", f"gh{kind}_", "[A-Za-z0-9]{30,}+") for kind in "opusr"),  # GitHub
    ("_", "github_pat_", "[A-Za-z0-9_]{22,}+"),
    ("_", "hf_", "[A-Za-z0-9]{30,}+"),  # Hugging Face
    ("_", "npm_", "[A-Za-z0-9]{30,}+"),
    ("_", "gsk_", "[A-Za-z0-9]{30,}+"),  # Groq
    ("_", "r8_", "[A-Za-z0-9]{30,}+"),  # Replicate
    ("_", "dop_v1_", "[A-Za-z0-9]{40,}+"),  # DigitalOcean
    *(("_", f"{kind}_{mode}_", "[A-Za-z0-9]{10,}+") for kind in ("sk", "rk") for mode in ("live", "test")),  # Stripe
    ("_", "whsec_", "[A-Za-z0-9+/]{20,}+"),
    ("I", "AKIA", "[A-Z0-9]{16}(?![A-Za-z0-9+/])"),  # AWS
    ("I", "ASIA", "[A-Z0-9]{16}(?![A-Za-z0-9+/])"),
    ("z", "AIza", "[A-Za-z0-9_-]{35}(?![A-Za-z0-9_+/-])"),  # Google
    ("J", "eyJ", r"[A-Za-z0-9_-]{10,4096}+\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]*+"),  # JSON Web Tokens
)
_NEED_A_DIGIT = ("sk-", "tvly-", "pypi-", "xapp-")  # These also begin ordinary words.

# A token begins where none goes on: after no letter of its own alphabet, so that base64 and ids are never cut into,
# and each run of letters is looked at once. A letter that ends a JSON escape (``\n``, ``\u003d``) belongs to no token.
_BEGINS = r"(?:(?<!{alphabet}{prefix})|(?<=\\[nrtbf]{prefix})|(?<=\\u[0-9a-fA-F]{{4}}{prefix}))"
_WORD = "[A-Za-z0-9_-]"
_BASE64 = "[A-Za-z0-9+/_-]"


def _shape(anchor: str) -> str:
    """What follows the anchor in one of its shapes; the group ``token<N>_…`` is led by N letters."""
    shapes = [(prefix, rest) for each, prefix, rest in _SHAPES if each == anchor]
    # Checked first, since most anchors are led by none of these letters.
    nearest = sorted({prefix[: prefix.rindex(anchor) + 1][-3:] for prefix, _ in shapes})
    letters = ["".join(sorted({word[at] for word in nearest})) for at in (0, 1)]
    gate = f"(?<=[{letters[0]}][{letters[1]}]{anchor})(?<={'|'.join(nearest)})" if len(nearest) > 1 else ""
    alternatives = []
    for number, (prefix, rest) in enumerate(shapes):
        length = prefix.rindex(anchor) + 1
        begins = _BEGINS.format(alphabet=_WORD if anchor in "_-" else _BASE64, prefix=prefix[:length])
        alternatives.append(f"(?<={prefix[:length]}){begins}(?P<token{length}_{number}>{prefix[length:]}{rest})")
    return f"{gate}(?:{'|'.join(alternatives)})"


def _token(text: str, match: re.Match[str]) -> Iterator[Finding]:
    group = str(match.lastgroup)
    begin, end = match.start(group) - int(group.removeprefix("token").partition("_")[0]), match.end()
    token = text[begin:end]
    if not token.startswith(_NEED_A_DIGIT) or _has_digit(token):
        yield Finding(begin, end)


def _has_digit(text: str) -> bool:
    return any(digit in text for digit in "0123456789")


_BEARER = "earer {1,4}(?P<bearer>[A-Za-z0-9._~+/=-]{12,}+)"
_BASIC = "asic {1,4}(?P<basic>[A-Za-z0-9+/]{8,}+={0,2})"


def _bearer(text: str, match: re.Match[str]) -> Iterator[Finding]:
    if _has_digit(match["bearer"]):
        yield Finding(*match.span("bearer"))


def _basic(text: str, match: re.Match[str]) -> Iterator[Finding]:
    """Only what decodes to ``user:password``: the word also begins sentences."""
    try:
        decoded = base64.b64decode(match["basic"], validate=True)
    except binascii.Error:
        return
    if b":" in decoded:
        yield Finding(*match.span("basic"))


_PRIVATE_KEY = "(?<=PRIVATE K)EY(?: BLOCK)?(?P<privatekey>-----)"
_KEY_LENGTH = 16 * 1024
_LINE_ENDS = re.compile(r"(?:\\{1,15}[nr]|\s){0,8}")
_STRING_END = re.compile(r'"\s*+[,:}\]]')
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=:,. \t\r\n-]|\\{1,15}[nrt])*+")


def _private_key(text: str, match: re.Match[str]) -> Iterator[Finding]:
    """What stands between the lines BEGIN … and END …, or all that looks like it where no END comes."""
    if text.rfind("-----BEGIN ", max(0, match.start() - 40), match.start()) < 0:
        return
    begin = _end(_LINE_ENDS.match(text, match.end()))
    end = text.find("-----END", begin, begin + _KEY_LENGTH)
    if end < 0 or _STRING_END.search(text, begin, end):
        end = _end(_KEY_BODY.match(text, begin, begin + _KEY_LENGTH))
    end = begin + len(text[begin:end].rstrip("\\nr \t\r\n"))
    if end > begin:
        yield Finding(begin, end)


def _end(match: re.Match[str] | None) -> int:
    return match.end() if match else 0


# A password ends at the ``@`` of ``scheme://user:password@host``.
_USERINFO = r"(?<![@\s/]@)(?P<userinfo>)"
_AUTHORITY_LENGTH = 300
_AUTHORITY_END = re.compile(r"[/\s\"'\\?#<>]")
_PLACEHOLDERS = ("$", "<", "{", "%", "*", "[")


def _userinfo(text: str, match: re.Match[str]) -> Iterator[Finding]:
    at = match.start()
    begin = text.rfind("://", max(0, at - _AUTHORITY_LENGTH), at) + 3
    colon = text.find(":", begin, at)
    if begin < 3 or colon < 0 or _AUTHORITY_END.search(text, begin, at):
        return
    stop = _AUTHORITY_END.search(text, at, at + _AUTHORITY_LENGTH)
    end = text.rfind("@", at, stop.start() if stop else at + _AUTHORITY_LENGTH)
    if end > colon + 1 and not text.startswith(_PLACEHOLDERS, colon + 1):
        yield Finding(colon + 1, end)


# ── by name ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Names end so: ``OPENAI_API_KEY``, ``x-api-key``, ``apiKey``, ``db.password``.
_BEFORE_KEY = (
    *("api", "secret", "access", "private", "signing", "encryption", "account", "master"),
    *("litellm", "subscription", "functions"),  # headers of LiteLLM, Azure API Management, Azure Functions
)
_BEFORE_TOKEN = (
    *("access", "refresh", "auth", "session", "bearer", "authorization", "id", "oauth", "security", "secret"),
    *("private", "api", "bot", "hf", "github", "gitlab", "slack", "npm", "registration"),
    *("vault", "csrf", "xsrf"),
)
# What else is called like a key in a header: of attributes that hold one, and by the x- of its name.
_HEADER = r"(?!(?:x[_-])?(?:idempotency|cache)[_-])[a-z0-9_-]*[_-](?:key|token)"
_SECRET_NAME = re.compile(
    rf"(?:(?:{'|'.join(_BEFORE_KEY)})[._-]?key|(?:{'|'.join(_BEFORE_TOKEN)})[._-]?token"
    rf"|password|passwd|secret|authorization|cookie|http\.(?:request|response)\.header\.{_HEADER})\Z",
    re.IGNORECASE,
)


_HEADER_NAME = re.compile(rf"(?=x-){_HEADER}", re.IGNORECASE)


# Of a command; anywhere else a token alone is no secret.
_OPTION_TOKEN = "-token"


def is_secret_option(argument: str) -> bool:
    """Whether the argument behind this one of a command is a secret: ``--api-key``, ``--token``."""
    return argument.startswith("-") and (argument == f"-{_OPTION_TOKEN}" or is_secret_name(argument))


def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret."""
    return _SECRET_NAME.search(name) is not None


# What ends a name, and marks that one is there. Names are spelled so that a pattern goes on with a letter after its
# anchor: where it is another one, the next place is tried without more work.
_NAME_END = "(?![A-Za-z0-9])(?P<name>)"


def _compound(joint: str) -> str:
    """``api_key``, ``access-token``, ``HF_TOKEN`` …, from their joint on."""
    before_key = "|".join(f"(?<=(?i:{word}){joint}[kK][eE][yY])" for word in _BEFORE_KEY)
    before_token = "|".join(f"(?<=(?i:{word}){joint}[tT][oO][kK][eE][nN])" for word in _BEFORE_TOKEN)
    if joint == "-":
        before_token += f"|(?<=(?<![A-Za-z0-9-])-{_OPTION_TOKEN})"
    return f"[kKtT](?:[eE][yY](?:{before_key})|[oO][kK][eE][nN](?:{before_token})){_NAME_END}"


_SEPARATOR = re.compile(r"""(?P<quote>\\{0,15}["'])?\s{0,8}(?P<sign>=>|:=|[:=])\s{0,8}""")
_OPENING = re.compile(r"""\\{0,15}["']""")
_BEHIND_STRING = re.compile(r"(?:\s|\\{1,15}[nrt])*+[,:}\]]")
# One of two figures hides nothing.
_NUMBER = re.compile(r"-?(?=[0-9.]{3})[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.])")
# Between single quotes; a double one that could end a string of JSON around them is not passed.
_SINGLE_QUOTED = re.compile(r"""(?:[^'"\\\n]|\\{0,15}"(?!\s*+[,:}\]]))*+(?=')""")
_BARE = re.compile(r"""[^\s"'\\&,;<>(){}\[\]`|]++""")
# A bare value is judged by its head, so that one which is no secret costs little however often a name stands in it.
_JUDGED_LENGTH = 256
_COOKIES = re.compile(r"""[\w.-]{1,128}=[^"'\\\r\n<>`{}]++""")
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Digest|Negotiate) {1,4}", re.IGNORECASE)
_NAME_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"


# From the ``x-`` of a header's name to its end; what it is called is looked at then.
_X_HEADER = (
    "(?<=[xX]-)(?<![A-Za-z0-9_-][xX]-)(?:[A-Za-z0-9]{1,20}+-){1,4}"
    f"(?:[kK][eE][yY]|[tT][oO][kK][eE][nN]){_NAME_END.replace('<name>', '<headername>')}"
)


# What a value that looks like a secret begins with; a text full of such names is not read to its end at each.
_HEADER_VALUE = re.compile(r"""\\{0,15}["']?\s{0,8}[:=]\s{0,8}(?:\\{0,15}["'])?([^\s"'\\,;]{6,64}+)""")
_KNOWN_HEADERS = (*(f"{word}-key" for word in _BEFORE_KEY), *(f"{word}-token" for word in _BEFORE_TOKEN))


def _header_name(text: str, match: re.Match[str]) -> Iterator[Finding]:
    """A secret's name as any other; under a name that only looks like one, what looks like a secret."""
    end = match.end()
    name = _name_before(text, end)
    if name.lower().endswith(_KNOWN_HEADERS):
        yield from _value_after(text, end, is_given=False)
        return
    value = _HEADER_VALUE.match(text, end)
    if value is None or not _looks_secret(value[1]) or not _HEADER_NAME.fullmatch(name):
        return
    for finding in _value_after(text, end, is_given=False):
        if not _NO_SECRET.search(text, finding.begin, min(finding.end, finding.begin + _JUDGED_LENGTH)):
            yield finding


def _name(text: str, match: re.Match[str]) -> Iterator[Finding]:
    return _value_after(text, match.end(), is_given=False)


def _given_name(text: str, match: re.Match[str]) -> Iterator[Finding]:
    return _value_after(text, match.end(), is_given=True)


def _value_after(text: str, name_end: int, *, is_given: bool) -> Iterator[Finding]:
    """What stands under the name that ends at ``name_end``.

    The text or number of a JSON member is taken whatever it is, and what is a secret in its object or array; elsewhere
    (code, prose, a shell) it has to look like a secret, unless the user gave the name.
    """
    separator = _SEPARATOR.match(text, name_end)
    if separator is None:
        yield from _argument(text, name_end)
        return
    quote, begin = separator["quote"], separator.end()
    is_member = quote is not None and separator["sign"] == ":"
    opening = _OPENING.match(text, begin)
    if opening is not None:
        if opening[0] != quote and _BEHIND_STRING.match(text, opening.end()):
            return  # the quote closes a string that ends with the name
        begin, end = opening.end(), _content_end(text, opening.end(), opening[0])
        if begin < end and (is_member or is_given or _looks_secret(text[begin : min(end, begin + _JUDGED_LENGTH)])):
            yield Finding(begin, end)
    elif not is_member:
        yield from _bare(text, name_end, begin, is_given)
    elif text.startswith(("[", "{"), begin):
        yield from _nested(text, begin, quote, is_given)
    else:
        number = _NUMBER.match(text, begin)
        if number is not None:
            yield Finding(begin, number.end(), f"{quote}{REDACTED}{quote}")


# What follows an option of a command: on one line, as the next text of a list, or as the next item of one in JSON.
_BEFORE_ARGUMENT = re.compile(rf"""(?P<next>{TEXTS_SEPARATOR})|\\{{0,15}}["'],\s{{0,8}}\\{{0,15}}["']| {{1,8}}""")
_ARGUMENT = re.compile(r"""[^\s"'\\`<>-][^\s"'\\`<>]*+""")


def _argument(text: str, name_end: int) -> Iterator[Finding]:
    """The value of an option that stands behind it; on one line with it, where that looks like a secret."""
    if not _name_before(text, name_end).startswith("--"):
        return
    before = _BEFORE_ARGUMENT.match(text, name_end)
    value = before and _ARGUMENT.match(text, before.end())
    if before and value and (before["next"] or _looks_secret(value[0][:_JUDGED_LENGTH])):
        yield Finding(*value.span())


def _content_end(text: str, begin: int, quote: str) -> int:
    """Where the string ends whose content begins at ``begin``, behind ``quote``, however often both are escaped.

    Where it is cut off (arguments that stream in pieces), the end of what surrounds it; -1 where it is no string.
    """
    if quote.endswith("'"):
        content = _SINGLE_QUOTED.match(text, begin, begin + 4096)
        return content.end() if content else -1
    at, escapes = begin, len(quote) - 1
    while True:
        end = text.find('"', at)
        newline = text.find("\n", at, len(text) if end < 0 else end)
        if newline >= 0 or end < 0:
            return newline if newline >= 0 else len(text)
        run = end - at - len(text[at:end].rstrip("\\"))
        # The escapes that make a quote of some depth: the rest of the run is content.
        own = min((run ^ (run + 1)) >> 1 if escapes & (escapes + 1) == 0 else run, escapes)
        if own < escapes or run % (2 * escapes + 2) == escapes:
            return end - own
        at = end + 1


_NESTED_DEPTH = 5
_NESTED_PART = re.compile(
    r"""(?:[\s,]|\\{1,15}[nrt])*+"""
    r"""(?:(?P<opening>[\[{])|(?P<closing>[\]}])|(?P<quote>\\{0,15}["'])|(?P<scalar>[\w.+-]++))"""
)
_COLON = re.compile(r"\s{0,8}:(?:\s|\\{1,15}[nrt]){0,8}")
# A definition of a field that will hold a secret, as tools have in their schemas: none of it is one.
_SCHEMA_NAMES = frozenset({"$ref", "anyOf", "oneOf", "allOf", "enum", "const", "properties"})
_SCHEMA_TYPE = re.compile(
    r"""(?i:\[?\s{0,8}\\{0,15}["'](?:string|number|integer|boolean|array|object|null)\\{0,15}["'])"""
)
_NO_SECRET = re.compile(r"\s|\\[nrt]|://")


@dataclass(slots=True)
class _Container:
    """An object (``is_map``) or array under a secret's name; ``first`` of what was found is the first inside it."""

    is_map: bool
    is_sure: bool
    first: int
    is_schema: bool = False


def _nested(text: str, begin: int, name_quote: str, is_given: bool) -> list[Finding]:
    """What an object or array under a secret's name holds.

    All items of arrays are taken. Of an object, which may as well describe the secret, what is named ``value`` or as a
    secret is taken, and else only what looks like one; all of it where the user gave the name, nothing of a schema.
    """
    found: list[Finding] = []
    containers: list[_Container] = []
    at, is_sure = begin, True
    while (part := _NESTED_PART.match(text, at)) and part.end() <= begin + _NESTED_LENGTH:
        at = part.end()
        inner = containers[-1] if containers else None
        if inner is not None and not inner.is_map:
            is_sure = inner.is_sure
        if part["opening"]:
            if len(containers) == _NESTED_DEPTH:
                break
            containers.append(_Container(part["opening"] == "{", is_sure, len(found)))
        elif part["closing"]:
            if containers.pop().is_schema and inner is not None:
                del found[inner.first :]
            if not containers:
                break
        elif part["quote"]:
            end = _content_end(text, at, name_quote) if part["quote"] == name_quote else -1
            if end < 0:
                break  # also at the quote that closes a string which holds the name
            content, after = text[at : min(end, at + _JUDGED_LENGTH)], end + len(name_quote)
            colon = _COLON.match(text, after)
            if colon is None:
                if content and (is_sure or is_given or (_looks_secret(content) and not _NO_SECRET.search(content))):
                    found.append(Finding(at, end))
                if not text.startswith(name_quote, end):
                    break  # cut off: what follows stands outside of all this
                is_sure, at = False, after
            elif inner is None or not inner.is_map:
                break
            else:
                is_sure = content.lower() == "value" or is_secret_name(content)
                at = colon.end()
                inner.is_schema |= content in _SCHEMA_NAMES or (
                    content == "type" and _SCHEMA_TYPE.match(text, at) is not None
                )
        else:
            number = _NUMBER.match(text, part.start("scalar"))
            if number is not None and number.end() == at and (is_sure or is_given):
                found.append(Finding(number.start(), at, f"{name_quote}{REDACTED}{name_quote}"))
            is_sure = False
    for container in reversed(containers):
        if container.is_schema:
            del found[container.first :]
    return found


def _bare(text: str, name_end: int, begin: int, is_given: bool) -> Iterator[Finding]:
    """A value without quotes: of a header line, a form, an environment."""
    name = _name_before(text, name_end)
    is_header = text.startswith(":", name_end)
    cookies = _COOKIES.match(text, begin) if is_header and name.lower().endswith("cookie") else None
    begin = begin if cookies else _end(_SCHEME.match(text, begin)) or begin
    value = cookies or _BARE.match(text, begin, begin + _JUDGED_LENGTH)
    if value is None or text.startswith(_PLACEHOLDERS, begin):
        return
    content = value[0].rstrip()
    end = begin + len(content)
    if cookies:
        # Taken whole and always: so no cookie inside is looked at again, and a line costs one pass.
        yield Finding(begin, end)
        return
    if text.startswith(("(", "[", "{"), end):  # a call or a subscript: code, no value
        return
    starts_at = name_end - len(name)
    starts_text = starts_at == 0 or text.startswith(TEXTS_SEPARATOR[-1], starts_at - 1)
    is_form_field = text.startswith("=", name_end) and (
        text.startswith("&", end) if starts_text else text.startswith(("?", "&"), starts_at - 1)
    )
    is_assigned = name.isupper() or name.startswith("--")  # a variable of the environment, an option of a command
    is_variable = is_assigned and len(content) >= 6 and text.startswith("=", name_end)
    if is_given or is_form_field or is_variable or _looks_secret(content):
        yield Finding(begin, end if len(content) < _JUDGED_LENGTH else _end(_BARE.match(text, begin)))


def _name_before(text: str, end: int) -> str:
    window = text[max(0, end - 65) : end]
    name = window[len(window.rstrip(_NAME_LETTERS)) :]
    # The letter of an escape is no part of the name: ``\nOPENAI_API_KEY=``.
    is_escaped = window[: len(window) - len(name)].endswith("\\") and name[:1] in "nrtbf"
    return name[1:] if is_escaped else name


def _looks_secret(value: str) -> bool:
    return len(value) >= 6 and not value.startswith(_PLACEHOLDERS) and _has_digit(value)


def anchors_of_name(name: str) -> Iterator[Anchor]:
    """Of a name that the user gave, in its usual spellings."""
    snake = name.replace("-", "_")
    spellings = {name, name.lower(), name.upper(), name.title(), snake.lower(), snake.upper()}
    before, after = r"(?:(?<![A-Za-z0-9_-]{name})|(?<=\\[nrtbf]{name}))", "(?![A-Za-z0-9_-])"
    for spelling in sorted(spellings):
        literal = re.escape(spelling)
        yield Anchor(spelling, re.compile(f"{literal}{before.replace('{name}', literal)}(?P<givenname>){after}"))


_FINDERS: dict[str, Callable[[str, re.Match[str]], Iterable[Finding]]] = {
    "token": _token,
    "bearer": _bearer,
    "basic": _basic,
    "privatekey": _private_key,
    "userinfo": _userinfo,
    "name": _name,
    "headername": _header_name,
    "givenname": _given_name,
}


def _anchor(literal: str, *alternatives: str, common: bool = False) -> Anchor:
    # A pattern may hold a group's name once; ``findings_at`` leaves the number out.
    numbered = [rule.replace("(?P<name>", f"(?P<name{number}>") for number, rule in enumerate(alternatives)]
    return Anchor(literal, re.compile(f"{literal}(?:{'|'.join(numbered)})"), common)


DEFAULT_ANCHORS: tuple[Anchor, ...] = (
    _anchor("_", _compound("_"), _shape("_"), common=True),
    _anchor("-", _compound("-"), _shape("-"), _X_HEADER, common=True),
    _anchor("k", f"(?:ie(?<=[cC]ookie)|ey(?<=[aA]pikey)){_NAME_END}", common=True),
    _anchor("I", _shape("I"), common=True),
    _anchor(
        "T",
        f"oken(?:(?<=ccessToken)|(?<=freshToken)|(?<=ssionToken)|(?<=earerToken)|(?<=authToken)){_NAME_END}",
        f"(?<=SECRET){_NAME_END}",
        common=True,
    ),
    _anchor("assw", f"(?:or)?d(?:(?<=[pP]assword)|(?<=[pP]asswd)){_NAME_END}"),
    _anchor("ecret", f"(?<=[sS]ecret){_NAME_END}"),
    _anchor("z", _shape("z"), f"ation(?<=[aA]uthorization){_NAME_END}", common=True),
    _anchor("Z", f"ATION(?<=AUTHORIZATION){_NAME_END}"),
    _anchor("W", f"(?:OR)?D(?:(?<=PASSWORD)|(?<=PASSWD)){_NAME_END}"),
    _anchor("J", _shape("J")),
    _anchor(
        "K",
        f"ey(?:(?<=[aA]piKey)|(?<=cretKey)|(?<=cessKey)|(?<=vateKey)|(?<=ountKey)){_NAME_END}",
        f"EY(?<=APIKEY){_NAME_END}",
        f"IE(?<=COOKIE){_NAME_END}",
        _PRIVATE_KEY,
    ),
    _anchor("B", _BEARER, _BASIC),
    _anchor("@", _USERINFO),
)
