"""``bench token_norm_dist``: measure with random tokens, lengths from laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, part, takes
from bench_cli.measurement.length_options import length_option, read_pairs, vocab_size
from bench_cli.measurement.measure_random_prompts import measure_random_prompts
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.prefix_options import PrefixOptions, with_prefixes
from bench_cli.measurement.random_prompts import RandomPrompts
from bench_cli.workload_files import WorkloadPath

if TYPE_CHECKING:
    from workloads.lengths.law import Lengths
    from workloads.lengths.samples import EmpiricalPairs

_UPSTREAM_INPUTS, _UPSTREAM_OUTPUTS = (128.0, 5.0), (20.0, 2.0)  # mean and stdev of the examples in upstream's README


@dataclass(frozen=True)
class LengthOptions(Concern, title="Lengths in tokens"):
    """The laws of the lengths, in three spellings. None: not given."""

    isl: Lengths | None = length_option(
        "Length of prompts (input sequence length) in tokens: 128, 128±5 (also 128:5), or a law: "
        "normal:mean=128,stdev=40,min=10,max=400; lognormal:mean=512,stdev=300; uniform:min=10,max=200; "
        "zipf:exponent=1.2,min=1,max=4096; constant:tokens=9; histogram:FILE; empirical:FILE (docs/reference/lengths.md).",
    )
    osl: Lengths | None = length_option("Length of answers (output sequence length) in tokens, as --isl.")
    pairs: EmpiricalPairs | None = option(
        None,
        "--length_pairs",
        type=WorkloadPath(),
        metavar="FILE",
        callback=read_pairs,
        help="Draw both lengths of a request from one row of a trace, with replacement, so that their correlation stays.",
    )
    input_mean: float | None = option(None, type=float, show_default="128", help="Mean length of prompts.")
    input_stdev: float | None = option(
        None, type=float, show_default="5; 0 with --input_mean", help="Standard deviation of it; 0 makes it constant."
    )
    output_mean: float | None = option(None, type=float, show_default="20", help="Mean length of answers.")
    output_stdev: float | None = option(
        None, type=float, show_default="2; 0 with --output_mean", help="Standard deviation of it; 0 makes it constant."
    )
    vocab_size: int | None = vocab_size()


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench token_norm_dist``."""

    lengths: LengthOptions = part(LengthOptions)
    prefix: PrefixOptions = part(PrefixOptions)
    measure: MeasureOptions = part(MeasureOptions)


@cloup.command(
    name="token_norm_dist",
    epilog="""\b
Examples:
  bench token_norm_dist --request_rate 9 --isl 512±50 --osl 64
  bench token_norm_dist -i openai --url http://localhost:8000 --isl 128 --osl 100 --concurrency 50
  bench token_norm_dist --isl lognormal:mean=512,stdev=300,max=4096 --osl uniform:min=10,max=200
  bench token_norm_dist --length_pairs AzureLLMInferenceTrace_conv.csv --request_rate 9
  bench token_norm_dist --request_rate 9 --input_mean 512 --input_stdev 50 --output_mean 64 --output_stdev 0""",
)
@takes(Options)
def command(options: Options) -> int:
    """Measure with random token ids, uniform over the vocabulary, and lengths from the laws of --isl and --osl.

    128±5 is max(1, ceil(N(128, 5))), as upstream draws it: rounding up adds half a token to the mean. With min or max a law is
    truncated: what lies outside is drawn again. The report has the requested means beside those that were sent.

    Without lengths, prompts have 128±5 tokens and answers 20±2, as in upstream's README. A mean alone is a constant length.
    Without --num_requests and --duration, 1000 requests are sent.

    With --prefix_groups or --system_prompt_len, prompts begin with shared prefixes, and --isl is the length of what follows.

    For a model that takes text and has no known tokenizer, prompts are drawn with the shipped one, and the server counts them.
    """
    from workloads.lengths.samples import Independent

    given = options.lengths
    shared, prefixes = with_prefixes(options.measure, options.prefix)
    means = {name: getattr(given, name) for name in ("input_mean", "input_stdev", "output_mean", "output_stdev")}
    if given.pairs is not None:
        _check_pairs_alone(means | {"isl": given.isl, "osl": given.osl})
        prompts = RandomPrompts(given.pairs, {"length_pairs": given.pairs.source}, given.vocab_size, prefixes)
        return measure_random_prompts("token_norm_dist", shared, prompts)
    inputs = _lengths("isl", given.isl, "input", (given.input_mean, given.input_stdev))
    outputs = _lengths("osl", given.osl, "output", (given.output_mean, given.output_stdev))
    lengths = Independent(inputs, outputs)
    if (given.isl is None and None in (given.input_mean, given.input_stdev)) or (
        given.osl is None and None in (given.output_mean, given.output_stdev)
    ):
        click.echo(f"Lengths: {lengths}; --isl and --osl set them.", err=True)
    recorded = {**_recorded("isl", "input", inputs), **_recorded("osl", "output", outputs)}
    return measure_random_prompts("token_norm_dist", shared, RandomPrompts(lengths, recorded, given.vocab_size, prefixes))


def _check_pairs_alone(others: dict[str, object]) -> None:
    """Raises UsageError for options that set lengths beside --length_pairs."""
    for name, value in others.items():
        if value is not None:
            raise click.UsageError(f"--length_pairs sets both lengths: leave --{name} out")


def _lengths(name: str, law: Lengths | None, side: str, mean_and_stdev: tuple[float | None, float | None]) -> Lengths:
    """The law of one side, from the one option or from the two: upstream's values where nothing is given, and a mean alone is
    constant. Raises UsageError for both, and WorkloadError for a value that is out of range.
    """
    from workloads.lengths.families import Normal
    from workloads.lengths.law import check

    mean, stdev = mean_and_stdev
    if law is not None:
        if mean is not None or stdev is not None:
            raise click.UsageError(f"--{name} sets the lengths: leave --{side}_mean and --{side}_stdev out")
        return law
    upstream = _UPSTREAM_INPUTS if side == "input" else _UPSTREAM_OUTPUTS
    if stdev is None:
        stdev = upstream[1] if mean is None else 0.0
    normal = Normal(upstream[0] if mean is None else mean, stdev)
    check(normal, name, {"mean": f"{side}_mean", "stdev": f"{side}_stdev"})
    return normal


def _recorded(name: str, side: str, law: Lengths) -> dict[str, str | float | None]:
    """The options of one side for the manifest: upstream's two where they suffice, else the law."""
    from workloads.lengths.families import Normal

    if isinstance(law, Normal) and law.is_plain:
        return {f"{side}_mean": law.mean, f"{side}_stdev": law.stdev}
    return {name: law.spelling}
