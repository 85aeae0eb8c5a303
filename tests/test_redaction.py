"""What users saw in traces: keys, cookies, credentials; and what must stay as it is."""

from __future__ import annotations

import base64
import json
import random
import re
import string
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.redaction import REDACTED, RedactionRules, Redactor, read_rules

REDACTOR = Redactor()
_LETTERS = random.Random(7)


def letters(number: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_LETTERS.choice(alphabet) for _ in range(number - 1)) + "7"


UPPER = string.ascii_uppercase + string.digits
# Built from parts, so that no scanner of repositories takes them for real ones.
KEYS = {
    "openai project": "sk-" + "proj-" + letters(48),
    "openai": "sk-" + letters(48),
    "anthropic": "sk-" + "ant-api03-" + letters(93, string.ascii_letters + string.digits + "-_"),
    "google": "AI" + "za" + letters(35),
    "aws": "AK" + "IA" + letters(16, UPPER),
    "aws session": "AS" + "IA" + letters(16, UPPER),
    "github": "gh" + "p_" + letters(36),
    "github fine-grained": "github_" + "pat_" + letters(22) + "_" + letters(59),
    "gitlab": "gl" + "pat-" + letters(20),
    "slack": "xo" + "xb-123456789012-123456789012-" + letters(24),
    "hugging face": "h" + "f_" + letters(34),
    "nvidia": "nv" + "api-" + letters(64),
    "stripe": "sk" + "_live_" + letters(24),
    "npm": "np" + "m_" + letters(36),
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + letters(80),
    "groq": "gs" + "k_" + letters(52),
    "jwt": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + letters(43),
}
PLACES = (
    "{}",
    "export K={}\nok",
    "key: {}\n",
    "a\n{}",
    "({})",
    "'{}'",
    "x\t{},",
    "https://h.example/?k={}&b=1",
    "https://x-access-token:{}@github.com/a/b",
    "Bearer {}",
)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("place", PLACES)
def test_a_key_is_taken_out_wherever_it_stands_and_json_stays_json(key, place):
    text = place.format(key)
    for _ in range(4):  # the text itself, then JSON in JSON in JSON
        redacted = REDACTOR.text(text)
        assert key[6:] not in redacted and REDACTED in redacted
        text = json.dumps(text)
        assert json.loads(REDACTOR.text(text)) == redacted


MEMBERS = {
    "api_key": "x",
    "X-Api-Key": "x",
    "apiKey": "x",
    "Authorization": "Bearer abc",
    "password": 'p"w\\d\n',
    "db_password": "swordfish",
    "client_secret": "\\\\",
    "access_token": "a",
    "refreshToken": "b",
    "SecretAccessKey": "d/+",
    "Set-Cookie": ["a=1; b", "c"],
    "cookie": "s=1",
}


@pytest.mark.parametrize("name", MEMBERS)
def test_what_stands_under_a_secrets_name_is_taken_out_of_json_however_often_it_is_escaped(name):
    document = {"before": [1.50, "ü"], name: MEMBERS[name], "after": {"n": None}}
    hidden = [REDACTED] * 2 if isinstance(MEMBERS[name], list) else REDACTED
    text = json.dumps(document)
    for depth in range(4):
        redacted = REDACTOR.text(text)
        for _ in range(depth + 1):
            redacted = json.loads(redacted)
        assert redacted == {**document, name: hidden}
        text = json.dumps(text)


HEADERS = (
    "x-litellm-key",
    "Ocp-Apim-Subscription-Key",
    "x-functions-key",
    "X-Vault-Token",
    "x-csrf-token",
    "X-Team-Key",
)


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_is_called_a_key_was_stored(name):
    redactor = Redactor()
    body = json.dumps({"tools": [{"type": "mcp", "headers": {name: "s3cret-of-mine", "accept": "a1b2c3d4"}}]})
    for text in (body, json.dumps(body), f"{name}: s3cret-of-mine\r\naccept: a1b2c3d4"):
        assert redactor.text(text) == text.replace("s3cret-of-mine", "[redacted]")
    for attribute in (f"http.request.header.{name.lower()}", f"http.request.header.{name.lower().replace('-', '_')}"):
        assert redactor.attributes({attribute: ("s3cret",)}) == {attribute: ["[redacted]"]}


