"""The stages of a request: one, or two where some replicas prefill and others decode.

In the first stage of two, a replica computes the prompt and answers with one token. Then the KV cache of the prompt goes to a
replica that decodes, which takes the request in as any other, computes the last token of its prompt again, and gives all tokens
of the answer. So does vLLM 0.25 with a KV connector (``vllm/v1/core/sched/scheduler.py``), whose clients get
every token from the replica that decodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.answers import Answers, Decode, Deployment
from simulator.arrays import FloatArray
from simulator.fetches import Fetch
from simulator.traffic import Traffic

_DECODE_SEED = 1 << 40  # beyond what a user gives, so that no replica has the noise of another


@dataclass(frozen=True, eq=False)
class Stage:
    """Equal servers, what each does with the requests, and the seed of their noise and router."""

    deployment: Deployment
    traffic: Traffic
    seed: int


def stages_of(deployment: Deployment, traffic: Traffic, seed: int) -> tuple[Stage, ...]:
    """The stages in which the deployment answers ``traffic``."""
    if deployment.decode is None:
        return (Stage(deployment, traffic, seed),)
    prefill = replace(deployment, decode=None)
    decode = replace(prefill, replicas=deployment.decode.replicas, cache_blocks=None)
    each = traffics_of(deployment, traffic)
    return tuple(Stage(*of) for of in zip((prefill, decode), each, (seed, seed + _DECODE_SEED), strict=True))


def traffics_of(deployment: Deployment, traffic: Traffic) -> tuple[Traffic, ...]:
    """What each stage gets of ``traffic``."""
    if deployment.decode is None:
        return (traffic,)
    prefill = replace(traffic, output_tokens=np.ones_like(traffic.output_tokens))
    last_tokens, fetch = np.ones_like(traffic.prefill_tokens), _fetch(deployment.decode, traffic)
    return prefill, replace(traffic, prefill_tokens=last_tokens, prefixes=None, fetch=fetch)


def between_stages_s(deployment: Deployment, traffic: Traffic) -> FloatArray:
    """The time from the end of each request's first stage until it is sent to the second; shape [requests]."""
    decode = deployment.decode
    return np.zeros(len(traffic)) if decode is None or decode.post is not None else _transfers_s(decode, traffic)


def _fetch(decode: Decode, traffic: Traffic) -> Fetch | None:
    if decode.post is None:
        return None
    return Fetch(_times_s(decode.post.each_s, decode.post.tokens_per_s, traffic), _transfers_s(decode, traffic))


def _transfers_s(decode: Decode, traffic: Traffic) -> FloatArray:
    return _times_s(decode.transfer_s, decode.tokens_per_s, traffic)


def _times_s(each_s: float, tokens_per_s: float | None, traffic: Traffic) -> FloatArray:
    found: FloatArray = each_s + (0.0 if tokens_per_s is None else 1.0 / tokens_per_s) * traffic.input_tokens
    return found


def answers_of_stages(answers: Sequence[Answers]) -> Answers:
    """What the clients see of the answers of each stage."""
    if len(answers) == 1:
        return answers[0]
    prefill, decode = answers
    return replace(
        decode,
        sent_s=prefill.sent_s,
        cached_tokens=prefill.cached_tokens,
        responses=prefill.responses + decode.responses,
        steps=prefill.steps + decode.steps,
        engine_busy_s=prefill.engine_busy_s + decode.engine_busy_s,
        front_end_busy_s=prefill.front_end_busy_s + decode.front_end_busy_s,
        stages=(prefill, decode),
    )
