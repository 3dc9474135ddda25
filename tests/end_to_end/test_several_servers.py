"""Two deployments measured together, one of them with little room: our counts are those of the servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from serving.launch.server import Server


def _targets(servers: tuple[Server, Server], folder: Path, *options: str) -> list[Any]:
    addresses = [server.addresses for server in servers]
    given = [word for each in addresses for word in ("--url", each.grpc, "--metrics_url", each.metrics)]
    lengths = ["--isl", "16", "--osl", "24±6", "--num_requests", "300", "--request_rate", "150"]
    run(["token_norm_dist", *given, *lengths, "--run_dir", str(folder), *options])
    summary = json.loads((folder / "summary.json").read_text())
    assert not [finding for finding in summary["findings"] if finding["code"] == "counters_disagree"]
    targets: list[Any] = summary["targets"]
    return targets


@pytest.mark.slow
def test_what_was_sent_failed_and_arrived_is_what_each_server_counted(
    decoupled_server: Server, narrow_server: Server, tmp_path: Path
) -> None:
    servers = decoupled_server, narrow_server
    whole, narrow = targets = _targets(servers, tmp_path / "failures", "--class", "all:weight=9", "--class", "bad:lora=77")
    for target in targets:
        counted = target["counted_by_server"]
        assert counted["requests"] == target["sent"] == 150
        assert counted["output_tokens"] == target["output_tokens"] > 0
        assert target["done"] + target["failed"] == 150
    assert set(whole["by_kind"]) == {"server_error"}
    assert narrow["by_kind"]["refused"] > whole["failed"]
    for target in _targets(servers, tmp_path / "cancellations", "--cancel", "20%:after=5tokens"):
        counted = target["counted_by_server"]
        assert counted["requests"] == target["sent"] == 150
        beyond = counted["output_tokens"] - target["output_tokens"]  # made before the cancellation reached the engine
        assert 0 <= beyond <= 25 * target["withdrawn"]
