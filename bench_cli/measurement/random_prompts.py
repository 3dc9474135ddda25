"""Random prompts for a target, of lengths that a law draws: of the verbs without a dataset, and of probes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from bench_cli.measurement.prefix_options import limit_text, manifest_entry, reuse_limit
from bench_cli.tokenizers import ordinary_token_ids, shipped_tokenizer, text_codec

if TYPE_CHECKING:
    from bench_cli.measurement.load_options import TrafficOptions
    from bench_cli.measurement.prepare import PreparedRequests
    from bench_cli.measurement.target import Target
    from workloads.lengths.samples import PairedLengths
    from workloads.prompts.drawn import Drawn
    from workloads.prompts.shared_prefixes import GroupPrefix, SharedPrefixes
    from workloads.prompts.token_norm_dist import TokenNormDist
    from workloads.schedule.load import Load

DEFAULT_NUM_REQUESTS = 1000
_FEWER = "The users can need as many at up to 1,000 tokens/s each; for a slower target --num_requests N draws fewer."
_MARGIN = 1.1  # over the number that is expected to be dropped
_MAX_REDRAW_FACTOR = 20.0  # times as many as are sent


@dataclass(frozen=True)
class RandomPrompts:
    """Lengths in tokens, and the vocabulary's size: ids are drawn below ``vocab_size``; None means the tokenizer's.

    ``options`` are those that set the lengths, for the manifest. With ``shared``, the prompts begin with shared prefixes, and
    ``lengths`` has the lengths of what follows them.
    """

    lengths: PairedLengths
    options: Mapping[str, str | float | None]
    vocab_size: int | None
    shared: SharedPrefixes | None = None

    @property
    def shared_tokens(self) -> int:
        """The length of what every prompt shares with others."""
        return 0 if self.shared is None else self.shared.tokens


def prepare_random_prompts(prompts: RandomPrompts, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    """The prompts for ``target``. Raises UsageError where the vocabulary is unknown, WorkloadError where none is left."""
    if target.model.takes_token_ids or target.tokenizer is not None:
        return _draw(prompts, traffic, load, target)
    return _draw_with_shipped_tokenizer(prompts, traffic, load, target)


def _draw(prompts: RandomPrompts, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    from bench_cli.measurement.prepare import PreparedRequests, request_count_text
    from workloads.schedule.load import OpenLoop

    workload = _workload(prompts, traffic, target)
    count = _count(prompts, traffic, load)
    drawn = _draw_with_progress(workload, count, _FEWER if traffic.num_requests is None and load.ends_by_the_clock else "")
    is_timed = isinstance(load, OpenLoop) and load.duration_s is not None and traffic.num_requests is None
    if is_timed and drawn.dropped_too_long:  # draw again, so that the requests that are left fill the duration
        enough = math.ceil(count * min(_MAX_REDRAW_FACTOR, _MARGIN * count / len(drawn.requests)))
        drawn = _draw_with_progress(workload, enough)
    requests, prefixes, kept = drawn.requests[:count], drawn.prefixes[:count], drawn.kept[:count]
    if len(requests) == count:  # those that were drawn after the last one are neither sent nor dropped
        drawn = replace(drawn, dropped_too_long=kept[-1] + 1 - count)
    prepared = PreparedRequests(
        drawn=replace(drawn, requests=requests, prefixes=prefixes, kept=kept),
        description=f"{request_count_text(load, len(requests))} random prompts of {prompts.lengths}",
        parameters={
            **prompts.options,
            **_digests(prompts.lengths),
            "vocab_size": prompts.vocab_size,
            **manifest_entry(prompts.shared),
        },
        lengths=prompts.lengths,
        shared_tokens=prompts.shared_tokens,
    )
    return prepared if prompts.shared is None else _with_limit(prepared, prompts.shared, prefixes)


def _draw_with_progress(workload: TokenNormDist, count: int, remedy: str = "") -> Drawn:
    from bench_cli.measurement.drawing_progress import DrawingProgress

    return replace(workload, on_drawn=DrawingProgress(count, remedy=remedy)).draw(count)


def _with_limit(workload: PreparedRequests, shared: SharedPrefixes, prefixes: tuple[GroupPrefix, ...]) -> PreparedRequests:
    """``workload`` with what an infinite prefix cache can reuse of it."""
    limit = reuse_limit(shared, workload.requests, prefixes)
    click.echo(limit_text(shared, workload.requests, limit), err=True)

    def limit_of(sent: Sequence[int]) -> Mapping[str, float | None]:
        return reuse_limit(shared, [workload.requests[index] for index in sent], [prefixes[index] for index in sent])

    description = f"{workload.description}, behind {shared}"
    return replace(workload, description=description, parameters={**workload.parameters, **limit}, limit_of=limit_of)


def _digests(lengths: PairedLengths) -> dict[str, str]:
    """The digests of the laws' files, so that runs with files of the same name and other lengths are not compared."""
    sides = zip(("input", "output"), lengths.digests, strict=True)
    return {f"{side}_lengths_digest": digest for side, digest in sides if digest is not None}


