"""What is simulated, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.arrays import FloatArray, IntArray
from simulator.routers import Router
from simulator.server import Server


@dataclass(frozen=True)
class Deployment:
    """Equal servers, and the router in front of them, which takes no time. Each has a prefix cache of ``cache_blocks``, None
    without one.
    """

    server: Server
    replicas: int = 1
    router: Router = Router.RANDOM
    cache_blocks: int | None = None


@dataclass(frozen=True, eq=False)
class Answers:
    """When each request was sent, and when its first and last token arrived at the client: s, shape [requests]. A request that
    was never sent has NaN, and infinite times of tokens.

    ``replicas`` is the replica of each request, -1 of one that was not sent, and ``cached_tokens`` what the replica's simulated
    prefix cache had of its prompt. ``responses`` counts all responses, ``steps`` the steps of all engines; ``engine_busy_s``
    and ``front_end_busy_s`` are the times in which they worked, summed over replicas.
    """

    sent_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray
    output_tokens: IntArray
    replicas: IntArray
    cached_tokens: IntArray
    responses: int
    steps: int
    engine_busy_s: float
    front_end_busy_s: float
