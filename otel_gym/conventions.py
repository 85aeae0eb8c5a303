"""Attribute, span and header names.

``gen_ai.*`` names are those of the GenAI semantic conventions (main of 2026-10, no release yet);
``gym.*`` is ours, for what the conventions lack. Each of ours stands in ``GYM_ATTRIBUTES`` with its
type, meaning and an example; docs/conventions.md is made from that table.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
SCOPE_NAME = "otel_gym"
STORE_VERSION = "1"

ROLLOUT_SPAN = "rollout"
AGENT_STEP_SPAN = "agent_step"
REWARD_SPAN = "record_reward"
# What a capture file of NeMo Gym is, above the calls that were read from it.
CAPTURE_SPAN = "model_call_capture"

# What `gen_ai.operation.name` says of a call of a model.
INFERENCE_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})

# A gym span without a rollout id is filed under this name; no rollout may be called so.
UNASSIGNED = "unassigned"


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    type: str
    meaning: str
    example: str


GYM_ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("gym.run.id", "string", "the launch: a training step, an evaluation", "20261130T022338Z-9f3a"),
    Attribute("gym.rollout.id", "string", "the rollout; `unassigned` where a gym span had none", "12-0-a1"),
    Attribute("nemo.gym.rollout.id", "string", "the same, under the name that NeMo Gym's own spans carry", "12-0-a1"),
    Attribute("nemo.gym.server.name", "string", "server of a NeMo Gym run, as its config names it", "policy_model"),
    Attribute("gym.rollout.id.refused", "string", "what a URL said instead of a valid id, cut to 200", "my rollout"),
    Attribute("gym.rollout.task_index", "int", "task of the rollout, where the id was made from indices", "12"),
    Attribute("gym.rollout.index", "int", "which rollout of its task", "0"),
    Attribute("gym.rollout.attempt", "int", "which try of this rollout; absent for the first", "1"),
    Attribute("gym.reward", "double", "the verifier's verdict on the rollout", "1.0"),
    Attribute(
        "gym.reward.time_ns", "int", "when the reward on a `rollout` span was given, UTC ns", "1796000000123456789"
    ),
    Attribute(
        "gym.mask_sample",
        "boolean",
        "true: the environment failed, so the reward says nothing of the model, in NeMo Gym's words",
        "true",
    ),
    Attribute("gym.failure_kind", "string", "why the environment could not judge, in NeMo Gym's words", "judge_failed"),
    Attribute("gym.session.id", "string", "session of the environment that a request belongs to", "0f8fad5b-d9cb-…"),
    Attribute(
        "gym.rollout.id.assumed",
        "boolean",
        "the span had no context; its rollout is the only one that was open in its process",
        "true",
    ),
    Attribute("gym.step.index", "int", "which step of its agent, from 1", "3"),
    Attribute("gym.spawned_by", "string", "on a subagent: the id of the tool call that spawned it", "toolu_01A"),
    Attribute(
        "gym.subagent.id",
        "string[]",
        "on a tool's run: the subagents that it spawned, by id, else by name; it is linked to their spans too",
        '["explore-1"]',
    ),
    Attribute("gym.source", "string", "of imported spans: transcript, stream_json, atif …", "transcript"),
    Attribute("gym.source.session_id", "string", "session that the span was imported from", "b62ec037-0595-…"),
    Attribute("gym.source.index", "int", "place in the source; orders what one agent did", "17"),
    Attribute(
        "gym.capture.line",
        "string",
        "of a line of NeMo Gym's own capture file: ids, times, status as it says them, JSON",
        '{"model_call_id":"582c7700",…}',
    ),
    Attribute(
        "gym.capture.content",
        "string",
        "the same: what else it says, and neither body does, JSON",
        '{"response":{"id":"resp_1",…}}',
    ),
    Attribute("gym.capture.unreadable_records", "int", "lines of that file that give no record", "13"),
    Attribute("gym.capture.incomplete", "boolean", "NeMo Gym says itself that calls are missing in it", "true"),
    Attribute("gym.capture.unreadable", "boolean", "the file could not be read at all", "true"),
    Attribute(
        "gym.source.continues",
        "string",
        "session that this one was forked from, and repeats nothing of",
        "01a229a9-83d2-…",
    ),
    Attribute("gym.source.continues_index", "int", "first place of that session that this one does not share", "29"),
    Attribute("gym.source.version", "string", "version of the program that wrote the source", "2.1.332"),
    Attribute(
        "gym.time.known", "boolean", "false: the source gives no time, start and end are the last one before", "false"
    ),
    Attribute(
        "gym.output.items", "string", "what a generation made, JSON list of Responses items", '[{"type":"message",…}]'
    ),
    Attribute("gym.usage.provider", "string", "the usage object as the provider said it, JSON", '{"input_tokens":3,…}'),
    Attribute("gym.request.id", "string", "the provider's id of the request, by its response header", "req_011CT"),
    Attribute(
        "gym.same_call",
        "boolean",
        "on a link that a reader makes: the other span tells of the same call, and does not count",
        "true",
    ),
    Attribute("gym.item", "string", "on an event: a Responses item, JSON", '{"type":"message","role":"user",…}'),
    Attribute(
        "gym.turn.end", "string", "how a turn ended: completed, failed or interrupted; absent: not told", "completed"
    ),
    Attribute(
        "gym.call.kind", "string", "of a model call that is no step of the agent's own: `compaction`", "compaction"
    ),
    Attribute("gym.agent.dropped_records", "int", "records of the source that were not understood", "2"),
    Attribute("gym.agent.duration_ms", "double", "of the whole run, as the harness says", "2661.0"),
    Attribute("gym.agent.total_cost_usd", "double", "of the whole run, as the harness says", "0.0421"),
    Attribute(
        "gym.agent.provider_usage", "string", "of the whole run, as the harness says, JSON", '{"claude-sonnet-4-6":{…}}'
    ),
    Attribute("gym.tool.error", "string", "of a tool that failed: message and data, JSON", '{"message":"Exit code 3"}'),
    Attribute("gym.tool.extra", "string", "what else is known of a tool's run, JSON", '{"exit_code":3}'),
    Attribute("gym.tool.index", "int", "order in which the results of an agent's tools arrived", "4"),
    Attribute("gym.cost_usd", "double", "of a generation, where its source says it", "0.0021"),
    Attribute("gym.token_ids.prompt", "int[]", "of a generation: the tokens that the model was sent", "[1, 2, 3]"),
    Attribute("gym.token_ids.completion", "int[]", "of a generation: the tokens that it sampled", "[10, 11]"),
    Attribute("gym.token_ids.logprobs", "double[]", "of a generation: one for each token sampled", "[-0.1, -2.5]"),
    Attribute(
        "gym.atif.document",
        "string",
        "of an import of ATIF: the document that a turn is of, by file and place in it",
        "trajectory.json#subagent_trajectories/0",
    ),
    Attribute("gym.atif.schema_version", "string", "on invoke_agent: version of the document", "ATIF-v1.7"),
    Attribute("gym.atif.trajectory_id", "string", "on invoke_agent: id of the document", "main"),
    Attribute("gym.atif.notes", "string", "on invoke_agent: notes of the document", "cut at step 80"),
    Attribute(
        "gym.atif.continued_trajectory_ref",
        "string",
        "on invoke_agent: the file that goes on",
        "trajectory.cont-1.json",
    ),
    Attribute(
        "gym.atif.agent.tool_definitions",
        "string",
        "on invoke_agent: tools that `gen_ai.tool.definitions` cannot say, JSON",
        '[{"name":"ls"}]',
    ),
    Attribute("gym.atif.agent.extra", "string", "on invoke_agent: extra of the agent, JSON", '{"parser":"json"}'),
    Attribute(
        "gym.atif.extra",
        "string",
        "extra, JSON: of the document (invoke_agent), the step (agent_step, event), the call (execute_tool)",
        '{"reward":1.0}',
    ),
    Attribute("gym.atif.final.total_prompt_tokens", "int", "on the last turn: total that the document says", "280"),
    Attribute("gym.atif.final.total_completion_tokens", "int", "on the last turn: total of the document", "27"),
    Attribute("gym.atif.final.total_cached_tokens", "int", "on the last turn: total of the document", "64"),
    Attribute("gym.atif.final.total_steps", "int", "on the last turn: total of the document", "4"),
    Attribute("gym.atif.final.extra", "string", "on the last turn: extra of the totals, JSON", '{"turns":2}'),
    Attribute("gym.atif.step_id", "int", "on agent_step and events: the step that it is of", "3"),
    Attribute("gym.atif.source", "string", "on the event that a step is told by: whose step", "system"),
    Attribute("gym.atif.timestamp", "string", "of a step, as the document writes it", "2026-01-02T03:04:05Z"),
    Attribute("gym.atif.llm_call_count", "int", "of a step: model calls in it; 0: it acted without one", "1"),
    Attribute("gym.atif.is_copied_context", "boolean", "of a step: told again, counted elsewhere", "true"),
    Attribute("gym.atif.reasoning_effort", "double", "of a step, where it is a number", "0.5"),
    Attribute(
        "gym.atif.message",
        "string",
        "on the event of a context boundary: the message of its step, JSON item",
        '{"type":"message","role":"system",…}',
    ),
    Attribute("gym.atif.message_parts", "boolean", "true: the content is a list of parts", "true"),
    Attribute(
        "gym.atif.prompt_tokens", "int", "of a step before ATIF 1.2 that leaves the cached tokens out of them", "120"
    ),
    Attribute("gym.atif.metrics.extra", "string", "extra of a step's metrics, JSON", '{"reasoning_tokens":4}'),
    Attribute("gym.atif.call.index", "int", "which of its step's tool calls, from 0", "0"),
    Attribute("gym.atif.result.index", "int", "which of its step's observation results, from 0", "1"),
    Attribute("gym.atif.result.extra", "string", "extra of an observation result, JSON", '{"latency_ms":12}'),
    Attribute(
        "gym.atif.result.subagent_trajectory_ref",
        "string",
        "the subagents that an observation result refers to, JSON list",
        '[{"trajectory_id":"sub-a"}]',
    ),
    Attribute(
        "gym.atif.empty_fields",
        "string[]",
        "of a document or a step: fields that are there with an empty value",
        '["tool_calls=[]"]',
    ),
    Attribute("gym.store.version", "string", "on the scope: form of the stored line", "1"),
    Attribute("gym.model_call.id", "string", "one exchange with a model server", "582c7700c500862a12cb11a11f9f452f"),
    Attribute("gym.model_ref.type", "string", "kind of the model server, in NeMo Gym's config", "responses_api_models"),
    Attribute("gym.model_ref.name", "string", "name of the model server, in NeMo Gym's config", "policy_model"),
    Attribute("gym.dialect", "string", "API of the exchange: responses, chat or messages", "chat"),
    Attribute("gym.error_category", "string", "why the call was no success, in NeMo Gym's words", "stream_truncated"),
    Attribute("gym.http.request.method", "string", "method, where it was not POST", "GET"),
    Attribute("gym.request.body", "string", "the request's body as it came, compression undone", '{"model":…}'),
    Attribute("gym.request.body.encoding", "string", "`base64`, `gzip+base64`: the text stands for bytes", "base64"),
    Attribute("gym.request.body.bytes", "int", "whole length, where only the head of the body was kept", "90000000"),
    Attribute(
        "gym.request.body.sha256",
        "string",
        "of the whole body, where only its head was kept; of the whole text, where it grew out of another",
        "9f86d081…",
    ),
    Attribute(
        "gym.request.body.base",
        "string",
        "the text grew out of that of this span, an earlier one of its rollout and file; `gym.request.body` is new",
        "00f067aa0ba902b7",
    ),
    Attribute("gym.request.body.kept_head", "int", "characters kept from the start of the base's text", "48213"),
    Attribute("gym.request.body.kept_tail", "int", "characters kept from the end of the base's text", "20411"),
    Attribute(
        "gym.request.body.kept_blocks",
        "int[]",
        "triples: before this character of the new text stands, from this character of the base, so much of it",
        "[4100, 48213, 20377]",
    ),
    Attribute("gym.request.body.characters", "int", "length of the whole text", "72730"),
    Attribute("gym.request.body.blobs", "int", "media of the text that is replaced by references to blobs/", "2"),
    Attribute(
        "gym.request.body.gap",
        "string",
        "why a sealed span has no request: what it grew out of was damaged",
        "its request cannot be rebuilt: …",
    ),
    Attribute("gym.request.content_encoding", "string", "compression on the wire", "zstd"),
    Attribute("gym.request.header.<name>", "string[]", "allow-listed request header", '["thread-1"]'),
    Attribute("gym.response.body", "string", "the response's body as it went, compression undone", "data: {…"),
    Attribute("gym.response.body.encoding", "string", "`base64`, `gzip+base64`: the text stands for bytes", "base64"),
    Attribute("gym.response.body.bytes", "int", "whole length, where only the head of the body was kept", "90000000"),
    Attribute("gym.response.body.sha256", "string", "of the whole body, where only its head was kept", "9f86d081…"),
    Attribute("gym.response.body.blobs", "int", "media of the text that is replaced by references to blobs/", "1"),
    Attribute("gym.response.content_encoding", "string", "compression on the wire", "gzip"),
    Attribute("gym.response.content_type", "string", "media type with parameters, as sent", "text/event-stream"),
    Attribute("gym.response.header.<name>", "string[]", "allow-listed response header", '["req_1"]'),
    Attribute(
        "gym.response.time_to_first_content_ns", "int", "ns to the first text, reasoning, tool call", "120000000"
    ),
    Attribute("gym.response.time_to_first_chunk_ns", "int", "ns to the first byte of the body", "20000000"),
    Attribute("gym.response.last_byte_ns", "int", "ns to the final body message, if one was sent", "340000000"),
    Attribute("gym.response.returned_ns", "int", "ns until the server below returned", "350000000"),
    Attribute("gym.response.error", "string", "the provider's error object, JSON", '{"type":"overloaded_error"}'),
    Attribute("gym.exception.type", "string", "class of the exception that ended the exchange", "ConnectionResetError"),
    Attribute("gym.exception.category", "string", "cancelled, timeout, connection or exception", "connection"),
    Attribute("gym.exception.status_code", "int", "HTTP status that the exception carried", "429"),
    Attribute("gym.exception.body", "string", "response text that the exception carried", '{"error":"slow"}'),
    Attribute(
        "gym.content.replaced",
        "int",
        "lone surrogates, numbers that JSON lacks, values too deep: replaced in what is derived, not in a body",
        "2",
    ),
    Attribute(
        "gym.content.cut", "int", "attributes whose text is as long as the limit of lengths: cut, most likely", "1"
    ),
    Attribute(
        "gym.otlp.cut",
        "string[]",
        "on spans sent over OTLP: attributes that were cut or left out, each with its whole length in bytes",
        '["gym.response.error=48213"]',
    ),
    Attribute(
        "gym.retry.count",
        "int",
        "on the event `gym.retry` of spans sent over OTLP: which retry, as the client says",
        "1",
    ),
    Attribute(
        "gym.agent_context.session_id", "string", "session that a call is of, as Dynamo and harnesses say it", "run-1"
    ),
    Attribute("gym.agent_context.session_type_id", "string", "kind of the session", "deep_research"),
    Attribute("gym.agent_context.trajectory_id", "string", "agent of the session", "run-1:planner"),
    Attribute("gym.agent_context.parent_trajectory_id", "string", "agent above it", "run-1:root"),
    Attribute("gym.agent_context.trajectory_final", "boolean", "the last call of its trajectory", "true"),
    Attribute(
        "gym.agent_context.parent_session_id", "string", "session above it (Dynamo 1.3 and newer)", "run-1:planner"
    ),
    Attribute("gym.agent_context.session_final", "boolean", "the last call of its session", "true"),
    Attribute("gym.agent_context.input_trigger", "string", "user_message, tool_result or other", "tool_result"),
    Attribute("gym.agent_context.compaction", "string", "of a call that compacts, JSON", '{"trigger":"auto"}'),
    Attribute("gym.agent_context.kv_hints", "string", "what the cache was told, JSON", '{"evict_session":true}'),
    Attribute("gym.agent_context.agent_headers", "string", "headers of the harness, JSON", '{"x-agent":["a"]}'),
    Attribute("gym.dynamo.schema", "string", "schema of the trace record", "dynamo.agent.trace.v1"),
    Attribute("gym.dynamo.event_source", "string", "who wrote the record, `dynamo` or `harness`", "dynamo"),
    Attribute("gym.dynamo.event_time_unix_ms", "int", "time of the record, UNIX ms", "1777312800100"),
    Attribute(
        "gym.dynamo.request_id", "string", "Dynamo's own id of a request", "6ba0f973-2b95-4152-b710-1c2e5a743892"
    ),
    Attribute("gym.dynamo.x_request_id", "string", "the client's id of it, from its header `x-request-id`", "llm-1"),
    Attribute("gym.dynamo.request_received_ms", "int", "when the request was received, UNIX ms", "1777312800000"),
    Attribute("gym.dynamo.prefill_wait_time_ms", "double", "received to start of prefill", "2.5"),
    Attribute("gym.dynamo.prefill_time_ms", "double", "start of prefill to first token", "20.25"),
    Attribute("gym.dynamo.ttft_ms", "double", "received to first token", "22.75"),
    Attribute("gym.dynamo.total_time_ms", "double", "received to finished", "100.4"),
    Attribute("gym.dynamo.avg_itl_ms", "double", "mean time between tokens", "5.5"),
    Attribute("gym.dynamo.kv_hit_rate", "double", "part of the prompt in the cache, the router's estimate", "0.4"),
    Attribute("gym.dynamo.kv_transfer_estimated_latency_ms", "double", "of a disaggregated request", "1.25"),
    Attribute("gym.dynamo.queue_depth", "int", "requests that waited in the router", "1"),
    Attribute(
        "gym.dynamo.prefill_worker_id", "string", "worker of the prefill; a number above 2^53", "7587894923333011484"
    ),
    Attribute("gym.dynamo.prefill_dp_rank", "int", "data parallel rank of the prefill", "0"),
    Attribute("gym.dynamo.decode_worker_id", "string", "worker of the decode", "7587894923333011487"),
    Attribute("gym.dynamo.decode_dp_rank", "int", "data parallel rank of the decode", "1"),
    Attribute(
        "gym.dynamo.finish_reason_metadata",
        "string",
        "finish reasons and tools asked for, JSON",
        '{"finish_reason":"stop"}',
    ),
    Attribute("gym.dynamo.replay.trace_block_size", "int", "tokens of a block", "16"),
    Attribute("gym.dynamo.replay.input_length", "int", "tokens of the prompt", "30"),
    Attribute(
        "gym.dynamo.replay.input_sequence_hashes",
        "string[]",
        "one a block of the prompt, unsigned 64-bit in decimal",
        '["14879255164371896291"]',
    ),
    Attribute("gym.dynamo.endpoint", "string", "endpoint that a payload was recorded at", "openai.chat_completion"),
    Attribute("gym.dynamo.payload_complete", "boolean", "whether Dynamo has recorded the whole payload", "true"),
    Attribute("gym.dynamo.payload_drop_reason", "string", "why a payload is not whole", "otel_payload_too_large"),
    Attribute("gym.dynamo.tool.status", "string", "running, succeeded, error or cancelled", "succeeded"),
    Attribute("gym.dynamo.tool.events", "string[]", "records that told of the tool", '["tool_start","tool_end"]'),
    Attribute("gym.dynamo.tool.started_at_unix_ms", "int", "start that a record gives, UNIX ms", "1777312800105"),
    Attribute("gym.dynamo.tool.ended_at_unix_ms", "int", "end that a record gives, UNIX ms", "1777312800205"),
    Attribute("gym.dynamo.tool.duration_ms", "double", "how long it took, as a record says", "100.0"),
    Attribute("gym.dynamo.tool.output_tokens", "int", "tokens of its result", "12"),
    Attribute("gym.dynamo.tool.output_bytes", "int", "bytes of its result", "10"),
    Attribute("gym.dynamo.tool.name_hash", "string", "hash of its name", "9f86d081"),
    Attribute("gym.dynamo.extra", "string", "fields of a record that are not known, JSON", '{"agent_context":{"x":1}}'),
    Attribute("gym.execution.upstream_attempted", "boolean", "the model server called its upstream", "true"),
    Attribute("gym.execution.response_source", "string", "`upstream`, or `local`: made up by the server", "local"),
    Attribute("gym.execution.upstream_status_code", "int", "status of the upstream's answer", "400"),
    Attribute("gym.execution.local_response_reason", "string", "why the answer is local", "context_length_exceeded"),
)

RUN_ID = "gym.run.id"
AGENT_CONTEXT_PREFIX = "gym.agent_context."
DYNAMO_PREFIX = "gym.dynamo."
DYNAMO_EXTRA = "gym.dynamo.extra"
X_REQUEST_ID = "gym.dynamo.x_request_id"
ROLLOUT_ID = "gym.rollout.id"
REFUSED_ROLLOUT_ID = "gym.rollout.id.refused"
NEMO_ROLLOUT_ID = "nemo.gym.rollout.id"
NEMO_SERVER_NAME = "nemo.gym.server.name"
TASK_INDEX = "gym.rollout.task_index"
ROLLOUT_INDEX = "gym.rollout.index"
ATTEMPT = "gym.rollout.attempt"
REWARD = "gym.reward"
REWARD_TIME = "gym.reward.time_ns"
MASK_SAMPLE = "gym.mask_sample"
FAILURE_KIND = "gym.failure_kind"
SESSION_ID = "gym.session.id"
ROLLOUT_ID_ASSUMED = "gym.rollout.id.assumed"
MODEL_CALL_ID = "gym.model_call.id"
MODEL_REF_TYPE = "gym.model_ref.type"
MODEL_REF_NAME = "gym.model_ref.name"
DIALECT = "gym.dialect"
ERROR_CATEGORY = "gym.error_category"
REQUEST_METHOD = "gym.http.request.method"
REQUEST_BODY = "gym.request.body"
REQUEST_CONTENT_ENCODING = "gym.request.content_encoding"
REQUEST_HEADER = "gym.request.header."
RESPONSE_BODY = "gym.response.body"
RESPONSE_CONTENT_ENCODING = "gym.response.content_encoding"
RESPONSE_CONTENT_TYPE = "gym.response.content_type"
RESPONSE_HEADER = "gym.response.header."
FIRST_CONTENT_NS = "gym.response.time_to_first_content_ns"
FIRST_CHUNK_NS = "gym.response.time_to_first_chunk_ns"
LAST_BYTE_NS = "gym.response.last_byte_ns"
RETURNED_NS = "gym.response.returned_ns"
RESPONSE_ERROR = "gym.response.error"
EXCEPTION_TYPE = "gym.exception.type"
EXCEPTION_CATEGORY = "gym.exception.category"
EXCEPTION_STATUS_CODE = "gym.exception.status_code"
EXCEPTION_BODY = "gym.exception.body"
CONTENT_REPLACED = "gym.content.replaced"
CONTENT_CUT = "gym.content.cut"
OTLP_CUT = "gym.otlp.cut"
RETRY_COUNT = "gym.retry.count"
UPSTREAM_ATTEMPTED = "gym.execution.upstream_attempted"
RESPONSE_SOURCE = "gym.execution.response_source"
UPSTREAM_STATUS_CODE = "gym.execution.upstream_status_code"
LOCAL_RESPONSE_REASON = "gym.execution.local_response_reason"

STEP_INDEX = "gym.step.index"
SPAWNED_BY = "gym.spawned_by"
SUBAGENT_ID = "gym.subagent.id"
SOURCE = "gym.source"
SOURCE_SESSION_ID = "gym.source.session_id"
SOURCE_INDEX = "gym.source.index"
SOURCE_VERSION = "gym.source.version"
CAPTURE_LINE = "gym.capture.line"
CAPTURE_CONTENT = "gym.capture.content"
CAPTURE_UNREADABLE_RECORDS = "gym.capture.unreadable_records"
CAPTURE_INCOMPLETE = "gym.capture.incomplete"
CAPTURE_UNREADABLE = "gym.capture.unreadable"
SOURCE_CONTINUES = "gym.source.continues"
SOURCE_CONTINUES_INDEX = "gym.source.continues_index"
TIME_KNOWN = "gym.time.known"
OUTPUT_ITEMS = "gym.output.items"
PROVIDER_USAGE = "gym.usage.provider"
REQUEST_ID = "gym.request.id"
SAME_CALL = "gym.same_call"
ITEM = "gym.item"
TURN_END = "gym.turn.end"
CALL_KIND = "gym.call.kind"
AGENT_DROPPED_RECORDS = "gym.agent.dropped_records"
AGENT_DURATION_MS = "gym.agent.duration_ms"
AGENT_TOTAL_COST_USD = "gym.agent.total_cost_usd"
AGENT_PROVIDER_USAGE = "gym.agent.provider_usage"
TOOL_ERROR = "gym.tool.error"
TOOL_EXTRA = "gym.tool.extra"
TOOL_INDEX = "gym.tool.index"

COST_USD = "gym.cost_usd"
PROMPT_TOKEN_IDS = "gym.token_ids.prompt"
COMPLETION_TOKEN_IDS = "gym.token_ids.completion"
LOGPROBS = "gym.token_ids.logprobs"

ATIF_DOCUMENT = "gym.atif.document"
ATIF_SCHEMA_VERSION = "gym.atif.schema_version"
ATIF_TRAJECTORY_ID = "gym.atif.trajectory_id"
ATIF_NOTES = "gym.atif.notes"
ATIF_CONTINUED_REF = "gym.atif.continued_trajectory_ref"
ATIF_TOOL_DEFINITIONS = "gym.atif.agent.tool_definitions"
ATIF_AGENT_EXTRA = "gym.atif.agent.extra"
ATIF_EXTRA = "gym.atif.extra"
ATIF_FINAL_PROMPT_TOKENS = "gym.atif.final.total_prompt_tokens"
ATIF_FINAL_COMPLETION_TOKENS = "gym.atif.final.total_completion_tokens"
ATIF_FINAL_CACHED_TOKENS = "gym.atif.final.total_cached_tokens"
ATIF_FINAL_STEPS = "gym.atif.final.total_steps"
ATIF_FINAL_EXTRA = "gym.atif.final.extra"
ATIF_STEP_ID = "gym.atif.step_id"
ATIF_SOURCE = "gym.atif.source"
ATIF_TIMESTAMP = "gym.atif.timestamp"
ATIF_LLM_CALL_COUNT = "gym.atif.llm_call_count"
ATIF_IS_COPIED = "gym.atif.is_copied_context"
ATIF_REASONING_EFFORT = "gym.atif.reasoning_effort"
ATIF_MESSAGE = "gym.atif.message"
ATIF_MESSAGE_PARTS = "gym.atif.message_parts"
ATIF_PROMPT_TOKENS = "gym.atif.prompt_tokens"
ATIF_METRICS_EXTRA = "gym.atif.metrics.extra"
ATIF_CALL_INDEX = "gym.atif.call.index"
ATIF_RESULT_INDEX = "gym.atif.result.index"
ATIF_RESULT_EXTRA = "gym.atif.result.extra"
ATIF_RESULT_SUBAGENT_REF = "gym.atif.result.subagent_trajectory_ref"
ATIF_EMPTY_FIELDS = "gym.atif.empty_fields"

USER_MESSAGE_EVENT = "gym.user_message"
CONTEXT_MESSAGE_EVENT = "gym.context_message"
CONTEXT_BOUNDARY_EVENT = "gym.context_boundary"
# On spans sent over OTLP, for viewers: what the store says in attributes.
FIRST_TOKEN_EVENT = "gym.first_token"
RETRY_EVENT = "gym.retry"
# Part of a step of ATIF that no model was sent, or that the event of the step itself tells of.
ATIF_PART_EVENT = "gym.atif.part"

# Content that is JSON by the conventions: viewers parse it.
JSON_CONTENT = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.retrieval.documents",
        "gen_ai.memory.records",
    }
)
# What was said, asked and answered: left out where no content is to be kept, and sent over OTLP only where the standard
# variable asks for content.
CONTENT_ATTRIBUTES = JSON_CONTENT | frozenset(
    {
        "gen_ai.retrieval.query.text",
        "gen_ai.memory.query.text",
        REQUEST_BODY,
        RESPONSE_BODY,
        EXCEPTION_BODY,
        OUTPUT_ITEMS,
        ITEM,
        TOOL_ERROR,
        TOOL_EXTRA,
        PROMPT_TOKEN_IDS,
        COMPLETION_TOKEN_IDS,
        LOGPROBS,
        CAPTURE_CONTENT,
        ATIF_MESSAGE,
        ATIF_NOTES,
        ATIF_EXTRA,
        ATIF_AGENT_EXTRA,
        ATIF_FINAL_EXTRA,
        ATIF_METRICS_EXTRA,
        ATIF_RESULT_SUBAGENT_REF,
        ATIF_TOOL_DEFINITIONS,
        ATIF_RESULT_EXTRA,
        DYNAMO_EXTRA,
    }
)
_CONTENT_PREFIX = "gen_ai.prompt.variable."


def is_content(name: str) -> bool:
    """Whether the attribute holds what was said, asked or answered."""
    return name in CONTENT_ATTRIBUTES or name.startswith(_CONTENT_PREFIX)


# Of a body: how it is written, what was cut off, what it keeps of an earlier one.
BODY_ENCODING = ".encoding"
BODY_BYTES = ".bytes"
BODY_SHA256 = ".sha256"
BODY_BASE = ".base"
BODY_KEPT_HEAD = ".kept_head"
BODY_KEPT_TAIL = ".kept_tail"
BODY_KEPT_BLOCKS = ".kept_blocks"
BODY_CHARACTERS = ".characters"
BODY_BLOBS = ".blobs"
BODY_GAP = ".gap"

# Headers that may be kept: they identify a call, a session or a retry. None of them is a secret.
KEPT_HEADERS = frozenset(
    {
        b"request-id",
        b"x-request-id",
        b"x-session-id",
        b"session-id",
        b"thread-id",
        b"x-openai-subagent",
        b"x-parent-session-id",
        b"x-stainless-retry-count",
        b"traceparent",
    }
)
KEPT_HEADER_PREFIXES = (b"x-claude-code-", b"x-codex-", b"x-dynamo-")


_SECRET_WORDS = (b"token", b"key", b"secret", b"auth", b"cookie", b"password")


def is_kept_header(name: bytes) -> bool:
    """Whether the value of this (lower-case) header may be stored."""
    if name in KEPT_HEADERS:
        return True
    return name.startswith(KEPT_HEADER_PREFIXES) and not any(word in name for word in _SECRET_WORDS)
