"""The measurement of the verbs without a dataset: random prompts of lengths that a law draws."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from bench_cli.measurement.length_options import moved_by_bounds
from bench_cli.measurement.load_options import make_load
from bench_cli.measurement.random_prompts import RandomPrompts, prepare_random_prompts
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from bench_cli.measurement.options import MeasureOptions


def measure_random_prompts(verb: str, options: MeasureOptions, prompts: RandomPrompts) -> int:
    """Carry out the measurement and return the exit status. What bounds do to a law is reported on stderr before."""
    with one_blas_thread():
        from bench_cli.measurement.measure import measure

    for line in moved_by_bounds(prompts.lengths):
        click.echo(line, err=True)
    return measure(verb, options, make_load(options.load), partial(prepare_random_prompts, prompts))
