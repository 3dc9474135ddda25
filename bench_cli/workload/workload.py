"""``bench workload``: import, synthesize, show and write traffic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import cloup

from bench_cli.declared import Concern, part, required, same, takes
from bench_cli.outputs import check_folder, page_file, write_page_file, written_output
from bench_cli.workload.synthesize import synthesize
from bench_cli.workload_files import ReaderOptions, WorkloadPath, read_file, workload_output
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread
from reports.render.counts import counted
from reports.render.plain_text import printable

_FILE = cloup.argument(
    "path", metavar="FILE", type=WorkloadPath(), help="Dataset, trace or workload.parquet; - is standard input."
)


@cloup.group(
    name="workload",
)
def command() -> None:
    """Import, synthesize, show and write the traffic of datasets and traces.

    Every format is recognised by the shape of the file, which may be compressed (.gz, .zst): datasets of upstream, ShareGPT,
    OpenAI's messages, vLLM's custom JSONL, MT-Bench and plain text, and traces of Azure, BurstGPT, Dynamo, Mooncake and
    Qwen-Bailian; --field reads others.
    """


command.add_command(synthesize)


@dataclass(frozen=True)
class ImportOptions(Concern):
    """The options of ``bench workload import``."""

    output: Path = workload_output()
    reader: ReaderOptions = part(ReaderOptions)


@command.command(
    name="import",
    epilog="Example: bench workload import AzureLLMInferenceTrace_conv.csv -o workload.parquet",
)
@_FILE
@takes(ImportOptions)
@one_blas_thread()
def import_(options: ImportOptions, path: Path) -> int:
    """Read a dataset or trace, and write it as a workload: Parquet, which every verb that takes a dataset reads fast."""
    check_folder("--output", options.output)
    workload = options.reader.read(path)
    with written_output("--output", options.output) as temporary:
        workload.write(temporary)
    click.echo(f"{counted(len(workload), 'row')} of {workload.facts.format}. Written: {printable(str(options.output))}")
    return ExitStatus.VALID


@dataclass(frozen=True)
class ShowOptions(Concern):
    """The options of ``bench workload show``."""

    html: Path | None = page_file()
    reader: ReaderOptions = part(ReaderOptions)


@command.command(
    name="show",
    epilog="""\b
Examples:
  bench workload show mooncake_conversation_trace.jsonl
  bench workload show sharegpt.json --html workload.html""",
)
@_FILE
@takes(ShowOptions)
@one_blas_thread()
def show(options: ShowOptions, path: Path) -> int:
    """Show what a dataset or trace consists of: rows, lengths, arrivals, conversations, and the prefixes that prompts share.

    Prefix sharing is what an infinite prefix cache would reuse: by the trace's hashes of blocks, or by the text of prompts.
    """
    from bench_cli.workload.tables import workload_tables
    from reports.render.tables import console_table
    from workloads.table.statistics import workload_statistics

    check_folder("--html", options.html)
    workload, html = options.reader.read(path), options.html
    statistics = workload_statistics(workload)
    tables = workload_tables(workload, statistics)
    click.echo("\n\n".join(console_table(table, heading=table.title) for table in tables))
    if html is not None:
        from bench_cli.workload.page import workload_page

        write_page_file(html, workload_page(workload, statistics))
    return ExitStatus.VALID


def _known_written_format(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    """Callback of --format of ``write``. Raises BadParameter."""
    from workloads.table.writers import WRITTEN_FORMATS

    if name not in WRITTEN_FORMATS:
        raise click.BadParameter(f"{name!r} is none of {', '.join(WRITTEN_FORMATS)}", ctx, parameter)
    return name


@dataclass(frozen=True)
class WriteOptions(Concern):
    """The options of ``bench workload write``."""

    format_name: str = required(
        "--format",
        metavar="FORMAT",
        callback=_known_written_format,
        help="upstream (JSON), openai and custom (JSON lines) for prompts; azure (CSV) and mooncake (JSON lines) for lengths.",
    )
    output: Path = required("-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
    strict: bool = same(ReaderOptions, "strict")


@command.command(
    name="write",
    epilog="""\b
Examples:
  bench workload write sharegpt.json --format upstream -o prompts.json
  bench workload write workload.parquet --format azure -o trace.csv""",
)
@_FILE
@takes(WriteOptions)
@one_blas_thread()
def write(options: WriteOptions, path: Path) -> int:
    """Write a workload in a format that other programs read. Rows that the format cannot express are left out and counted."""
    from workloads.table.writers import write_workload

    format_name, output = options.format_name, options.output
    check_folder("-o", output)
    workload = read_file(path, None, options.strict)
    with written_output("-o", output) as temporary:
        left_out = write_workload(workload, format_name, temporary)
    if left_out:
        rows = counted(len(workload), "row")
        click.echo(f"Left out: {left_out:,} of {rows}, which {format_name} cannot express.", err=True)
    click.echo(f"{counted(len(workload) - left_out, 'row')}. Written: {printable(str(output))}")
    return ExitStatus.VALID
