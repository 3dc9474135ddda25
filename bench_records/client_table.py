"""``client.parquet``: the client's own state through a run, one row a ClientSample, by time. Writer and reader."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from bench_records.client_sample import ClientSample
from bench_records.column import RUN_CLOCK, Column, schema_of
from bench_records.parquet_table import arrow_array, read_columns, write_columns

_LAG_ALONE = "a worker's sample of its lag alone, as three of four are"
_NOT_OF_PARENT = f"the parent's; {_LAG_ALONE}"

CLIENT_COLUMNS = (
    Column("time_ns", pa.int64(), RUN_CLOCK, "when the sample was taken"),
    Column("worker", pa.int64(), "", "number of the worker process", "the parent process"),
    Column(
        "lag_ns",
        pa.int64(),
        "ns, monotonic",
        "how late the worker's event loop woke",
        "the parent's; a worker's first and last",
    ),
    Column("cpu_ns", pa.int64(), "ns, CPU time", "CPU time of all threads of the process", _LAG_ALONE),
    Column(
        "run_queue_wait_ns",
        pa.int64(),
        "ns, scheduler",
        "time in which the sending thread was runnable and did not run (`/proc/…/schedstat`)",
        f"{_NOT_OF_PARENT}; the kernel does not count it",
    ),
    Column("gc_pause_ns", pa.int64(), "ns, monotonic", "time spent in garbage collections", _NOT_OF_PARENT),
    Column("gc_longest_ns", pa.int64(), "ns, monotonic", "the longest garbage collection", _NOT_OF_PARENT),
    Column("gc_count", pa.int64(), "", "number of garbage collections", _NOT_OF_PARENT),
    Column("voluntary_switches", pa.int64(), "", "context switches because the thread waited", _LAG_ALONE),
    Column("involuntary_switches", pa.int64(), "", "context switches because the kernel took the CPU away", _LAG_ALONE),
    Column(
        "busy_ns",
        pa.int64(),
        "ns, CPU time",
        "busy time of the cores that the client may use, summed (`/proc/stat`)",
        "a worker's; this system does not count it",
    ),
    Column(
        "steal_ns",
        pa.int64(),
        "ns, CPU time",
        "time that the hypervisor gave to others, summed over the same cores",
        "a worker's; this system does not count it",
    ),
)
"""The columns of ``client.parquet``: the fields of ClientSample in their order."""

_SCHEMA = schema_of(CLIENT_COLUMNS)


def write_client_table(samples: Iterable[ClientSample], path: Path) -> None:
    """Write ``samples`` to ``path``, sorted by time; the file appears whole or not at all. Raises OSError."""
    ordered = sorted(samples, key=lambda sample: sample.time_ns)
    arrays = [arrow_array([getattr(sample, field.name) for sample in ordered], field.type) for field in _SCHEMA]
    write_columns(path, _SCHEMA, arrays)


def read_client_table(path: Path) -> pa.Table:
    """Read what ``write_client_table`` wrote: the fields of ClientSample. Raises OSError or pyarrow.ArrowInvalid."""
    return read_columns(path, _SCHEMA)
