"""The step log of the embedded engine (docs/reference/step-log.md), read: a row for each step of the engine's batch.

A token comes with the end of its step, and the engine stamps its steps and the times of its requests by one clock. So the steps
of a request are found without guessing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from bench_errors import BenchError, ExitStatus
from bench_records.regular_file import read_bounded, regular

FloatArray = NDArray[np.float64]

_MOST_BYTES = 1 << 30
_HEAD_KEY, _VERSION = "step_log", 1
_HEAD = b'#{"' + _HEAD_KEY.encode()
_BATCH = "batch"
_CUT = b",cut"  # the end of a line that the next start found cut
_SET_NS = 1_000_000_000  # by which the wall clock may have been set between the starts of the engine and of the run
_AT_ONCE_NS = 1_000.0  # between a token and the end of its step


class StepLogFileError(BenchError):
    """A step log cannot be read, or has no steps of the run; the text names the option and what would do."""

    exit_status = ExitStatus.USAGE


@dataclass(frozen=True, eq=False)
class LoggedSteps:
    """Steps of an engine's batch in their order, shape [n] each; NaN where unknown. Times are ns of the monotonic clock.

    All but the last are columns of the log by their names. ``single_end_ns`` are the ends of forward passes of one request
    between steps, in their order, shape [m].
    """

    start_ns: FloatArray
    duration_ns: FloatArray
    sequences: FloatArray
    waiting: FloatArray
    prefill_tokens: FloatArray
    decode_tokens: FloatArray
    first_tokens: FloatArray
    context_tokens: FloatArray
    kv_blocks: FloatArray
    single_end_ns: FloatArray

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> FloatArray:
        return self.start_ns + self.duration_ns

    def only(self, chosen: NDArray[np.bool_] | slice) -> LoggedSteps:
        """The ``chosen`` steps, and all passes between steps."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _WHOLE})

    def after_single(self) -> NDArray[np.bool_]:
        """Whether a pass of one request lies before each step, and after the step before it if there is one, shape [n]."""
        after: NDArray[np.bool_] = np.diff(np.searchsorted(self.single_end_ns, self.start_ns, side="right"), prepend=0) > 0
        return after

    def first_from(self, at_ns: FloatArray) -> NDArray[np.intp]:
        """The number of the first step that ends at each of these times or later, shape [m]; n where there is none."""
        return np.searchsorted(self.end_ns, at_ns - _AT_ONCE_NS)

    def first_after(self, at_ns: FloatArray) -> NDArray[np.intp]:
        """The number of the first step that ends after each of these times, shape [m]; n where there is none."""
        return np.searchsorted(self.end_ns, at_ns + _AT_ONCE_NS)

    def ends_at(self, at_ns: FloatArray) -> NDArray[np.bool_]:
        """Whether a step ends at each of these times, shape [m]."""
        return _is_among(self.end_ns, at_ns)

    def has_token(self, at_ns: FloatArray) -> NDArray[np.bool_]:
        """Whether a step, or a pass of one request between steps, ends at each of these times, shape [m]."""
        return self.ends_at(at_ns) | _is_among(self.single_end_ns, at_ns)

    def covered(self, from_ns: FloatArray, to_ns: FloatArray) -> NDArray[np.bool_]:
        """Whether each step, shape [n], ended after one of these times and not after the one that belongs to it, shape [m]
        each.
        """
        low, high = self.first_after(from_ns), self.first_after(to_ns)
        changes = np.bincount(low, minlength=len(self) + 1) - np.bincount(high, minlength=len(self) + 1)
        covered: NDArray[np.bool_] = np.cumsum(changes)[: len(self)] > 0
        return covered


_WHOLE = tuple(field.name for field in fields(LoggedSteps) if field.name != "single_end_ns")
_TYPES = {"kind": pa.string()} | {name: pa.int64() for name in _WHOLE}


def _is_among(ends_ns: FloatArray, at_ns: FloatArray) -> NDArray[np.bool_]:
    """Whether one of the ends, shape [n], in their order, is at each of these times, shape [m]."""
    if not ends_ns.size:
        return np.zeros(at_ns.size, bool)
    place = np.minimum(np.searchsorted(ends_ns, at_ns - _AT_ONCE_NS), ends_ns.size - 1)
    found: NDArray[np.bool_] = np.abs(ends_ns[place] - at_ns) <= _AT_ONCE_NS
    return found


def read_step_log(path: Path, offset_ns: int | None) -> LoggedSteps:
    """``opened_step_log(path)(offset_ns)``."""
    return opened_step_log(path)(offset_ns)