@pytest.mark.parametrize(
    "text",
    [
        '{"idempotency-key":"a1b2c3d4e5","x-idempotency-key":"a1b2c3d4e5","x-cache-key":"a1b2c3d4e5"}',
        '{"x-axis-key":"time","cache-key":"a1b2c3d4","sort-key":"a1b2c3d4","x-note-key":"page 12 of 20"}',
        '{"token":"a1b2c3d4","max_tokens":1234,"prompt_cache_key":"a1b2c3d4","cache_key":"a1b2c3","tool_key":"a1b2c3d4"}',
        "x-ratelimit-remaining-tokens: 123456\nanthropic-ratelimit-input-tokens-limit: 123456",
    ],
)
def test_a_name_that_only_ends_like_a_key_keeps_its_value(text):
    assert Redactor().text(text) == text
    assert Redactor().attributes({"http.request.header.idempotency-key": "a1b2c3"}) == {
        "http.request.header.idempotency-key": "a1b2c3"
    }


def test_all_else_is_byte_identical():
    body = '{ "a" :1.0e5, "password" : "hunter2" ,"b":"\\u00fc\\/"}\n'
    assert REDACTOR.text(body) == body.replace("hunter2", REDACTED)


def test_a_number_under_a_secrets_name_becomes_a_text_so_that_json_stays_json():
    assert REDACTOR.text('{"password": 12345678, "secret": null}') == '{"password": "[redacted]", "secret": null}'
    escaped = json.dumps({"arguments": '{"password":12345678}'})
    assert json.loads(json.loads(REDACTOR.text(escaped))["arguments"]) == {"password": REDACTED}


H = REDACTED
NESTED = {
    '{"password": {"value":"swordfish"}}': {"password": {"value": H}},
    '{"password": {"v":"hunter2abc", "n": 12345, "hint": "of 2 words"}}': {
        "password": {"v": H, "n": 12345, "hint": "of 2 words"}
    },
    '{"api_key":[null,"sekret123456",true]}': {"api_key": [None, H, True]},
    '{"api_key":[12345678,"abc", 1.5, 7]}': {"api_key": [H, H, H, 7]},
    '{"api_key":["a1b2c3d4",["e5f6g7h8", []], "x"]}': {"api_key": [H, [H, []], H]},
    '{"password": 123}': {"password": H},
    '{"password": 12345.67, "n": 12345.67}': {"password": H, "n": 12345.67},
    '{"Authorization": {"scheme":"Bearer","value":"zzz"}}': {"Authorization": {"scheme": "Bearer", "value": H}},
    '{"secret": {"data": {"password": "x", "to": [{"value": "y"}]}}}': {
        "secret": {"data": {"password": H, "to": [{"value": H}]}}
    },
    '{"password": {"password": {"note": "password=hunter2 or", "x": "hunter2abc"}}}': {
        "password": {"password": {"note": "password=[redacted] or", "x": H}}
    },
    '{"badge": {"n":"abc", "m":[12345]}}': {"badge": {"n": H, "m": [H]}},
}


@pytest.mark.parametrize("text", NESTED)
def test_a_secret_in_an_object_or_array_under_its_name_is_taken_however_often_it_is_escaped(text):
    redactor = Redactor(RedactionRules(names=("badge",)))
    document = text
    for depth in range(4):
        redacted = redactor.text(document)
        for _ in range(depth + 1):
            redacted = json.loads(redacted)
        assert redacted == NESTED[text]
        document = json.dumps(document)


