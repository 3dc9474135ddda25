"""What the client of a streamed run saw, as arrays: read from its records, or from a simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench_records.manifest import LoadFacts
from bench_records.record import PROBE
from bench_records.run_folder import RunFolder, unreadable
from bench_records.table import read_table
from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.deployed import Deployed, deployed
from simulator.errors import SimulatorError
from simulator.traffic import Traffic

_COLUMNS = (
    "outcome",
    "scheduled_ns",
    "sent_ns",
    "token_times_ns",
    "token_counts",
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "session",
    "traffic_class",
    "target",
    "server_arrival_ns",
    "server_queue_ns",
    "server_prefill_ns",
    "server_decode_ns",
)
_S = 1e-9
_STREAMED = 1.5  # responses of an answer, at least, on average over those of several tokens
_IN_CLOSED_LOOP = 0.9  # the share of requests at whose sending all users are busy, at least
_FEWEST_USERS = 2
_RAMP = 0.1  # the share of requests at either end that is not looked at


@dataclass(frozen=True, eq=False)
class EngineTimes:
    """When the engine took in each request, and generated its first and its last token: ns of the monotonic clock of its host,
    NaN where it does not say, shape [requests]. ``realtime_minus_monotonic_ns`` is by the client's clocks, which show the boot
    of a host that both share; None where they are unknown.
    """

    arrival_ns: FloatArray
    first_ns: FloatArray
    last_ns: FloatArray
    realtime_minus_monotonic_ns: int | None = None


@dataclass(frozen=True, eq=False)
class Observed:
    """The successful requests of a run, in the order of their sending, on one clock in s.

    Arrays have the shape [requests], but ``starts`` [requests + 1], ``times_s`` and ``counts`` [responses]: the responses of
    request i are those from ``starts[i]`` to ``starts[i + 1]``, which arrived at ``times_s`` with ``counts`` tokens each.
    ``users`` is the number of users of a closed loop, else None, by the manifest, or where that does not say by the records.
    ``left_out`` counts the requests that were sent and failed, or whose lengths are unknown. ``deployed`` is the server that
    was measured, None where the run does not say, and ``simulated_by`` the simulation that was recorded in place of one.
    ``may_be_cached`` is the share of the prompts' tokens, or bytes, that repeats the beginnings of earlier prompts, where the
    server does not say how much of them its cache had, else 0; None for sessions of which the run does not say it. ``servers``
    is the number of targets that the client sent to. ``by_engine`` are the engine's own times, None where it says none.
    ``is_probe``: which requests are probes beside the load, None for none.
    """

    name: str
    scheduled_s: FloatArray
    sent_s: FloatArray
    input_tokens: IntArray
    prefill_tokens: IntArray
    output_tokens: IntArray
    starts: IntArray
    times_s: FloatArray
    counts: IntArray
    users: int | None
    left_out: int = 0
    deployed: Deployed | None = None
    simulated_by: str | None = None
    may_be_cached: float | None = 0.0
    servers: int = 1
    by_engine: EngineTimes | None = None
    is_probe: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.sent_s)

    @property
    def is_load(self) -> BoolArray:
        """Which requests a report of the run covers: those that are no probes; shape [requests]."""
        return np.ones(len(self), bool) if self.is_probe is None else ~self.is_probe

    @property
    def first_s(self) -> FloatArray:
        """Arrival of each request's first token."""
        first: FloatArray = self.times_s[self.starts[:-1]]
        return first

    @property
    def last_s(self) -> FloatArray:
        """Arrival of each request's last token."""
        last: FloatArray = self.times_s[self.starts[1:] - 1]
        return last

    @property
    def request_of_response(self) -> IntArray:
        """The request of each response."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def traffic(self, arrivals_s: FloatArray) -> Traffic:
        """The requests, sent at ``arrivals_s``, which ascend; in a closed loop the first ones of its users come first."""
        if self.users is not None:
            arrivals_s = arrivals_s[np.argsort(~self._begins_user, kind="stable")]
        return Traffic(arrivals_s, self.prefill_tokens, self.input_tokens, self.output_tokens, self.users)

    @property
    def _begins_user(self) -> BoolArray:
        """Which requests are the first ones of users of a closed loop, shape [requests]: as many are in flight as never before.
        Where users begin one after the other, those that began first send others meanwhile.
        """
        most = np.maximum.accumulate(in_flight_at_sending(self.sent_s, self.last_s))
        begins: BoolArray = np.diff(most, prepend=0) > 0
        return begins


def read_observed(path: Path) -> Observed:
    """Read a run's folder, or its ``requests.parquet`` alone.

    Raises RunFolderError where it cannot be read, and SimulatorError where it was not streamed or holds no success.
    """
    source = _read(path)
    table = source.table
    done = pc.and_(pc.equal(table["outcome"], "done"), pc.greater(pc.list_value_length(table["token_times_ns"]), 0))
    known = pc.and_(pc.is_valid(table["input_tokens"]), pc.is_valid(table["output_tokens"]))
    usable = table.filter(pc.and_(pc.fill_null(done, False), pc.and_(known, pc.is_valid(table["sent_ns"]))))
    if not usable.num_rows:
        raise SimulatorError(f"{path} holds no successful request of known lengths, so there is nothing to learn from it")
    usable = usable.take(pc.sort_indices(usable["sent_ns"]))
    sent = table.num_rows - pc.sum(pc.equal(table["outcome"], "not_sent")).as_py()
    observed = _observed(path.name if path.is_file() else path.resolve().name, usable, sent - usable.num_rows)
    _check_streamed(observed, path)
    says_cached = usable["cached_input_tokens"].null_count < usable.num_rows
    return replace(
        observed,
        deployed=source.server,
        simulated_by=source.simulated_by,
        may_be_cached=0.0 if says_cached else _repeated(source, usable),
        servers=max(1, len(pc.unique(pc.drop_null(table["target"])))),
        by_engine=_engine_times(usable, source.offset_ns),
        users=_users(source.load, observed.users),
    )


def _users(load: LoadFacts | None, recognised: int | None) -> int | None:
    """The users of a closed loop, None of an open one. Even arrivals of even lengths look like a closed loop, and a single user
    like an open one. A ceiling that is always reached is a closed loop.
    """
    if load is None:
        return recognised
    if load.mode == "closed" and load.concurrency is not None:
        return load.concurrency
    return None if load.mode == "open" and load.max_concurrency is None else recognised


def _repeated(source: _Source, usable: pa.Table) -> float | None:
    """The share of the prompts' length that repeats earlier ones; None for sessions of which the run does not say it."""
    if source.repeated is None and usable["session"].null_count == usable.num_rows:
        return 0.0
    return source.repeated


