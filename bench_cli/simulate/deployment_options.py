"""Options of the verbs that simulate a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, part, required

if TYPE_CHECKING:
    from simulator.answers import Deployment

ROUTERS = ("random", "rr", "least_outstanding", "p2c", "prefix", "session")
SCHEDULERS = ("mixed", "prefill_first")
BLOCK_TOKENS = 32  # of a prefix cache and of a KV cache; a test holds it to the modules whose import takes long
MOST_REPLICAS = 10_000
_REPLICAS = click.IntRange(min=1, max=MOST_REPLICAS)
_COUNT = click.IntRange(min=1, max=1 << 30)
_MOST_CACHED = 1 << 40


@dataclass(frozen=True)
class DeploymentOptions(Concern, title="The simulated deployment"):
    """The model, and how many draws of its constants are simulated beside it."""

    model: Path = required(type=click.Path(path_type=Path, dir_okay=False), help="The model, of 'bench simulate fit'.")
    router: str = option(
        ROUTERS[0],
        type=click.Choice(ROUTERS),
        help="How requests are dealt to replicas: at random, in turn (rr), to the one with the fewest requests in flight, to "
        "the better of two different ones drawn at random (p2c), to one that got the same prefix before, or a session to one "
        "replica.",
    )
    prefix_cache: int | None = option(
        None,
        metavar="TOKENS",
        type=click.IntRange(min=BLOCK_TOKENS, max=_MOST_CACHED),
        help=f"Tokens that the prefix cache of each replica holds, in blocks of {BLOCK_TOKENS}; no cache without.",
    )
    scheduler: str | None = option(
        None,
        type=click.Choice(SCHEDULERS),
        help="What a step may hold, in place of what was fitted: prompts beside decoding sequences, or alone and first.",
    )
    chunk: int | None = option(
        None,
        metavar="TOKENS",
        type=_COUNT,
        help="The most tokens of a step, beyond which a prompt is cut, in place of what was fitted.",
    )
    max_num_sequences: int | None = option(None, type=_COUNT, help="The most sequences of a step, in place of what was fitted.")
    kv_blocks: int | None = option(
        None,
        type=_COUNT,
        help=f"Blocks of {BLOCK_TOKENS} tokens in the KV cache of each replica: a request waits until all that it will need "
        "are free; no limit without.",
    )
    draws: int = option(
        20,
        type=click.IntRange(min=0, max=40),
        help="Draws of the model's constants, each simulated on the same requests: the model's own error.",
    )


@dataclass(frozen=True)
class ReplicaOptions(Concern, title="Replicas"):
    """Equal servers that each answer requests whole, or some that prefill and others that decode; ``prefill`` and ``decode``
    are None together.
    """

    replicas: int = option(1, type=_REPLICAS, help="Number of equal servers, each of which prefills and decodes.")
    prefill: int | None = option(
        None, type=_REPLICAS, help="Number of equal servers that prefill alone, in place of --replicas (disaggregated serving)."
    )
    decode: int | None = option(None, type=_REPLICAS, help="Number of equal servers that decode what others have prefilled.")
    transfer_ms: float = option(
        0.0,
        type=click.FloatRange(min=0, max=1e6),
        help="From the end of a prompt's prefill until a server that decodes has its KV cache, ms.",
    )
    transfer_tokens_per_s: float | None = option(
        None,
        type=click.FloatRange(min=1, max=1e12),
        help="Tokens of a KV cache that are transferred in a second: the bandwidth over the bytes of a token. Their time is "
        "added to --transfer_ms; no time without.",
    )
    transfer_post_ms: float | None = option(
        None,
        type=click.FloatRange(min=0, max=1e6),
        help="The decode servers fetch KV caches, as with vLLM's NIXL connector: the time of the host to post one transfer, "
        "ms, which is the mean of vllm:nixl_post_time_seconds. Meanwhile it launches no step. --transfer_ms is then counted "
        "from the end of the post.",
    )
    transfer_post_tokens_per_s: float | None = option(
        None,
        type=click.FloatRange(min=1, max=1e12),
        help="Tokens whose transfer the host posts in a second: the mean tokens of a prompt over the mean of "
        "vllm:nixl_post_time_seconds. Their time is added to --transfer_post_ms; no time without.",
    )


@dataclass(frozen=True)
class ChangeOptions(Concern, title="Replicas that come and go"):
    """Failures, and an autoscaler."""

    fail: tuple[str, ...] = option(
        (),
        metavar="REPLICA:at=…",
        help="A replica that fails with its requests: 2:at=30s, the second one 30 s after the start, or 2:at=30s,for=60s, "
        "another one in its place 60 s later. Repeatable.",
    )
    autoscale: Path | None = option(
        None,
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A TOML file: target_in_flight, requests for each replica, and max_replicas; also min_replicas, interval_s, "
        "startup_s and scale_down_after_s. Replicas start and stop by the rule of Kubernetes; --replicas are those at first.",
    )


@dataclass(frozen=True)
class RunOptions(Concern):
    """The options of ``bench simulate run``."""

    deployment: DeploymentOptions = part(DeploymentOptions)
    replicas: ReplicaOptions = part(ReplicaOptions)
    changes: ChangeOptions = part(ChangeOptions)


def check_router(options: Concern, deployment: Deployment) -> None:
    """Raises UsageError for --router where there is nothing to choose."""
    if not deployment.has_choice and options.given("router"):
        more = "--replicas" if deployment.decode is None else "more --prefill or --decode"
        raise click.UsageError(f"--router deals requests to several replicas: give {more}")