TEXTS = {
    "{'password': 'ab\"c1234xyz', 'n': 1}": "{'password': '[redacted]', 'n': 1}",
    "password=hunter2": "password=[redacted]",
    "user=a&password=swordfish&x=1": "user=a&password=[redacted]&x=1",
    "https://h/?api_key=abc&x": "https://h/?api_key=[redacted]&x",
    "OPENAI_API_KEY=sk-test-0000000000000000\nok": "OPENAI_API_KEY=[redacted]\nok",
    "DB_PASSWORD=swordfish\nHOME=/root": "DB_PASSWORD=[redacted]\nHOME=/root",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG": "aws_secret_access_key = [redacted]",
    "Authorization: Bearer abcdef1234567890": "Authorization: Bearer [redacted]",
    "authorization: Basic dXNlcjpwYXNz": "authorization: Basic [redacted]",
    "Basic dXNlcjpwYXNz": "Basic [redacted]",
    "Cookie: a=b; c=d\nHost: x": "Cookie: [redacted]\nHost: x",
    "postgres://u:p@ss@h/db": "postgres://u:[redacted]@h/db",
    "redis://:p4ss@h:6379": "redis://:[redacted]@h:6379",
    "{'api_key': 'abc', 'b': 1}": "{'api_key': '[redacted]', 'b': 1}",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc==\n-----END RSA PRIVATE KEY-----\nrest": (
        "-----BEGIN RSA PRIVATE KEY-----\n[redacted]\n-----END RSA PRIVATE KEY-----\nrest"
    ),
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb\nnot ended": "-----BEGIN OPENSSH PRIVATE KEY-----\n[redacted]",
    '{"partial_json":"{\\"password\\": \\"hun"}': '{"partial_json":"{\\"password\\": \\"[redacted]"}',
    'data: {"d":"{\\"secret\\": \\"hu"}\n\ndata: {}\n\n': 'data: {"d":"{\\"secret\\": \\"[redacted]"}\n\ndata: {}\n\n',
}


@pytest.mark.parametrize("text", TEXTS)
def test_forms_headers_shells_and_cut_streams(text):
    assert REDACTOR.text(text) == TEXTS[text]
    assert REDACTOR.text(TEXTS[text]) == TEXTS[text]


@pytest.mark.parametrize("length", [10, 255, 256, 300, 5000])
def test_all_cookies_of_a_line_are_taken_however_long_it_is(length):
    cookies = "theme=" + "d" * length + "; sessionid=hunterhunter; csrftoken=plainplain"
    assert REDACTOR.text(f"> Cookie: {cookies}\n< 200") == "> Cookie: [redacted]\n< 200"
    assert REDACTOR.text(f'curl -H "Cookie: {cookies}" http://x') == 'curl -H "Cookie: [redacted]" http://x'


OPAQUE = letters(400)
URL_SAFE = letters(400, string.ascii_letters + string.digits + "-_")
STANDARD = base64.b64encode(random.Random(3).randbytes(3000)).decode()
API_BODIES = {
    "logprobs": {"choices": [{"logprobs": {"content": [{"token": "sk", "logprob": -0.1}, {"token": "Bearer"}]}}]},
    "usage": {"usage": {"max_tokens": 1, "total_tokens": 2, "output_tokens_details": {"reasoning_tokens": 3}}},
    "request": {
        "prompt_cache_key": "0199c6cd-9a0e-7a43-a2cf-2b4f5a3d1a11",
        "safety_identifier": "user_2f6d3b",
        "max_output_tokens": 100,
        "metadata": {"user_id": "user_" + OPAQUE[:64] + "_account__session_" + OPAQUE[:36]},
    },
    "reasoning": {
        "output": [{"type": "reasoning", "id": "rs_" + OPAQUE[:50], "encrypted_content": "gAAAAAB" + URL_SAFE}]
    },
    "thinking": {
        "content": [{"type": "thinking", "signature": STANDARD}, {"type": "redacted_thinking", "data": STANDARD}]
    },
    "ids": {"id": "resp_" + OPAQUE[:48], "call_id": "call_" + OPAQUE[:24], "x": "msg_" + OPAQUE[:50]},
    "chat id": {
        "id": "chatcmpl-" + OPAQUE[:29],
        "system_fingerprint": "fp_" + OPAQUE[:10],
        "request_id": "req_" + OPAQUE,
    },
    "dynamo": {"hashes": [18446744073709551615, 1], "token_ids": [1, 2], "block_hash": "0x" + "af" * 16},
    "schema": {"required": ["password"], "properties": {"password": {"type": "string"}, "api_key": {"type": "string"}}},
    "schemas": {
        "properties": {
            "password": {
                "type": "string",
                "description": "at least 8 characters",
                "pattern": "^[a-z0-9]{8,}$",
                "minLength": 1024,
                "default": "changeme1",
            },
            "api_key": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Api-Key-1"},
            "cookie": {"description": "one or 2 cookies", "type": ["array", "null"], "items": {"type": "string"}},
            "secret": {"type": "OBJECT", "properties": {"value": {"type": "string", "default": "s3cretvalue"}}},
            "access_token": {"$ref": "#/$defs/Token2"},
        }
    },
    "image": {"image_url": {"url": "data:image/png;base64," + STANDARD}},
}


