"""``bench dataset``: measure with prompts from a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
import cloup

from bench_cli.measurement.corpus import CorpusOptions, corpus_group, prepare_pieces
from bench_cli.measurement.load_options import make_load
from bench_cli.measurement.options import measure_options, read_concern, read_options
from bench_cli.measurement.own_lengths import own_length_options, report_rows_without_text
from bench_cli.measurement.scaling_options import ScalingOptions, scaling_group
from bench_cli.measurement.sessions import SessionOptions, session_group
from bench_cli.workload_files import WorkloadPath, read_file, reader_options
from harness.host.blas_threads import one_blas_thread

_SHIPPED_NAME = "prompts.json"


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
    from bench_cli.measurement.file_requests import FileTraffic, prepare_dataset
    from workloads.prompts.conversations import TurnClock, check_times
    from workloads.prompts.dataset import OutputLengths
    from workloads.prompts.synthesis import has_prompts
    from workloads.schedule.load import OpenLoop

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
    file = FileTraffic(
        path,
        scaling.scaled(workload),
        workload if scaling.changes else None,
        scaling,
        OutputLengths(op_tokens_per_word, output_tokens),
        sessions if sessions.sessions is not None else None,
    )
    return measure("dataset", options, load, partial(prepare_dataset, file, repeat_dataset))


def shipped_dataset() -> Path:
    """The prompts that come with bench: beside the packages in a checkout, inside ``workloads`` in a wheel."""
    import workloads

    package = Path(workloads.__file__).parent
    in_wheel = package / "shipped" / _SHIPPED_NAME
    return in_wheel if in_wheel.is_file() else package.parent / "datasets" / _SHIPPED_NAME
