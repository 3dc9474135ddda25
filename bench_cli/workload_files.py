"""Files of datasets and traces on the command line: the options that choose a reader, and what is reported of rejected rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench_cli.declared import Concern, option
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from workloads.table.workload import Workload

HUB_PREFIX = "hf:"  # hugging_face.PREFIX, whose module is not imported for --help


class WorkloadPath(click.Path):
    """A file or folder that exists, ``-`` for standard input, or ``hf:NAME`` for a dataset of Hugging Face."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True, allow_dash=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Path(value) if str(value).startswith(HUB_PREFIX) else super().convert(value, param, ctx)


def _known_format(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Callback of --format; the readers are imported where it is given. Raises BadParameter."""
    if name is None:
        return None
    from workloads.readers.detect import FORMATS

    if name not in FORMATS:
        raise click.BadParameter(f"{name!r} is none of {', '.join(FORMATS)}", ctx, parameter)
    return name


def _known_fields(ctx: click.Context, parameter: click.Parameter, spelled: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of --field. Raises BadParameter."""
    if spelled:
        from workloads.readers.named_columns import NamedColumns

        try:
            NamedColumns.of(spelled)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None
    return spelled


def workload_output() -> Path:
    """The field of ``--output``, the workload to write."""
    return option(
        Path("workload.parquet"), "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write."
    )


@dataclass(frozen=True)
class ReaderOptions(Concern, title="Reading the file"):
    """How a file is read. ``format_name`` None: by its shape."""

    format_name: str | None = option(
        None,
        "--format",
        callback=_known_format,
        metavar="FORMAT",
        show_default="by the shape of the file",
        help="Format: azure, burstgpt, custom, dynamo, fields, mooncake, openai, parquet, qwen, sharegpt, text, turns, "
        "upstream.",
    )
    field: tuple[str, ...] = option(
        (),
        metavar="NAME=COLUMN",
        callback=_known_fields,
        help="Read any JSON, CSV or Parquet by its columns: prompt=COLUMN, and answer, output_tokens, timestamp, session_id or "
        "delay; or both input_tokens and output_tokens. Repeatable.",
    )
    strict: bool = option(False, help="Stop at the first row that cannot be read, instead of counting and skipping it.")

    def read(self, path: Path) -> Workload:
        """The workload of a file; rejected rows are reported on stderr in one line. Raises DatasetError."""
        return read_file(path, self.format_name, self.strict, self.field)


def read_file(path: Path, format_name: str | None, strict: bool, columns: Sequence[str] = ()) -> Workload:
    """The workload of a file; rejected rows, and those without their images, are reported on stderr in a line each.

    ``columns`` are texts of --field.

    Raises DatasetError.
    """
    from workloads.readers.detect import read_workload_file
    from workloads.readers.named_columns import NamedColumns

    reading = read_workload_file(path, format_name, strict, NamedColumns.of(columns) if columns else None)
    for sentence in reading.rejects.sentences():
        click.echo(printable(sentence), err=True)
    return reading.workload