@pytest.mark.parametrize("name", API_BODIES)
def test_no_field_of_the_model_apis_is_touched(name):
    text = json.dumps(API_BODIES[name])
    assert REDACTOR.text(text) is text
    stream = f"event: x\ndata: {text}\n\n"
    assert REDACTOR.text(stream) is stream


def test_base64_never_holds_a_secret():
    source = random.Random(11)
    for _ in range(50):
        media = base64.b64encode(source.randbytes(20_000)).decode()
        assert REDACTOR.text(media) is media


CODE = (
    "password: str = Field(min_length=8)",
    'api_key=os.environ["OPENAI_API_KEY"]',
    'client = OpenAI(api_key="EMPTY")',
    "PASSWORD=getpass()",
    'curl -H "Authorization: Bearer $TOKEN"',
    "postgres://$USER:$PASSWORD@host/db",
    "Basic understanding of the bearer token is enough",
    "sk-toggleable__content-pandas sk-estimator",
    "class Password: pass",
    "git@github.com:a/b and user@example.com",
    "EOS_TOKEN=</s> MAX_TOKENS=4096",
)


@pytest.mark.parametrize("text", CODE)
def test_code_that_only_speaks_of_secrets_stays(text):
    assert REDACTOR.text(text) is text


class Word(str):
    """As enums of texts are."""


def test_attributes_go_by_their_names_too():
    attributes = {"http.request.header.authorization": ["Bearer x"], "db.password": 1234, "gen_ai.token.type": "input"}
    assert REDACTOR.attributes(attributes) == {
        "http.request.header.authorization": [REDACTED],
        "db.password": REDACTED,
        "gen_ai.token.type": "input",
    }
    nested = {"a": {"api_key": "x", "b": [{"password": "y"}]}, "c": b"\xff password=hunter2"}
    assert REDACTOR.attributes(nested) == {
        "a": {"api_key": REDACTED, "b": [{"password": REDACTED}]},
        "c": b"\xff password=[redacted]",
    }
    assert REDACTOR.attributes({"a": Word("password=hunter2")}) == {"a": "password=[redacted]"}
    clean = {"a": "x", "b": 1, "c": ["y"], "d": {"e": 2.0}}
    assert REDACTOR.attributes(clean) is clean


def test_names_and_expressions_of_the_user_come_on_top_of_the_defaults():
    redactor = Redactor(read_rules("patient_id, X-Team-Key ,/EMP-\\d{4}/,/a\\/b/"))
    assert redactor.text('{"patient_id": "p", "x-team-key":5}') == '{"patient_id": "[redacted]", "x-team-key":5}'
    assert redactor.text("X-Team-Key: abc") == "X-Team-Key: [redacted]"
    assert redactor.text('{"t":"EMP-1234 \\"a/b\\"", "password":"x"}') == (
        '{"t":"[redacted] \\"[redacted]\\"", "password":"[redacted]"}'
    )
    assert redactor.attributes({"x.patient_id": "p"}) == {"x.patient_id": REDACTED}


def test_an_expression_of_the_user_leaves_json_json():
    redactor = Redactor(read_rules(r'off,/\d{16}/,/".*/'))
    text = json.dumps({"card": 4111111111111111, "t": 'say "hi" 4111111111111111', "deep": json.dumps({"n": "5" * 16})})
    redacted = json.loads(redactor.text(text))
    assert redacted["card"] == REDACTED and "4111" not in redacted["t"]
    assert json.loads(redacted["deep"]) == {"n": REDACTED}


