"""A search's recorded probes as its result: what each shows of each limit, and the bracket of all together."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench_records.manifest import RunState
from bench_records.run_folder import RunFolderError
from bench_records.search import PlannedProbe, RecordedControl, Search, SearchFolder
from bench_records.settings import PlannedRanking, RankingFolder
from reports.capacity.control import controlled
from reports.capacity.limits import Limit, LimitSet, every_limit, hopeless, limit_set
from reports.capacity.probe import ANSWERS, Control, Probe
from reports.capacity.ranking import Ranking, Setting
from reports.capacity.result import Capacity, Ended, LoadUnit, ProbeRun, Tier, Verdict, verdict_of
from reports.capacity.search import Bracket, Goal, bracket
from reports.capacity.stability import none_at_capacity
from reports.capacity.target_gone import is_gone
from reports.criteria import parse_slo
from reports.findings.checks import Validity
from reports.findings.client import ClientSaturated, ScheduleSlip
from reports.findings.finding import Severity
from reports.gates.gate import growth_of
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.goodput import goodput
from reports.metrics.in_flight import filling_ns, queue_of
from reports.metrics.requests import Requests
from reports.run_report import RunReport, read_run

WARM = ("--warmup_requests", "0")
"""The option of a probe after another run, which has warmed the target up: a warm-up takes as long as an answer."""

_RAMP = 0.1  # of the sending, at its beginning, and at most of it at its end
_LONGEST_RAMP = 1 / 3
_FIRST = 1 / 3  # of the requests, in which the answers of an overloaded target do not take much longer yet
_SET_UP_S = 60.0  # that a run may take before its first request, by default
_END = 0.9  # of the requests end within the time that is left out at the end
_LATE = 0.05  # of the smallest limit: a client that is late by less is no matter, however short latencies are


@dataclass(frozen=True)
class MeasuredProbe:
    """A recorded probe: what the result shows of it, and what is known of it for each set of limits, without its records.

    ``counts`` says that its numbers can be believed, so that it is evidence; ``target_gone`` that its last requests had no
    answer, so that it says nothing of a load. ``goodputs`` are in the order of the sets.
    """

    run: ProbeRun
    counts: bool
    target_gone: bool
    goodputs: tuple[float | None, ...]


def sets_of(search: Search) -> tuple[LimitSet, ...]:
    """The sets of limits of a search. Raises ValueError."""
    return tuple(limit_set(tier.name, (*tier.limits, *tier.objectives)) for tier in search.tiers)


def goals_of(search: Search, sets: Sequence[LimitSet]) -> tuple[Goal, ...]:
    """What the search is to find for each set; its limits are their positions among all."""
    every = every_limit(sets)
    return tuple(
        Goal(
            limits=tuple(every.index(limit) for limit in each.limits),
            allowed=tuple(limit.allowed for limit in each.limits),
            confidence=search.confidence,
            ratio=search.ratio,
            step=1.0 if LoadUnit(search.unit) is LoadUnit.USERS else 0.0,
        )
        for each in sets
    )


def read_capacity(folder: SearchFolder) -> Capacity:
    """The result of a search, of the probes that are recorded so far. Raises RunFolderError, also where a probe came to its end
    and its records are gone: the others alone would give another answer.
    """
    search = folder.read()
    for run in map(folder.run_folder, search.probes):
        if run.manifest.exists() and not run.requests.exists() and run.read_manifest().state is RunState.DONE:
            raise RunFolderError(
                f"{run.requests} is missing: without this probe the search would have another answer; restore the file"
            )
    return capacity_of(search, tuple(read_probes(folder, search)))


def read_ranking(folder: RankingFolder) -> Ranking:
    """The ranking of the settings, by the probes that are recorded so far. Raises RunFolderError."""
    planned = folder.read()
    return ranking_of(planned, [read_capacity(folder.search_folder(setting)) for setting in planned.settings])


def ranking_of(planned: PlannedRanking, found: Sequence[Capacity]) -> Ranking:
    """The ranking of the settings with the capacities ``found``, in their order."""
    settings = (
        Setting(setting.name, capacity, setting.folder) for setting, capacity in zip(planned.settings, found, strict=True)
    )
    return Ranking(tuple(settings), planned.confidence, planned.budget_s)


def read_probes(folder: SearchFolder, search: Search) -> Iterator[MeasuredProbe]:
    """The recorded probes in their order. Raises RunFolderError."""
    for planned in search.probes:
        if folder.is_recorded(planned):
            yield read_probe(folder, search, planned)


def read_probe(folder: SearchFolder, search: Search, planned: PlannedProbe) -> MeasuredProbe:
    """One recorded probe. Raises RunFolderError."""
    sets = sets_of(search)
    measured = _measured(read_run(folder.run_folder(planned), ()), planned, search, sets)
    return with_controls(measured, search, search.controls.get(planned.folder, ()))


def with_controls(measured: MeasuredProbe, search: Search, recorded: Sequence[RecordedControl]) -> MeasuredProbe:
    """The probe with what was simulated of its schedule, in the order of all limits; nothing where that is empty."""
    controls = tuple(
        Control(limit.allowed, each.measured, each.simulated, each.share, each.expected)
        for limit, each in zip(every_limit(sets_of(search)) if recorded else (), recorded, strict=True)
    )
    return replace(measured, run=replace(measured.run, probe=replace(measured.run.probe, controls=controls)))


def capacity_of(search: Search, measured: Sequence[MeasuredProbe]) -> Capacity:
    """The result of the probes ``measured`` together; those that cannot be believed are shown, and decide nothing."""
    sets = sets_of(search)
    probes = evidence(measured)
    goals = goals_of(search, sets)
    brackets = [bracket(probes, goal) for goal in goals]
    unit = LoadUnit(search.unit)
    return Capacity(
        measured=shlex.join(search.arguments),
        unit=unit,
        limits=tuple(limit.requirement for limit in every_limit(sets)),
        tiers=tuple(
            _tier(each.name, goal, found, measured, place, unit)
            for place, (each, goal, found) in enumerate(zip(sets, goals, brackets, strict=True))
        ),
        probes=tuple(replace(each.run, verdict=verdict_of(each.run.probe.load, brackets[0])) for each in measured),
        ended=None if search.ended is None else Ended(search.ended),
        budget_s=search.budget_s,
        spent_s=search.spent_s,
        forecasts=search.forecasts,
    )


def evidence(measured: Sequence[MeasuredProbe]) -> tuple[Probe, ...]:
    """The probes that decide, without what controls explain of them."""
    return controlled([each.run.probe for each in measured if each.counts])


def _target_is_gone(report: RunReport) -> bool:
    return is_gone(report.requests, streamed=report.manifest.target.streaming is not False)


def probe_command(search: Search, planned: PlannedProbe, warm_up: int | None) -> str:
    """The command that repeats a probe which had ``warm_up`` requests before it; without --before_each, which is not kept."""
    verb, *given = search.arguments
    warm = WARM if warm_up == 0 and not {"--warmup_requests"} & set(option_names(given)) else ()
    return shlex.join(["bench", verb, *warm, *given, *probe_options(search, planned)])


def probe_options(search: Search, planned: PlannedProbe) -> tuple[str, ...]:
    """The options that the search gives a probe: its load and size, what ends it early, and what its report judges."""
    stop_if = hopeless(sets_of(search))
    stops = () if stop_if is None else ("--stop_if", stop_if)
    return *load_options(search, planned.load), *size_options(search, planned), *stops, *judged_limits(search)


def judged_limits(search: Search) -> tuple[str, ...]:
    """The limits of the first set, by which the probes' own reports judge, so far as these have an interval of the number."""
    first = search.tiers[0]
    return tuple(word for text in (*first.limits, *first.objectives) if _is_judged(text) for word in ("--slo", text))


