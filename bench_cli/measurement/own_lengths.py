"""What a file has of its own: output lengths where it has some, and rows without a prompt where others have one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option
from reports.render.counts import counted
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from workloads.prompts.dataset import OutputLengths
    from workloads.table.workload import Workload

_NAMED_ROWS = 3
_UNUSED = {
    "op_tokens_per_word": "--op_tokens_per_word {:g} has no effect: no prompt has an answer and no output length.",
    "output_tokens": "--output_tokens {} has no effect: each prompt has an output length, or an answer, of whose words "
    "--op_tokens_per_word makes one.",
}


@dataclass(frozen=True)
class OwnLengths(Concern, title="Output lengths of prompts without one"):
    """The output lengths of prompts that have none, in tokens."""

    op_tokens_per_word: float = option(
        1.3,
        type=click.FloatRange(min=0, min_open=True),
        help="Tokens to request for each word of the file's answer, if a row has no output length.",
    )
    output_tokens: int = option(
        256,
        type=click.IntRange(1, 10_000_000),
        common=True,
        help="Tokens to request if a row has neither an output length nor an answer.",
    )

    def check(self, workload: Workload) -> None:
        """Raise UsageError for output lengths of prompts without one, where the file has lengths and no prompts; say on stderr
        which option no prompt of the file needs.
        """
        import pyarrow.compute as pc

        from workloads.prompts.synthesis import has_prompts

        for name in self.given("op_tokens_per_word", "output_tokens"):
            if not has_prompts(workload):
                raise click.UsageError(
                    f"--{name} applies to prompts; the trace has its own lengths, which --output_factor scales"
                )
            is_needed = pc.and_(workload.table["prompt"].is_valid(), workload.table["output_tokens"].is_null())
            has_answer = workload.table["answer"].is_valid()
            is_needed = pc.and_(is_needed, has_answer if name == "op_tokens_per_word" else pc.invert(has_answer))
            if not pc.any(is_needed).as_py():
                click.echo(_UNUSED[name].format(getattr(self, name)), err=True)

    def lengths(self) -> OutputLengths:
        """The lengths that the options set."""
        from workloads.prompts.dataset import OutputLengths

        return OutputLengths(self.op_tokens_per_word, self.output_tokens)


def without_length_text(prompts: int, lengths: OutputLengths) -> str:
    """What is requested of prompts without an output length, for stderr."""
    return (
        f"{counted(prompts, 'prompt has', 'prompts have')} no output length in the dataset: "
        f"{counted(lengths.without_answer, 'token is', 'tokens are')} requested for each; --output_tokens sets this."
    )


def rows_without_text(workload: Workload) -> tuple[int, ...]:
    """The numbers, from 1 on, of the rows without a prompt where others have one."""
    import pyarrow.compute as pc

    prompts = workload.table["prompt"]
    if prompts.null_count in (0, len(workload)):
        return ()
    return tuple(number + 1 for number in pc.indices_nonzero(prompts.is_null()).to_pylist())


def report_rows_without_text(workload: Workload, path: Path) -> None:
    """Count and name on stderr the rows that are not sent, since they have no prompt where others have one."""
    rows = rows_without_text(workload)
    if not rows:
        return
    named = ", ".join(f"{number:,}" for number in rows[:_NAMED_ROWS])
    more = f" and {len(rows) - _NAMED_ROWS:,} more" if len(rows) > _NAMED_ROWS else ""
    which = f"{len(rows):,} rows of {path} have" if len(rows) > 1 else f"1 row of {path} has"
    are = "are" if len(rows) > 1 else "is"
    click.echo(printable(f"{which} no text, and {are} not sent: {'rows' if len(rows) > 1 else 'row'} {named}{more}."), err=True)


def without_text_entry(workload: Workload) -> dict[str, float]:
    """The number of such rows for the manifest; nothing where there is none."""
    rows = rows_without_text(workload)
    return {"without_text": len(rows)} if rows else {}
