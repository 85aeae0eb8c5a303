"""What was said, as messages of the GenAI conventions: one sentence a test, real-looking traffic, the real schemas."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from otel_gym.content import safe_json
from otel_gym.wire.parts import DIALECTS, GenAiContent, content_of
from otel_gym.wire.parts.json_schema import KEYWORDS, is_draft_07
from otel_gym.wire.parts.shapes import DEFINED_TYPES

FIXTURES = Path(__file__).parent.parent / "fixtures" / "semconv"
PIXEL = "iVBORw0KGgo="


SCHEMAS = {
    name: json.loads((FIXTURES / f"gen-ai-{name}.json").read_text())
    for name in ("input-messages", "output-messages", "system-instructions", "tool-definitions")
}


def _part_validators(schema: dict[str, Any]) -> dict[str, Draft202012Validator]:
    """One for each type that the schema defines: its catch-all would let a malformed part of that type pass."""
    kinds = {name: body.get("properties", {}).get("type", {}) for name, body in schema["$defs"].items()}
    return {
        kind["const"]: Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
        for name, kind in kinds.items()
        if "const" in kind
    }


VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
PART_VALIDATORS = {name: _part_validators(schema) for name, schema in SCHEMAS.items()}


def _assert_valid(content: GenAiContent) -> None:
    for name, value, parts in (
        ("input-messages", content.input_messages, _parts(content.input_messages)),
        ("output-messages", content.output_messages, _parts(content.output_messages)),
        ("system-instructions", content.system_instructions, content.system_instructions),
        ("tool-definitions", content.tool_definitions, content.tool_definitions),
    ):
        VALIDATORS[name].validate(value)
        for part in parts:
            if part["type"] in PART_VALIDATORS[name]:
                PART_VALIDATORS[name][part["type"]].validate(part)


def _parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for message in messages for part in message["parts"]]


def _read(dialect: str, request: Any = None, response: Any = None) -> GenAiContent:
    content = content_of(dialect, request, response)
    _assert_valid(content)
    return content


# ── Chat Completions ───────────────────────────────────────────────────────────────────────────────────────────────

CHAT_REQUEST = {
    "model": "policy-model",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Use tools."}]},
        {"role": "user", "name": "ada", "content": "What is the weather in Oslo and Rome?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Two cities, two calls.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
                {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city": '}},
                {"id": "c3", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4 °C"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "bad arguments"}]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "weather", "description": "By city", "parameters": {"type": "object"}},
        },
        {"type": "custom", "custom": {"name": "shell", "description": "Runs a line", "format": {"type": "text"}}},
    ],
}


def test_chat_messages_keep_their_roles_and_tools_become_calls_and_responses() -> None:
    content = _read("chat", CHAT_REQUEST)
    assert content.system_instructions == []
    assert content.input_messages == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "developer", "parts": [{"type": "text", "content": "Use tools."}]},
        {
            "role": "user",
            "parts": [{"type": "text", "content": "What is the weather in Oslo and Rome?"}],
            "name": "ada",
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Two cities, two calls."},
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
                {"type": "tool_call", "id": "c2", "name": "weather", "arguments": '{"city": '},
                {"type": "tool_call", "id": "c3", "name": "shell", "arguments": "ls -l"},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "4 °C"}]},
        {
            "role": "tool",
            "parts": [
                {"type": "tool_call_response", "id": "c2", "response": [{"type": "text", "content": "bad arguments"}]}
            ],
        },
    ]
    assert content.tool_definitions == [
        {"type": "function", "name": "weather", "description": "By city", "parameters": {"type": "object"}},
        {"type": "custom", "name": "shell", "description": "Runs a line"},
    ]


def test_each_chat_choice_is_a_message_with_its_normal_finish_reason() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    response = {
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}},
            {
                "index": 1,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "", "reasoning": "Hm.", "tool_calls": [call]},
            },
            {"index": 2, "finish_reason": "content_filter", "message": {"role": "assistant", "refusal": "No."}},
            {"index": 3, "finish_reason": None, "message": {"content": "cut off"}},
        ]
    }
    assert _read("chat", None, response).output_messages == [
        {"role": "assistant", "parts": [{"type": "text", "content": "4"}], "finish_reason": "stop"},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {}},
            ],
            "finish_reason": "tool_call",
        },
        {"role": "assistant", "parts": [{"type": "refusal", "content": "No."}], "finish_reason": "content_filter"},
        {"role": "assistant", "parts": [{"type": "text", "content": "cut off"}]},
    ]


def _chat_parts(*items: Any) -> Any:
    return _read("chat", {"messages": [{"role": "user", "content": list(items)}]}).input_messages[0]["parts"]


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
        ),
        (
            {"type": "image_url", "image_url": f"data:image/png;base64,{PIXEL}"},
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PIXEL},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            {"type": "blob", "modality": "audio", "mime_type": "audio/mpeg", "content": "AAAA"},
        ),
        (
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "modality": "document", "file_id": "file-1"},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
            {"type": "blob", "modality": "document", "mime_type": "application/pdf", "content": "JVBE"},
        ),
        (
            {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
            {"type": "uri", "modality": "video", "uri": "https://example.com/a.mp4"},
        ),
        ({"type": "refusal", "refusal": "I will not."}, {"type": "refusal", "content": "I will not."}),
        ({"type": "hologram", "depth": 3}, {"type": "hologram", "depth": 3}),
        ({"type": "text"}, {"type": "raw_text"}),
        ("bare text", {"type": "text", "content": "bare text"}),
        (7, {"type": "unknown", "value": 7}),
    ],
)
def test_chat_content_of_every_kind(item: Any, part: Any) -> None:
    assert _chat_parts(item) == [part]


def test_a_data_url_without_base64_becomes_base64() -> None:
    (part,) = _chat_parts({"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg%2F%3E"}})
    assert part["mime_type"] == "image/svg+xml"
    assert base64.b64decode(part["content"]) == b"<svg/>"


def test_the_legacy_function_call_and_its_result() -> None:
    request = {
        "messages": [
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "[1, 2]"}},
            {"role": "function", "name": "add", "content": "3"},
        ],
        "functions": [{"name": "add", "parameters": {"type": "object"}}],
    }
    content = _read("chat", request)
    assert content.input_messages == [
        {"role": "assistant", "parts": [{"type": "tool_call", "name": "add", "arguments": [1, 2]}]},
        {"role": "function", "parts": [{"type": "tool_call_response", "name": "add", "response": "3"}]},
    ]
    assert content.tool_definitions == [{"type": "function", "name": "add", "parameters": {"type": "object"}}]


def test_spoken_answers_and_reasoning_details() -> None:
    said = {
        "reasoning_details": [
            {"type": "reasoning.text", "text": "Quiet."},
            {"type": "reasoning.encrypted", "data": "x"},
        ],
        "audio": {"id": "audio_1", "data": "AAAA", "transcript": "Hello"},
    }
    assert _read("chat", None, {"choices": [{"message": said}]}).output_messages[0]["parts"] == [
        {"type": "reasoning", "content": "Quiet."},
        {"type": "reasoning.encrypted", "data": "x"},
        {"type": "blob", "modality": "audio", "content": "AAAA"},
        {"type": "text", "content": "Hello"},
    ]


# ── Responses ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_responses_input_text_is_a_user_message_and_instructions_are_the_system() -> None:
    content = _read("responses", {"instructions": "Be brief.", "input": "What is 2+2?"})
    assert content.system_instructions == [{"type": "text", "content": "Be brief."}]
    assert content.input_messages == [{"role": "user", "parts": [{"type": "text", "content": "What is 2+2?"}]}]


RESPONSES_INPUT = [
    {"role": "user", "content": "easy form"},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "and with an image"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "low"},
            {"type": "input_image", "file_id": "file-2"},
            {"type": "input_file", "file_url": "https://example.com/a.pdf"},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Two calls."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
    {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "c1", "output": "4 °C"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    {"type": "local_shell_call", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAA"},
    {"type": "item_reference", "id": "msg_9"},
]


def test_responses_items_of_one_turn_form_one_message() -> None:
    messages = _read("responses", {"input": RESPONSES_INPUT}).input_messages
    assert [message["role"] for message in messages] == ["user", "user", "assistant", "tool", "assistant", "unknown"]
    assert [part["type"] for part in messages[1]["parts"]] == ["text", "blob", "file", "uri", "blob"]
    assert messages[2]["parts"] == [
        {"type": "reasoning", "content": "Two calls."},
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
        {"type": "tool_call", "id": "c2", "name": "apply_patch", "arguments": "*** Begin"},
    ]
    assert messages[3]["parts"] == [
        {"type": "tool_call_response", "id": "c1", "response": "4 °C"},
        {"type": "tool_call_response", "id": "c2", "response": [{"type": "text", "content": "done"}]},
    ]
    assert messages[4]["parts"] == [
        {"type": "tool_call", "id": "c3", "name": "local_shell", "arguments": {"type": "exec", "command": ["ls"]}},
        {"type": "raw_reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAA"},
    ]
    assert messages[5]["parts"] == [{"type": "item_reference", "id": "msg_9"}]


def test_responses_output_is_one_message_with_hosted_tools_and_their_results() -> None:
    response = {
        "status": "completed",
        "output": [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
            {
                "type": "mcp_call",
                "id": "mcp_1",
                "server_label": "docs",
                "name": "find",
                "arguments": "{}",
                "output": "x",
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "2"}, {"type": "refusal", "refusal": "no more"}],
            },
        ],
    }
    (message,) = _read("responses", None, response).output_messages
    assert message["finish_reason"] == "stop"
    assert message["parts"] == [
        {
            "type": "server_tool_call",
            "id": "ws_1",
            "name": "web_search",
            "server_tool_call": {
                "type": "web_search",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
        },
        {
            "type": "server_tool_call",
            "id": "ci_1",
            "name": "code_interpreter",
            "server_tool_call": {"type": "code_interpreter", "code": "1+1"},
        },
        {
            "type": "server_tool_call_response",
            "id": "ci_1",
            "server_tool_call_response": {"outputs": [{"type": "logs", "logs": "2"}], "type": "code_interpreter"},
        },
        {
            "type": "server_tool_call",
            "id": "mcp_1",
            "name": "find",
            "server_tool_call": {"type": "mcp", "server_label": "docs", "name": "find", "arguments": "{}"},
        },
        {
            "type": "server_tool_call_response",
            "id": "mcp_1",
            "server_tool_call_response": {"output": "x", "type": "mcp"},
        },
        {"type": "text", "content": "2"},
        {"type": "refusal", "content": "no more"},
    ]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "failed"}, "error"),
        ({"status": "in_progress"}, None),
        ({}, None),
    ],
)
def test_why_a_response_ended(response: dict[str, Any], reason: str | None) -> None:
    output = [{"type": "message", "role": "assistant", "content": []}]
    (message,) = _read("responses", None, {**response, "output": output}).output_messages
    assert message.get("finish_reason") == reason


def test_a_response_that_asks_for_a_call_ended_with_it() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    (message,) = _read("responses", None, {"status": "completed", "output": [call]}).output_messages
    assert message["finish_reason"] == "tool_call"


def test_responses_tools_are_named_and_never_carry_the_keys_of_an_mcp_server() -> None:
    tools = [
        {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True},
        {"type": "custom", "name": "apply_patch", "description": "Edits files"},
        {"type": "web_search", "external_web_access": True},
        {"type": "mcp", "server_label": "docs", "server_url": "https://example.com", "headers": {"Authorization": "x"}},
        {"type": "function"},
        {"no": "type"},
    ]
    assert _read("responses", {"tools": tools}).tool_definitions == [
        {"type": "function", "name": "weather", "parameters": {"type": "object"}},
        {"type": "custom", "name": "apply_patch", "description": "Edits files"},
        {"type": "web_search", "name": "web_search"},
        {"type": "mcp", "name": "docs"},
        {"type": "raw_function", "name": "function"},
    ]


# ── Messages ───────────────────────────────────────────────────────────────────────────────────────────────────────

MESSAGES_REQUEST = {
    "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "List the files."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Run ls.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "b3BhcXVl"},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"path": "a.png"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                        {"type": "text", "text": "1 × 1"},
                    ],
                },
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "tools": [
        {"name": "Bash", "description": "Runs a command", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    ],
}


def test_messages_tools_thinking_and_results() -> None:
    content = _read("messages", MESSAGES_REQUEST)
    assert content.system_instructions == [{"type": "text", "content": "You are an agent."}]
    assert content.input_messages == [
        {"role": "user", "parts": [{"type": "text", "content": "List the files."}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Run ls."},
                {"type": "redacted_thinking", "data": "b3BhcXVl"},
                {"type": "tool_call", "id": "toolu_1", "name": "Bash", "arguments": {"command": "ls"}},
                {"type": "tool_call", "id": "toolu_2", "name": "Read", "arguments": {"path": "a.png"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"type": "tool_call_response", "id": "toolu_1", "is_error": True, "response": "no such file"},
                {
                    "type": "tool_call_response",
                    "id": "toolu_2",
                    "response": [
                        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PIXEL},
                        {"type": "text", "content": "1 × 1"},
                    ],
                },
                {"type": "text", "content": "Go on."},
            ],
        },
    ]
    assert content.tool_definitions == [
        {"type": "function", "name": "Bash", "description": "Runs a command", "parameters": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]


def test_messages_media_in_every_form() -> None:
    blocks = [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}},
        {"type": "image", "source": {"type": "satellite"}},
    ]
    (message,) = _read("messages", {"messages": [{"role": "user", "content": blocks}]}).input_messages
    assert message["parts"] == [
        {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
        {"type": "file", "modality": "image", "file_id": "file_1"},
        {"type": "blob", "modality": "document", "mime_type": "application/pdf", "content": "JVBE"},
        {"type": "blob", "modality": "document", "mime_type": "text/plain", "content": "cGxhaW4="},
        {"type": "text", "content": "inner"},
        {"type": "image", "source": {"type": "satellite"}},
    ]


def test_messages_server_tools() -> None:
    response = {
        "role": "assistant",
        "stop_reason": "pause_turn",
        "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "web_search_result"}]},
            {"type": "mcp_tool_use", "id": "m_1", "name": "find", "server_name": "docs", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m_1", "is_error": True, "content": []},
            {"type": "compaction", "content": "So far: nothing."},
        ],
    }
    (message,) = _read("messages", None, response).output_messages
    assert message["finish_reason"] == "pause_turn"
    assert message["parts"] == [
        {
            "type": "server_tool_call",
            "id": "srv_1",
            "name": "web_search",
            "server_tool_call": {"type": "web_search", "input": {"query": "q"}},
        },
        {
            "type": "server_tool_call_response",
            "id": "srv_1",
            "server_tool_call_response": {"type": "web_search", "content": [{"type": "web_search_result"}]},
        },
        {
            "type": "server_tool_call",
            "id": "m_1",
            "name": "find",
            "server_tool_call": {"type": "mcp", "server_name": "docs", "input": {}},
        },
        {
            "type": "server_tool_call_response",
            "id": "m_1",
            "server_tool_call_response": {"type": "mcp", "content": [], "is_error": True},
        },
        {"type": "compaction", "content": "So far: nothing."},
    ]


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_call"),
        ("refusal", "content_filter"),
        ("something_new", "something_new"),
        (None, None),
    ],
)
def test_why_a_message_ended(stop_reason: str | None, reason: str | None) -> None:
    (message,) = _read("messages", None, {"content": [], "stop_reason": stop_reason}).output_messages
    assert message.get("finish_reason") == reason


# ── all ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_body_or_none_has_no_messages(dialect: str) -> None:
    assert _read(dialect, None, {"error": {"type": "invalid_request_error"}}) == GenAiContent()
    assert _read(dialect) == GenAiContent()


def test_nesting_as_deep_as_json_goes_is_read_without_recursion() -> None:
    block: Any = "deep"
    for _ in range(100_000):
        block = [{"type": "tool_result", "tool_use_id": "t", "content": block}]
    content = content_of("messages", {"messages": [{"role": "user", "content": block}]}, None)
    assert content.input_messages[0]["parts"][0]["id"] == "t"
    while isinstance(block, list):  # taken apart by hand: the interpreter frees deep nesting by recursion
        block = block[0].pop("content")


@pytest.mark.parametrize(
    ("dialect", "request_body"),
    [("chat", CHAT_REQUEST), ("messages", MESSAGES_REQUEST), ("responses", {"input": RESPONSES_INPUT})],
)
def test_reading_changes_nothing(dialect: str, request_body: dict[str, Any]) -> None:
    before = copy.deepcopy(request_body)
    assert content_of(dialect, request_body, None) == content_of(dialect, request_body, None)
    assert request_body == before


# Words of the dialects, so that random JSON reaches the readers of items and not only their border.
WORDS = sorted(
    {"type", "role", "content", "text", "messages", "input", "tools", "functions", "choices", "message", "output", "id"}
    | {"tool_calls", "function", "custom", "name", "arguments", "source", "data", "summary", "system", "instructions"}
    | {"thinking", "tool_result", "tool_use", "server_tool_use", "image", "document", "base64", "url", "refusal"}
    | {"image_url", "input_audio", "input_image", "file", "audio", "function_call", "function_call_output", "reasoning"}
    | {"web_search_call", "mcp_call", "mcp_tool_result", "compaction", "local_shell_call", "tool", "assistant"}
    | {"incomplete_details", "reason", "status", "completed", "data:,", "data:image/png;base64,AA", "custom_tool_call"}
    | {"parameters", "input_schema", "description", "tool_result", "data:image/png;base64,AA"}
    | DEFINED_TYPES
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=30,
)


@given(dialect=st.sampled_from(sorted(DIALECTS)), request_body=JSON, response_body=JSON)
def test_any_json_gives_valid_messages(dialect: str, request_body: Any, response_body: Any) -> None:
    _assert_valid(_as_stored(content_of(dialect, request_body, response_body)))


@given(
    dialect=st.sampled_from(sorted(DIALECTS)),
    items=st.lists(st.dictionaries(st.sampled_from(WORDS), JSON, max_size=6), max_size=4),
)
def test_any_list_of_items_gives_valid_messages(dialect: str, items: list[Any]) -> None:
    wrapped = {"messages": items, "input": items, "system": items, "instructions": items, "tools": items}
    said = {"choices": [{"message": item} for item in items], "output": items, "content": items}
    _assert_valid(_as_stored(content_of(dialect, wrapped, said)))


def _as_stored(content: GenAiContent) -> GenAiContent:
    fields = (getattr(content, field.name) for field in dataclasses.fields(content))
    return GenAiContent(*(json.loads(safe_json(value)) for value in fields))


SCHEMA_WORDS = sorted({*KEYWORDS, "object", "string", "city"})
SCHEMAS_OR_NOT = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.sampled_from(SCHEMA_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SCHEMA_WORDS), inner, max_size=3),
    max_leaves=12,
)


@given(keyword=st.sampled_from(SCHEMA_WORDS), value=SCHEMAS_OR_NOT)
def test_parameters_are_a_schema_exactly_where_the_metaschema_says_so(keyword: str, value: Any) -> None:
    stored = json.loads(safe_json({keyword: value}))
    assert is_draft_07(stored) == Draft7Validator(Draft7Validator.META_SCHEMA).is_valid(stored)


def test_parameters_that_are_no_schema_are_kept_apart() -> None:
    tool = {"name": "update", "input_schema": {"type": "object", "properties": {"status": {"type": None}}}}
    assert _read("messages", {"tools": [tool]}).tool_definitions == [
        {"type": "function", "name": "update", "raw_parameters": tool["input_schema"]}
    ]
