"""``bench dataset``: measure with prompts from a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.measurement.options import measure_options, read_options
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from harness.cli.measurement.load_options import TrafficOptions
    from harness.cli.measurement.prepare import PreparedRequests
    from harness.cli.measurement.target import Target
    from workloads.load import Load
    from workloads.request import PromptRow

_SHIPPED_NAME = "prompts.json"


@dataclass(frozen=True)
class Dataset:
    """The rows of the file ``path``; the output length of each is ``op_tokens_per_word`` times the words of its answer."""

    path: Path
    rows: list[PromptRow]
    op_tokens_per_word: float
    repeated: bool = False


@cloup.command(
    name="dataset",
    short_help="Measure with prompts from a dataset.",
    epilog="Example: bench dataset --request_rate 10 --num_requests 300 --model ensemble",
)
@cloup.option_group(
    "Dataset",
    cloup.option(
        "--dataset",
        "path",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="JSON file in upstream's shape (input, instruction, output) or ShareGPT's. Default: the shipped prompts.",
    ),
    cloup.option(
        "--op_tokens_per_word",
        type=click.FloatRange(min=0, min_open=True),
        default=1.3,
        help="Tokens to request per word of the dataset's answer.",
    ),
    cloup.option(
        "--repeat_dataset",
        is_flag=True,
        help="Send the dataset again from its start where more requests are due than it has; repeats may hit a prefix cache.",
    ),
)
@measure_options
def command(path: Path | None, op_tokens_per_word: float, repeat_dataset: bool, **shared: Any) -> int:
    """Measure with prompts from a dataset, in the file's order.

    The output length of a request is the number of words in the dataset's own answer, times --op_tokens_per_word.
    """
    with one_blas_thread():
        from harness.cli.measurement.measure import measure
    from workloads.dataset import read_dataset

    options = read_options(shared)
    is_timed = options.load.duration is not None and options.load.concurrency is None
    if repeat_dataset and options.traffic.num_requests is None and not is_timed:
        raise click.UsageError("--repeat_dataset needs --num_requests, or --duration with --request_rate: how often is unknown")
    path = path or shipped_dataset()
    dataset = Dataset(path, read_dataset(path), op_tokens_per_word, repeat_dataset)
    return measure("dataset", options, partial(_prepare_requests, dataset))


def shipped_dataset() -> Path:
    """The prompts that come with bench: beside the packages in a checkout, inside ``workloads`` in a wheel."""
    import workloads

    package = Path(workloads.__file__).parent
    in_wheel = package / "shipped" / _SHIPPED_NAME
    return in_wheel if in_wheel.is_file() else package.parent / "datasets" / _SHIPPED_NAME


def _prepare_requests(dataset: Dataset, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    from harness.cli.measurement.prepare import PreparedRequests, request_count_text
    from workloads.dataset import dataset_requests
    from workloads.request import LengthLimits

    tokenizer = target.tokenizer
    most = load.most_requests(traffic.seed, traffic.num_requests)
    drawn = dataset_requests(
        dataset.rows,
        None if tokenizer is None else tokenizer.encode,
        most,
        dataset.op_tokens_per_word,
        LengthLimits(traffic.max_input_len, target.context_tokens),
        ignore_eos=bool(traffic.ignore_eos),
    )
    requests = tuple(islice(cycle(drawn.requests), most)) if dataset.repeated else drawn.requests
    again = ", repeated" if len(requests) > len(drawn.requests) else ""
    return PreparedRequests(
        requests=requests,
        description=f"{request_count_text(load, len(requests))} prompts of {dataset.path.name}{again}",
        parameters={
            "dataset": str(dataset.path),
            "op_tokens_per_word": dataset.op_tokens_per_word,
            "rows_read": drawn.rows,
            **({"repeat_dataset": True} if again else {}),
        },
        dropped_too_long=drawn.dropped_too_long,
    )