def _is_judged(text: str) -> bool:
    try:
        parse_slo(text)
    except ValueError:
        return False
    return True


def load_options(search: Search, load: float) -> tuple[str, str]:
    """The option that sets a probe's load, and its value."""
    if search.unit != LoadUnit.USERS:
        return "--request_rate", f"{load:.6g}"
    return "--users" if search.conversations else "--concurrency", f"{load:.0f}"


def size_options(search: Search, planned: PlannedProbe) -> tuple[str, ...]:
    """The options that set a probe's requests, when its users start, and how long it waits for an answer."""
    ramp_up = ("--ramp_up", f"{planned.ramp_up_s:g}") if planned.ramp_up_s else ()
    return (
        *("--num_requests", str(planned.requests), "--seed", str(planned.seed)),
        *ramp_up,
        *timeout_options(planned.timeout_s, search.arguments),
    )


def timeout_options(timeout_s: float | None, given: Sequence[str]) -> tuple[str, ...]:
    """The options that set how long a run waits for an answer, and for the target before its first request; none for None.
    What is ``given`` is not set again.
    """
    if timeout_s is None:
        return ()
    of_set_up = () if "--connect_timeout" in option_names(given) else ("--connect_timeout", f"{min(timeout_s, _SET_UP_S):g}")
    return "--request_timeout", f"{timeout_s:g}", *of_set_up


