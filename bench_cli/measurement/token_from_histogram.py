"""``bench token_from_histogram``: measure with random tokens, lengths from histograms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import cloup

from bench_cli.declared import Concern, option, part, takes
from bench_cli.measurement.length_options import vocab_size
from bench_cli.measurement.measure_random_prompts import measure_random_prompts
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.prefix_options import PrefixOptions, with_prefixes
from bench_cli.measurement.random_prompts import RandomPrompts


@dataclass(frozen=True)
class HistogramOptions(Concern, title="Lengths in tokens"):
    """The histograms of the lengths. None: not given."""

    histogram_key: str | None = option(
        None, metavar="KEY", common=True, help="Upstream's histograms of this key; it has one: example."
    )
    histogram: Path | None = option(
        None,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        common=True,
        help='JSON file with the buckets [min, max, count] of "input" and of "output".',
    )
    vocab_size: int | None = vocab_size()


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench token_from_histogram``."""

    lengths: HistogramOptions = part(HistogramOptions)
    prefix: PrefixOptions = part(PrefixOptions)
    measure: MeasureOptions = part(MeasureOptions)


@cloup.command(
    name="token_from_histogram",
    epilog="""\b
Examples:
  bench token_from_histogram --histogram_key example --request_rate 9
  bench token_from_histogram --histogram lengths.json --num_requests 885

\b
A histogram file:
  {"input": [[151, 175, 220], [176, 200, 225]], "output": [[6, 10, 76], [11, 15, 210]]}""",
)
@takes(Options)
def command(options: Options) -> int:
    """Measure with random token ids, uniform over the vocabulary, and lengths from two histograms.

    A bucket is drawn in the ratio of the counts, and a length within it uniformly: --num_requests of them by --seed (default
    1000), where upstream draws as many as the counts add up to, from one seed for each bucket. --max_input_len holds here too.
    """
    from workloads.lengths.law import Side, check
    from workloads.lengths.samples import SHIPPED_HISTOGRAMS, Independent, read_histogram, shipped_histogram

    histogram_key, histogram = options.lengths.histogram_key, options.lengths.histogram
    keys = ", ".join(SHIPPED_HISTOGRAMS)
    if (histogram_key is None) == (histogram is None):
        raise click.UsageError(f"give --histogram_key KEY (of {keys}) or --histogram FILE, one of them")
    if histogram_key is not None and histogram_key not in SHIPPED_HISTOGRAMS:
        raise click.UsageError(f"--histogram_key {histogram_key!r}: the keys are {keys}; --histogram FILE reads your own")
    inputs, outputs = (
        shipped_histogram(histogram_key or "", side) if histogram is None else read_histogram(histogram, side) for side in Side
    )
    for law in (inputs, outputs):
        check(law, "histogram")
    recorded = {"histogram_key": histogram_key, "histogram": None if histogram is None else str(histogram)}
    shared, prefixes = with_prefixes(options.measure, options.prefix)
    prompts = RandomPrompts(Independent(inputs, outputs), recorded, options.lengths.vocab_size, prefixes)
    return measure_random_prompts("token_from_histogram", shared, prompts)
