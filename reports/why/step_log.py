"""The step log of the embedded engine (docs/reference/step-log.md): read, and joined with the requests of a run.

The engine stamps its steps and the times of its requests by one clock, and a token comes with the end of its step. So the steps
of a request's decode are those that end after its first token and not after its last one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from bench_records.regular_file import read_bounded, regular
from reports.errors import ServerTimesError
from reports.metrics.catalogue import E2E
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray, finite

_MOST_BYTES = 1 << 30
_HEAD_KEY, _VERSION = "step_log", 1
_HEAD = b'#{"' + _HEAD_KEY.encode()
_BATCH = "batch"
_CUT = b",cut"  # the end of a line that the next start found cut
_WHOLE = ("start_ns", "duration_ns", "sequences", "waiting", "prefill_tokens", "decode_tokens", "kv_blocks")
_TYPES = {"kind": pa.string()} | {name: pa.int64() for name in _WHOLE}
_SET_NS = 1_000_000_000  # by which the wall clock may have been set between the starts of the engine and of the run
_AT_ONCE_NS = 1_000.0  # between a token and the end of its step
_GROUP, _MOST_GROUPS = 9, 16  # steps of about as many sequences without prompts, and groups of them


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of an engine's batch in their order, shape [n] each; NaN where unknown. Times are ns of the monotonic clock."""

    start_ns: FloatArray
    duration_ns: FloatArray
    sequences: FloatArray
    waiting: FloatArray
    prefill_tokens: FloatArray
    decode_tokens: FloatArray
    kv_blocks: FloatArray

    @property
    def end_ns(self) -> FloatArray:
        return self.start_ns + self.duration_ns

    def only(self, chosen: NDArray[np.bool_]) -> Steps:
        """The ``chosen`` steps, shape [n]."""
        return Steps(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def added_ns(self) -> FloatArray:
        """How much longer each step took than steps of about as many sequences in decode without prompts, shape [n]: the
        medians of groups of these, and between them a line. 0 of a step without prompts, all of one with prompts alone, and NaN
        of one with more or fewer sequences than any of these, or whose contents are unknown.
        """
        alone = (self.prefill_tokens == 0) & (self.decode_tokens > 0)
        counts, durations_ns = self.decode_tokens[alone], self.duration_ns[alone]
        usual_ns = np.full(self.start_ns.size, np.nan)
        if counts.size >= _GROUP:
            groups = np.array_split(np.argsort(counts, kind="stable"), min(_MOST_GROUPS, counts.size // _GROUP))
            middles = np.array([(np.median(counts[group]), np.median(durations_ns[group])) for group in groups])
            usual_ns = np.interp(self.decode_tokens, middles[:, 0], middles[:, 1])
            usual_ns[(self.decode_tokens < counts.min()) | (self.decode_tokens > counts.max())] = np.nan
        added_ns = np.where(self.decode_tokens == 0, self.duration_ns, self.duration_ns - usual_ns)
        return np.where(self.prefill_tokens == 0, 0.0, added_ns)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the steps with requests of the run did that began from ``start_s`` to ``end_s`` on the run's clock.

    ``known`` is how many of them have known contents; the following counts and means cover these. ``alone_ms`` is the mean
    duration of those with decode and no prompt, ``beside_ms`` that of the ``beside`` ones with prompts, during which a request
    of the run was in decode; ``compared`` of these took ``added_ms`` more on average than steps of about as many sequences
    without prompts. ``sequences`` and ``waiting`` are means of requests over all steps. None where unknown.
    """

    start_s: float
    end_s: float
    steps: int
    known: int
    beside: int | None
    alone_ms: float | None
    beside_ms: float | None
    compared: int
    added_ms: float | None
    sequences: float | None
    waiting: float | None
    most_kv_blocks: int | None


@dataclass(frozen=True)
class LoggedRun:
    """A run whose engine logged its steps. Where ``divided`` of the ``timed`` requests are all of them, the decode of each is
    divided, and of no request otherwise: what belongs beside prefill and what to the rest would be unknown of some.

    ``steps`` are those with a request of the run, ``in_decode`` whether one was in decode meanwhile, shape [n]; ``start_ns`` is
    the run's start on the clock of the steps, late by what a request takes to the engine.
    """

    report: RunReport
    steps: Steps
    in_decode: NDArray[np.bool_]
    start_ns: float
    timed: int
    divided: int

    def facts(self, edges_ns: FloatArray | None = None) -> tuple[StepFacts, ...]:
        """What the steps did between each two of these times on the run's clock, shape [k + 1], those before and after all of
        them in the first and the last part; of the time of all steps without ``edges_ns``.
        """
        steps = self.steps
        if not steps.start_ns.size:
            return ()
        if edges_ns is None:
            edges_ns = np.array([steps.start_ns[0], steps.end_ns[-1]]) - self.start_ns
        added_ns, parts = steps.added_ns(), edges_ns.size - 1
        part = np.clip(np.searchsorted(edges_ns, steps.start_ns - self.start_ns, side="right") - 1, 0, parts - 1)
        return tuple(
            _facts(steps.only(part == k), self.in_decode[part == k], added_ns[part == k], (edges_ns[k], edges_ns[k + 1]))
            for k in range(parts)
        )


def with_step_log(report: RunReport, path: Path) -> LoggedRun:
    """The run with the step log at ``path`` of its server.

    Raises ServerTimesError, and OSError.
    """
    clock = report.manifest.clock
    offset_ns = None if clock is None or clock.before is None else clock.before.realtime_minus_monotonic_ns
    steps = read_step_log(path, offset_ns)
    requests = report.all_requests
    arrival_ns = requests.server_arrival_ns
    first_ns = arrival_ns + requests.server_queue_ns + requests.server_prefill_ns
    assert E2E.ends_ns is not None
    last_ns = np.where(np.isnan(E2E.ends_ns(requests)), np.nan, first_ns + requests.server_decode_ns)
    timed = ~np.isnan(last_ns)
    if not timed.any():
        raise ServerTimesError(
            f"--step_log {path}: the run has no times of its requests by the engine, which find their steps; measure it with "
            "--server_timings"
        )
    ends_ns = steps.end_ns
    found = timed & _is_end(ends_ns, first_ns) & _is_end(ends_ns, last_ns)
    if not found.any():
        raise ServerTimesError(f"--step_log {path}: {_why_none(steps, first_ns[timed], last_ns[timed])}")
    beside_ns = np.full(timed.size, np.nan)
    beside = np.where(steps.prefill_tokens > 0, steps.duration_ns, np.where(np.isnan(steps.prefill_tokens), np.nan, 0.0))
    beside_ns[found] = _sums(beside, ends_ns, first_ns[found], last_ns[found])
    divided = int(np.count_nonzero(~np.isnan(beside_ns)))
    if divided == np.count_nonzero(timed):
        report = replace(report, all_requests=replace(requests, server_beside_prefill_ns=beside_ns))
    of_run = _covered(ends_ns, arrival_ns[timed], last_ns[timed])
    in_decode = _covered(ends_ns, first_ns[timed], last_ns[timed])
    start_ns = float(np.median(arrival_ns[timed] - requests.sent_ns[timed]))
    return LoggedRun(report, steps.only(of_run), in_decode[of_run], start_ns, int(timed.sum()), divided)


def read_step_log(path: Path, offset_ns: int | None) -> Steps:
    """The batches of the starts of an engine in the boot of the host in which the wall clock less the monotonic one was
    ``offset_ns``. Where that is None or no start belongs to that boot, those of the boot of the last start: the server may be
    on another host than the client, or a clock was set.

    The last row of a start may be cut, and is left out then, as is a start whose head was cut. Raises ServerTimesError for
    another file, a damaged and a too large one, and OSError.
    """
    try:
        content = read_bounded(regular(path), _MOST_BYTES)
    except ValueError as error:
        raise ServerTimesError(
            f"--step_log {path}: the log has more than {_MOST_BYTES >> 30} GiB; start the server with a new file for each day"
        ) from error
    starts = list(_starts(path, content))
    if not starts:
        raise ServerTimesError(f"--step_log {path}: the log is damaged: the head of its one start was cut")
    of_run = offset_ns is not None and any(abs(offset - offset_ns) <= _SET_NS for offset, _ in starts)
    boot_ns = offset_ns if of_run and offset_ns is not None else starts[-1][0]
    of_boot = [rows for offset, rows in starts if abs(offset - boot_ns) <= _SET_NS]
    try:
        table = pa.concat_tables([_table(rows) for rows in of_boot])
    except pa.ArrowException as error:
        raise ServerTimesError(f"--step_log {path}: a row is damaged: {str(error).splitlines()[0]}") from error
    columns = {name: table[name].to_numpy().astype(np.float64) for name in _WHOLE}
    order = np.argsort(columns["start_ns"], kind="stable")
    steps = Steps(**{name: column[order] for name, column in columns.items()})
    known = ~np.isnan(steps.start_ns + steps.duration_ns + steps.sequences)
    if not known.all() or (steps.duration_ns < 0).any() or (steps.start_ns[1:] < steps.end_ns[:-1]).any():
        raise ServerTimesError(f"--step_log {path}: the log is damaged: its steps have no times, or overlap")
    return steps


def _starts(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    """For each start of the engine the wall clock less the monotonic one, and the names of the columns with the whole rows."""
    if not content.startswith(_HEAD):
        raise ServerTimesError(f"--step_log {path}: the file is no step log; give the file of bench serve --step_log")
    parts = content.split(b"\n" + _HEAD)
    for number, part in enumerate(parts, start=1):
        text, line_end, rows = (part if number == 1 else _HEAD + part).partition(b"\n")
        if text.endswith(_CUT) or not line_end:
            continue
        head = _head(path, text)
        whole = rows.rfind(b"\n") + 1 if number == len(parts) or rows.endswith(_CUT) else len(rows)
        yield head["realtime_minus_monotonic_ns"], rows[:whole].removesuffix(b"\n") + b"\n"


def _head(path: Path, text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text[1:])
        version, offset_ns = head[_HEAD_KEY], head["realtime_minus_monotonic_ns"]
    except (ValueError, KeyError, TypeError) as error:
        raise ServerTimesError(f"--step_log {path}: the log is damaged: the head of a start cannot be read") from error
    if version != _VERSION or not isinstance(offset_ns, int):
        raise ServerTimesError(f"--step_log {path}: version {version} of the log; this bench reads version {_VERSION}")
    return dict(head)


def _table(rows: bytes) -> pa.Table:
    """The batches of one start. Raises ArrowException."""
    if rows.count(b"\n") < 2:
        return pa.table({name: pa.array([], kind) for name, kind in _TYPES.items()})
    options = csv.ConvertOptions(column_types=_TYPES, include_columns=list(_TYPES), null_values=[""], strings_can_be_null=True)
    table = csv.read_csv(io.BytesIO(rows), read_options=csv.ReadOptions(use_threads=False), convert_options=options)
    return table.filter(pa.array((table["kind"].to_numpy(zero_copy_only=False) == _BATCH).astype(bool)))


def _facts(steps: Steps, in_decode: NDArray[np.bool_], added_ns: FloatArray, between_ns: tuple[float, float]) -> StepFacts:
    known = int(np.count_nonzero(~np.isnan(steps.prefill_tokens + steps.decode_tokens)))
    beside = (steps.prefill_tokens > 0) & in_decode
    alone = (steps.prefill_tokens == 0) & (steps.decode_tokens > 0)
    compared = beside & ~np.isnan(added_ns)
    blocks = steps.kv_blocks[~np.isnan(steps.kv_blocks)]
    return StepFacts(
        start_s=float(between_ns[0]) / 1e9,
        end_s=float(between_ns[1]) / 1e9,
        steps=steps.start_ns.size,
        known=known,
        beside=int(np.count_nonzero(beside)) if known or not steps.start_ns.size else None,
        alone_ms=_mean(steps.duration_ns[alone] / 1e6),
        beside_ms=_mean(steps.duration_ns[beside] / 1e6),
        compared=added_ns[compared].size,
        added_ms=_mean(added_ns[compared] / 1e6),
        sequences=_mean(steps.sequences),
        waiting=_mean(steps.waiting),
        most_kv_blocks=int(blocks.max()) if blocks.size else None,
    )


def _mean(values: FloatArray) -> float | None:
    """The mean; None of no values, and where one is unknown."""
    return finite(float(values.mean())) if values.size else None


def _is_end(ends_ns: FloatArray, at_ns: FloatArray) -> NDArray[np.bool_]:
    """Whether a step ends at each of these times, shape [m]."""
    if not ends_ns.size:
        return np.zeros(at_ns.size, bool)
    place = np.minimum(np.searchsorted(ends_ns, at_ns - _AT_ONCE_NS), ends_ns.size - 1)
    found: NDArray[np.bool_] = np.abs(ends_ns[place] - at_ns) <= _AT_ONCE_NS
    return found


def _covered(ends_ns: FloatArray, from_ns: FloatArray, to_ns: FloatArray) -> NDArray[np.bool_]:
    """Whether each step, shape [n], ended after one of these times and not after the one that belongs to it, shape [m] each."""
    low = np.searchsorted(ends_ns, from_ns + _AT_ONCE_NS)
    high = np.searchsorted(ends_ns, to_ns + _AT_ONCE_NS)
    changes = np.bincount(low, minlength=ends_ns.size + 1) - np.bincount(high, minlength=ends_ns.size + 1)
    covered: NDArray[np.bool_] = np.cumsum(changes)[: ends_ns.size] > 0
    return covered


def _sums(values: FloatArray, ends_ns: FloatArray, first_ns: FloatArray, last_ns: FloatArray) -> FloatArray:
    """The sum of the steps' ``values`` after each first token up to the last one, shape [m]; NaN where one is unknown."""
    low = np.searchsorted(ends_ns, first_ns + _AT_ONCE_NS)
    high = np.searchsorted(ends_ns, last_ns + _AT_ONCE_NS)
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values))])
    unknown = np.concatenate([[0], np.cumsum(np.isnan(values))])
    return np.where(unknown[high] > unknown[low], np.nan, total[high] - total[low])


def _why_none(steps: Steps, first_ns: FloatArray, last_ns: FloatArray) -> str:
    """Why no request lies in the log."""
    if not steps.start_ns.size:
        return "the log has no steps"
    if steps.end_ns[-1] < first_ns.min():
        return f"the log ends {(first_ns.min() - steps.end_ns[-1]) / 1e9:,.1f} s before the run's first token"
    if steps.start_ns[0] > last_ns.max():
        return f"the log begins {(steps.start_ns[0] - last_ns.max()) / 1e9:,.1f} s after the run's last token"
    return (
        "no token of the run comes with the end of one of its steps: it is the log of another engine, or the run's times are "
        "not by the engine (--server_timings)"
    )
