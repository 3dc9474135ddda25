"""The requests of a file, a dataset or a trace: its prompts, its conversations, or random prompts of its lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path

import click

from bench_cli.measurement.load_options import TrafficOptions
from bench_cli.measurement.own_lengths import without_length_text, without_text_entry
from bench_cli.measurement.prepare import PreparedRequests, request_count_text
from bench_cli.measurement.scaling_options import report_reuse, reuse_shares
from bench_cli.measurement.sessions import SessionOptions
from bench_cli.measurement.target import Target
from bench_cli.tokenizers import ordinary_token_ids, text_codec
from reports.render.counts import counted
from workloads.arrivals.processes import Recorded
from workloads.arrivals.replay import Replay, at_rate, rows_of
from workloads.elements.errors import WorkloadError
from workloads.elements.request import HistorySource, LengthLimits
from workloads.prompts.conversations import (
    SessionPrompts,
    SessionRules,
    TurnClock,
    TurnOrder,
    in_conversations,
    rows_for_turns,
)
from workloads.prompts.dataset import DatasetPrompts, OutputLengths
from workloads.prompts.drawn import Drawn, PromptSource
from workloads.prompts.synthesis import Synthesis, has_prompts
from workloads.readers.source import name_of
from workloads.schedule.load import AnyLoad, ClosedLoop, Load, OpenLoop, Sessions
from workloads.schedule.sessions import replayed_sessions, sessions_from, sessions_of_users
from workloads.table.prefixes import infinite_cache_share
from workloads.table.scaling import Scaling
from workloads.table.workload import Workload

_Entries = dict[str, str | float | None]
_LimitOf = Callable[[Sequence[int]], dict[str, float | None]]


@dataclass(frozen=True)
class FileTraffic:
    """The file ``path``: its ``workload`` as it is sent, and ``unscaled`` the same rows without ``scaling``, None where that
    changes nothing.

    ``lengths`` are the output lengths of prompts without one. ``sessions`` None: no turn waits for an answer. ``columns`` are
    those of --field. ``first_row`` is the number of the workload's first row in the file.
    """

    path: Path
    workload: Workload
    unscaled: Workload | None
    scaling: Scaling
    lengths: OutputLengths
    sessions: SessionOptions | None
    columns: tuple[str, ...] = ()
    first_row: int = 0

    @cached_property
    def is_random(self) -> bool:
        """Whether the file has lengths alone, of which prompts are drawn."""
        return not has_prompts(self.workload)


@dataclass(frozen=True)
class TraceTimes:
    """When the rows of a trace are sent: as ``replay`` has them, or stretched to the mean rate ``rate_per_s``."""

    replay: Replay
    rate_per_s: float | None


def prepare_dataset(file: FileTraffic, repeated: bool, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    """The file's rows in its order, under ``load``: first turns, or whole conversations. Raises UsageError and WorkloadError.

    Where it is ``repeated``, it begins again up to the number of requests.
    """
    sessions = file.sessions
    if sessions is None:
        most = load.most_requests(traffic.seed, traffic.num_requests)
        drawn = _source(file, None, traffic, target).draw(most)
        _report_later_turns(file, drawn)
    else:
        most = traffic.num_requests
        drawn = _source(file, _rules(sessions), traffic, target, load.most_requests(traffic.seed, None)).draw(most)
    if drawn.dropped_behind:
        left_out = counted(drawn.dropped_behind, "turn is left out, since it waits", "turns are left out, since they wait")
        click.echo(f"{left_out} for one that is too long.", err=True)
    requests = tuple(islice(cycle(drawn.requests), most)) if repeated else drawn.requests
    again = len(requests) > len(drawn.requests)
    kind = "random prompts of the lengths of" if file.is_random else "prompts of" if sessions is None else "turns of"
    prepared = PreparedRequests(
        replace(drawn, requests=requests),
        f"{request_count_text(load, len(requests))} {kind} {name_of(file.path).name}{', repeated' if again else ''}",
        {
            "dataset": str(file.path),
            **_file_entries(file, drawn),
            **({} if sessions is None else sessions.manifest_entry(drawn)),
            "rows_read": drawn.rows,
            **({"repeat_dataset": True} if again else {}),
            "whole_dataset": not again and (most is None or len(requests) < most),
        },
        None if sessions is None else _sessions(sessions, drawn, load),
    )
    return prepared if repeated else _with_reuse_limit(prepared, file)


def _report_later_turns(file: FileTraffic, drawn: Drawn) -> None:
    """Count on stderr the turns that would follow those of ``drawn``, which are first ones."""
    if file.is_random:
        return
    table = file.workload.table
    conversations, later = set(drawn.kept), 0
    for row, (parent, has_text) in enumerate(
        zip(table["parent"].to_pylist(), table["prompt"].is_valid().to_pylist(), strict=True)
    ):
        if parent in conversations:
            conversations.add(row)
            later += has_text
    if later:
        turns = counted(later, "later turn of these conversations is", "later turns of these conversations are")
        click.echo(f"{turns} not sent; --sessions think_time sends them.", err=True)


def prepare_trace(
    file: FileTraffic, times: TraceTimes, traffic: TrafficOptions, load: Load, target: Target
) -> PreparedRequests:
    """The file's rows at their ``times``, or sent by the users of a closed loop. Raises UsageError and WorkloadError."""
    sessions = file.sessions
    if file.is_random and sessions is not None and sessions.history == HistorySource.SERVER:
        raise click.UsageError(f"--history server: {file.path} has lengths alone, and no prompts that answers could follow")
    rules = SessionRules(TurnClock.RECORDED) if sessions is None else _rules(sessions)
    rules = replace(rules, order=TurnOrder.BY_ROW)
    wanted = _wanted(times, traffic, load)
    source, most = _source(file, rules, traffic, target), traffic.num_requests if wanted is None else wanted
    if file.is_random and sessions is not None:
        drawn = _drawn_turns(file, source, LengthLimits(traffic.max_input_len, target.context_tokens), most)
    else:
        drawn = source.draw(most)
    if drawn.dropped_behind:
        left_out = counted(drawn.dropped_behind, "turn is left out, since it waits", "turns are left out, since they wait")
        click.echo(f"{left_out} for one that is not sent.", err=True)
    sent = rows_of(file.workload, drawn.kept)
    prepared = PreparedRequests(
        drawn,
        f"{len(drawn.requests):,} {'requests' if file.is_random else 'prompts'} of {name_of(file.path).name}",
        {
            "trace": str(file.path),
            **_file_entries(file, drawn),
            "workload_digest": sent.digest,
            **_times_entries(times),
            **({} if sessions is None else _waiting_entries(sessions, file, drawn)),
        },
        _own_load(times, None if sessions is None else rules, sent, load),
        wanted=wanted,
    )
    return _with_reuse_limit(prepared, file)


