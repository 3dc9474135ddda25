"""``bench dataset``: measure with prompts from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.measurement.load import amount
from harness.cli.measurement.options import MeasureOptions, measure_options, split_options

if TYPE_CHECKING:
    from harness.cli.measurement.target import Target
    from harness.cli.measurement.workload import Workload
    from workloads.load import Load
    from workloads.request import PromptRow

_SHIPPED_NAME = "prompts.json"


@cloup.command(
    name="dataset",
    short_help="Measure with prompts from a dataset.",
    epilog="Example: bench dataset --request_rate 10 --num_requests 300 --model ensemble",
)
@cloup.option_group(
    "Dataset",
    cloup.option(
        "--dataset",
        type=click.Path(path_type=Path, dir_okay=False),
        help="JSON file in upstream's shape (input, instruction, output) or ShareGPT's. Default: the shipped prompts.",
    ),
    cloup.option(
        "--op_tokens_per_word",
        type=click.FloatRange(min=0, min_open=True),
        default=1.3,
        help="Tokens to ask for per word of the dataset's answer.",
    ),
)
@measure_options
def command(**values: Any) -> int:
    """Measure with prompts from a dataset, in the file's order.

    Each request asks for as many tokens as the dataset's own answer has words, times --op_tokens_per_word.
    """
    from harness.cli.measurement.measure import measure
    from workloads.dataset import read_dataset

    options, own = split_options(values)
    path = own["dataset"] or shipped_dataset()
    rows = read_dataset(path)
    return measure("dataset", options, lambda target, load: _workload(options, own, path, rows, target, load))


def shipped_dataset() -> Path:
    """The prompts that come with bench: beside the packages in a checkout, inside ``workloads`` in a wheel."""
    import workloads

    package = Path(workloads.__file__).parent
    in_wheel = package / "shipped" / _SHIPPED_NAME
    return in_wheel if in_wheel.is_file() else package.parent / "datasets" / _SHIPPED_NAME


def _workload(
    options: MeasureOptions, own: dict[str, Any], path: Path, rows: list[PromptRow], target: Target, load: Load
) -> Workload:
    from harness.cli.measurement.workload import Workload
    from workloads.dataset import dataset_requests
    from workloads.request import LengthLimits

    tokenizer = target.tokenizer
    made = dataset_requests(
        rows,
        None if tokenizer is None else tokenizer.encode,
        load.most_requests(options.seed, options.num_requests),
        own["op_tokens_per_word"],
        LengthLimits(options.max_input_len, target.context_tokens),
        ignore_eos=bool(options.ignore_eos),
    )
    return Workload(
        requests=made.requests,
        description=f"{amount(load, len(made.requests))} prompts of {path.name}",
        parameters={"dataset": str(path), "op_tokens_per_word": own["op_tokens_per_word"], "rows_read": made.rows},
        dropped_too_long=made.dropped_too_long,
    )
