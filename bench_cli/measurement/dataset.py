"""``bench dataset``: measure with prompts from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.measurement.corpus import CorpusOptions, corpus_group, prepare_pieces
from bench_cli.measurement.load_options import make_load
from bench_cli.measurement.options import measure_options, read_concern, read_options
from bench_cli.measurement.own_lengths import (
    own_length_options,
    report_rows_without_text,
    without_length_text,
    without_text_entry,
)
from bench_cli.measurement.scaling_options import ScalingOptions, reuse_entries, reuse_limit_of, scaling_group
from bench_cli.measurement.sessions import SessionOptions, prepare_sessions, session_group, with_reuse_limit
from bench_cli.workload_files import WorkloadPath, read_file, reader_options
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from bench_cli.measurement.load_options import TrafficOptions
    from bench_cli.measurement.prepare import PreparedRequests
    from bench_cli.measurement.target import Target
    from workloads.prompts.dataset import DatasetRequests, OutputLengths
    from workloads.prompts.synthesis import SyntheticRequests
    from workloads.schedule.load import Load
    from workloads.schedule.sessions import SessionRequests
    from workloads.table.scaling import Scaling
    from workloads.table.workload import Workload

_SHIPPED_NAME = "prompts.json"


@dataclass(frozen=True)
class Dataset:
    """The workload of the file ``path``, the output lengths of rows that have none, and the factors of a trace's lengths."""

    path: Path
    workload: Workload
    lengths: OutputLengths
    scaling: Scaling
    repeated: bool = False


@cloup.command(
    name="dataset",
    short_help="Measure with prompts from a dataset.",
    epilog="""\b
Examples:
  bench dataset --request_rate 10 --num_requests 300 --model ensemble
  bench dataset --dataset sharegpt.json --request_rate 10
  bench dataset --dataset tinyshakespeare.txt --isl 512 --osl 64 --request_rate 4
  zcat prompts.jsonl.gz | bench dataset --dataset - --output_tokens 100""",
)
@cloup.option_group(
    "Dataset",
    cloup.option(
        "--dataset",
        "path",
        type=WorkloadPath(),
        metavar="FILE",
        help="File with prompts, also .gz or .zst, or - for standard input: upstream's JSON (input, instruction, output), "
        "ShareGPT's, OpenAI's messages, vLLM's custom JSONL, MT-Bench's turns, plain text (.txt), a workload.parquet, or "
        "hf:NAME of Hugging Face's hub. "
        "Default: the shipped prompts.",
    ),
    cloup.option(
        "--repeat_dataset",
        is_flag=True,
        help="Send the dataset again from its start where more requests are due than it has; repeats may hit a prefix cache.",
    ),
)
@own_length_options
@corpus_group
@scaling_group
@session_group
@reader_options
@measure_options
def command(
    path: Path | None,
    op_tokens_per_word: float,
    output_tokens: int,
    repeat_dataset: bool,
    format_name: str | None,
    strict: bool,
    **shared: Any,
) -> int:
    """Measure with prompts from a dataset, in the file's order. Of conversations first turns are sent, or with --sessions all.

    The output length of a request is the dataset's own, or the number of words in its answer, times --op_tokens_per_word.
    A trace of lengths gets random prompts of exactly these lengths, and a trace of block hashes the same shared prefixes.
    With --isl a text corpus is cut into prompts of exactly so many tokens.
    """
    with one_blas_thread():
        from bench_cli.measurement.measure import measure
    from workloads.prompts.dataset import OutputLengths
    from workloads.prompts.synthesis import has_prompts
    from workloads.schedule.load import OpenLoop
    from workloads.schedule.sessions import TurnClock, check_times

    options = read_options(shared)
    sessions = read_concern(SessionOptions, shared)
    sessions.check(options)
    load = make_load(options.load)
    is_timed = isinstance(load, OpenLoop) and load.duration_s is not None
    if repeat_dataset and options.traffic.num_requests is None and not is_timed:
        raise click.UsageError("--repeat_dataset needs --num_requests, or --duration with --request_rate: how often is unknown")
    path = path or shipped_dataset()
    workload = read_file(path, format_name, strict)
    scaling = read_concern(ScalingOptions, shared).scaling()
    dataset = Dataset(path, workload, OutputLengths(op_tokens_per_word, output_tokens), scaling, repeat_dataset)
    report_rows_without_text(workload, path)
    corpus = read_concern(CorpusOptions, shared)
    corpus.check(workload, path)
    scaling.check(workload)
    if corpus.isl is not None:
        return measure("dataset", options, load, partial(prepare_pieces, (path, workload, output_tokens), corpus))
    if sessions.sessions is not None:
        if not has_prompts(workload):
            raise click.UsageError(f"--sessions: {path} has lengths alone; bench trace sends its conversations")
        check_times(workload, TurnClock(sessions.sessions))
        return measure("dataset", options, load, partial(_prepare_sessions, dataset, sessions))
    prepare = _prepare_requests if has_prompts(workload) else _prepare_synthetic
    return measure("dataset", options, load, partial(prepare, dataset))