# ---- the prompts


def _source(
    file: FileTraffic, rules: SessionRules | None, traffic: TrafficOptions, target: Target, most_sessions: int | None = None
) -> PromptSource:
    """The prompts of the file for ``target``; ``rules`` None: first turns alone. Raises UsageError without a vocabulary."""
    tokenizer, limits = target.tokenizer, LengthLimits(traffic.max_input_len, target.context_tokens)
    if file.is_random:
        if tokenizer is None:
            raise click.UsageError(f"{file.path} has lengths but no prompts: give --tokenizer_dir, to draw prompts of them")
        codec = None if target.model.takes_token_ids else text_codec(tokenizer)
        ignore_eos = target.model.supports_ignore_eos if traffic.ignore_eos is None else traffic.ignore_eos
        ids = ordinary_token_ids(tokenizer)
        return Synthesis(file.workload, ids, traffic.seed, codec, limits, ignore_eos, file.first_row)
    encode, ignore_eos = None if tokenizer is None else tokenizer.encode, bool(traffic.ignore_eos)
    if rules is None:
        return DatasetPrompts(file.workload, encode, file.lengths, limits, ignore_eos)
    rules = replace(rules, as_messages=target.model.takes_messages)
    return SessionPrompts(file.workload, encode, file.lengths, rules, limits, ignore_eos, most_sessions)


def _drawn_turns(file: FileTraffic, source: PromptSource, limits: LengthLimits, most: int | None) -> Drawn:
    """At most ``most`` random prompts of ``source`` as turns of the file's conversations. Raises WorkloadError without any."""
    drawn = in_conversations(source.draw(rows_for_turns(file.workload, limits, most)), file.workload)
    if not drawn.requests:
        problem = (": each turn is longer than ", *limits.words, " allows, or waits for one that is; nothing is left to send")
        raise WorkloadError(str(file.path), *problem)
    return drawn


def _rules(sessions: SessionOptions) -> SessionRules:
    clock, history = TurnClock(sessions.sessions or ""), HistorySource(sessions.history)
    return SessionRules(clock, round(sessions.think_time * 1e9), history=history)


