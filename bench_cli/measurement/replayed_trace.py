"""The requests of a trace, and when they are due: its own prompts where it has some, else random ones of its lengths."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from bench_cli.measurement.load_options import TrafficOptions
from bench_cli.measurement.own_lengths import without_length_text, without_text_entry
from bench_cli.measurement.prepare import PreparedRequests
from bench_cli.measurement.scaling_options import reuse_entries, reuse_limit_of
from bench_cli.measurement.sessions import SessionOptions, with_reuse_limit
from bench_cli.measurement.synthetic import synthesis_for
from bench_cli.measurement.target import Target
from workloads.arrivals.processes import Recorded
from workloads.arrivals.replay import Replay, at_rate, rows_of
from workloads.elements.request import LengthLimits, Request
from workloads.prompts.dataset import OutputLengths
from workloads.prompts.synthesis import has_prompts
from workloads.readers.source import name_of
from workloads.schedule.load import AnyLoad, ClosedLoop, Load, OpenLoop
from workloads.schedule.schedule import HistorySource
from workloads.schedule.session_replay import behind_their_parents, names_of, replayed_sessions
from workloads.schedule.sessions import Most, SessionRequests, SessionRules, TurnClock, TurnOrder, session_requests
from workloads.table.scaling import Scaling
from workloads.table.workload import Workload


@dataclass(frozen=True)
class Trace:
    """The file ``path``, its ``workload`` by ``scaling`` and ``replay``, and the mean rate of the requests that are sent, None
    the trace's own. ``unscaled`` is the replay without ``scaling``, row by row, None where there is none. ``sessions`` None:
    each turn is sent at its own time. ``lengths`` are the output lengths of prompts without one.
    """

    path: Path
    workload: Workload
    unscaled: Workload | None
    replay: Replay
    scaling: Scaling
    rate_per_s: float | None
    sessions: SessionOptions | None
    lengths: OutputLengths


@dataclass(frozen=True)
class _Drawn:
    """Requests of the rows ``kept``; ``entries`` are of the manifest. ``texts`` None: random prompts."""

    requests: tuple[Request, ...]
    kept: tuple[int, ...]
    dropped_too_long: int
    dropped_behind: int
    entries: dict[str, str | float | None]
    texts: SessionRequests | None = None


def prepare_trace(trace: Trace, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    """The requests of ``trace`` with their load, and what is known of their shared prefixes. Raises WorkloadError."""
    replayed = trace.workload
    traffic = replace(traffic, num_requests=_most(trace, traffic, load))
    drawn = (
        _own_prompts(trace, replayed, traffic, target) if has_prompts(replayed) else _random(trace, replayed, traffic, target)
    )
    if drawn.dropped_behind:
        click.echo(f"{drawn.dropped_behind:,} turns are left out, since the one that they wait for is not sent.", err=True)
    sent = rows_of(replayed, drawn.kept)
    unscaled = None if trace.unscaled is None else rows_of(trace.unscaled, drawn.kept)
    kind = "requests" if drawn.texts is None else "prompts"
    prepared = PreparedRequests(
        requests=drawn.requests,
        description=f"{len(drawn.requests):,} {kind} of {name_of(trace.path).name}",
        parameters={
            "trace": str(trace.path),
            "format": sent.facts.format,
            "rejected_rows": sent.facts.rejected_rows,
            "workload_digest": sent.digest,
            **(reuse_entries(sent, unscaled) if drawn.texts is None else {}),
            **trace.scaling.entries(),
            **_replay_entries(trace),
            **drawn.entries,
        },
        dropped_too_long=drawn.dropped_too_long,
        load=_own_load(trace, sent, load),
        limit_of=reuse_limit_of(drawn.kept, replayed, trace.unscaled) if drawn.texts is None else None,
    )
    return prepared if drawn.texts is None else with_reuse_limit(prepared, drawn.texts)


def _replay_entries(trace: Trace) -> dict[str, str | float | None]:
    """The options by their names, which another run takes."""
    entries = asdict(trace.replay)
    entries["start"] = entries.pop("start_s")
    del entries["duration_s"]  # an option of every run
    sessions = trace.sessions
    of_sessions = {} if sessions is None else {"sessions": sessions.sessions, "think_time": sessions.think_time}
    return {**entries, "rate_per_s": trace.rate_per_s, **of_sessions}


def _random(trace: Trace, replayed: Workload, traffic: TrafficOptions, target: Target) -> _Drawn:
    if trace.sessions is not None and trace.sessions.history == HistorySource.SERVER:
        raise click.UsageError(f"--history server: {trace.path} has lengths alone, and no prompts that answers could follow")
    drawn = synthesis_for(trace.path, traffic, target).requests(replayed, traffic.num_requests)
    entries: dict[str, str | float | None] = {"synthetic": True}
    if trace.sessions is None:
        return _Drawn(drawn.requests, drawn.kept, drawn.dropped_too_long, 0, entries)
    kept = set(behind_their_parents(replayed, drawn.kept))
    names = names_of(replayed)
    sent = [(row, request) for row, request in zip(drawn.kept, drawn.requests, strict=True) if row in kept]
    return _Drawn(
        tuple(replace(request, session=names[row]) for row, request in sent),
        tuple(row for row, _ in sent),
        drawn.dropped_too_long,
        len(drawn.kept) - len(sent),
        entries | {"dropped_behind": len(drawn.kept) - len(sent)},
    )


def _own_prompts(trace: Trace, replayed: Workload, traffic: TrafficOptions, target: Target) -> _Drawn:
    drawn = session_requests(
        replayed,
        None if target.tokenizer is None else target.tokenizer.encode,
        Most(traffic.num_requests),
        trace.lengths,
        replace(_rules(trace.sessions), as_messages=target.model.takes_messages),
        LengthLimits(traffic.max_input_len, target.context_tokens),
        ignore_eos=bool(traffic.ignore_eos),
    )
    entries: dict[str, str | float | None] = {"op_tokens_per_word": trace.lengths.tokens_per_word}
    if drawn.without_length:
        click.echo(without_length_text(drawn.without_length, trace.lengths), err=True)
        entries["output_tokens"] = trace.lengths.without_answer
    if trace.sessions is not None:
        entries |= {"history": trace.sessions.history, "dropped_behind": drawn.dropped_behind}
    entries |= without_text_entry(replayed)
    return _Drawn(drawn.requests, drawn.kept, drawn.dropped_too_long, drawn.dropped_behind, entries, drawn)


def _rules(sessions: SessionOptions | None) -> SessionRules:
    """Turns in the order of their arrival; without sessions each is due at its own time."""
    if sessions is None:
        return SessionRules(TurnClock.RECORDED, order=TurnOrder.BY_ROW)
    return SessionRules(
        TurnClock(sessions.sessions or ""),
        round(sessions.think_time * 1e9),
        history=HistorySource(sessions.history),
        order=TurnOrder.BY_ROW,
    )


def _most(trace: Trace, traffic: TrafficOptions, load: Load) -> int | None:
    """The number of requests to draw: at a given rate, those of --duration, of which the last is due a gap before its end."""
    if trace.rate_per_s is None or load.duration_s is None:
        return traffic.num_requests
    of_duration = math.ceil(round(trace.rate_per_s * load.duration_s, 6))
    return of_duration if traffic.num_requests is None else min(of_duration, traffic.num_requests)


def _own_load(trace: Trace, sent: Workload, load: Load) -> AnyLoad | None:
    """The requests at the trace's times; None for a closed loop, in which users send them."""
    if isinstance(load, ClosedLoop):
        return None
    timed = sent if trace.rate_per_s is None else at_rate(sent, trace.rate_per_s)
    if trace.sessions is not None:
        return replayed_sessions(timed, _rules(trace.sessions))
    times_ns = timed.table["arrival_ns"].to_pylist()
    return OpenLoop(Recorded(tuple(times_ns)), load.duration_s, load.max_concurrency)
