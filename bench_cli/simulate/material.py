"""Which measured runs are doubtful material for a model, by their findings, and what those do to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_records.run_folder import RunFolder, RunFolderError
from reports.findings.client import ClientSaturated, ClockStepped
from reports.findings.finding import Finding, Severity
from reports.run_report import read_run
from simulator.errors import SimulatorError

_MOST_NAMED = 3  # runs in a sentence

_LEFT_OUT = "requests that failed, were cut off or were lost are left out, though the server worked on them"
EFFECTS = {
    "target_paused": "the server stood still for a time, which its latencies hold, and no simulation has",
    "machine_shared": "other programs took CPU time from the server, so that its steps took longer, and may take another time "
    "in the next run",
    "client_saturated": "the client noted tokens late, so that the server looks slower than it is",
    "clock_stepped": "the machine slept, and the run's clock stood still meanwhile",
    "gpu_clocks_limited": "power or heat slowed the GPU, so that steps took longer than at its full clocks",
    "requests_preempted": "requests were computed again when the KV cache was full, which no simulation has",
    "cold_start": "the server was slower at first, so that the constants are between those of a cold and of a warm server",
    "counters_disagree": "the server counted other work than the client's, which took time in its steps and is not simulated",
    "token_counts_unknown": "a response of an unknown number of tokens counts as one token, so that steps look like one",
    "stopped_answering": f"the server stopped answering, and {_LEFT_OUT}",
    "interrupted": "it was stopped before its end, and requests that were in flight then are left out, though the server "
    "worked on them",
    "recovered": f"it was cut, and {_LEFT_OUT}",
    "recording_failed": f"its client stopped sending, and {_LEFT_OUT}",
    "errors": _LEFT_OUT,
    "latencies_cut_off": _LEFT_OUT,
    "generated_after_cancellation": "the server went on with answers that were cancelled, which no simulation has",
}
"""What a finding means for the times of a run, by its code. Other findings say nothing about its steps."""


@dataclass(frozen=True)
class Material:
    """The findings of a run that make it doubtful, each with what it does; shortly why it cannot be fitted, None where it can.

    ``unknown`` is why its findings are not known, None where they are.
    """

    name: str
    effects: tuple[tuple[str, str], ...] = ()
    refused: str | None = None
    unknown: str | None = None


def material_of(path: Path) -> Material:
    """The run in a folder, or that of a ``requests.parquet``, which has no findings."""
    name = path.name if path.is_file() else path.resolve().name
    if path.is_file():
        return Material(name, unknown="it is a table of requests alone")
    try:
        findings = read_run(RunFolder(path), ()).findings
    except RunFolderError as error:
        return Material(name, unknown=str(error))
    effects = tuple((finding.code, EFFECTS[finding.code]) for finding in findings if _is_of_times(finding))
    return Material(name, effects, next(filter(None, map(_refused, findings)), None))


def _is_of_times(finding: Finding) -> bool:
    """Whether a finding says something about the times of a run. A wall clock that was set does not, and a client that was late
    does not where the kernel stamped all arrivals: the times of sending are those of the sends.
    """
    match finding:
        case ClockStepped():
            return finding.severity is Severity.INVALID
        case ClientSaturated():
            return finding.unstamped_reads != 0
    return finding.code in EFFECTS


def _refused(finding: Finding) -> str | None:
    is_late = isinstance(finding, ClientSaturated) and _is_of_times(finding) and finding.severity is Severity.INVALID
    return finding.sentence if is_late else None


def check_material(runs: Sequence[Material]) -> None:
    """Raises SimulatorError for a run whose times are the client's more than the server's."""
    for run in runs:
        if run.refused is not None:
            raise SimulatorError(
                f"{run.name} cannot be fitted, since its client, not the server, decided when tokens arrived. {run.refused} "
                "Measure again, on a machine that is free or with more --workers"
            )


def doubts_of(runs: Sequence[Material]) -> tuple[str, ...]:
    """A sentence for each finding, without its full stop: the runs that have it, and what it does to them."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for effect in dict.fromkeys(run.effects):
            found.setdefault(effect, []).append(run.name)
    return tuple(f"{_have(names)} the finding {code}: {effect}" for (code, effect), names in found.items())


def say(runs: Sequence[Material], echo: Callable[[str], None]) -> None:
    """Say what is doubtful in ``runs``, a sentence each."""
    for doubt in doubts_of(runs):
        echo(f"{doubt}.")
    for run in runs:
        if run.unknown is not None:
            echo(f"{run.name}: its findings are not known, since {run.unknown.rstrip('.')}.")


def _have(names: Iterable[str]) -> str:
    each = list(names)
    named = each[:_MOST_NAMED] if len(each) <= _MOST_NAMED else each[: _MOST_NAMED - 1]
    texts = [*named, *([f"{len(each) - len(named)} other runs"] if len(each) > len(named) else [])]
    if len(texts) == 1:
        return f"{texts[0]} has"
    return f"{', '.join(texts[:-1])} and {texts[-1]} have"
