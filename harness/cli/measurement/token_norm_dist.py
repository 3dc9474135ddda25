"""``bench token_norm_dist``: measure with random tokens of normally distributed lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.measurement.options import measure_options, read_options
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from harness.cli.measurement.load_options import TrafficOptions
    from harness.cli.measurement.prepare import Workload
    from harness.cli.measurement.target import Target
    from workloads.exact_text import TextCodec
    from workloads.load import Load
    from workloads.token_norm_dist import NormalLengths, TokenNormDist

DEFAULT_NUM_REQUESTS = 1000
_MARGIN = 1.1  # over the number that is expected to be dropped
_MAX_REDRAW_FACTOR = 20.0  # times as many as are sent


@dataclass(frozen=True)
class TokenDistribution:
    """Lengths in tokens, and the vocabulary's size: ids are drawn below ``vocab_size``; None means the tokenizer's."""

    inputs: NormalLengths
    outputs: NormalLengths
    vocab_size: int | None

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
        }


@cloup.command(
    name="token_norm_dist",
    short_help="Measure with random tokens, lengths normally distributed.",
    epilog="Example: bench token_norm_dist --request_rate 9 --input_mean 128 --input_stdev 5 --output_mean 20 --output_stdev 2",
)
@cloup.option_group(
    "Lengths in tokens",
    cloup.option("--input_mean", type=float, required=True, help="Mean length of prompts."),
    cloup.option("--input_stdev", type=float, required=True, help="Standard deviation of it; 0 makes it constant."),
    cloup.option("--output_mean", type=float, required=True, help="Mean length of answers."),
    cloup.option("--output_stdev", type=float, required=True, help="Standard deviation of it; 0 makes it constant."),
    cloup.option(
        "--vocab_size",
        type=click.IntRange(1, 2**31 - 1),
        help="Draw token ids below this. Default: the tokenizer's vocabulary without its special tokens.",
    ),
)
@measure_options
def command(
    input_mean: float, input_stdev: float, output_mean: float, output_stdev: float, vocab_size: int | None, **shared: Any
) -> int:
    """Measure with random token ids, uniform over the vocabulary. Lengths are max(1, ceil(N(mean, stdev))).

    Without --num_requests and --duration, 1000 requests are sent.
    """
    with one_blas_thread():
        from harness.cli.measurement.measure import measure
    from workloads.token_norm_dist import NormalLengths

    inputs, outputs = NormalLengths(input_mean, input_stdev), NormalLengths(output_mean, output_stdev)
    inputs.check("input")
    outputs.check("output")
    distribution = TokenDistribution(inputs, outputs, vocab_size)
    return measure("token_norm_dist", read_options(shared), partial(_make_workload, distribution))


def _make_workload(distribution: TokenDistribution, traffic: TrafficOptions, load: Load, target: Target) -> Workload:
    from harness.cli.measurement.prepare import Workload, request_count_text
    from workloads.load import OpenLoop

    prompts = _prompts(distribution, traffic, target)
    count = _count(distribution, traffic, load)
    drawn = prompts.draw(count)
    is_timed = isinstance(load, OpenLoop) and load.duration_s is not None and traffic.num_requests is None
    if is_timed and drawn.dropped_too_long:  # draw again, so that the requests that are left fill the duration
        drawn = prompts.draw(math.ceil(count * min(_MAX_REDRAW_FACTOR, _MARGIN * count / len(drawn.requests))))
    requests = drawn.requests[:count]
    return Workload(
        requests=requests,
        description=f"{request_count_text(load, len(requests))} random prompts of {distribution}",
        parameters=distribution.manifest_entry(),
        dropped_too_long=drawn.dropped_too_long,
    )


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
        None if target.model.takes_token_ids else _codec(target),
        ignore_eos=target.model.supports_ignore_eos if traffic.ignore_eos is None else traffic.ignore_eos,
    )


def _count(distribution: TokenDistribution, traffic: TrafficOptions, load: Load) -> int:
    """The number of requests to draw; a closed loop with a duration gets as many as it can need."""
    from workloads.load import ClosedLoop

    most = load.most_requests(traffic.seed, traffic.num_requests)
    if most is not None:
        return most
    if isinstance(load, ClosedLoop) and load.duration_s is not None:
        return load.enough_requests(distribution.inputs.mean, distribution.outputs.mean)
    return DEFAULT_NUM_REQUESTS


def _token_ids(vocab_size: int | None, target: Target) -> range | list[int]:
    if vocab_size is not None:
        return range(vocab_size)
    if target.tokenizer is None:
        raise click.UsageError("the vocabulary is unknown: give --tokenizer_dir or --vocab_size")
    special = set(target.tokenizer.all_special_ids)
    return [token for token in range(len(target.tokenizer)) if token not in special]


def _codec(target: Target) -> TextCodec:
    from workloads.exact_text import TextCodec

    tokenizer = target.tokenizer
    if tokenizer is None:
        raise click.UsageError(
            f"the model {target.model.name} takes text: give --tokenizer_dir to turn random tokens into text"
        )
    return TextCodec(
        lambda ids: str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)),
        lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
    )