def opened_step_log(path: Path) -> Callable[[int | None], LoggedSteps]:
    """A log, read once, for several runs: gives the batches of the starts of an engine in the boot of the host in which the
    wall clock less the monotonic one was ``offset_ns``. Where that is None or no start belongs to that boot, those of the boot
    of the last start: the server may be on another host than the client, or a clock was set.

    The last row of a start may be cut, and is left out then, as is a start whose head was cut. Raises StepLogFileError for
    another file, a damaged and a too large one, and OSError; what it gives raises StepLogFileError for damaged rows.
    """
    try:
        content = read_bounded(regular(path), _MOST_BYTES)
    except ValueError as error:
        raise StepLogFileError(
            f"--step_log {path}: the log has more than {_MOST_BYTES >> 30} GiB; start the server with a new file for each day"
        ) from error
    starts = list(_starts(path, content))
    if not starts:
        raise StepLogFileError(f"--step_log {path}: the log is damaged: the head of its one start was cut")
    of_boot = cache(partial(_steps_of, path, starts))

    def steps(offset_ns: int | None) -> LoggedSteps:
        of_run = offset_ns is not None and any(abs(offset - offset_ns) <= _SET_NS for offset, _ in starts)
        boot_ns = offset_ns if of_run and offset_ns is not None else starts[-1][0]
        return of_boot(tuple(number for number, (offset, _) in enumerate(starts) if abs(offset - boot_ns) <= _SET_NS))

    return steps


def _steps_of(path: Path, starts: Sequence[tuple[int, bytes]], chosen: tuple[int, ...]) -> LoggedSteps:
    """The steps of the starts with the ``chosen`` numbers. Raises StepLogFileError."""
    try:
        table = pa.concat_tables([_table(starts[number][1]) for number in chosen])
    except pa.ArrowException as error:
        raise StepLogFileError(f"--step_log {path}: a row is damaged: {str(error).splitlines()[0]}") from error
    columns = {name: table[name].to_numpy().astype(np.float64) for name in _WHOLE}
    is_batch = np.asarray(table["kind"].to_numpy() == _BATCH, bool)
    order = np.flatnonzero(is_batch)[np.argsort(columns["start_ns"][is_batch], kind="stable")]
    single_end_ns = np.sort((columns["start_ns"] + columns["duration_ns"])[~is_batch])
    steps = LoggedSteps(**{name: column[order] for name, column in columns.items()}, single_end_ns=single_end_ns)
    known = ~np.isnan(steps.start_ns + steps.duration_ns + steps.sequences)
    if (
        not known.all()
        or np.isnan(single_end_ns).any()
        or (steps.duration_ns < 0).any()
        or (steps.start_ns[1:] < steps.end_ns[:-1]).any()
    ):
        raise StepLogFileError(f"--step_log {path}: the log is damaged: its steps have no times, or overlap")
    return steps


def no_times(path: Path, run: str) -> StepLogFileError:
    """The error of a ``run`` of whose requests the engine's times are not known."""
    return StepLogFileError(
        f"--step_log {path}: {run} has no times of its requests by the engine, which find their steps; measure it with "
        "--server_timings, and with -i grpc or -i http, since the OpenAI front end sends no arrivals"
    )


def why_none(steps: LoggedSteps, first_ns: FloatArray, last_ns: FloatArray) -> str:
    """Why no request with these first and last tokens, shape [m] of at least one, lies in the log."""
    if not len(steps):
        return "the log has no steps"
    if steps.end_ns[-1] < first_ns.min():
        return f"the log ends {(first_ns.min() - steps.end_ns[-1]) / 1e9:,.1f} s before the run's first token"
    if steps.start_ns[0] > last_ns.max():
        return f"the log begins {(steps.start_ns[0] - last_ns.max()) / 1e9:,.1f} s after the run's last token"
    return (
        "no token of the run comes with the end of one of its steps: it is the log of another engine, or the run's times are "
        "not by the engine (--server_timings)"
    )


def _starts(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    """For each start of the engine the wall clock less the monotonic one, and the names of the columns with the whole rows."""
    if not content.startswith(_HEAD):
        raise StepLogFileError(f"--step_log {path}: the file is no step log; give the file of bench serve --step_log")
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
        raise StepLogFileError(f"--step_log {path}: the log is damaged: the head of a start cannot be read") from error
    if version != _VERSION or not isinstance(offset_ns, int):
        raise StepLogFileError(f"--step_log {path}: version {version} of the log; this bench reads version {_VERSION}")
    return dict(head)


def _table(rows: bytes) -> pa.Table:
    """The rows of one start. Raises ArrowException."""
    if rows.count(b"\n") < 2:
        return pa.table({name: pa.array([], kind) for name, kind in _TYPES.items()})
    options = csv.ConvertOptions(column_types=_TYPES, include_columns=list(_TYPES), null_values=[""], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(rows), read_options=csv.ReadOptions(use_threads=False), convert_options=options)
