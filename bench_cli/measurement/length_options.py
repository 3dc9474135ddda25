"""Options of lengths on the command line: laws of --isl and --osl, the files that they name, and rows of --length_pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import option
from bench_cli.workload_files import read_file
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from workloads.lengths.law import Lengths, Side
    from workloads.lengths.samples import Empirical, EmpiricalPairs, PairedLengths
    from workloads.table.workload import Workload

_EMPIRICAL = "empirical:"
_NUMBER = re.compile(r"[+-]?[\d.]+")
_HEAD_BYTES = 1 << 16  # enough to see whether a file has one number a line
_NOTEWORTHY_MEAN, _NOTEWORTHY_STDEV = 0.01, 0.05  # shares of what is requested, by which bounds move it


def length_option(help_text: str) -> Lengths | None:
    """The field of ``--isl`` or ``--osl``: a law of lengths."""
    return option(None, metavar="MEAN[±STDEV]|LAW", callback=_read_law, common=True, help=help_text)


def vocab_size() -> int | None:
    """The field of ``--vocab_size``."""
    return option(
        None,
        type=click.IntRange(1, 2**31 - 1),
        help="Draw token ids below this. Default: the tokenizer's vocabulary without its special tokens.",
    )


def read_pairs(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> EmpiricalPairs | None:
    """Callback of --length_pairs. Raises UsageError, DatasetError."""
    import pyarrow.compute as pc

    from workloads.lengths.samples import EmpiricalPairs

    if path is None:
        return None
    workload = read_file(path, None, strict=False)
    inputs, outputs = workload.table["input_tokens"], workload.table["output_tokens"]
    known = pc.and_(pc.is_valid(inputs), pc.is_valid(outputs))
    if not pc.any(known).as_py():
        raise click.UsageError(f"--length_pairs {path}: no row has both lengths in tokens; give a trace of lengths")
    rows = (_at_least_one(column.filter(known).to_pylist(), path) for column in (inputs, outputs))
    return EmpiricalPairs(next(rows), next(rows), str(path))


def _read_law(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Lengths | None:
    """Callback of --isl and --osl. Raises UsageError, and WorkloadError for a parameter that is out of range."""
    if text is None:
        return None
    from workloads.elements.errors import WorkloadError
    from workloads.lengths.law import Side, check

    field, side = parameter.name or "", Side.INPUT if parameter.name == "isl" else Side.OUTPUT
    try:
        law = read_law(text, side)
    except WorkloadError as error:
        raise click.UsageError(f"--{field} {text!r}: {error}", ctx) from error
    check(law, field)
    return law


def read_law(text: str, side: Side) -> Lengths:
    """The law of one side that ``text`` spells. Raises WorkloadError without the field's name."""
    from workloads.lengths.spelling import parse

    if text.strip().startswith(_EMPIRICAL):
        return _empirical(text.strip().removeprefix(_EMPIRICAL), side)
    return parse(text, side)


def _empirical(source: str, side: Side) -> Empirical:
    """The lengths of a file with one a line, or those that a trace has of this side. Raises WorkloadError."""
    from workloads.elements.errors import WorkloadError
    from workloads.lengths.samples import Empirical, read_lengths

    path = Path(source)
    if not path.is_file():
        raise WorkloadError(f"there is no file {source!r}")
    if _begins_with_a_number(path):
        return read_lengths(path)
    tokens = _lengths_of(read_file(path, None, strict=False), side)
    if not tokens:
        raise WorkloadError(f"the file has no {side.value} lengths in tokens; give a trace of lengths, or one length a line")
    return Empirical(_at_least_one(tokens, path), source)


def _lengths_of(workload: Workload, side: Side) -> list[int]:
    tokens: list[int] = workload.table[f"{side.value}_tokens"].drop_null().to_pylist()
    return tokens


def _begins_with_a_number(path: Path) -> bool:
    """Whether the first line of a file that is neither empty nor a comment is a number."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from error
    first = next((line.strip() for line in head.splitlines() if line.strip() and not line.strip().startswith("#")), "")
    return _NUMBER.fullmatch(first) is not None


def _at_least_one(tokens: list[int], path: Path) -> tuple[int, ...]:
    """A request has at least one token each way: lengths of 0 become 1, which is reported on stderr."""
    zeros = tokens.count(0)
    if zeros:
        click.echo(printable(f"{path}: {zeros:,} lengths of 0 tokens are drawn as 1."), err=True)
    return tuple(max(1, length) for length in tokens)


def moved_by_bounds(lengths: PairedLengths) -> Iterator[str]:
    """A line for each law whose bounds move its mean or its deviation noticeably; what rounding does is not reported."""
    from workloads.lengths.samples import Independent

    if not isinstance(lengths, Independent):
        return
    for law, direction in ((lengths.inputs, "in"), (lengths.outputs, "out")):
        if _is_moved(law):
            moments = law.moments()
            yield (
                f"Lengths: {law} tokens {direction} have mean {moments.mean:.4g} and deviation {moments.stdev:.4g}, "
                f"because {_reason(law)}."
            )


def _is_moved(law: Lengths) -> bool:
    asked = law.asked
    if abs(law.shift()) > _NOTEWORTHY_MEAN * asked.mean:
        return True
    return asked.stdev >= 1 and law.moments().stdev < (1 - _NOTEWORTHY_STDEV) * asked.stdev


def _reason(law: Lengths) -> str:
    from workloads.lengths.law import ANY_LENGTH

    low, high = law.bounds
    return "none is shorter than 1" if (low, high) == ANY_LENGTH else f"those outside {low:,}..{high:,} are drawn again"