def shipped_dataset() -> Path:
    """The prompts that come with bench: beside the packages in a checkout, inside ``workloads`` in a wheel."""
    import workloads

    package = Path(workloads.__file__).parent
    in_wheel = package / "shipped" / _SHIPPED_NAME
    return in_wheel if in_wheel.is_file() else package.parent / "datasets" / _SHIPPED_NAME


def _prepare_requests(dataset: Dataset, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    from workloads.elements.request import LengthLimits
    from workloads.prompts.dataset import dataset_requests

    most = load.most_requests(traffic.seed, traffic.num_requests)
    drawn = dataset_requests(
        dataset.workload,
        None if target.tokenizer is None else target.tokenizer.encode,
        most,
        dataset.lengths,
        LengthLimits(traffic.max_input_len, target.context_tokens),
        ignore_eos=bool(traffic.ignore_eos),
    )
    _report(drawn, dataset)
    parameters: dict[str, str | float | None] = {"op_tokens_per_word": dataset.lengths.tokens_per_word}
    if drawn.without_length:
        parameters["output_tokens"] = dataset.lengths.without_answer
    if drawn.without_history:
        parameters["without_history"] = drawn.without_history
    return _prepared(dataset, drawn, load, most, ("prompts of", parameters))


def _prepare_sessions(
    dataset: Dataset, options: SessionOptions, traffic: TrafficOptions, load: Load, target: Target
) -> PreparedRequests:
    drawn, sessions = prepare_sessions(dataset.workload, options, dataset.lengths, traffic, load, target)
    parameters = options.manifest_entry(drawn) | {"op_tokens_per_word": dataset.lengths.tokens_per_word}
    if drawn.without_length:
        click.echo(without_length_text(drawn.without_length, dataset.lengths), err=True)
        parameters["output_tokens"] = dataset.lengths.without_answer
    prepared = _prepared(dataset, drawn, load, traffic.num_requests, ("turns of", parameters))
    return with_reuse_limit(replace(prepared, load=sessions), drawn)


def _prepare_synthetic(dataset: Dataset, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    """Random prompts of the file's lengths; bench trace sends them at its times. Raises UsageError without a vocabulary."""
    from bench_cli.measurement.synthetic import synthesis_for
    from workloads.arrivals.replay import rows_of

    most = load.most_requests(traffic.seed, traffic.num_requests)
    scaled = dataset.scaling.scaled(dataset.workload)
    drawn = synthesis_for(dataset.path, traffic, target).requests(scaled, most)
    unscaled = rows_of(dataset.workload, drawn.kept) if dataset.scaling.changes else None
    reuse = {} if dataset.repeated else reuse_entries(rows_of(scaled, drawn.kept), unscaled)
    parameters = {"synthetic": True, **reuse, **dataset.scaling.entries()}
    prepared = _prepared(dataset, drawn, load, most, ("random prompts of the lengths of", parameters))
    if dataset.repeated:
        return prepared
    return replace(prepared, limit_of=reuse_limit_of(drawn.kept, scaled, dataset.workload if dataset.scaling.changes else None))


def _prepared(
    dataset: Dataset,
    drawn: DatasetRequests | SyntheticRequests | SessionRequests,
    load: Load,
    most: int | None,
    origin: tuple[str, Mapping[str, str | float | None]],
) -> PreparedRequests:
    """The requests, repeated up to ``most`` where the dataset is; ``origin`` is the kind of prompts and its own parameters."""
    from bench_cli.measurement.prepare import PreparedRequests, request_count_text
    from workloads.readers.source import name_of

    kind, parameters = origin
    requests = tuple(islice(cycle(drawn.requests), most)) if dataset.repeated else drawn.requests
    again = len(requests) > len(drawn.requests)
    count, name = request_count_text(load, len(requests)), name_of(dataset.path).name
    return PreparedRequests(
        requests=requests,
        description=f"{count} {kind} {name}{', repeated' if again else ''}",
        parameters={
            "dataset": str(dataset.path),
            "format": dataset.workload.facts.format,
            "rejected_rows": dataset.workload.facts.rejected_rows,
            **parameters,
            "rows_read": drawn.rows,
            **without_text_entry(dataset.workload),
            **({"repeat_dataset": True} if again else {}),
            "whole_dataset": not again and (most is None or len(requests) < most),
        },
        dropped_too_long=drawn.dropped_too_long,
    )


def _report(drawn: DatasetRequests, dataset: Dataset) -> None:
    """What is sent otherwise than the dataset has it, on stderr."""
    if drawn.without_length:
        click.echo(without_length_text(drawn.without_length, dataset.lengths), err=True)
    if drawn.without_history:
        click.echo(f"{drawn.without_history:,} prompts are sent without the messages before them.", err=True)
