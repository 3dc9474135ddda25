"""Connections are reset, closed and spoilt at random, or go silent: every request still ends as one record."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_records.run_folder import RunFolder
from tests.faults.bench_program import bench, check_whole, token_norm_dist
from tests.faults.unruly_proxy import Breakage, unruly_proxy
from tests.harness.scripted_server import scripted_server

pytestmark = pytest.mark.slow

# Asking for the model's configuration takes one connection; only what follows is the run.
_BEFORE_THE_RUN = 1


@pytest.mark.parametrize(
    ("breakage", "kinds"),
    [
        (Breakage.RESET, {"done", "stream_cut", "connect"}),
        (Breakage.CLOSE, {"done", "stream_cut", "connect"}),
        (Breakage.CORRUPT, {"done", "stream_cut", "connect", "malformed", "server_error", "refused", "timeout"}),
    ],
)
def test_connections_that_break_at_random_lose_no_request(tmp_path: Path, breakage: Breakage, kinds: set[str]) -> None:
    options = ["--request_rate", "100", "--request_timeout", "3", "--workers", "2"]
    with scripted_server(tmp_path / "received") as server:
        with (
            unruly_proxy(server.port, breakage, chance=0.03, seed=7, spared=_BEFORE_THE_RUN) as proxy,
            bench(tmp_path / "run", *token_norm_dist(proxy.address, "paced", 300, *options)) as program,
        ):
            status, _, _ = program.end()
        outcomes = check_whole(tmp_path / "run", 300, server)
    assert status == 1
    assert set(outcomes) <= kinds
    assert outcomes["done"] > 30
    assert proxy.broken >= 1
    if breakage is not Breakage.CORRUPT:
        assert proxy.connections > _BEFORE_THE_RUN + 2  # it was connected again
    for row in RunFolder(tmp_path / "run").read_requests().to_pylist():
        assert (row["output_tokens"] or 0) <= 5, row  # nothing was counted twice