def _file_entries(file: FileTraffic, drawn: Drawn) -> dict[str, object]:
    """What a dataset and a trace have in the manifest; what is sent otherwise than the file has it is on stderr, too."""
    facts, lengths = file.workload.facts, file.lengths
    entries: dict[str, object] = {"format": facts.format, "rejected_rows": facts.rejected_rows, **file.scaling.entries()}
    if file.columns:
        entries["field"] = list(file.columns)
    if file.is_random:
        return entries | {"synthetic": True}
    entries["op_tokens_per_word"] = lengths.tokens_per_word
    if drawn.without_length:
        click.echo(without_length_text(drawn.without_length, lengths), err=True)
        entries["output_tokens"] = lengths.without_answer
    if drawn.without_history:
        prompts = counted(drawn.without_history, "prompt is", "prompts are")
        click.echo(f"{prompts} sent without the messages that came before.", err=True)
        entries["without_history"] = drawn.without_history
    return entries | without_text_entry(file.workload)


def _with_reuse_limit(prepared: PreparedRequests, file: FileTraffic) -> PreparedRequests:
    """``prepared`` with the share of its prompts' tokens that an infinite prefix cache would have; unchanged where the tokens
    are unknown.
    """
    limit_of = _reuse_of_rows(file, prepared.drawn.kept) if file.is_random else _reuse_of_prompts(prepared.drawn)
    if limit_of is None:
        return prepared
    limit = limit_of(range(len(prepared.requests)))
    report_reuse(limit, file.scaling)
    return replace(prepared, parameters={**prepared.parameters, **limit}, limit_of=limit_of)


def _reuse_of_rows(file: FileTraffic, kept: Sequence[int]) -> _LimitOf:
    """By the hashes of blocks, of the requests that were sent: request k is row ``kept[k]``."""

    def limit_of(sent: Sequence[int]) -> dict[str, float | None]:
        rows = [kept[index] for index in sent]
        return reuse_shares(rows_of(file.workload, rows), None if file.unscaled is None else rows_of(file.unscaled, rows))

    return limit_of


def _reuse_of_prompts(drawn: Drawn) -> _LimitOf | None:
    prompts = drawn.prompt_ids
    if prompts is None:
        return None
    return lambda sent: {"shared_prefix_limit": infinite_cache_share([prompts[index] for index in sent])}


# ---- when they are due


def _sessions(sessions: SessionOptions, drawn: Drawn, load: Load) -> Sessions:
    assert isinstance(load, OpenLoop), "refused with the options"
    if sessions.users is None:
        return sessions_from(drawn, load, _rules(sessions))
    if drawn.sessions < sessions.users:
        idle = counted(sessions.users - drawn.sessions, "user holds", "users hold")
        click.echo(f"--users {sessions.users}: with only {counted(drawn.sessions, 'conversation')}, {idle} none.", err=True)
    return sessions_of_users(drawn, sessions.users, sessions.user_rate, HistorySource(sessions.history))


def _wanted(times: TraceTimes, traffic: TrafficOptions, load: Load) -> int | None:
    """The requests of --duration at a given rate, of which the last is due a gap before its end; None without both."""
    if times.rate_per_s is None or load.duration_s is None:
        return None
    of_duration = math.ceil(round(times.rate_per_s * load.duration_s, 6))
    return of_duration if traffic.num_requests is None else min(of_duration, traffic.num_requests)


def _own_load(times: TraceTimes, rules: SessionRules | None, sent: Workload, load: Load) -> AnyLoad | None:
    """The rows at the trace's times, or with ``rules`` its conversations; None for a closed loop, in which users send them."""
    if isinstance(load, ClosedLoop):
        return None
    timed = sent if times.rate_per_s is None else at_rate(sent, times.rate_per_s)
    if rules is not None:
        return replayed_sessions(timed, rules, load.duration_s)
    return OpenLoop(Recorded(tuple(timed.table["arrival_ns"].to_pylist())), load.duration_s, load.max_concurrency)


def _times_entries(times: TraceTimes) -> _Entries:
    """The options by their names, which another run takes."""
    entries = asdict(times.replay)
    entries["start"] = entries.pop("start_s")
    del entries["duration_s"]  # an option of every run
    return {**entries, "rate_per_s": times.rate_per_s}


def _waiting_entries(sessions: SessionOptions, file: FileTraffic, drawn: Drawn) -> Mapping[str, str | float | None]:
    entries = {"sessions": sessions.sessions, "think_time": sessions.think_time, "dropped_behind": drawn.dropped_behind}
    return entries if file.is_random else entries | {"history": sessions.history}