EMPLOYEE = {
    "[INFO] user EMP-123456 logged in": "[INFO] user [redacted] logged in",
    "[1] EMP-123456 end": "[1] [redacted] end",
    "[redacted] EMP-123456": "[redacted] [redacted]",
    "{'id': 'EMP-123456'}": "{'id': '[redacted]'}",
    "{'name': \"ü EMP-123456\"}": "{'name': \"ü [redacted]\"}",
    ": EMP-123456": ": [redacted]",
    "data: EMP-123456\n\ndata: [1234567, 1]\n": "data: [redacted]\n\ndata: [1234567, 1]\n",
    'data: {"n":"EMP-123456","d":7777777}\ndata: [DONE] EMP-123456': (
        'data: {"n":"[redacted]","d":"[redacted]"}\ndata: [DONE] [redacted]'
    ),
    '{"a":"EMP-123456"}\n{"a":7777777}\n': '{"a":"[redacted]"}\n{"a":"[redacted]"}\n',
    '{"a":7777777,"cut":"\\nEMP-123456 \\"and\\u00': '{"a":"[redacted]","cut":"\\n[redacted] \\"and\\u00',
    '{"a":"EMP-123456" "b":"EMP-123456"}': '{"a":"[redacted]" "b":"[redacted]"}',
}


@pytest.mark.parametrize("text", EMPLOYEE)
def test_an_expression_of_the_user_finds_what_stands_in_text_that_only_begins_as_json_does(text):
    redactor = Redactor(read_rules(r"/\bEMP-\d{6}/,/^7{7}$/"))
    assert redactor.text(text) == EMPLOYEE[text]
    body = redactor.text(json.dumps({"messages": [{"role": "tool", "content": text}], "n": 1}))
    assert json.loads(body) == {"messages": [{"role": "tool", "content": EMPLOYEE[text]}], "n": 1}


def test_each_attribute_is_a_text_of_its_own():
    assert REDACTOR.attributes({"a": "x", "b": "password=hunterxyz&user=joe"})["b"] == "password=[redacted]&user=joe"
    for expression in (r"/^\d{9}$/", r"/\A\d{9}\Z/", r"/EMP-\d{6}/"):
        redactor = Redactor(read_rules(expression))
        for secret in ("123456789", "EMP-123456"):
            attributes = {"json": '{"x":1}', "b": secret, "c": ("y", secret), "d": 'z"'}
            expected = {name: redactor.value(value) for name, value in attributes.items()}
            assert redactor.attributes(attributes) == expected


PIECES = (
    *("password", "=", "&", "?", "x=1", ":", " ", "\n", '"', "'", "hunter2x", "api_key", "Authorization", "EMP-123456"),
    *(
        "{",
        "}",
        "[",
        "]",
        "\\",
        "https://u:",
        "p4ss@h",
        "@",
        "Basic dXNlcjpwYXNz",
        "-----BEGIN PRIVATE KEY-----",
        "MII",
    ),
    *("-----END", "cookie: a=b", "(", "password=hunter&", "sk-", "abcdefghijklmnop7", "12", "\x1e"),
)


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=4))
@pytest.mark.parametrize("rules", ["1", r"/^EMP-\d{6}$/,/\A12|12\Z/", "off,hunter2x"])
def test_attributes_are_redacted_as_each_of_their_texts_alone(rules, texts):
    attributes = {f"n{number}": text for number, text in enumerate(texts)}
    redactor = Redactor(read_rules(rules))
    assert redactor.attributes(attributes) == {name: redactor.text(text) for name, text in attributes.items()}


@pytest.mark.parametrize("off", ["0", "off", "OFF", "false"])
def test_the_defaults_can_be_switched_off(off):
    assert read_rules(off) == RedactionRules(defaults=False)
    text = '{"password": "x"}'
    assert Redactor(read_rules(off)).text(text) is text
    assert (
        Redactor(read_rules(f"{off},mine")).text('{"password":"x","mine":"y"}')
        == '{"password":"x","mine":"[redacted]"}'
    )


def test_an_expression_that_does_not_compile_is_refused():
    with pytest.raises(ValueError, match="unterminated"):
        read_rules("/(/")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.text() | st.sampled_from(["password", "api_key", "cookie", "secret"]), inner)
        ),
    )
)
def test_redacted_json_is_json(value):
    text = json.dumps(value)
    once = REDACTOR.text(text)
    json.loads(once)
    assert REDACTOR.text(once) == once


