"""Warm-up requests: of the schedule's lengths, but with content of their own, so that they prime no prefix cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads.random_streams import Stream, generator
from workloads.request import Request
from workloads.schedule import Schedule


def warm_up_requests(schedule: Schedule, count: int) -> tuple[Request, ...]:
    """``count`` requests, each a scheduled one with its tokens and words in random order."""
    if not count:
        return ()
    random = generator(schedule.seed, Stream.WARM_UP)
    chosen = random.integers(0, len(schedule), count)
    return tuple(_shuffled(schedule.requests[index], random) for index in chosen)


def _shuffled(request: Request, random: np.random.Generator) -> Request:
    words = None if request.prompt is None else request.prompt.split()
    return replace(
        request,
        prompt=None if words is None else " ".join(words[k] for k in random.permutation(len(words))),
        input_ids=None
        if request.input_ids is None
        else tuple(request.input_ids[k] for k in random.permutation(len(request.input_ids))),
    )
