"""Whether runs may be compared, from their manifests: what was asked for must be equal, what was measured may differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reports.run_report import RunReport


class Weight(StrEnum):
    """What a disagreement does to a comparison."""

    REFUSE = "refuse"  # other work was measured, or a run proves nothing
    WARN = "warn"  # part of the difference may come from here
    CHANGED = "changed"  # of the target: most likely what the comparison is about
    NOTE = "note"  # came out of the runs, was asked of neither


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing in which runs disagree; ``values`` in the order of the runs, as text ("–": absent)."""

    what: str
    weight: Weight
    values: tuple[str, ...]
    advice: str


# A manifest's sections, where they may not, should not and may differ; the longest prefix of a key counts. None is not
# compared: where a target is says nothing of it, and what the requests sent had in common follows from workload and seed
# (in which order they left, from chance).
_WEIGHTS: Mapping[str, Weight | None] = {
    "workload": Weight.REFUSE,
    "workload.repeated_prefix": None,
    "arrivals": Weight.REFUSE,
    "load": Weight.REFUSE,
    "load.ran_out": Weight.NOTE,
    "target.streaming": Weight.REFUSE,
    "target.protocol": Weight.WARN,
    "target": Weight.CHANGED,
    "target.address": None,
    "target.embedded": None,
    "server": Weight.CHANGED,
    "schedule": Weight.WARN,
    "warm_up.requests": Weight.WARN,
    "options.workers": Weight.WARN,
    "workers.count": Weight.NOTE,
    "environment": Weight.WARN,
    "bench_version": Weight.WARN,
}
_ADVICE = {
    Weight.REFUSE: "Runs of other work say nothing of each other: measure both alike, or ask with --allow_different.",
    Weight.WARN: "Part of the difference may come from here; keep it equal.",
    Weight.CHANGED: "This is what was changed, if the rest is equal.",
    Weight.NOTE: "A result of the runs, not a setting.",
}
_ADVICE_FOR = {
    "load.ran_out": "A run whose requests ran out ended before the time that was asked for: give both more --num_requests.",
    "workers.count": "Chosen for the load and the machine; --workers fixes it.",
}
_ABSENT = "–"


def disagreements(runs: Sequence[RunReport]) -> tuple[Disagreement, ...]:
    """Everything in which ``runs`` disagree or which speaks against one of them, the gravest first."""
    found = [*_credibility(runs), *_settings(runs)]
    return tuple(sorted(found, key=lambda one: list(Weight).index(one.weight)))


def refused(found: Sequence[Disagreement]) -> bool:
    return any(one.weight is Weight.REFUSE for one in found)


def same_schedule(runs: Sequence[RunReport]) -> bool:
    """Whether all runs sent the same requests at the same times: then requests of one index belong together."""
    return len({run.manifest["schedule"]["digest"] for run in runs}) == 1


def _credibility(runs: Sequence[RunReport]) -> Iterator[Disagreement]:
    if not all(run.valid for run in runs):
        codes = [", ".join(f.code for f in run.findings if f.severity.value == "invalid") or "valid" for run in runs]
        yield Disagreement(
            "validity", Weight.REFUSE, tuple(codes), "An invalid run proves nothing; see its report, and measure again."
        )
    stopped = [bool(run.manifest.get("interrupted")) for run in runs]
    if any(stopped):
        values = tuple("interrupted" if one else "whole" for one in stopped)
        yield Disagreement("interrupted", Weight.WARN, values, "An interrupted run is a shorter one than was asked for.")


def _settings(runs: Sequence[RunReport]) -> Iterator[Disagreement]:
    flat = [dict(_flattened(run.manifest)) for run in runs]
    for key in sorted({key for settings in flat for key in settings}):
        weight = _weight_of(key)
        values = tuple(settings.get(key, _ABSENT) for settings in flat)
        if weight is not None and len(set(values)) > 1:
            yield Disagreement(key, weight, values, _ADVICE_FOR.get(key, _ADVICE[weight]))


def _weight_of(key: str) -> Weight | None:
    prefixes = [prefix for prefix in _WEIGHTS if key == prefix or key.startswith(f"{prefix}.")]
    return _WEIGHTS[max(prefixes, key=len)] if prefixes else None


def _flattened(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a document as (dotted key, text); null is as good as absent, for keys came with versions."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, _ABSENT if value is None else str(value)
