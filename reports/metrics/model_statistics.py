"""Triton's statistics of each model during a run: the difference between after and before."""

from __future__ import annotations

from dataclasses import dataclass

from bench_records.manifest import Manifest, ModelStatistics, ServerStatistics

_NS_PER_MS = 1e6
_COMPUTE = ("compute_input", "compute_infer", "compute_output")


@dataclass(frozen=True)
class ModelWork:
    """One model's requests. Times are means per successful request, in ms; None where it had none.

    A decoupled model's times end when it has accepted a request, not when it has answered: Triton counts no further. An
    ensemble's ``request_ms`` is the whole, its ``compute_ms`` the sum over its models.
    """

    name: str
    succeeded: int
    failed: int
    executions: int
    queue_ms: float | None
    compute_ms: float | None
    request_ms: float | None


def model_work(manifest: Manifest) -> tuple[ModelWork, ...]:
    """Every model with requests during the run, by name; without those whose statistics are unknown, or fell at a server."""
    of_targets = [target.server_statistics for target in manifest.targets or ()]
    return tuple(
        work
        for work in work_of(manifest.server_statistics)
        if not any(_fell_by(statistics, work.name) for statistics in of_targets)
    )


def work_of(statistics: ServerStatistics | None) -> tuple[ModelWork, ...]:
    """As ``model_work``, of one server."""
    before, after = (None, None) if statistics is None else (statistics.before, statistics.after)
    if not before or not after:
        return ()
    models = (_work(name, before.get(name), after[name]) for name in sorted(after))
    return tuple(model for model in models if model is not None and model.succeeded + model.failed > 0)


def counted_requests(manifest: Manifest, model: str) -> int | None:
    """The increase of a model's count of requests, failures included; negative after a restart, None where unknown."""
    return counted_by(manifest.server_statistics, model)


def counted_by(statistics: ServerStatistics | None, model: str) -> int | None:
    """As ``counted_requests``, by one server."""
    before, after = (None, None) if statistics is None else (statistics.before, statistics.after)
    if not before or not after or model not in before or model not in after:
        return None
    return after[model].requests - before[model].requests


def failed_requests(manifest: Manifest, model: str) -> int:
    """The failures among them; 0 where they are unknown.

    Triton 24.10 counts a request of an ensemble twice where a step of it fails because its client cancelled it.
    """
    return failed_by(manifest.server_statistics, model)


def failed_by(statistics: ServerStatistics | None, model: str) -> int:
    """As ``failed_requests``, by one server."""
    return next((work.failed for work in work_of(statistics) if work.name == model), 0)


def _fell_by(statistics: ServerStatistics | None, model: str) -> bool:
    before, after = (None, None) if statistics is None else (statistics.before, statistics.after)
    if not before or not after or model not in before or model not in after:
        return False
    return _fell(before[model], after[model])


def _fell(before: ModelStatistics, after: ModelStatistics) -> bool:
    """Whether a count or a time is less than before, as of a server that began anew: of busy ones the others may be more."""
    totals = [(getattr(before, phase), getattr(after, phase)) for phase in ("success", "fail", "queue", *_COMPUTE)]
    return any(late.count < early.count or late.ns < early.ns for early, late in totals)


def _work(name: str, before: ModelStatistics | None, after: ModelStatistics) -> ModelWork | None:
    earlier = before or ModelStatistics()
    if _fell(earlier, after):
        return None
    succeeded, failed = after.success.count - earlier.success.count, after.fail.count - earlier.fail.count

    def mean_ms(*phases: str) -> float | None:
        grown_ns: int = sum(getattr(after, phase).ns - getattr(earlier, phase).ns for phase in phases)
        return grown_ns / succeeded / _NS_PER_MS if succeeded else None

    return ModelWork(
        name=name,
        succeeded=succeeded,
        failed=failed,
        executions=after.execution_count - earlier.execution_count,
        queue_ms=mean_ms("queue"),
        compute_ms=mean_ms(*_COMPUTE),
        request_ms=mean_ms("success"),
    )
