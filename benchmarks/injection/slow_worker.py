"""The computing process of the embedded engine, slowed down.

    python -m benchmarks.injection.slow_worker PIPE_FD ENGINE_DIR OPTIONS_JSON DELAYS_JSON

In windows with delays a request is kept in the queue, and a step with a prompt, or without, takes longer; each step may, too.
Steps are shared, as in any engine: requests in flight at once wait for the prefills of each other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.injection.delays import DELAYED, Delays
from benchmarks.injection.windows import injects
from serving.engines.messages import Submit
from serving.engines.openvino.worker import _Worker
from serving.engines.protocol import EngineOptions


class _SlowPipeline:
    """OpenVINO's pipeline whose steps with prompts take longer; the file ``delayed`` has from when to when each was delayed."""

    def __init__(self, pipeline: Any, delay_s: float, has_prompts: Callable[[], bool], delayed: Path) -> None:
        self._pipeline, self._delay_s, self._has_prompts, self._delayed = pipeline, delay_s, has_prompts, delayed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def step(self) -> None:
        if self._has_prompts() and injects(time.monotonic()):
            from_ns = time.monotonic_ns()
            time.sleep(self._delay_s)
            with self._delayed.open("a") as file:
                file.write(f"{from_ns} {time.monotonic_ns()}\n")
        self._pipeline.step()


class _SlowWorker(_Worker):
    def __init__(self, pipe: Connection, engine_dir: Path, options: EngineOptions, delays: Delays) -> None:
        self._delays = delays
        super().__init__(pipe, engine_dir, options)
        if delays.prompt_step_s:
            delayed = Path(options.step_log).with_suffix(DELAYED)
            self._pipeline = _SlowPipeline(self._pipeline, delays.prompt_step_s, self._has_prompts, delayed)

    def _has_prompts(self) -> bool:
        return any(running.in_context for running in self._running.values())

    def _poll_timeout_s(self) -> float | None:
        if self._waiting and not self._running and not self._exact:
            return min(map(self._kept_s, self._waiting.values()))
        return super()._poll_timeout_s()

    def _start_waiting(self) -> None:
        waiting = self._waiting
        self._waiting = {number: new for number, new in waiting.items() if self._kept_s(new) <= 0.0}
        due = set(self._waiting)
        super()._start_waiting()
        self._waiting = {number: new for number, new in waiting.items() if number in self._waiting or number not in due}

    def _kept_s(self, new: Submit) -> float:
        """How long a request in the queue is still kept there."""
        kept_s = self._delays.queue_always_s + (self._delays.queue_s if injects(new.submitted_ns / 1e9) else 0.0)
        return max(0.0, (new.submitted_ns - time.monotonic_ns()) / 1e9 + kept_s)

    def _step(self) -> None:
        time.sleep(self._delays.step_always_s)
        if injects(time.monotonic()):
            time.sleep(self._delays.prefill_s if self._has_prompts() else self._delays.decode_step_s)
        super()._step()


if __name__ == "__main__":
    pipe_fd, engine, options, delays = sys.argv[1:]
    _SlowWorker(
        Connection(int(pipe_fd)),
        Path(engine),
        msgspec.json.decode(options, type=EngineOptions),
        msgspec.json.decode(delays, type=Delays),
    ).run()
