"""``bench dataset``: measure with prompts from a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import cloup

from bench_cli.declared import Concern, option, part, takes
from bench_cli.measurement.corpus import CorpusOptions, prepare_pieces
from bench_cli.measurement.load_options import make_load
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.own_lengths import OwnLengths, report_rows_without_text
from bench_cli.measurement.scaling_options import ScalingOptions
from bench_cli.measurement.sessions import SessionOptions
from bench_cli.workload_files import ReaderOptions, WorkloadPath
from harness.host.blas_threads import one_blas_thread

_SHIPPED_NAME = "prompts.json"


@dataclass(frozen=True)
class DatasetOptions(Concern, title="Dataset"):
    """The file, and whether it is sent again from its start. ``path`` None: the shipped prompts."""

    path: Path | None = option(
        None,
        "--dataset",
        type=WorkloadPath(),
        metavar="FILE",
        common=True,
        help="File with prompts, also .gz or .zst, or - for standard input: upstream's JSON, ShareGPT's, OpenAI's messages, "
        "vLLM's custom JSONL, MT-Bench's turns, plain text (.txt), a workload.parquet, or hf:NAME (Hugging Face). "
        "Default: the shipped prompts.",
    )
    repeat_dataset: bool = option(
        False,
        help="Send the dataset again when the run needs more requests than the dataset has; repeats may hit a prefix cache.",
    )


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench dataset``."""

    dataset: DatasetOptions = part(DatasetOptions)
    reader: ReaderOptions = part(ReaderOptions)
    own_lengths: OwnLengths = part(OwnLengths)
    corpus: CorpusOptions = part(CorpusOptions)
    scaling: ScalingOptions = part(ScalingOptions)
    sessions: SessionOptions = part(SessionOptions)
    measure: MeasureOptions = part(MeasureOptions)


@cloup.command(
    name="dataset",
    epilog="""\b
Examples:
  bench dataset --request_rate 10 --num_requests 300 --model ensemble
  bench dataset --dataset sharegpt.json --request_rate 10
  bench dataset --dataset tinyshakespeare.txt --isl 512 --osl 64 --request_rate 4
  zcat prompts.jsonl.gz | bench dataset --dataset - --output_tokens 100""",
)
@takes(Options)
def command(options: Options) -> int:
    """Measure with prompts from a dataset, in the file's order. Sends only the first turn of a conversation; --sessions
    sends all turns.

    The output length of a request is the dataset's own, or the number of words in its answer, times --op_tokens_per_word.
    A trace of lengths gets random prompts of exactly these lengths, and a trace of block hashes gets the same prefix
    sharing. With --isl a text corpus is cut into prompts of exactly this many tokens.
    """
    with one_blas_thread():
        from bench_cli.measurement.measure import measure
    from bench_cli.measurement.file_requests import FileTraffic, prepare_dataset
    from workloads.prompts.conversations import TurnClock, check_times
    from workloads.prompts.synthesis import has_prompts
    from workloads.schedule.load import OpenLoop

    shared, sessions, corpus = options.measure, options.sessions, options.corpus
    sessions.check(shared)
    load = make_load(shared.load)
    is_timed = isinstance(load, OpenLoop) and load.duration_s is not None
    repeated = options.dataset.repeat_dataset
    if repeated and shared.traffic.num_requests is None and not is_timed:
        raise click.UsageError("--repeat_dataset needs --num_requests, or --duration with --request_rate: how often is unknown")
    path = options.dataset.path or shipped_dataset()
    workload = options.reader.read(path)
    scaling = options.scaling.scaling()
    report_rows_without_text(workload, path)
    corpus.check(workload, path)
    options.own_lengths.check(workload)
    scaling.check(workload)
    if corpus.isl is not None:
        source = (path, workload, options.own_lengths.output_tokens)
        return measure("dataset", shared, load, partial(prepare_pieces, source, corpus))
    if sessions.sessions is not None:
        if not has_prompts(workload):
            raise click.UsageError(f"--sessions: {path} has lengths alone; bench trace sends its conversations")
        check_times(workload, TurnClock(sessions.sessions))
    file = FileTraffic(
        path,
        scaling.scaled(workload),
        workload if scaling.changes else None,
        scaling,
        options.own_lengths.lengths(),
        sessions if sessions.sessions is not None else None,
        options.reader.field,
    )
    return measure("dataset", shared, load, partial(prepare_dataset, file, repeated))


def shipped_dataset() -> Path:
    """The prompts that come with bench: beside the packages in a checkout, inside ``workloads`` in a wheel."""
    import workloads

    package = Path(workloads.__file__).parent
    in_wheel = package / "shipped" / _SHIPPED_NAME
    return in_wheel if in_wheel.is_file() else package.parent / "datasets" / _SHIPPED_NAME