CUT_AT_A_NAME = (
    *("badge: ", '"password":', "'password': ", '"password": [', "{'cookie': {", "password = "),
    "-----BEGIN PRIVATE KEY-----",
)


@pytest.mark.parametrize("name", CUT_AT_A_NAME)
def test_json_stays_json_where_a_string_ends_with_a_name(name):
    for document in ([name, 123456, "x"], [name, "-----END"], {"x": name, "y": [1, "z"]}, {"x": {"y": name}, "z": 1}):
        text = json.dumps(document)
        for indent in (None, 1, None):
            assert Redactor(RedactionRules(names=("badge",))).text(text) == text
            text = json.dumps({"t": text}, indent=indent)


@pytest.mark.parametrize("opening", ['{"api_key":"', '{"api_key":["'])
@pytest.mark.parametrize("cut", ["abc", "abc\\"])
def test_json_stays_json_where_a_secret_within_a_string_is_cut_off(opening, cut):
    redacted = REDACTOR.text(json.dumps({"x": opening + cut, "y": 12345, "z": "abc"}))
    assert json.loads(redacted) == {"x": opening + REDACTED, "y": 12345, "z": "abc"}


@given(
    st.lists(st.sampled_from(["password", "api_key", '"', "\\", ":", "=", " ", "sk-", "a1" * 9, "@", "://", "\n", "["]))
)
def test_no_text_makes_it_raise(parts):
    REDACTOR.text("".join(parts))


HOSTILE = {
    "prefixes": "sk-" * 300,
    "jwt": "eyJ." * 300,
    "at": "a@" * 300,
    "urls": "a://b:c@" * 300,
    "names": '"password":' * 300,
    "open strings": '"password":"' * 300,
    "escapes": "password" + "\\" * 3000,
    "cookies": "cookie: " * 300,
    "private keys": "-----BEGIN PRIVATE KEY-----" * 100,
    "spaces": "password" + " " * 3000,
    "header names": '"x-a-key:' * 300,
    "hyphens": "x-" + "a-" * 3000 + "key",
}


LONG_AND_HOSTILE = {
    "cookie lines without an end": "cookie: a=" * 40_000,
    "cookie lines that a brace ends": "cookie: a=" * 40_000 + "{",
    "cookies on one line": "Set-Cookie: a=b; " * 25_000,
    "quotes in a string that is cut off": '{"' + '\\"' * 100_000,
    "JSON in JSON that is cut off": json.dumps({"content": json.dumps([{"id": 1, "k": "v"}] * 20_000)})[:-30_000],
    "JSON in JSON that was shortened": json.dumps([json.dumps([{"id": 1, "k": "v"}] * 9_000)])[:200_000] + " ...",
    "names of headers": "x-a-key:" * 50_000,
    "objects that never end": '"api_key":{"a":1,' * 20_000,
    "arrays that never end": '"api_key":[' * 30_000,
    "names in objects": ('"api_key":{' * 7 + "1," * 8000) * 10,
    "one long number": "[" + "7" * 400_000 + "]",
}


@pytest.mark.parametrize("name", LONG_AND_HOSTILE)
@pytest.mark.parametrize("rules", ["1", "/EMP-[0-9]{6}/"])
def test_hostile_text_takes_no_longer_than_its_length_asks_for(name, rules):
    redactor = Redactor(read_rules(rules))
    begin = time.process_time()
    redactor.text(LONG_AND_HOSTILE[name])
    assert time.process_time() - begin < 5  # where a rule takes quadratic time, minutes


@pytest.mark.parametrize("name", HOSTILE)
def test_findings_never_overlap_even_in_hostile_text(name):
    findings = REDACTOR._findings(HOSTILE[name] * 2)
    assert all(one.end <= other.begin for one, other in pairwise(findings))


