"""Options that scale the lengths of a trace, and what scaling does to the reuse of a prefix cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from harness.cli.engine_options import given

if TYPE_CHECKING:
    from workloads.scaling import Scaling
    from workloads.workload import Workload

_FACTOR = click.FloatRange(min=0, min_open=True, max=1e6)
_NAMES = ("prefix_factor", "input_factor", "output_factor")


@dataclass(frozen=True)
class ScalingOptions:
    """The values of ``scaling_group``."""

    prefix_factor: float
    input_factor: float
    output_factor: float

    def scaling(self) -> Scaling:
        """The factors."""
        from workloads.scaling import Scaling

        return Scaling(self.prefix_factor, self.input_factor, self.output_factor)


scaling_group = cloup.option_group(
    "Lengths of a trace, scaled",
    cloup.option(
        "--prefix_factor",
        type=_FACTOR,
        default=1.0,
        help="Multiply what a prompt shares with others, in whole blocks of a trace with block hashes; the rest of it stays.",
    ),
    cloup.option("--input_factor", type=_FACTOR, default=1.0, help="Multiply the prompts' lengths, shared prefixes included."),
    cloup.option("--output_factor", type=_FACTOR, default=1.0, help="Multiply the output lengths."),
)


def reuse_entries(sent: Workload, unscaled: Workload | None) -> dict[str, float | None]:
    """For the manifest: the share of the prompt tokens of ``sent`` that an infinite prefix cache would have, None where nothing
    is known of prefixes; with the rows ``unscaled``, their share, too. Both are reported on stderr.
    """
    from workloads.workload_statistics import prefixes_of

    sharing = prefixes_of(sent)
    if sharing is None:
        return {"shared_prefix_limit": None}
    line = f"Shared prefixes: an infinite prefix cache would have {sharing.share:.1%} of the prompt tokens"
    before = None if unscaled is None else prefixes_of(unscaled)
    if before is None:
        click.echo(f"{line}.", err=True)
        return {"shared_prefix_limit": sharing.share}
    factors = ", ".join(f"--{name}" for name in _NAMES if given(name))
    click.echo(f"{line}; without {factors} {before.share:.1%}.", err=True)
    return {"shared_prefix_limit": sharing.share, "shared_prefix_limit_unscaled": before.share}
