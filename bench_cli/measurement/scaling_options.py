"""Options that scale the lengths of a trace, and what scaling does to the reuse of a prefix cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workloads.table.scaling import Scaling
    from workloads.table.workload import Workload

_FACTOR = click.FloatRange(min=0, min_open=True, max=1e6)


@dataclass(frozen=True)
class ScalingOptions(Concern, title="Lengths of a trace, scaled"):
    """The factors of a trace's lengths."""

    prefix_factor: float = option(
        1.0,
        type=_FACTOR,
        help="Scale the shared prefix of each prompt, in whole blocks of a trace with block hashes; the rest of the prompt is "
        "unchanged.",
    )
    input_factor: float = option(1.0, type=_FACTOR, help="Scale the length of each prompt, shared prefix included.")
    output_factor: float = option(1.0, type=_FACTOR, help="Scale the output lengths.")

    def scaling(self) -> Scaling:
        """The factors."""
        from workloads.table.scaling import Scaling

        return Scaling(self.prefix_factor, self.input_factor, self.output_factor)


def reuse_shares(sent: Workload, unscaled: Workload | None) -> dict[str, float | None]:
    """The share of the prompt tokens of ``sent``, in this order, that an infinite prefix cache would have, None where nothing
    is known of prefixes; with the rows ``unscaled``, their share, too. For the manifest.
    """
    from workloads.table.statistics import prefixes_of

    sharing, before = (None if rows is None else prefixes_of(rows) for rows in (sent, unscaled))
    shares: dict[str, float | None] = {"shared_prefix_limit": None if sharing is None else sharing.share}
    return shares if sharing is None or before is None else shares | {"shared_prefix_limit_unscaled": before.share}


def report_reuse(shares: Mapping[str, float | None], scaling: Scaling) -> None:
    """Print the shares on stderr, with and without the factors; nothing where they are unknown."""
    share, before = shares["shared_prefix_limit"], shares.get("shared_prefix_limit_unscaled")
    if share is not None:
        factors = ", ".join(f"--{name}" for name in scaling.entries())
        without = "" if before is None else f"; without {factors} {before:.1%}"
        click.echo(f"Shared prefixes: an infinite prefix cache would have {share:.1%} of the prompt tokens{without}.", err=True)