def check_measured(observed: Observed) -> None:
    """Raises SimulatorError for a run that a simulation made."""
    if observed.simulated_by is not None:
        raise SimulatorError(
            f"{observed.name} was {observed.simulated_by}, and no server was measured: give runs of a server, since a "
            "simulation shows nothing that its model does not hold"
        )


@dataclass(frozen=True, eq=False)
class _Source:
    """The records of a run, and what its manifest says of it; ``repeated`` is the share of the prompts' tokens or bytes, and
    ``offset_ns`` the wall clock less the monotonic one, None where the run does not say it. ``load`` is how they were sent.
    """

    table: pa.Table
    server: Deployed | None = None
    simulated_by: str | None = None
    repeated: float | None = None
    offset_ns: int | None = None
    load: LoadFacts | None = None


def _read(path: Path) -> _Source:
    if path.is_dir():
        folder = RunFolder(path)
        manifest = folder.read_manifest()
        folder.check_finished(manifest)
        simulated_by = None if manifest.simulation is None else str(manifest.simulation)
        repeated = manifest.workload.repeated_prefix
        share = None if repeated is None else repeated.share
        before = None if manifest.clock is None else manifest.clock.before
        offset_ns = None if before is None else before.realtime_minus_monotonic_ns
        return _Source(folder.read_requests(_COLUMNS), deployed(manifest), simulated_by, share, offset_ns, manifest.load)
    try:
        return _Source(read_table(path, _COLUMNS))
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise unreadable(path, error) from error


