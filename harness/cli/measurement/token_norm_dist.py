"""``bench token_norm_dist``: measure with random tokens of normally distributed lengths."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.measurement.options import measure_options, read_options
from harness.cli.measurement.prefix_options import PrefixOptions, limit_text, manifest_entry, prefix_group, reuse_limit
from harness.cli.tokenizers import ordinary_token_ids, shipped_tokenizer, text_codec
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.cli.measurement.load_options import TrafficOptions
    from harness.cli.measurement.prepare import PreparedRequests
    from harness.cli.measurement.target import Target
    from workloads.load import Load
    from workloads.shared_prefixes import GroupPrefix, SharedPrefixes
    from workloads.token_norm_dist import NormalLengths, TokenNormDist

DEFAULT_NUM_REQUESTS = 1000
_UPSTREAM_INPUTS, _UPSTREAM_OUTPUTS = (128.0, 5.0), (20.0, 2.0)  # mean and stdev of the examples in upstream's README
_LENGTH = re.compile(r"\s*([0-9.eE+]+)\s*(?:(?:±|:|\+-|\+/-)\s*([0-9.eE+]+)\s*)?")
_MARGIN = 1.1  # over the number that is expected to be dropped
_MAX_REDRAW_FACTOR = 20.0  # times as many as are sent


@dataclass(frozen=True)
class TokenDistribution:
    """Lengths in tokens, and the vocabulary's size: ids are drawn below ``vocab_size``; None means the tokenizer's.

    With ``shared``, the prompts begin with shared prefixes, and ``inputs`` are the lengths of what follows them.
    """

    inputs: NormalLengths
    outputs: NormalLengths
    vocab_size: int | None
    shared: SharedPrefixes | None = None

    def __str__(self) -> str:
        inputs, outputs = self.inputs, self.outputs
        return f"N({inputs.mean:g}, {inputs.stdev:g}) tokens in, N({outputs.mean:g}, {outputs.stdev:g}) out"

    def manifest_entry(self) -> dict[str, float | None]:
        """The options by name."""
        return {
            "input_mean": self.inputs.mean,
            "input_stdev": self.inputs.stdev,
            "output_mean": self.outputs.mean,
            "output_stdev": self.outputs.stdev,
            "vocab_size": self.vocab_size,
            **manifest_entry(self.shared),
        }


def _read_length(ctx: click.Context, parameter: click.Parameter, text: str | None) -> tuple[float, float] | None:
    """Callback of --isl and --osl: mean and standard deviation. Raises BadParameter."""
    if text is None:
        return None
    match = _LENGTH.fullmatch(text)
    try:
        if match is not None:
            return float(match[1]), float(match[2] or 0.0)
    except ValueError:
        pass
    raise click.BadParameter(f"{text!r} is no length in tokens: write a mean, as 128, or 128±5 or 128:5", ctx, parameter)


def _length_option(name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return cloup.option(
        name,
        metavar="MEAN[±STDEV]",
        callback=_read_length,
        help=f"{what} in tokens: 128, or 128±5 (also 128:5); without a deviation all are equal.",
    )


@cloup.command(
    name="token_norm_dist",
    short_help="Measure with random tokens, lengths normally distributed.",
    epilog="""\b