def test_a_history_that_grows_is_redacted_as_if_it_were_seen_for_the_first_time():
    source = random.Random(5)
    secrets = [
        '"password":"a%d"',
        " sk-abcdefghijklmnop%d ",
        "-----BEGIN PRIVATE KEY-----\\nMIIE%d\\n-----END P",
        "x%d",
    ]
    redactor = Redactor()
    messages: list[str] = []
    tail = '],"tools":[' + ",".join('{"name":"t","api_key":"k"}' for _ in range(2000)) + "]}"
    for turn in range(40):
        messages.append(json.dumps({"content": "word " * source.randrange(3000) + secrets[turn % 4] % turn}))
        if turn % 11 == 10:
            del messages[source.randrange(len(messages))]
        text = '{"messages":[' + ",".join(messages) + tail
        assert redactor.text(text, "series") == Redactor().text(text)


@pytest.mark.parametrize(
    "secret",
    [
        '{"api_key":"hunter2hunter2"}',
        '{"password": ["hunter2hunter2", {"value": "swordfish"}, "hunter2hunter2"]}',
        "https://user:hunter2hunter2@host/",
        "-----BEGIN PRIVATE KEY-----\nMIIhunter2hunter2\n-----END PRIVATE KEY-----",
        "Cookie: a=hunter2hunter2; b=c",
    ],
)
def test_a_secret_that_stands_where_the_part_seen_before_ends_stays_redacted(secret):
    words = "lorem ipsum dolor " * 6000
    for at in range(-4, len(secret) + 4):
        redactor = Redactor()
        old = words[:60_000] + secret + words[: 20 * 1024 - at]
        for text in (old, old + "NEXT " + words[:4000], "NEW " + old, "NEWER " + old):  # it grows behind, and before
            assert redactor.text(text, "series") == Redactor().text(text)
        text = "a" * (20 * 1024 - at) + secret + words
        for grown in (text, "b" + text, "c" + text):
            assert redactor.text(grown, "other") == Redactor().text(grown)


GROWING = (*PIECES, *NESTED, *TEXTS, '"api_key":"', '"password":[', '{"value":', "x" * 700, "word " * 900, ",\n" * 2000)


@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_series_gives_the_text_that_a_first_look_gives(source):
    def piece(length):
        pieces = []
        while sum(map(len, pieces)) < length:
            pieces.append(source.choice(GROWING))
        return "".join(pieces)

    plain = source.random() < 0.7
    text = ("word " * 20_000)[: source.randrange(60_000, 100_000)] + piece(9000) if plain else piece(80_000)
    redactor = Redactor()
    for _ in range(6):
        assert redactor.text(text, "series") == REDACTOR.text(text)
        at = source.choice([len(text), source.randrange(len(text) - 26_000, len(text)), source.randrange(len(text))])
        text = text[:at] + piece(source.choice([1, 3000])) + text[at + source.choice([0, 0, 500, 30_000]) :]
        text = text.ljust(62_000)


def test_every_rule_is_found_by_the_letter_that_it_starts_with():
    for anchor in REDACTOR._anchors:
        assert anchor.pattern.pattern.startswith(re.escape(anchor.literal)) or anchor.pattern.pattern.startswith(
            anchor.literal
        )


@pytest.mark.parametrize(
    ("value", "redacted"),
    [
        (["--api-key=canary"], [f"--api-key={REDACTED}"]),
        (("run", "--api-key", "canary", "-v"), ["run", "--api-key", REDACTED, "-v"]),
        (["--token", "canary"], ["--token", REDACTED]),
        ("run --token canary7 -v", f"run --token {REDACTED} -v"),
        ("run --token=canary --max-tokens=200000", f"run --token={REDACTED} --max-tokens=200000"),
        ('["--auth-token", "canary7"]', f'["--auth-token", "{REDACTED}"]'),
    ],
)
def test_a_secret_among_the_arguments_of_a_command_is_taken_out(value, redacted):
    assert REDACTOR.attributes({"process.command_args": value}) == {"process.command_args": redacted}


@pytest.mark.parametrize(
    "value",
    [["--password", "--user", "x"], ["--max-token", "9876543"], "give --api-key to the 1st", "--token=$TOKEN12"],
)
def test_arguments_that_are_no_secret_stay(value):
    assert REDACTOR.attributes({"process.command_args": value, "next": "text"})["process.command_args"] == value


def test_what_stands_under_a_secrets_name_with_dots_is_taken_out():
    assert REDACTOR.attributes({"api.key": "canary"}) == {"api.key": REDACTED}
