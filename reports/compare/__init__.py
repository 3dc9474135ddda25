"""Comparisons of runs. For programs and notebooks: ``compare``."""

from __future__ import annotations

from reports.compare import comparison
from reports.compare.comparison import Arm, ArmComparison
from reports.run_data.run import Run

__all__ = ["compare"]


def compare(a: Run, b: Run, *, allow_different: bool = False) -> ArmComparison:
    """Compare ``b`` with ``a`` as ``bench compare A B`` does: ``verdict``, and ``differences`` by measure.

    Raises NotComparableError where the runs measured different work or one is invalid, unless ``allow_different``.
    """
    arms = [Arm(run.name, (run.report,)) for run in (a, b)]
    (compared,) = comparison.compare(arms, allow_different=allow_different).comparisons
    return compared
