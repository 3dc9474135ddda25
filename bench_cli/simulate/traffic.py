"""A schedule as a simulation takes it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import click
import numpy as np

from simulator.answers import Answers
from simulator.arrays import BoolArray, FloatArray
from simulator.clients import Ceiling, Clients, OpenLoop, Turns, Users
from simulator.prefixes import Prefixes
from simulator.traffic import Traffic
from workloads.elements.request import PROBE, HistorySource, Request
from workloads.schedule.schedule import AnySchedule, ClosedSchedule, Schedule, SessionSchedule
from workloads.table.prefixes import prompt_blocks

_S = 1e-9


@dataclass(frozen=True, eq=False)
class SimulatedTraffic:
    """The lengths of a schedule's requests, and when its clients send them, faster or slower by a factor."""

    schedule: AnySchedule
    traffic: Traffic

    @property
    def shape(self) -> Hashable:
        """What a simulation knows of it: equal where the times, lengths, sessions and prefixes are."""
        prefixes = self.traffic.prefixes
        blocks = None if prefixes is None else tuple(prefixes.blocks)
        match self.schedule:
            case ClosedSchedule():
                times: tuple[object, ...] = (self.schedule.user_starts_ns, self.schedule.end_ns)
            case SessionSchedule():
                times = (self.schedule.offsets_ns, self.schedule.parents, self.schedule.think_times_ns, self.schedule.joins)
            case _:
                times = (self.schedule.offsets_ns, self.schedule.max_concurrency)
        return times, self.traffic.input_tokens.tobytes(), self.traffic.output_tokens.tobytes(), blocks

    @cached_property
    def is_load(self) -> BoolArray:
        """Which requests are no probes, which are beside the load and in no number of it; shape [requests]."""
        return np.array([request.traffic_class != PROBE for request in self.schedule.requests], np.bool_)

    def of_load(self, answers: Answers, faster: float = 1.0) -> tuple[FloatArray, Answers]:
        """When each request of the load was due, shape [requests of the load], and its answers: at its own time in an open
        loop, else when it was sent.
        """
        due_s = answers.sent_s
        if isinstance(self.schedule, Schedule):
            due_s = np.array(self.schedule.offsets_ns, np.float64) * (_S / faster)
        return due_s[self.is_load], answers.only(self.is_load)

    def clients(self, faster: float = 1.0) -> Clients:
        """The clients of one simulation; the arrivals are ``faster`` by this factor."""
        match self.schedule:
            case ClosedSchedule(requests, starts_ns, _, end_ns):
                return Users([at * _S for at in starts_ns], len(requests), inf if end_ns is None else end_ns * _S)
            case SessionSchedule(_, offsets_ns, parents, think_times_ns, joins=joins):
                offsets = [None if at is None else at * _S / faster for at in offsets_ns]
                return Turns(offsets, parents, [at * _S for at in think_times_ns], joins)
            case schedule:
                arrivals = [at * _S / faster for at in schedule.offsets_ns]
                most = schedule.max_concurrency
                return OpenLoop(arrivals) if most is None else Ceiling(arrivals, most)


def simulated_traffic(schedule: AnySchedule, template_tokens: int) -> SimulatedTraffic:
    """The requests of ``schedule``, without their prefixes; the server adds ``template_tokens`` to each prompt.

    Raises UsageError for what cannot be simulated: prompts of unknown lengths, cancellations, and other models.
    """
    requests = schedule.requests
    if isinstance(schedule, SessionSchedule) and schedule.history is HistorySource.SERVER:
        raise click.UsageError("--history server: a simulated server has no text, so its answers cannot be in later prompts")
    if any(request.cancel is not None for request in requests):
        raise click.UsageError("--cancel: cancellations are not simulated; leave it out")
    if any(request.variant is not None for request in requests):
        raise click.UsageError("--class: a model or LoRA adapter of its own is not simulated; give classes by weights alone")
    inputs = np.array([template_tokens + _input_tokens(request) for request in requests], np.int64)
    outputs = np.array([max(1, request.output_tokens) for request in requests], np.int64)
    return SimulatedTraffic(schedule, Traffic(np.zeros(len(requests)), inputs, inputs, outputs, sessions=_sessions(schedule)))


def with_prefixes(simulated: SimulatedTraffic) -> SimulatedTraffic:
    """The same with the prefixes of the prompts, for prefix caches."""
    found = prompt_blocks(simulated.schedule.requests)
    prefixes = Prefixes([blocks for blocks, _ in found], [tokens for _, tokens in found])
    return replace(simulated, traffic=replace(simulated.traffic, prefixes=prefixes))


def _sessions(schedule: AnySchedule) -> list[int]:
    """The session of each request, as a number: that of its first turn, or of the first request that names it."""
    parents = schedule.parents if isinstance(schedule, SessionSchedule) else (None,) * len(schedule)
    first_of: dict[str, int] = {}
    found: list[int] = []
    for number, (request, parent) in enumerate(zip(schedule.requests, parents, strict=True)):
        of_parent = number if parent is None else found[parent]
        found.append(of_parent if request.session is None else first_of.setdefault(request.session, of_parent))
    return found


def _input_tokens(request: Request) -> int:
    ids: Sequence[int] | None = request.input_ids
    found = request.input_tokens if request.input_tokens is not None else None if ids is None else len(ids)
    if found is None:
        raise click.UsageError("the lengths of the prompts are not known without the model's tokenizer: give --tokenizer_dir")
    return max(1, found)
