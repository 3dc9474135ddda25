"""``bench token_norm_dist``: measure with random tokens of normally distributed lengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.measurement.load import amount
from harness.cli.measurement.options import MeasureOptions, measure_options, split_options

if TYPE_CHECKING:
    from harness.cli.measurement.target import Target
    from harness.cli.measurement.workload import Workload
    from workloads.load import Load
    from workloads.token_norm_dist import NormalLengths

DEFAULT_NUM_REQUESTS = 1000
_MARGIN = 1.1  # beside what is expected to be dropped
_MOST_REDRAWN = 20.0  # times as many as are sent


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
def command(**values: Any) -> int:
    """Measure with random token ids, uniform over the vocabulary. Lengths are max(1, ceil(N(mean, stdev))).

    Without --num_requests and --duration, 1000 requests are sent.
    """
    from harness.cli.measurement.measure import measure
    from workloads.token_norm_dist import NormalLengths

    options, own = split_options(values)
    inputs = NormalLengths(own["input_mean"], own["input_stdev"])
    outputs = NormalLengths(own["output_mean"], own["output_stdev"])
    inputs.check("input")
    outputs.check("output")
    return measure("token_norm_dist", options, lambda target, load: _workload(options, own, target, load))


def _workload(options: MeasureOptions, own: dict[str, Any], target: Target, load: Load) -> Workload:
    from harness.cli.measurement.workload import Workload
    from workloads.load import OpenLoop
    from workloads.request import LengthLimits
    from workloads.token_norm_dist import NormalLengths, TokenNormDist

    inputs = NormalLengths(own["input_mean"], own["input_stdev"])
    outputs = NormalLengths(own["output_mean"], own["output_stdev"])
    token_ids = _token_ids(own["vocab_size"], target)
    decode = None if target.model.takes_token_ids else _decoder(target)

    prompts = TokenNormDist(
        inputs,
        outputs,
        token_ids,
        options.seed,
        LengthLimits(options.max_input_len, target.context_tokens),
        decode,
        ignore_eos=target.model.surely_ignores_eos if options.ignore_eos is None else options.ignore_eos,
    )
    count = _count(load, options, inputs, outputs)
    made = prompts.draw(count)
    if isinstance(load, OpenLoop) and load.duration_s is not None and options.num_requests is None and made.dropped_too_long:
        made = prompts.draw(
            math.ceil(count * min(_MOST_REDRAWN, _MARGIN * count / len(made.requests)))
        )  # what is left fills the time
    requests = made.requests[:count]
    return Workload(
        requests=requests,
        description=(
            f"{amount(load, len(requests))} random prompts of N({inputs.mean:g}, {inputs.stdev:g}) tokens in, "
            f"N({outputs.mean:g}, {outputs.stdev:g}) out"
        ),
        parameters=own,
        dropped_too_long=made.dropped_too_long,
    )


def _count(load: Load, options: MeasureOptions, inputs: NormalLengths, outputs: NormalLengths) -> int:
    """How many requests to draw; a closed loop that the clock ends gets as many as it can need."""
    from workloads.load import ClosedLoop

    most = load.most_requests(options.seed, options.num_requests)
    if most is not None:
        return most
    if isinstance(load, ClosedLoop) and load.duration_s is not None:
        return load.enough_requests(inputs.mean, outputs.mean)
    return DEFAULT_NUM_REQUESTS


def _token_ids(vocab_size: int | None, target: Target) -> range | list[int]:
    if vocab_size is not None:
        return range(vocab_size)
    if target.tokenizer is None:
        raise click.UsageError("the vocabulary is unknown: give --tokenizer_dir or --vocab_size")
    special = set(target.tokenizer.all_special_ids)
    return [token for token in range(len(target.tokenizer)) if token not in special]


def _decoder(target: Target) -> Any:
    if target.tokenizer is None:
        raise click.UsageError(
            f"the model {target.model.name} takes text: give --tokenizer_dir to turn random tokens into text"
        )
    return lambda ids: target.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
