"""A simulation by the compiled server, where its replicas know nothing of each other and numba is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from simulator.answers import Answers, Deployment
from simulator.arrays import FloatArray, IntArray
from simulator.clients import Clients, OpenLoop, Users
from simulator.noise import Seed, orders, seeds_of_replica
from simulator.routers import dealt
from simulator.server import NO_LIMIT, Order, Server
from simulator.traffic import Traffic

if TYPE_CHECKING:
    from simulator.compiled_server import Constants, Noise

FEWEST_TOKENS = 5_000  # a fit simulates that thousands of times; numba is loaded in a second
_Array = TypeVar("_Array", FloatArray, IntArray)


@dataclass(frozen=True, eq=False)
class _Sendings:
    """``requests`` by replica and in the order in which its front end has them, those of replica i from ``starts[i]`` to
    ``starts[i + 1]``. ``at_s`` is when those are sent that wait for no answer, ``end_s`` when others are no longer sent.
    """

    requests: IntArray
    starts: IntArray
    at_s: FloatArray
    end_s: float


def compiled_answers(
    deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, fewest_tokens: int | None = None
) -> Answers | None:
    """The answers of a simulation, bit for bit those of ``simulate_deployment`` in Python.

    None where that has to do it: without numba, with fewer output tokens than ``fewest_tokens`` (None: FEWEST_TOKENS), with a
    prefix cache, with KV caches that are fetched, or where what is sent to a replica depends on others.
    """
    fewest = FEWEST_TOKENS if fewest_tokens is None else fewest_tokens
    has_cache = deployment.cache_blocks is not None and traffic.prefixes is not None
    if has_cache or traffic.fetch is not None or int(traffic.output_tokens.sum()) < fewest or not can_compile():
        return None
    sendings = _sendings(deployment, clients, len(traffic), seed)
    return None if sendings is None else _answers(deployment, traffic, sendings, seed)


@cache
def can_compile() -> bool:
    """Whether numba is there, knows the installed numpy, and has a place to keep what it compiles."""
    try:
        import_module("simulator.compiled_server")
    except (ImportError, RuntimeError):
        return False
    return True


def _sendings(deployment: Deployment, clients: Clients, requests: int, seed: int) -> _Sendings | None:
    if isinstance(clients, Users):
        starts_s = np.array(clients.starts_s, np.float64)
        is_one = deployment.replicas == 1 and clients.requests == requests and bool((starts_s < clients.end_s).all())
        return _Sendings(np.arange(requests), np.array([0, requests]), starts_s, clients.end_s) if is_one else None
    replicas = dealt(deployment.router, deployment.replicas, requests, seed)
    if not isinstance(clients, OpenLoop) or replicas is None:
        return None
    at_s = np.array(clients.arrivals_s, np.float64)
    numbers = np.arange(requests)
    replica_of = np.empty(requests, np.int64)
    replica_of[np.lexsort((numbers, at_s))] = replicas
    order = np.lexsort((numbers, at_s + deployment.server.front_end.delay, replica_of))
    starts = np.searchsorted(replica_of[order], np.arange(deployment.replicas + 1))
    return _Sendings(order, starts, at_s[order], np.inf)


def _answers(deployment: Deployment, traffic: Traffic, sendings: _Sendings, seed: int) -> Answers:
    from simulator.compiled_server import Requests, run_server

    server, order = deployment.server, sendings.requests
    constants = _constants(server)
    arrival_s = sendings.at_s + server.front_end.delay
    inputs, outputs, prefill = (
        np.ascontiguousarray(each[order], np.int64)
        for each in (traffic.input_tokens, traffic.output_tokens, traffic.prefill_tokens)
    )
    sent_s = np.full(len(order), np.nan)
    sent_s[: len(sendings.at_s)] = sendings.at_s
    first_s, last_s = np.full(len(order), np.inf), np.full(len(order), np.inf)
    of_step, of_launch = np.array(server.noise), np.array(server.launch_noise)
    has_launch = bool(server.law.launch or server.law.launch_large)
    replicas, totals = np.full(len(order), -1), []
    for number, (begin, end) in enumerate(zip(sendings.starts[:-1].tolist(), sendings.starts[1:].tolist(), strict=True)):
        if begin == end:
            continue
        own = slice(begin, end)
        steps = _most_steps(outputs[own], prefill[own], server.admission.token_budget)
        seed_of_steps, seed_of_launches = seeds_of_replica(seed, number)
        requests = Requests(
            arrival_s[own], sendings.end_s, inputs[own], outputs[own], prefill[own], sent_s[own], first_s[own], last_s[own]
        )
        noise = _noise(of_step, seed_of_steps, steps)
        launch_noise = _noise(of_launch, seed_of_launches, steps if has_launch else 0)
        totals.append(run_server(constants, requests, noise, launch_noise))
        replicas[begin : begin + totals[-1].sent] = number
    return Answers(
        _scattered(sent_s, order),
        _scattered(first_s, order),
        _scattered(last_s, order),
        traffic.output_tokens,
        _scattered(replicas, order),
        np.zeros(len(order), np.int64),
        sum(each.responses for each in totals),
        sum(each.steps for each in totals),
        sum(each.engine_busy_s for each in totals),
        sum(each.front_end_busy_s for each in totals),
    )


def _constants(server: Server) -> Constants:
    from simulator.compiled_server import Constants

    law, admission, front_end = server.law, server.admission, server.front_end
    return Constants(
        step=float(law.step),
        prefill=float(law.prefill),
        prefill_context=float(law.prefill_context),
        prefill_step=float(law.prefill_step),
        sequence=float(law.sequence),
        context=float(law.context),
        launch=float(law.launch),
        launch_large=float(law.launch_large),
        free_prefill=law.free_prefill,
        large_step=NO_LIMIT if law.large_step is None else law.large_step,
        is_mixed=admission.order is Order.MIXED,
        max_sequences=NO_LIMIT if admission.max_sequences is None else admission.max_sequences,
        token_budget=NO_LIMIT if admission.token_budget is None else admission.token_budget,
        kv_blocks=NO_LIMIT if admission.kv_blocks is None else admission.kv_blocks,
        lookahead=admission.lookahead,
        delay=float(front_end.delay),
        intake=float(front_end.intake),
        rounds=front_end.intake_rounds,
        token=float(front_end.token),
        response=float(front_end.response),
    )


def _most_steps(outputs: IntArray, prefill: IntArray, token_budget: int | None) -> int:
    """No engine takes more steps: each gives a token, or takes a whole budget of a prompt."""
    chunks = 0 if token_budget is None else int((prefill // token_budget).sum())
    return int(np.maximum(outputs, 1).sum()) + chunks


def _noise(pool: FloatArray, seed: Seed, steps: int) -> Noise:
    """What is drawn for at most ``steps`` of them."""
    from simulator.compiled_server import Noise

    uses = 0 if len(pool) == 1 else -(-steps // len(pool))
    drawn = list(islice(orders(len(pool), seed), uses)) or [(0, np.zeros(1, np.int64))]
    turns, of_blocks = zip(*drawn, strict=True)
    return Noise(pool, np.array(turns, np.int64), np.array(of_blocks, np.int64))


def _scattered(values: _Array, order: IntArray) -> _Array:
    found = np.empty_like(values)
    found[order] = values
    return found
