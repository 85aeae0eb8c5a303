"""Runs in a scratch environment with agentlightning: one rollout under its AgentOps tracer, with a reward.

python foreign_lightning.py MODEL_SERVER_URL OUT.jsonl
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foreign_emitter import call_chat, otlp_json

os.environ["AGENTOPS_API_KEY"] = "none"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import agentlightning
from agentlightning.store.memory import InMemoryLightningStore
from agentlightning.tracer.agentops import AgentOpsTracer


async def run(url: str, out: Path) -> None:
    tracer = AgentOpsTracer()
    tracer.init()
    tracer.init_worker(0)
    exporter = InMemorySpanExporter()
    tracer._get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
    store = InMemoryLightningStore()
    attempted = await store.start_rollout(input={"question": "which city"})
    rollout_id, attempt_id = attempted.rollout_id, attempted.attempt.attempt_id
    async with tracer.trace_context("rollout", store=store, rollout_id=rollout_id, attempt_id=attempt_id):
        call_chat(url)
        agentlightning.emit_reward(0.5)
    tracer.teardown_worker(0)
    out.write_text(otlp_json(list(exporter.get_finished_spans())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2])))
