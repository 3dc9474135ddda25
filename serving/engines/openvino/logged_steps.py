"""The rows of the step log of the OpenVINO engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving.engines.openvino.folder import TOKENS_PER_BLOCK
from serving.engines.openvino.step_contents import Contents
from serving.engines.protocol import EngineOptions
from serving.engines.step_log import StepLog

_BATCH, _SINGLE = "batch", "single"


class LoggedSteps:
    """The step log of one engine with ``blocks`` of KV cache."""

    def __init__(self, options: EngineOptions, blocks: int) -> None:
        """Raises EngineError where the log cannot be written."""
        self._blocks = blocks
        self._log = StepLog(
            Path(options.step_log),
            {
                "engine": "openvino",
                "max_num_tokens": options.max_num_tokens,
                "max_num_sequences": options.max_num_sequences,
                "enable_chunked_context": options.enable_chunked_context,
                "kv_cache_blocks": blocks,
                "tokens_per_block": TOKENS_PER_BLOCK,
            },
        )

    def note(self, contents: Contents, started_ns: int, now_ns: int, in_engine: int, metrics: Any) -> None:
        """A step of the pipeline, after which ``metrics`` are its PipelineMetrics, with this many requests in the engine."""
        sequences = int(metrics.scheduled_requests)
        self._log.add(
            (
                started_ns,
                now_ns - started_ns,
                _BATCH,
                sequences,
                max(0, in_engine - sequences),
                contents.prefill_tokens,
                contents.decode_tokens,
                contents.first_tokens,
                contents.context_tokens,
                round(float(metrics.cache_usage) / 100.0 * self._blocks),
            )
        )

    def note_single(self, started_ns: int, now_ns: int, in_engine: int) -> None:
        """A forward pass of one request that the pipeline cannot serve."""
        self._log.add((started_ns, now_ns - started_ns, _SINGLE, 1, in_engine - 1, None, None, None, None, None))

    def flush(self) -> None:
        self._log.flush()
