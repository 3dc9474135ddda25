"""Options of a text corpus: prompts of exact lengths cut from it, instead of its paragraphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option
from bench_cli.measurement.length_options import length_option
from bench_cli.tokenizers import text_codec
from reports.render.counts import counted

if TYPE_CHECKING:
    from pathlib import Path

    from bench_cli.measurement.load_options import TrafficOptions
    from bench_cli.measurement.prepare import PreparedRequests
    from bench_cli.measurement.target import Target
    from workloads.lengths.law import Lengths
    from workloads.prompts.corpus import CorpusPrompts
    from workloads.schedule.load import Load
    from workloads.table.workload import Workload

_TEXT_FORMAT = "text"
_WITHOUT_ISL = {
    "sessions": "it cuts single prompts from a text",
    "repeat_dataset": "--pieces random cuts as many prompts from a text as are requested",
    "op_tokens_per_word": "a text has no answers; --osl sets their length",
}


@dataclass(frozen=True)
class CorpusOptions(Concern, title="Prompts cut from a text corpus (docs/reference/workload-files.md)"):
    """``isl`` None: the paragraphs of a text are its prompts."""

    isl: Lengths | None = length_option(
        "Cut a .txt file into prompts of exactly this many tokens: a mean, or a length law (see token_norm_dist)."
    )
    osl: Lengths | None = length_option("Output length for these: a mean, or a law. Default: --output_tokens.")
    pieces: str = option(
        "consecutive",
        type=click.Choice(["consecutive", "random"]),
        help="consecutive: each prompt begins where the last one ends, so that none share text. random: anywhere in the text, "
        "drawn from --seed.",
    )

    def check(self, workload: Workload, path: Path) -> None:
        """Raise UsageError for options without an effect."""
        for name in self.given("osl", "pieces"):
            if self.isl is None:
                raise click.UsageError(f"--{name} applies to prompts cut from a text; it needs --isl, their length")
        if self.isl is not None and workload.facts.format != _TEXT_FORMAT:
            raise click.UsageError(
                f"--isl cuts prompts from a text corpus, and {path} has prompts or lengths of its own; "
                "bench token_norm_dist --isl has random ones"
            )
        for name in self.given(*_WITHOUT_ISL):
            if self.isl is not None:
                raise click.UsageError(f"--{name} cannot be combined with --isl: {_WITHOUT_ISL[name]}")
        if self.osl is not None and self.given("output_tokens"):
            raise click.UsageError("--osl and --output_tokens both set the length of answers; give one of them")


def prepare_pieces(
    source: tuple[Path, Workload, int], options: CorpusOptions, traffic: TrafficOptions, load: Load, target: Target
) -> PreparedRequests:
    """Pieces of the text ``source``, which is its file, its workload, and the output length without --osl.

    Raises UsageError where the tokenizer, or with random pieces their number, is unknown.
    """
    from bench_cli.measurement.prepare import PreparedRequests, request_count_text
    from workloads.readers.source import name_of

    path, workload, _ = source
    most = load.most_requests(traffic.seed, traffic.num_requests)
    if most is None and options.pieces == "random":
        raise click.UsageError("--pieces random needs --num_requests, or --duration with --request_rate: how many is unknown")
    prompts = _prompts(source, options, traffic, target)
    drawn = prompts.draw(most)
    if drawn.inexact:
        inexact = counted(drawn.inexact, "prompt has", "prompts have")
        click.echo(f"{inexact} not exactly the length that was drawn: no text of it was found.", err=True)
    inputs, outputs = prompts.lengths.laws
    count = request_count_text(load, len(drawn.requests))
    return PreparedRequests(
        drawn,
        description=f"{count} {options.pieces} pieces of {name_of(path).name}, {prompts.lengths}",
        parameters={
            "dataset": str(path),
            "format": workload.facts.format,
            "rejected_rows": workload.facts.rejected_rows,
            "isl": inputs,
            "osl": outputs,
            "pieces": options.pieces,
            "corpus_tokens": prompts.ids.size,
            **({"inexact_lengths": drawn.inexact} if drawn.inexact else {}),
        },
        lengths=prompts.lengths,
    )


def _prompts(
    source: tuple[Path, Workload, int], options: CorpusOptions, traffic: TrafficOptions, target: Target
) -> CorpusPrompts:
    from workloads.elements.request import LengthLimits
    from workloads.lengths.families import Constant
    from workloads.lengths.samples import Independent
    from workloads.prompts.corpus import CorpusPrompts, Pieces, corpus_text

    if target.tokenizer is None:
        raise click.UsageError(f"--isl counts the tokens of the model {target.model.name}, so it needs --tokenizer_dir")
    assert options.isl is not None
    _, workload, output_tokens = source
    return CorpusPrompts(
        corpus_text(workload),
        text_codec(target.tokenizer),
        Independent(options.isl, options.osl or Constant(output_tokens)),
        Pieces(options.pieces),
        traffic.seed,
        LengthLimits(traffic.max_input_len, target.context_tokens),
        as_ids=target.model.takes_token_ids,
        ignore_eos=bool(traffic.ignore_eos),
    )
