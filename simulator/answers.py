"""What is simulated, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.fleet import Autoscaler, Failure, FleetUse
from simulator.routers import Router
from simulator.server import Server


@dataclass(frozen=True)
class Post:
    """The time of a replica's host to start the transfer of a KV cache, in which it launches no step: ``each_s``, and
    1 / ``tokens_per_s`` more for each of its tokens; None where they take no time.
    """

    each_s: float = 0.0
    tokens_per_s: float | None = None


@dataclass(frozen=True)
class Decode:
    """Replicas that decode what others have prefilled (disaggregated serving). The transfer of a prompt's KV cache takes
    ``transfer_s``, and 1 / ``tokens_per_s`` more for each of its tokens; None where they take no time. Transfers do not wait
    for each other.

    Without ``post`` a transfer begins with the prompt's first token, and the request is sent when it has ended. With it the
    request is sent at once, and the replica that decodes fetches the cache.
    """

    replicas: int
    transfer_s: float = 0.0
    tokens_per_s: float | None = None
    post: Post | None = None


@dataclass(frozen=True)
class Deployment:
    """Equal servers, and the router in front of them, which takes no time. Each has a prefix cache of ``cache_blocks``, None
    without one.

    With ``decode`` the ``replicas`` compute prompts alone, and those of ``decode``, equal servers with a router of the same
    kind, the answers. Without, replicas may fail, and the ``autoscaler`` start and stop them: ``replicas`` are there at the
    beginning.
    """

    server: Server
    replicas: int = 1
    router: Router = Router.RANDOM
    cache_blocks: int | None = None
    decode: Decode | None = None
    failures: tuple[Failure, ...] = ()
    autoscaler: Autoscaler | None = None

    @property
    def changes(self) -> bool:
        """Whether replicas come and go."""
        return bool(self.failures) or self.autoscaler is not None

    @property
    def has_choice(self) -> bool:
        """Whether a router has more than one replica to choose from."""
        scaled = self.autoscaler is not None and self.autoscaler.max_replicas > 1
        return self.replicas > 1 or scaled or (self.decode is not None and self.decode.replicas > 1)

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
    each, and of those that decode, sent when the KV cache was there, or is to be fetched; else empty.

    Where replicas come and go, ``failed_s`` is when a request failed, with its replica, or since none took it (-1), shape
    [requests], NaN of the others, and ``fleet`` what replicas there were. Both are None where none can.
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
    failed_s: FloatArray | None = None
    fleet: FleetUse | None = None

    def only(self, chosen: BoolArray) -> Answers:
        """The answers of some requests, without their stages. What replicas and their front ends did stays that of all."""
        return replace(
            self,
            sent_s=self.sent_s[chosen],
            first_s=self.first_s[chosen],
            last_s=self.last_s[chosen],
            output_tokens=self.output_tokens[chosen],
            replicas=self.replicas[chosen],
            cached_tokens=self.cached_tokens[chosen],
            stages=(),
            failed_s=None if self.failed_s is None else self.failed_s[chosen],
        )

    @property
    def were_answered(self) -> BoolArray:
        """Which requests were answered; shape [requests]."""
        was_sent: BoolArray = self.replicas >= 0
        return was_sent if self.failed_s is None else was_sent & np.isnan(self.failed_s)

    @property
    def ended_s(self) -> FloatArray:
        """When each request was answered, or failed; shape [requests]."""
        return self.last_s if self.failed_s is None else np.where(np.isnan(self.failed_s), self.last_s, self.failed_s)
