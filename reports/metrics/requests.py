"""A run's records as columns, ready for arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench_records.record import FAILED_BY_TARGET, PROBE, TIMEOUTS, Outcome, TokenSource
from reports.metrics.columns import booleans, floats, integers, nearest_floats
from reports.metrics.sound_records import check_records
from reports.statistics.arrays import FloatArray

# A request that the client cancelled, never sent or lost is no failure of the target.
_FAILED_BY_TARGET = [outcome.value for outcome in FAILED_BY_TARGET]

_CUT_OFF = [kind.value for kind in (Outcome.WITHDRAWN, *TIMEOUTS, Outcome.CANCELLED)]


@dataclass(frozen=True)
class Requests:
    """Columns of ``requests.parquet``, shape [n] each, n requests; unknown numbers are NaN. Times are ns as float64.

    They are in the order in which they were due; ``index`` is the number in the schedule. float64 holds whole ns
    exactly up to 104 days. The token responses of the request at position i are
    ``token_times_ns[token_starts[i]:token_starts[i + 1]]``; ``token_counts`` goes along, NaN where unknown.
    ``class_of`` are positions in ``class_names``, the classes of a mixture; -1 without one. ``session_of`` are the numbers
    of the conversations, -1 without one. ``finish_reason`` is "" where the server sent none.
    ``server_arrival_ns`` is a time of the monotonic clock of the server's host, not of the run's. ``target`` is the number of
    the target that a request was sent to; NaN where none is known. ``counted_from_text`` is whether
    ``output_tokens`` is the client's count of the text, which is inexact. ``server_beside_prefill_ns`` is the part of the
    decode in steps that also processed prompts of others: no record has it, a step log does (``reports/why/step_log.py``).
    """

    index: NDArray[np.int64]
    outcome: NDArray[np.str_]
    scheduled_ns: FloatArray
    released_ns: FloatArray
    sent_ns: FloatArray
    done_ns: FloatArray
    input_tokens: FloatArray
    requested_input_tokens: FloatArray
    server_counted_input: NDArray[np.bool_]
    output_tokens: FloatArray
    requested_output_tokens: FloatArray
    ignore_eos: NDArray[np.bool_]
    prompt_echoed: NDArray[np.bool_]
    token_times_ns: FloatArray
    token_counts: FloatArray
    token_starts: NDArray[np.int64]
    text_tokens: FloatArray
    errors: tuple[str | None, ...]
    output_tokens_sources: tuple[str, ...]
    worker: FloatArray
    has_reasoning: NDArray[np.bool_]
    first_output_ns: FloatArray
    parent: FloatArray
    planned_ns: FloatArray
    cached_input_tokens: FloatArray
    class_of: NDArray[np.int64]
    class_names: tuple[str, ...]
    session_of: NDArray[np.int64]
    finish_reason: NDArray[np.str_]
    end_marker_missing: NDArray[np.bool_]
    server_arrival_ns: FloatArray
    server_queue_ns: FloatArray
    server_prefill_ns: FloatArray
    server_decode_ns: FloatArray
    connect_ns: FloatArray
    router_ns: FloatArray
    target: FloatArray
    counted_from_text: NDArray[np.bool_]
    written_ns: FloatArray
    head_ns: FloatArray
    hidden_tokens: FloatArray
    server_beside_prefill_ns: FloatArray

    @cached_property
    def withdrawn(self) -> NDArray[np.bool_]:
        """Which requests the client cancelled as planned; their tokens are those until then."""
        withdrawn: NDArray[np.bool_] = self.outcome == Outcome.WITHDRAWN.value
        return withdrawn

    @cached_property
    def cut_off(self) -> NDArray[np.bool_]:
        """Which requests the client ended before their answer ended: cancelled as planned, timed out, or in flight when the run
        was stopped. What they had not reached by then takes longer.
        """
        cut_off: NDArray[np.bool_] = np.isin(self.outcome, _CUT_OFF) & ~np.isnan(self.sent_ns)
        return cut_off

    @cached_property
    def failed_by_target(self) -> NDArray[np.bool_]:
        """Which requests the target failed; one that timed out is among them, and among those cut off."""
        failed: NDArray[np.bool_] = np.isin(self.outcome, _FAILED_BY_TARGET)
        return failed

    @cached_property
    def lost(self) -> NDArray[np.bool_]:
        """Which requests are lost: whether and when they were sent is unknown."""
        lost: NDArray[np.bool_] = (self.outcome == Outcome.LOST.value) & np.isnan(self.sent_ns)
        return lost

    @cached_property
    def offered(self) -> NDArray[np.bool_]:
        """Which requests were offered to the target: not those before which a run that was stopped had ended."""
        offered: NDArray[np.bool_] = self.outcome != Outcome.NOT_SENT.value
        return offered

    @cached_property
    def load(self) -> Requests:
        """The requests without the probes beside them, which are no part of what is measured."""
        return self.only(~self.of_class(PROBE)) if PROBE in self.class_names else self

    def of_class(self, name: str) -> NDArray[np.bool_]:
        """Which requests belong to the class, one of ``class_names``."""
        which: NDArray[np.bool_] = self.class_of == self.class_names.index(name)
        return which

    def only(self, chosen: NDArray[np.bool_]) -> Requests:
        """The ``chosen`` requests, shape [n], with their tokens."""
        lengths = np.diff(self.token_starts)
        of_chosen = np.repeat(chosen, lengths)
        of_requests = {
            field.name: getattr(self, field.name)[chosen] for field in fields(self) if field.name not in _NOT_BY_REQUEST
        }
        return replace(
            self,
            **of_requests,
            token_times_ns=self.token_times_ns[of_chosen],
            token_counts=self.token_counts[of_chosen],
            token_starts=np.concatenate([[0], np.cumsum(lengths[chosen])]).astype(np.int64),
            errors=tuple(compress(self.errors, chosen.tolist())),
        )

    @cached_property
    def done(self) -> NDArray[np.bool_]:
        """Which requests succeeded."""
        done: NDArray[np.bool_] = self.outcome == Outcome.DONE.value
        return done

    @cached_property
    def in_turns(self) -> bool:
        """Whether most requests were due the moment at which another ended, as in a closed loop. Those due before the first end
        do not count unless there are conversations: each user of a closed loop has one.
        """
        alone = np.isnan(self.parent).all()
        first_end_ns = self.done_ns[~np.isnan(self.done_ns)].min(initial=np.inf) if alone else -np.inf
        counted = np.count_nonzero(self.scheduled_ns >= first_end_ns)
        return bool(2 * np.count_nonzero(np.isin(self.scheduled_ns, self.done_ns)) > counted)

    @property
    def is_open_loop(self) -> bool:
        """Whether no request waited for the answer to another before it was due."""
        return bool(np.isnan(self.parent).all()) and not self.in_turns

    @cached_property
    def ceiling_wait_ns(self) -> FloatArray:
        """Wait of each request below the ceiling on requests in flight; 0 where there was none, or none is known."""
        waits = self.released_ns - self.scheduled_ns
        return np.where(np.isnan(waits), 0.0, waits)

    @cached_property
    def has_tokens(self) -> NDArray[np.bool_]:
        """Which requests have at least one response with generated tokens."""
        return np.diff(self.token_starts) > 0

    @cached_property
    def sent_tokens(self) -> FloatArray:
        """The output tokens without reasoning that the server did not send."""
        return self.output_tokens - np.nan_to_num(self.hidden_tokens)

    @cached_property
    def first_token_ns(self) -> FloatArray:
        return self._at_token(self.token_starts[:-1])

    @cached_property
    def last_token_ns(self) -> FloatArray:
        """NaN of a request that was cut off, too: its answer did not end."""
        return np.where(self.cut_off, np.nan, self.last_received_ns)

    @cached_property
    def last_received_ns(self) -> FloatArray:
        """The last response with generated tokens that came, also of a request that was cut off."""
        return self._at_token(self.token_starts[1:] - 1)

    @cached_property
    def first_output_token_ns(self) -> FloatArray:
        """The first token besides reasoning; NaN where there is none."""
        return np.where(self.has_reasoning, self.first_output_ns, self.first_token_ns)

    def _at_token(self, positions: NDArray[np.int64]) -> FloatArray:
        times = np.full(len(self.outcome), np.nan)
        times[self.has_tokens] = self.token_times_ns[positions[self.has_tokens]]
        return times


def from_columns(read: Callable[[Sequence[str]], pa.Table]) -> Requests:
    """Columns of a run. ``read`` returns the named ones; large columns are read, converted and released one at a time.

    Raises ValueError (pyarrow.ArrowInvalid is one) for records that no run has written, whose numbers would be wrong.
    """
    table = read(_SMALL_COLUMNS)
    check_records(table)
    token_times_ns, starts = _token_times(read(["token_times_ns"]))
    pa.default_memory_pool().release_unused()
    token_counts = _counts(read(["token_counts"])["token_counts"].combine_chunks(), starts)
    pa.default_memory_pool().release_unused()
    outcome = _texts(table["outcome"])
    class_of, class_names = _positions(table["traffic_class"])
    return Requests(
        index=integers(table["index"]),
        outcome=outcome,
        scheduled_ns=floats(table["scheduled_ns"]),
        released_ns=floats(table["released_ns"]),
        sent_ns=floats(table["sent_ns"]),
        done_ns=floats(table["done_ns"]),
        input_tokens=floats(table["input_tokens"]),
        requested_input_tokens=floats(table["requested_input_tokens"]),
        server_counted_input=booleans(table["server_counted_input"]),
        output_tokens=floats(table["output_tokens"]),
        requested_output_tokens=floats(table["requested_output_tokens"]),
        ignore_eos=booleans(table["ignore_eos"]),
        prompt_echoed=booleans(table["prompt_echoed"]),
        token_times_ns=token_times_ns,
        token_counts=token_counts,
        token_starts=starts,
        text_tokens=floats(table["text_tokens"]),
        errors=tuple(table["error"].to_pylist()),
        output_tokens_sources=_sources(table["output_tokens_source"], outcome),
        worker=floats(table["worker"]),
        has_reasoning=booleans(table["has_reasoning"]),
        first_output_ns=floats(table["first_output_ns"]),
        parent=floats(table["parent"]),
        planned_ns=floats(table["planned_ns"]),
        cached_input_tokens=floats(table["cached_input_tokens"]),
        class_of=class_of,
        class_names=class_names,
        session_of=_positions(table["session"])[0],
        finish_reason=_texts_or_empty(table["finish_reason"]),
        end_marker_missing=booleans(table["end_marker_missing"]),
        server_arrival_ns=nearest_floats(table["server_arrival_ns"]),
        server_queue_ns=floats(table["server_queue_ns"]),
        server_prefill_ns=floats(table["server_prefill_ns"]),
        server_decode_ns=floats(table["server_decode_ns"]),
        connect_ns=floats(table["connect_ns"]),
        router_ns=floats(table["router_ns"]),
        target=floats(table["target"]),
        counted_from_text=_texts_or_empty(table["output_tokens_source"]) == TokenSource.TEXT.value,
        written_ns=floats(table["written_ns"]),
        head_ns=floats(table["head_ns"]),
        hidden_tokens=floats(table["hidden_tokens"]),
        server_beside_prefill_ns=np.full(len(outcome), np.nan),
    )


_SMALL_COLUMNS = (
    "index", "outcome", "scheduled_ns", "released_ns", "sent_ns", "done_ns", "input_tokens", "output_tokens",
    "requested_output_tokens", "ignore_eos", "prompt_echoed", "error", "output_tokens_source", "text_tokens",
    "worker", "requested_input_tokens", "server_counted_input", "has_reasoning", "first_output_ns",
    "parent", "planned_ns",
    "cached_input_tokens", "traffic_class", "session", "finish_reason", "end_marker_missing",
    "server_arrival_ns", "server_queue_ns", "server_prefill_ns", "server_decode_ns", "connect_ns",
    "router_ns", "target", "written_ns", "head_ns", "hidden_tokens",
)  # fmt: skip
_NOT_BY_REQUEST = frozenset(
    {"token_times_ns", "token_counts", "token_starts", "errors", "output_tokens_sources", "class_names"}
)


def _token_times(table: pa.Table) -> tuple[FloatArray, NDArray[np.int64]]:
    lists = table["token_times_ns"].combine_chunks()
    return floats(lists.flatten()), np.concatenate([[0], np.cumsum(_lengths(lists))]).astype(np.int64)


def _texts(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """A column of few distinct texts."""
    coded = column.combine_chunks().dictionary_encode()
    texts = np.asarray(coded.dictionary.to_pylist(), dtype=np.str_)
    return texts[integers(coded.indices)]


def _sources(column: pa.ChunkedArray, outcome: NDArray[np.str_]) -> tuple[str, ...]:
    """The sources of counts, sorted. Requests that were cancelled as planned do not count: the server's count, which
    comes last, is often cut off with them, whatever counted the others.
    """
    coded = column.combine_chunks().dictionary_encode()
    codes = floats(coded.indices)[outcome != Outcome.WITHDRAWN.value]
    sources = coded.dictionary.to_pylist()
    return tuple(sorted(sources[int(code)] for code in np.unique(codes[~np.isnan(codes)])))


def _texts_or_empty(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """A column of few distinct texts; null is ""."""
    positions, texts = _positions(column)
    return np.asarray([*texts, ""], dtype=np.str_)[positions]


def _positions(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The position of each value among the distinct ones, -1 for null, and these."""
    coded = column.combine_chunks().dictionary_encode()
    return np.nan_to_num(floats(coded.indices), nan=-1.0).astype(np.int64), tuple(coded.dictionary.to_pylist())


def _lengths(lists: pa.ListArray) -> FloatArray:
    return np.nan_to_num(floats(lists.value_lengths()))


def _counts(lists: pa.ListArray, starts: NDArray[np.int64]) -> FloatArray:
    flat, lengths = floats(lists.flatten()), _lengths(lists)
    if (flat < 0).any() or (lengths != np.diff(starts))[lengths > 0].any():
        raise ValueError("token_counts are negative, or not as many as token_times_ns")
    if flat.size == starts[-1]:
        return flat
    known = np.repeat(lengths > 0, np.diff(starts))
    counts = np.full(int(starts[-1]), np.nan)
    counts[known] = flat
    return counts
