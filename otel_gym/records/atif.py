"""ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8: the document as types.

Strict where its public models are lax: a count is a true int that is not negative, a number is finite, a field that
the format lacks is refused. What one field says about another (an observation of a call that is not there, totals
that do not add up) is the matter of ``records.atif_lint``. ``model_fields_set`` tells an explicit null from an absent
field; ``written`` keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from otel_gym.records.atif_versions import DEFAULT_VERSION, AtifVersion, version_number

AUDIO_TYPES = ("wav", "mpeg", "mp4", "aac", "ogg", "flac", "webm", "aiff")
_AUDIO_ALIASES = (
    *("mp3", "mpga", "x-mpeg", "x-wav", "wave", "vnd.wave"),
    *("m4a", "x-m4a", "x-aac", "x-flac", "x-aiff"),
)
_AUDIO_MEDIA_TYPES = frozenset(f"audio/{name}" for name in (*AUDIO_TYPES, *_AUDIO_ALIASES))

AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")

Source = Literal["system", "user", "agent"]
Count = Annotated[int, Field(ge=0)]
Number = int | Annotated[float, Field(allow_inf_nan=False)]
Json = dict[str, Any]


def _iso(text: str) -> str:
    datetime.fromisoformat(text)  # raises what pydantic reports
    return text


def _audio_type(media_type: str) -> str:
    if media_type not in _AUDIO_MEDIA_TYPES:
        raise ValueError(f"{media_type} is no audio type that ATIF names")
    return media_type


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class ImageSource(_Shape):
    """``path``: relative to the file, absolute, or a URL; never the bytes."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class AudioSource(_Shape):
    media_type: Annotated[str, AfterValidator(_audio_type)]
    path: str
    duration_sec: Annotated[Number, Field(ge=0)] | None = None


class TextPart(_Shape):
    type: Literal["text"]
    text: str
    source: None = None


class ImagePart(_Shape):
    type: Literal["image"]
    source: ImageSource
    text: None = None


class AudioPart(_Shape):
    type: Literal["audio"]
    source: AudioSource
    text: None = None


ContentPart = Annotated[TextPart | ImagePart | AudioPart, Field(discriminator="type")]
Content = str | list[ContentPart]


class SubagentTrajectoryRef(_Shape):
    """Since 1.7 by ``trajectory_id`` (embedded) or ``trajectory_path`` (a file); before, ``session_id`` was enough."""

    trajectory_id: str | None = None
    trajectory_path: str | None = None
    session_id: str | None = None
    extra: Json | None = None


class ObservationResult(_Shape):
    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[SubagentTrajectoryRef] | None = None
    extra: Json | None = None


class Observation(_Shape):
    results: list[ObservationResult]


class ToolCall(_Shape):
    tool_call_id: str
    function_name: str
    arguments: Json
    extra: Json | None = None


class Metrics(_Shape):
    """Of one step. ``prompt_tokens`` is the whole prompt, ``cached_tokens`` a part of it (said so since 1.2)."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    cost_usd: Number | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[Number] | None = None
    extra: Json | None = None


class FinalMetrics(_Shape):
    total_prompt_tokens: Count | None = None
    total_completion_tokens: Count | None = None
    total_cached_tokens: Count | None = None
    total_cost_usd: Number | None = None
    total_steps: Count | None = None
    extra: Json | None = None


class AtifAgent(_Shape):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[Json] | None = None
    extra: Json | None = None


class AtifStep(_Shape):
    """``llm_call_count`` 0: the agent acted without asking a model; None: nobody counted."""

    step_id: Annotated[int, Field(ge=1)]
    timestamp: Annotated[str, AfterValidator(_iso)] | None = None
    source: Source
    message: Content
    model_name: str | None = None
    reasoning_effort: str | Number | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: Count | None = None
    is_copied_context: bool | None = None
    extra: Json | None = None

    @model_validator(mode="after")
    def _has_what_its_source_may(self) -> AtifStep:
        if self.source != "agent":
            foreign = [name for name in AGENT_ONLY if getattr(self, name) is not None]
            if foreign:
                raise ValueError(f"{', '.join(foreign)}: only steps of the agent have them")
        elif self.llm_call_count == 0 and (self.metrics is not None or self.reasoning_content is not None):
            raise ValueError("no model was called (llm_call_count 0), yet there are metrics or reasoning")
        return self

    @property
    def results(self) -> list[ObservationResult]:
        return self.observation.results if self.observation else []


class AtifTrajectory(_Shape):
    schema_version: AtifVersion = DEFAULT_VERSION
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AtifAgent
    steps: Annotated[list[AtifStep], Field(min_length=1)]
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Json | None = None
    subagent_trajectories: list[AtifTrajectory] | None = None

    @model_validator(mode="after")
    def _names_what_it_holds(self) -> AtifTrajectory:
        for place, step in enumerate(self.steps, 1):
            if step.step_id != place:
                raise ValueError(f"step_id {step.step_id} where {place} comes next")
        ids = [subagent.trajectory_id for subagent in self.subagent_trajectories or ()]
        if None in ids:
            raise ValueError("a subagent without trajectory_id")
        if len(set(ids)) < len(ids):
            raise ValueError("two subagents with one trajectory_id")
        if version_number(self.schema_version) >= 7 and not all(map(_can_be_found, self.refs())):
            raise ValueError("a subagent_trajectory_ref needs trajectory_id or trajectory_path")
        return self

    def refs(self) -> Iterator[SubagentTrajectoryRef]:
        """What its own steps say of subagents, in order."""
        for step in self.steps:
            for result in step.results:
                yield from result.subagent_trajectory_ref or ()

    def written(self) -> Json:
        """As plain JSON: what was set, explicit nulls included."""
        return self.model_dump(exclude_unset=True)


def _can_be_found(ref: SubagentTrajectoryRef) -> bool:
    return ref.trajectory_id is not None or ref.trajectory_path is not None