def _observed(name: str, table: pa.Table, left_out: int) -> Observed:
    lengths = pc.list_value_length(table["token_times_ns"]).to_numpy().astype(np.int64)
    times = pc.list_flatten(table["token_times_ns"]).to_numpy()
    scheduled, sent = (table[column].to_numpy() for column in ("scheduled_ns", "sent_ns"))
    start = min(scheduled.min(), sent.min())
    inputs = table["input_tokens"].to_numpy().astype(np.int64)
    cached = pc.fill_null(table["cached_input_tokens"], 0).to_numpy()
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    sent_s, last_s = (sent - start) * _S, (times[starts[1:] - 1] - start) * _S
    return Observed(
        name=name,
        scheduled_s=(scheduled - start) * _S,
        sent_s=sent_s,
        input_tokens=inputs,
        prefill_tokens=np.maximum(inputs - cached, 0).astype(np.int64),
        output_tokens=np.maximum(table["output_tokens"].to_numpy(), 1).astype(np.int64),
        starts=starts,
        times_s=(times - start) * _S,
        counts=_counts(table["token_counts"], lengths),
        users=users_of(sent_s, last_s),
        left_out=left_out,
        is_probe=pc.fill_null(pc.equal(table["traffic_class"], PROBE), False).to_numpy(),
    )


def _engine_times(table: pa.Table, offset_ns: int | None) -> EngineTimes | None:
    arrival, queue, prefill, decode = (
        table[f"server_{name}_ns"].to_numpy().astype(np.float64) for name in ("arrival", "queue", "prefill", "decode")
    )
    first = arrival + queue + prefill
    return None if np.isnan(first).all() else EngineTimes(arrival, first, first + decode, offset_ns)


def _counts(column: pa.ChunkedArray, lengths: IntArray) -> IntArray:
    """The tokens of each response, 1 where they are unknown; shape [responses]."""
    counted = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    counts = np.ones(int(lengths.sum()), np.int64)
    known = counted == lengths
    counts[np.repeat(known, lengths)] = pc.list_flatten(column).to_numpy()[np.repeat(known, counted)]
    return counts


def _check_streamed(observed: Observed, path: Path) -> None:
    """Raises SimulatorError."""
    several = observed.output_tokens > 1
    if not several.any():
        raise SimulatorError(
            f"{path} has answers of one token alone, which show no steps of the engine; measure it with longer ones (--osl)"
        )
    if np.diff(observed.starts)[several].mean() < _STREAMED:
        raise SimulatorError(
            f"{path} was not streamed: its answers came in one response each, which show no steps of the engine; measure it "
            "with streaming"
        )


def in_flight_at_sending(sent_s: FloatArray, last_s: FloatArray) -> IntArray:
    """How many requests are in flight just after each was sent, itself included; shape [requests]. ``sent_s`` ascends."""
    in_flight: IntArray = np.arange(1, len(sent_s) + 1) - np.searchsorted(np.sort(last_s), sent_s, side="right")
    return in_flight


def users_of(sent_s: FloatArray, last_s: FloatArray) -> int | None:
    """The users of a closed loop, recognised by a constant number of requests in flight; None in an open loop."""
    ramp = int(_RAMP * len(sent_s))
    in_flight = in_flight_at_sending(sent_s, last_s)[ramp : len(sent_s) - ramp]
    if not len(in_flight):
        return None
    users = int(in_flight.max())
    share: float = _near(in_flight, users).mean()
    return users if users >= _FEWEST_USERS and share >= _IN_CLOSED_LOOP else None


def _near(in_flight: IntArray, users: int) -> BoolArray:
    """Which are within 1/16 of the number of users: several answers end in one step, and a user needs a moment to go on."""
    near: BoolArray = in_flight >= users - users // 16
    return near
