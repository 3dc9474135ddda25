"""``server.parquet``: the server's metrics through a run, one row a value. Writer and reader."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench_records.column import RUN_CLOCK, Column, schema_of
from bench_records.parquet_table import arrow_array, read_columns, write_columns

_NONE = -1  # the code of no text
_TEXT = pa.dictionary(pa.int32(), pa.string())

SERVER_COLUMNS = (
    Column(
        "time_ns", pa.int64(), RUN_CLOCK, "middle of the reading of the server's metrics, between request and end of the answer"
    ),
    Column("scrape_ns", pa.int64(), "ns, monotonic", "duration of the reading"),
    Column(
        "name",
        _TEXT,
        "",
        "name of the series, as served; of a histogram `_sum` and `_count`, of one of latencies `_bucket`, too",
    ),
    Column("labels", _TEXT, "", "its labels, a JSON object with sorted keys"),
    Column(
        "value",
        pa.float64(),
        "the series' own",
        "its value, as served; NaN where the server gave NaN, and where a counter of `host_*` is unknown",
    ),
    Column(
        "server",
        _TEXT,
        "",
        "URL of the page of metrics, without secrets",
        "bench read the value itself (`gpu_*`, `host_*`), or the run is older than this column",
    ),
)
"""The columns of ``server.parquet``: the fields of MetricSample in their order."""

_SCHEMA = schema_of(SERVER_COLUMNS)


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of one series.

    ``time_ns`` is the middle of the scrape, from the request to the answer's end, since the run's start (before it:
    negative); ``scrape_ns`` is the scrape's duration. ``labels`` is a JSON object of texts with sorted keys. ``value`` may be
    NaN, as Prometheus allows. ``server`` is the URL of the page; None where bench read the value itself.
    """

    time_ns: int
    scrape_ns: int
    name: str
    labels: str
    value: float
    server: str | None = None


class _Texts:
    """A dictionary-encoded column of few distinct texts."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._column = array("i")

    def append(self, text: str | None) -> None:
        self._column.append(_NONE if text is None else self._codes.setdefault(text, len(self._codes)))

    def arrow(self) -> pa.Array:
        codes = [None if code == _NONE else code for code in self._column]
        return pa.DictionaryArray.from_arrays(arrow_array(codes, pa.int32()), arrow_array(list(self._codes), pa.string()))


def write_server_table(samples: Iterable[MetricSample], path: Path) -> None:
    """Write ``samples`` to ``path`` in their order; the file appears whole or not at all. Raises OSError."""
    times_ns, scrapes_ns, values = array("q"), array("q"), array("d")
    names, labels, servers = _Texts(), _Texts(), _Texts()
    for sample in samples:
        times_ns.append(sample.time_ns)
        scrapes_ns.append(sample.scrape_ns)
        names.append(sample.name)
        labels.append(sample.labels)
        values.append(sample.value)
        servers.append(sample.server)
    arrays = [
        arrow_array(times_ns, pa.int64()),
        arrow_array(scrapes_ns, pa.int64()),
        names.arrow(),
        labels.arrow(),
        arrow_array(values, pa.float64()),
        servers.arrow(),
    ]
    write_columns(path, _SCHEMA, arrays)


def read_server_table(path: Path) -> pa.Table:
    """Read what ``write_server_table`` wrote: the fields of MetricSample. Raises OSError or pyarrow.ArrowInvalid."""
    return read_columns(path, _SCHEMA)
