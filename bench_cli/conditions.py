"""Options of the verbs that compare runs: what has to hold of a change, and of the runs that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, parsed, same
from bench_cli.measurement.output_options import CriteriaOptions, build_passes, check_undecided

if TYPE_CHECKING:
    from reports.compare.conditions import AnyCondition, ConditionResult
    from reports.criteria import Criterion


def _parse_condition(text: str) -> AnyCondition:
    from reports.compare.conditions import parse_condition  # late, for it needs numpy

    return parse_condition(text)


@dataclass(frozen=True)
class ConditionOptions(Concern):
    """``slo`` are criteria, ``fail_if`` conditions; ``undecided`` is "pass" or "fail", what an open condition counts as."""

    slo: tuple[Criterion, ...] = same(CriteriaOptions, "slo")
    fail_if: tuple[AnyCondition, ...] = option(
        (),
        metavar="CONDITION",
        callback=parsed(_parse_condition),
        help="Exit with status 1 if the evidence shows this change ('p99_ttft>+5%', 'request_throughput<-2%'), or this of the "
        "runs that are compared with the baseline ('p99_ttft>300ms'). Repeatable.",
    )
    undecided: str = same(CriteriaOptions, "undecided")

    @property
    def objectives(self) -> tuple[Criterion, ...] | None:
        """The objectives of each request that runs are read by; None: each run's own."""
        from reports.metrics.goodput import Objective

        return tuple(criterion for criterion in self.slo if isinstance(criterion, Objective)) or None

    @property
    def conditions(self) -> tuple[AnyCondition, ...]:
        """All that is judged: ``fail_if``, and the requirements of ``slo``."""
        from reports.compare.conditions import AbsoluteCondition
        from reports.criteria import Requirement

        return (
            *self.fail_if,
            *(AbsoluteCondition(criterion, str(criterion)) for criterion in self.slo if isinstance(criterion, Requirement)),
        )

    @property
    def judges_changes(self) -> bool:
        """Whether a condition limits a change, which needs repeated runs."""
        from reports.compare.conditions import Condition

        return any(isinstance(criterion, Condition) for criterion in self.fail_if)

    def check(self) -> None:
        """Raises UsageError for an option without effect."""
        check_undecided(self, self.fail_if)

    def passed(self, results: Iterable[ConditionResult]) -> bool:
        """Whether the results of ``fail_if`` let a build pass; those that are undecided are listed on stderr."""
        of_build = (result for result in results if result.condition in self.fail_if)
        return build_passes(((result.condition.text, result.status, result.why) for result in of_build), self.undecided)


def allow_single() -> bool:
    """The field of ``--allow_single``."""
    return option(
        False, help="Allow --fail_if with one run per side, where a change and the variation between starts look alike."
    )


def single_runs_refused(names: Sequence[str]) -> click.UsageError:
    """The error of sides with one run each, ``names``, that a condition of a change would judge."""
    return click.UsageError(
        f"--fail_if needs repeated runs: of one run each ({', '.join(names)}) no evidence separates a change from the "
        "variation between starts. Give folders of repeated runs, or the folder of a 'bench experiment'; "
        "or add --allow_single to judge these starts alone."
    )
