"""What is simulated, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.arrays import FloatArray, IntArray
from simulator.routers import Router
from simulator.server import Server


@dataclass(frozen=True)
class Decode:
    """Replicas that decode what others have prefilled (disaggregated serving). A replica has the KV cache of a prompt
    ``transfer_s`` after the prompt's first token, and 1 / ``tokens_per_s`` more for each of its tokens; None where that takes
    no time. Transfers do not wait for each other.
    """

    replicas: int
    transfer_s: float = 0.0
    tokens_per_s: float | None = None


@dataclass(frozen=True)
class Deployment:
    """Equal servers, and the router in front of them, which takes no time. Each has a prefix cache of ``cache_blocks``, None
    without one.

    With ``decode`` the ``replicas`` compute prompts alone, and those of ``decode``, equal servers with a router of the same
    kind, the answers.
    """

    server: Server
    replicas: int = 1
    router: Router = Router.RANDOM
    cache_blocks: int | None = None
    decode: Decode | None = None

    @property
    def has_choice(self) -> bool:
        """Whether a router has more than one replica to choose from."""
        return self.replicas > 1 or (self.decode is not None and self.decode.replicas > 1)

    @property
    def servers(self) -> int:
        """All replicas."""
        return self.replicas + (0 if self.decode is None else self.decode.replicas)


@dataclass(frozen=True, eq=False)
class Answers:
    """When each request was sent, and when its first and last token arrived at the client: s, shape [requests]. A request that
    was never sent has NaN, and infinite times of tokens.

    ``replicas`` is the replica of each request, -1 of one that was not sent, and ``cached_tokens`` what the replica's simulated
    prefix cache had of its prompt. ``responses`` counts all responses, ``steps`` the steps of all engines; ``engine_busy_s``
    and ``front_end_busy_s`` are the times in which they worked, summed over replicas.

    Where others prefill, ``replicas`` are those that decode, and ``stages`` are the answers of those that prefill, one token
    each, and of those that decode, sent when the KV cache was there; else empty.
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
    stages: tuple[Answers, ...] = ()
