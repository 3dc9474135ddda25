"""server.parquet: what is written is read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.run_folder import RunFolder, RunFolderError
from bench_records.server_table import MetricSample, read_server_table, write_server_table

_INT64 = st.integers(-(2**53), 2**53)
_SAMPLES = st.lists(
    st.builds(
        MetricSample,
        time_ns=_INT64,
        scrape_ns=_INT64,
        name=st.sampled_from(["nv_a", "vllm:b", "nv_energy"]),
        labels=st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2).map(lambda labels: json.dumps(labels)),
        value=st.floats(),
    ),
    max_size=30,
)


@given(_SAMPLES)
def test_round_trip_in_the_order_of_writing(tmp_path_factory: pytest.TempPathFactory, samples: list[MetricSample]) -> None:
    path = tmp_path_factory.mktemp("table") / "server.parquet"
    write_server_table(iter(samples), path)
    rows = read_server_table(path).to_pylist()
    assert len(rows) == len(samples)
    for row, sample in zip(rows, samples, strict=True):
        expected = asdict(sample)
        value, wanted = row.pop("value"), expected.pop("value")
        assert row == expected
        assert value == wanted or (math.isnan(value) and math.isnan(wanted))
    assert [entry.name for entry in path.parent.iterdir()] == ["server.parquet"]


def test_a_folder_without_the_table_has_none_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_server() is None
    folder.server.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(RunFolderError, match=r"server\.parquet cannot be read"):
        folder.read_server()
