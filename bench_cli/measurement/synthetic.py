"""Random prompts for a target, of the lengths that a file has."""

from __future__ import annotations

from pathlib import Path

import click

from bench_cli.measurement.load_options import TrafficOptions
from bench_cli.measurement.target import Target
from bench_cli.tokenizers import ordinary_token_ids, text_codec
from workloads.elements.request import LengthLimits
from workloads.prompts.synthesis import Synthesis


def synthesis_for(path: Path, traffic: TrafficOptions, target: Target) -> Synthesis:
    """The synthesis by the vocabulary of the target's tokenizer. Raises UsageError where that is unknown."""
    if target.tokenizer is None:
        raise click.UsageError(f"{path} has lengths but no prompts: give --tokenizer_dir, to draw prompts of them")
    return Synthesis(
        ordinary_token_ids(target.tokenizer),
        traffic.seed,
        None if target.model.takes_token_ids else text_codec(target.tokenizer),
        LengthLimits(traffic.max_input_len, target.context_tokens),
        target.model.supports_ignore_eos if traffic.ignore_eos is None else traffic.ignore_eos,
    )
