"""Warm-up requests: of the schedule's lengths, but with other content, so that they do not fill a prefix cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import Request
from workloads.schedule.schedule import AnySchedule

_TRIES = 20


def warm_up_requests(schedule: AnySchedule, count: int) -> tuple[Request, ...]:
    """``count`` requests, each a scheduled one with its tokens and words in random order."""
    if not count:
        return ()
    random = generator(schedule.seed, Stream.WARM_UP)
    chosen = random.integers(0, len(schedule), count)
    prompts = {request.prompt for request in schedule.requests} - {None}
    ids = {request.input_ids for request in schedule.requests} - {None}

    def is_scheduled(request: Request) -> bool:
        return request.prompt in prompts or request.input_ids in ids

    return tuple(_unscheduled(is_scheduled, schedule.requests[index], random) for index in chosen)


def _unscheduled(is_scheduled: Callable[[Request], bool], request: Request, random: np.random.Generator) -> Request:
    """The request in an order that no scheduled one has, where there is one: a single word has no other order."""
    for _ in range(_TRIES):
        shuffled = _shuffled(request, random)
        if not is_scheduled(shuffled):
            break
    return shuffled


def _shuffled(request: Request, random: np.random.Generator) -> Request:
    words = None if request.prompt is None else request.prompt.split()
    return replace(
        request,
        prompt=None if words is None else " ".join(words[k] for k in random.permutation(len(words))),
        input_ids=None
        if request.input_ids is None
        else tuple(request.input_ids[k] for k in random.permutation(len(request.input_ids))),
        history=(),  # a prefix that the run sends, too, would be in the server's cache
    )
