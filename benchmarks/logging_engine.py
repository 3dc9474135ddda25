"""Runs of simulated servers whose engine writes a step log, as the embedded one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from serving.engines.step_log import StepLog
from simulator.engine import Engine, Tokens
from simulator.observed import EngineTimes, Observed
from simulator.recorded import simulated_run
from simulator.server import Server
from simulator.traffic import Traffic

START_NS = 5_000_000_000_000  # of a run, on the monotonic clock of the engine
Row = tuple[int | str | None, ...]


def _ns(at_s: float) -> int:
    return START_NS + round(at_s * 1e9)


class _Logging(Engine):
    """An engine that keeps a row for each step, and when it got its requests and generated their first and last tokens."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.rows: list[Row] = []
        self.arrival_ns: dict[int, int] = {}
        self.first_ns: dict[int, int] = {}
        self.last_ns: dict[int, int] = {}
        self._work_of_step = (0, 0, 0)

    def accept(self, at_s: float, request: int) -> None:
        self.arrival_ns[request] = _ns(at_s)
        super().accept(at_s, request)

    def step(self) -> list[Tokens]:
        start = self.next_start()
        running = list(self._running)
        in_cache = self._in_cache - len(running)  # the last token of a sequence is not in the cache yet
        sent = super().step()
        prefill, finished, decode = self._work_of_step
        waiting = sum(at_s <= start for at_s, _ in self._waiting) - self._is_within_prompt
        start_ns, end_ns = _ns(start), _ns(self._accelerator_free_at)
        requests = decode + finished + self._is_within_prompt
        context = in_cache if decode else 0
        self.rows.append((start_ns, end_ns - start_ns, "batch", requests, waiting, prefill, decode, finished, context, 0))
        for tokens in sent:
            self.first_ns |= dict.fromkeys(tokens.firsts, end_ns)
            self.last_ns |= dict.fromkeys(tokens.lasts, end_ns)
        return sent

    def _duration(self, prompts: Any, sequences: int, context: int) -> float:
        finished = len(prompts.finished)
        self._work_of_step = (prompts.tokens, finished, sequences - finished)
        return super()._duration(prompts, sequences, context)


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """What the client of a run saw, with the engine's times of its requests, and the rows of the step log."""

    observed: Observed
    rows: Sequence[Row]

    def write(self, path: Path, rows: Sequence[Row] | None = None) -> Path:
        """Append the log of a start of the engine, of these ``rows`` or of all."""
        log = StepLog(path, {"engine": "simulated"})
        for row in self.rows if rows is None else rows:
            log.add(row)
        log.flush()
        log.close()
        return path


def logged_run(server: Server, traffic: Traffic, seed: int, name: str) -> LoggedRun:
    """Send ``traffic`` to ``server``, whose steps are not launched ahead."""
    assert not server.admission.lookahead
    engines: list[_Logging] = []

    def make(*arguments: Any) -> _Logging:
        engines.append(_Logging(*arguments))
        return engines[-1]

    with mock.patch("simulator.pools.Engine", make):
        observed = simulated_run(server, traffic, seed, name)
    [engine] = engines
    requests = range(len(traffic))
    arrival, first, last = (
        np.array([times[request] for request in requests], np.float64)
        for times in (engine.arrival_ns, engine.first_ns, engine.last_ns)
    )
    return LoggedRun(replace(observed, by_engine=EngineTimes(arrival, first, last)), engine.rows)
