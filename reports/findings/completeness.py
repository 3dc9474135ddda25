"""Findings about what is missing of a run: it was cut, or the client could not write down what it measured."""

from __future__ import annotations

from collections.abc import Callable

from reports.findings.finding import Finding, RunFacts, Severity


def _recovered(facts: RunFacts) -> Finding | None:
    evidence = facts.manifest.get("recovered")
    if not evidence:
        return None
    return Finding(
        "recovered",
        Severity.WARNING,
        dict(evidence),
        "The run was cut, and its records made from its journals: read it as a shorter run, and measure again to compare.",
    )


def _recording_failed(facts: RunFacts) -> Finding | None:
    problem = facts.manifest.get("problem")
    if not problem:
        return None
    return Finding(
        "recording_failed",
        Severity.WARNING,
        {"problem": problem},
        "Make room where the run's folder lies, or name another with --run_dir, and measure again.",
    )


COMPLETENESS_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (_recovered, _recording_failed)