def option_names(words: Sequence[str]) -> tuple[str, ...]:
    """``words`` as options are spelled, without a value after "=": of a value it is no option's name."""
    return tuple(re.sub(r"(?<=[^-])-", "_", word.split("=", 1)[0]) for word in words)


def steady(requests: Requests, load: ConfiguredLoad) -> NDArray[np.bool_]:
    """Which requests were due while the load was steady, shape [requests]: neither in the first tenth, in which queues fill,
    or as long as that takes, up to a third; nor at the end, where the last answers have the target for themselves.
    """
    due_ns = requests.scheduled_ns
    if not due_ns.size:
        return np.zeros(0, dtype=np.bool_)
    first_ns, last_ns = float(due_ns.min()), float(due_ns.max())
    span_ns = last_ns - first_ns
    fills_ns = filling_ns(requests) if requests.done.any() else 0.0
    begin_ns = max(_RAMP * span_ns, min(_LONGEST_RAMP * span_ns, fills_ns), min(load.ramp_up_s * 1e9, span_ns / 2.0))
    took_ns = (requests.done_ns - due_ns)[requests.done]
    end_ns = min(_RAMP * span_ns, float(np.quantile(took_ns, _END))) if took_ns.size else 0.0
    chosen: NDArray[np.bool_] = (due_ns >= first_ns + begin_ns) & (due_ns <= last_ns - end_ns)
    return chosen


def _measured(report: RunReport, planned: PlannedProbe, search: Search, sets: Sequence[LimitSet]) -> MeasuredProbe:
    check_streamed(report, every_limit(sets))
    metrics, gone = report.metrics, _target_is_gone(report)
    sent = int(np.count_nonzero(~np.isnan(report.requests.sent_ns)))
    probe = probe_of(planned.load, sent, report.requests, report.judged.load, every_limit(sets))
    early = report.manifest.early_end
    if early is not None and early.gave_up:
        probe = replace(probe, gave_up=True)
    counts = is_evidence(report) or (not gone and _is_late_by_little(report, every_limit(sets)))
    goodputs = tuple(_goodput(report.requests, each) for each in sets)
    e2e = metrics.e2e_ms.scheduled
    return MeasuredProbe(
        run=ProbeRun(
            probe=probe,
            folder=planned.folder,
            has_page=report.folder.html.exists(),
            valid=counts,
            command=probe_command(search, planned, report.manifest.warm_up.requests),
            verdict=Verdict.UNDECIDED,
            seconds=report.manifest.duration_s or metrics.window_s or 0.0,
            request_throughput=metrics.rates[REQUEST_THROUGHPUT].value,
            output_token_throughput=metrics.rates[OUTPUT_TOKEN_THROUGHPUT].value,
            goodput=goodputs[0],
            e2e_mean_ms=None if e2e is None else e2e.mean.value,
            findings=tuple(finding.code for finding in report.findings if finding.severity.value != "note"),
            problem=next((finding.brief for finding in report.findings if finding.severity is Severity.INVALID), None),
        ),
        counts=counts,
        target_gone=gone,
        goodputs=goodputs,
    )


def check_streamed(report: RunReport, limits: Sequence[Limit]) -> None:
    """Raises RunFolderError for a limit on what an unstreamed run does not have: all its tokens came with the last one."""
    text = next((limit.streamed_text for limit in limits if limit.streamed_text is not None), None)
    if text is not None and not report.metrics.streamed:
        raise RunFolderError(
            f"{report.folder.path} was not streamed, so nothing in it shows {text}: search with --streaming, or limit e2e"
        )


def is_evidence(report: RunReport) -> bool:
    """Whether a run can be believed, and shows what its load does to the target."""
    return report.validity is not Validity.INVALID and not _target_is_gone(report)


def _is_late_by_little(report: RunReport, limits: Sequence[Limit]) -> bool:
    """Whether a run is not valid only since the client was late beside the latencies, while it was hardly late beside the
    ``limits``, which are what a probe is judged by.
    """
    late_ms = 0.0
    for finding in report.findings:
        if finding.severity is not Severity.INVALID:
            continue
        if isinstance(finding, ScheduleSlip):
            late_ms = max(late_ms, finding.p99_slip_ms)
        elif isinstance(finding, ClientSaturated):
            late_ms = max(late_ms, finding.lag_p99_ms or 0.0, finding.lag_mean_ms or 0.0, finding.run_queue_wait_ms or 0.0)
        else:
            return False
    return late_ms <= _LATE * min((limit_ms for limit in limits for limit_ms in limit.latencies_ms), default=math.inf)


