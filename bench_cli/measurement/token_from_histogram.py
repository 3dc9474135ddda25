"""``bench token_from_histogram``: measure with random tokens, lengths from histograms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import cloup

from bench_cli.measurement.measure_random_prompts import measure_random_prompts
from bench_cli.measurement.options import measure_options
from bench_cli.measurement.prefix_options import prefix_group, read_with_prefixes
from bench_cli.measurement.random_prompts import RandomPrompts, vocab_size_option


@cloup.command(
    name="token_from_histogram",
    short_help="Measure with lengths from histograms.",
    epilog="""\b
Examples:
  bench token_from_histogram --histogram_key example --request_rate 9
  bench token_from_histogram --histogram lengths.json --num_requests 885

\b
A histogram file:
  {"input": [[151, 175, 220], [176, 200, 225]], "output": [[6, 10, 76], [11, 15, 210]]}""",
)
@cloup.option_group(
    "Lengths in tokens",
    cloup.option("--histogram_key", metavar="KEY", help="Upstream's histograms of this key; it has one: example."),
    cloup.option(
        "--histogram",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help='JSON file with the buckets [min, max, count] of "input" and of "output".',
    ),
    vocab_size_option,
)
@prefix_group
@measure_options
def command(histogram_key: str | None, histogram: Path | None, vocab_size: int | None, **shared: Any) -> int:
    """Measure with random token ids, uniform over the vocabulary, and lengths from two histograms.

    A bucket is drawn in the ratio of the counts, and a length within it uniformly: --num_requests of them by --seed (default
    1000), where upstream draws as many as the counts add up to, from one seed for each bucket. --max_input_len holds here too.
    """
    from workloads.lengths.law import Side, check
    from workloads.lengths.samples import SHIPPED_HISTOGRAMS, Independent, read_histogram, shipped_histogram

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
    options = {"histogram_key": histogram_key, "histogram": None if histogram is None else str(histogram)}
    run_options, prefixes = read_with_prefixes(shared)
    prompts = RandomPrompts(Independent(inputs, outputs), options, vocab_size, prefixes)
    return measure_random_prompts("token_from_histogram", run_options, prompts)
