"""Options that scale the lengths of a trace, and what scaling does to the reuse of a prefix cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.engine_options import given

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workloads.table.scaling import Scaling
    from workloads.table.workload import Workload

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
        from workloads.table.scaling import Scaling

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
    """For the manifest: the shares of ``reuse_shares``, which are reported on stderr, too."""
    shares = reuse_shares(sent, unscaled)
    share, before = shares["shared_prefix_limit"], shares.get("shared_prefix_limit_unscaled")
    if share is not None:
        factors = ", ".join(f"--{name}" for name in _NAMES if given(name))
        without = "" if before is None else f"; without {factors} {before:.1%}"
        click.echo(f"Shared prefixes: an infinite prefix cache would have {share:.1%} of the prompt tokens{without}.", err=True)
    return shares


def reuse_shares(sent: Workload, unscaled: Workload | None) -> dict[str, float | None]:
    """The share of the prompt tokens of ``sent``, in this order, that an infinite prefix cache would have, None where nothing
    is known of prefixes; with the rows ``unscaled``, their share, too.
    """
    from workloads.table.statistics import prefixes_of

    sharing, before = (None if rows is None else prefixes_of(rows) for rows in (sent, unscaled))
    shares: dict[str, float | None] = {"shared_prefix_limit": None if sharing is None else sharing.share}
    return shares if sharing is None or before is None else shares | {"shared_prefix_limit_unscaled": before.share}


def reuse_limit_of(
    kept: Sequence[int], workload: Workload, unscaled: Workload | None
) -> Callable[[Sequence[int]], dict[str, float | None]]:
    """``reuse_shares`` by the numbers of the requests that were sent, in their order: request k is row ``kept[k]``."""
    from workloads.arrivals.replay import rows_of

    def limit_of(sent: Sequence[int]) -> dict[str, float | None]:
        rows = [kept[index] for index in sent]
        return reuse_shares(rows_of(workload, rows), None if unscaled is None else rows_of(unscaled, rows))

    return limit_of