Examples:
  bench token_norm_dist --request_rate 9 --isl 512±50 --osl 64
  bench token_norm_dist -i openai --url http://localhost:8000 --isl 128 --osl 100 --concurrency 50
  bench token_norm_dist --request_rate 9 --input_mean 512 --input_stdev 50 --output_mean 64 --output_stdev 0""",
)
@cloup.option_group(
    "Lengths in tokens",
    _length_option("--isl", "Length of prompts (input sequence length)"),
    _length_option("--osl", "Length of answers (output sequence length)"),
    cloup.option("--input_mean", type=float, show_default="128", help="Mean length of prompts."),
    cloup.option(
        "--input_stdev",
        type=float,
        show_default="5; 0 with --input_mean",
        help="Standard deviation of it; 0 makes it constant.",
    ),
    cloup.option("--output_mean", type=float, show_default="20", help="Mean length of answers."),
    cloup.option(
        "--output_stdev",
        type=float,
        show_default="2; 0 with --output_mean",
        help="Standard deviation of it; 0 makes it constant.",
    ),
    cloup.option(
        "--vocab_size",
        type=click.IntRange(1, 2**31 - 1),
        help="Draw token ids below this. Default: the tokenizer's vocabulary without its special tokens.",
    ),
)
@prefix_group
@measure_options
def command(
    isl: tuple[float, float] | None,
    osl: tuple[float, float] | None,
    input_mean: float | None,
    input_stdev: float | None,
    output_mean: float | None,
    output_stdev: float | None,
    vocab_size: int | None,
    prefix_groups: int | None,
    prefix_len: int | None,
    prompts_per_group: int | None,
    prefix_zipf: float | None,
    system_prompt_len: int | None,
    **shared: Any,
) -> int:
    """Measure with random token ids, uniform over the vocabulary. Lengths are max(1, ceil(N(mean, stdev))).

    Without lengths, prompts have 128±5 tokens and answers 20±2, as in upstream's README. A mean alone is a constant length.
    Without --num_requests and --duration, 1000 requests are sent.

    With --prefix_groups or --system_prompt_len, prompts begin with shared prefixes, and --isl is the length of what follows.

    For a model that takes text and has no known tokenizer, prompts are drawn with the shipped one, and the server counts them.
    """
    with one_blas_thread():
        from harness.cli.measurement.measure import measure

    input_mean, input_stdev = _mean_and_stdev("isl", isl, "input", input_mean, input_stdev)
    output_mean, output_stdev = _mean_and_stdev("osl", osl, "output", output_mean, output_stdev)
    inputs = _lengths(input_mean, input_stdev, _UPSTREAM_INPUTS)
    outputs = _lengths(output_mean, output_stdev, _UPSTREAM_OUTPUTS)
    inputs.check("--isl" if isl else "--input_mean", "--isl" if isl else "--input_stdev")
    outputs.check("--osl" if osl else "--output_mean", "--osl" if osl else "--output_stdev")
    options = read_options(shared)
    prefixes = PrefixOptions(prefix_groups, prefix_len, prompts_per_group, prefix_zipf, system_prompt_len).shared(
        options.traffic.num_requests, options.traffic.max_input_len
    )
    if prefixes is not None and prefixes.prompts is not None:
        options = replace(options, traffic=replace(options.traffic, num_requests=prefixes.prompts))
    distribution = TokenDistribution(inputs, outputs, vocab_size, prefixes)
    if None in (input_mean, input_stdev, output_mean, output_stdev):
        click.echo(f"Lengths: {distribution}; --isl and --osl set them.", err=True)
    return measure("token_norm_dist", options, partial(_prepare_requests, distribution))


def _mean_and_stdev(
    name: str, length: tuple[float, float] | None, side: str, mean: float | None, stdev: float | None
) -> tuple[float | None, float | None]:
    """The mean and the standard deviation of one side, from the one option or from the two; raises UsageError for both."""
    if length is None:
        return mean, stdev
    if mean is not None or stdev is not None:
        raise click.UsageError(f"--{name} sets the mean and the deviation: leave --{side}_mean and --{side}_stdev out")
    return length


def _lengths(mean: float | None, stdev: float | None, upstream: tuple[float, float]) -> NormalLengths:
    """The lengths of one side: those of ``upstream`` (mean, stdev) where nothing is given; a mean alone is constant."""
    from workloads.token_norm_dist import NormalLengths

    if stdev is None:
        stdev = upstream[1] if mean is None else 0.0
    return NormalLengths(upstream[0] if mean is None else mean, stdev)


def _prepare_requests(distribution: TokenDistribution, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    if target.model.takes_token_ids or target.tokenizer is not None:
        return _draw(distribution, traffic, load, target)
    return _draw_with_shipped_tokenizer(distribution, traffic, load, target)


def _draw(distribution: TokenDistribution, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    from harness.cli.measurement.prepare import PreparedRequests, request_count_text
    from workloads.load import OpenLoop

    prompts = _prompts(distribution, traffic, target)
    count = _count(distribution, traffic, load)
    drawn = prompts.draw(count)
    is_timed = isinstance(load, OpenLoop) and load.duration_s is not None and traffic.num_requests is None
    if is_timed and drawn.dropped_too_long:  # draw again, so that the requests that are left fill the duration
        drawn = prompts.draw(math.ceil(count * min(_MAX_REDRAW_FACTOR, _MARGIN * count / len(drawn.requests))))
    requests = drawn.requests[:count]
    workload = PreparedRequests(
        requests=requests,
        description=f"{request_count_text(load, len(requests))} random prompts of {distribution}",
        parameters=distribution.manifest_entry(),
        dropped_too_long=drawn.dropped_too_long,
    )
    return workload if distribution.shared is None else _with_limit(workload, distribution.shared, drawn.prefixes[:count])


def _with_limit(workload: PreparedRequests, shared: SharedPrefixes, prefixes: tuple[GroupPrefix, ...]) -> PreparedRequests:
    """``workload`` with what an infinite prefix cache can reuse of it."""
    limit = reuse_limit(shared, workload.requests, prefixes)
    click.echo(limit_text(shared, workload.requests, limit), err=True)

    def limit_of(sent: Sequence[int]) -> Mapping[str, float | None]:
        return reuse_limit(shared, [workload.requests[index] for index in sent], [prefixes[index] for index in sent])

    description = f"{workload.description}, behind {shared}"
    return replace(workload, description=description, parameters={**workload.parameters, **limit}, limit_of=limit_of)


def _draw_with_shipped_tokenizer(
    distribution: TokenDistribution, traffic: TrafficOptions, load: Load, target: Target
) -> PreparedRequests:
    """Text for a model whose tokenizer is unknown. Its length in that model's tokens is the server's to count, so no request
    has ids or a count. Raises UsageError for options that count in the model's tokens."""
    for name, value in (("--vocab_size", distribution.vocab_size), ("--max_input_len", traffic.max_input_len)):
        if value is not None:
            raise click.UsageError(f"{name} needs the tokenizer of the model {target.model.name}: give --tokenizer_dir")
    click.echo(
        f"No tokenizer of the model {target.model.name} is known: prompts are drawn with the shipped one, and the server "
        "counts their tokens. --tokenizer_dir gives prompts of the exact lengths.",
        err=True,
    )
    workload = _draw(distribution, traffic, load, replace(target, tokenizer=shipped_tokenizer()))
    return replace(
        workload,
        requests=tuple(replace(request, input_ids=None, input_tokens=None) for request in workload.requests),
        description=f"{workload.description}, by the shipped tokenizer",
        parameters={**_without_limit(workload.parameters), "text_tokenizer": "shipped"},
        limit_of=None,
    )


