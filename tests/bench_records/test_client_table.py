"""client.parquet: what is written is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.client_sample import ClientSample
from bench_records.client_table import read_client_table, write_client_table
from bench_records.run_folder import RunFolder, RunFolderError

_INT64 = st.integers(-(2**53), 2**53)
_SAMPLES = st.lists(
    st.builds(
        ClientSample,
        time_ns=_INT64,
        **{name: st.none() | _INT64 for name in ClientSample.__struct_fields__ if name != "time_ns"},
    ),
    max_size=20,
)


@given(_SAMPLES)
def test_round_trip_in_the_order_of_time(tmp_path_factory: pytest.TempPathFactory, samples: list[ClientSample]) -> None:
    path = tmp_path_factory.mktemp("table") / "client.parquet"
    write_client_table(samples, path)
    rows = read_client_table(path).to_pylist()
    assert [ClientSample(**row) for row in rows] == sorted(samples, key=lambda sample: sample.time_ns)
    assert [entry.name for entry in path.parent.iterdir()] == ["client.parquet"]


def test_a_folder_without_the_table_has_none_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_client() is None
    folder.client.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(RunFolderError, match=r"client\.parquet cannot be read"):
        folder.read_client()