def probe_of(load: float, sent: int, requests: Requests, configured: ConfiguredLoad, limits: Sequence[Limit]) -> Probe:
    """What a run at ``load``, with ``sent`` requests, shows of the ``limits``; ``requests`` are the load's alone."""
    queue = None if configured.closed else queue_of(requests)
    grew, course = growth_of(queue, configured.rate_per_s), None if queue is None else queue.course
    kept = requests.only(steady(requests, configured))
    found = (limit.violations(kept, grew) for limit in limits)
    weighed = tuple(
        replace(violations, none_at_capacity=none_at_capacity(limit.queue(load), course), stalled=limit.stalled(requests))
        for limit, violations in zip(limits, found, strict=True)
    )
    needs = 0 if configured.closed else requests_that_show_the_queue(requests)
    return Probe(load, sent, weighed, queue=None if needs else course, needs=needs)


def requests_that_show_the_queue(requests: Requests) -> int:
    """How many requests at this rate last for ANSWERS answers, one after the other, as long as those of the first third take;
    0 where these do, and where it is not known.
    """
    known = np.flatnonzero(requests.done)
    ordered = known[np.argsort(requests.scheduled_ns[known], kind="stable")]
    first = ordered[: math.ceil(_FIRST * ordered.size)]
    if not first.size:
        return 0
    answer_ns = float(np.mean((requests.done_ns - requests.scheduled_ns)[first]))
    span_ns = float(np.ptp(requests.scheduled_ns[known]))
    return math.ceil(ANSWERS * answer_ns / span_ns * known.size) if 0.0 < span_ns < ANSWERS * answer_ns else 0


def reach_of(report: RunReport, sets: Sequence[LimitSet]) -> float | None:
    """How many times its limit the latency is that a set's limits allow a share of the requests to exceed: the largest of all
    limits, without the ramp; None where none has a latency.
    """
    requests = report.judged.requests.only(steady(report.judged.requests, report.judged.load))
    return max((reach for limit in every_limit(sets) if (reach := limit.reach(requests)) is not None), default=None)


def _goodput(requests: Requests, limits: LimitSet) -> float | None:
    found = goodput(requests, limits.objectives)
    return None if found is None else found.rate.value


def _tier(name: str | None, goal: Goal, found: Bracket, measured: Sequence[MeasuredProbe], place: int, unit: LoadUnit) -> Tier:
    """The set with its numbers at the certified load."""
    load = found.certified
    counted = [each for each in measured if each.counts and not each.run.probe.overloaded]
    goodputs = [(each.run.probe.load, each.goodputs[place]) for each in counted]
    tokens = [(each.run.probe.load, each.run.output_token_throughput) for each in counted]
    in_flight = [(each.run.probe.load, _in_flight(each.run)) for each in counted]
    return Tier(
        name=name,
        goal=goal,
        bracket=found,
        users=load if unit is LoadUnit.USERS else _at(load, in_flight, unit),
        goodput=_at(load, goodputs, unit),
        output_token_throughput=_at(load, tokens, unit),
    )


def _in_flight(run: ProbeRun) -> float | None:
    """The mean number of requests in the system, by Little's law."""
    if run.request_throughput is None or run.e2e_mean_ms is None:
        return None
    return run.request_throughput * run.e2e_mean_ms / 1e3


def _at(load: float | None, points: Sequence[tuple[float, float | None]], unit: LoadUnit) -> float | None:
    """The number at ``load``, straight between the means of the nearest loads that were measured; beyond them in proportion to
    a rate, and unknown of users, of whom a target that is busy with fewer answers no more.
    """
    known: dict[float, list[float]] = {}
    for at, value in points:
        if value is not None and math.isfinite(value):
            known.setdefault(at, []).append(value)
    if load is None or not known:
        return None
    loads = sorted(known)
    means = [sum(known[at]) / len(known[at]) for at in loads]
    if not loads[0] <= load <= loads[-1]:
        if unit is LoadUnit.USERS:
            return None
        nearest = 0 if load < loads[0] else -1
        return means[nearest] * load / loads[nearest]
    return float(np.interp(load, loads, means))