def _without_limit(parameters: Mapping[str, str | float | None]) -> dict[str, str | float | None]:
    """``parameters`` without the shares of tokens that another tokenizer than the model's gave."""
    return {name: None if name.startswith("shared_prefix_") else value for name, value in parameters.items()}


def _prompts(distribution: TokenDistribution, traffic: TrafficOptions, target: Target) -> TokenNormDist:
    """The prompts to draw from. Raises UsageError for an unknown vocabulary."""
    from workloads.request import LengthLimits
    from workloads.token_norm_dist import TokenNormDist

    return TokenNormDist(
        distribution.inputs,
        distribution.outputs,
        _token_ids(distribution.vocab_size, target),
        traffic.seed,
        LengthLimits(traffic.max_input_len, target.context_tokens),
        None if target.model.takes_token_ids else text_codec(target.tokenizer),
        ignore_eos=target.model.supports_ignore_eos if traffic.ignore_eos is None else traffic.ignore_eos,
        shared=distribution.shared,
    )


def _count(distribution: TokenDistribution, traffic: TrafficOptions, load: Load) -> int:
    """The number of requests to draw; a closed loop with a duration gets as many as it can need."""
    from workloads.load import ClosedLoop

    most = load.most_requests(traffic.seed, traffic.num_requests)
    if most is not None:
        return most
    if isinstance(load, ClosedLoop) and load.duration_s is not None:
        shared_tokens = 0 if distribution.shared is None else distribution.shared.tokens
        return load.enough_requests(shared_tokens + distribution.inputs.mean, distribution.outputs.mean)
    return DEFAULT_NUM_REQUESTS


def _token_ids(vocab_size: int | None, target: Target) -> range | list[int]:
    if vocab_size is not None:
        return range(vocab_size)
    if target.tokenizer is None:
        raise click.UsageError("the vocabulary is unknown: give --tokenizer_dir or --vocab_size")
    return ordinary_token_ids(target.tokenizer)