def _draw_with_shipped_tokenizer(
    prompts: RandomPrompts, traffic: TrafficOptions, load: Load, target: Target
) -> PreparedRequests:
    """Text for a model whose tokenizer is unknown. Its length in that model's tokens is the server's to count, so no request
    has ids or a count. Raises UsageError for options that count in the model's tokens."""
    for name, value in (("--vocab_size", prompts.vocab_size), ("--max_input_len", traffic.max_input_len)):
        if value is not None:
            remedy = "--tokenizer_dir, or --prompt_as ids" if target.protocol.takes_ids_or_text else "--tokenizer_dir"
            raise click.UsageError(f"{name} needs the tokenizer of the model {target.model.name}: give {remedy}")
    click.echo(
        f"No tokenizer of the model {target.model.name} is known: prompts are drawn with the shipped one, and the server "
        "counts their tokens. --tokenizer_dir gives prompts of the exact lengths.",
        err=True,
    )
    workload = _draw(prompts, traffic, load, replace(target, tokenizer=shipped_tokenizer()))
    requests = tuple(
        replace(request, input_ids=None, input_tokens=None, requested_input_tokens=None) for request in workload.requests
    )
    return replace(
        workload,
        drawn=replace(workload.drawn, requests=requests),
        description=f"{workload.description}, by the shipped tokenizer",
        parameters={**_without_limit(workload.parameters), "text_tokenizer": "shipped"},
        limit_of=None,
    )


def _without_limit(parameters: Mapping[str, object]) -> dict[str, object]:
    """``parameters`` without the shares of tokens that another tokenizer than the model's gave."""
    return {name: None if name.startswith("shared_prefix_") else value for name, value in parameters.items()}


def _workload(prompts: RandomPrompts, traffic: TrafficOptions, target: Target) -> TokenNormDist:
    """The prompts to draw from. Raises UsageError for an unknown vocabulary."""
    from workloads.elements.request import LengthLimits
    from workloads.prompts.token_norm_dist import TokenNormDist

    return TokenNormDist(
        prompts.lengths,
        _token_ids(prompts.vocab_size, target),
        traffic.seed,
        LengthLimits(traffic.max_input_len, target.context_tokens),
        None if target.model.takes_token_ids else text_codec(target.tokenizer),
        ignore_eos=target.model.supports_ignore_eos if traffic.ignore_eos is None else traffic.ignore_eos,
        shared=prompts.shared,
    )


def _count(prompts: RandomPrompts, traffic: TrafficOptions, load: Load) -> int:
    """The number of requests to draw; a closed loop with a duration gets as many as it can need."""
    from workloads.schedule.load import ClosedLoop

    most = load.most_requests(traffic.seed, traffic.num_requests)
    if most is not None:
        return most
    if isinstance(load, ClosedLoop) and load.duration_s is not None:
        input_mean, output_mean = prompts.lengths.asked_means
        return load.enough_requests(prompts.shared_tokens + input_mean, output_mean)
    return DEFAULT_NUM_REQUESTS


def _token_ids(vocab_size: int | None, target: Target) -> range | list[int]:
    """The ids to draw from. Raises UsageError where they are unknown, and for those that have no text where that is sent."""
    tokenizer = target.tokenizer
    if vocab_size is not None:
        if not target.model.takes_token_ids and tokenizer is not None and vocab_size > len(tokenizer):
            raise click.UsageError(
                f"--vocab_size {vocab_size}: the model {target.model.name} takes text, which ids beyond the "
                f"{len(tokenizer):,} of its tokenizer do not have; leave it out, or lower it"
            )
        return range(vocab_size)
    if tokenizer is None:
        raise click.UsageError("the vocabulary is unknown: give --tokenizer_dir or --vocab_size")
    return ordinary_token_ids(tokenizer)
