"""A run of the real server that is sent again, and what differs between the server of a run and another one."""

from __future__ import annotations

import json
from pathlib import Path

from serving.launch.server import Server
from tests.end_to_end.test_bench import assert_all_done, bench, manifest

_LINE = ["token_norm_dist", "--isl", "32±5", "--osl", "6", "--request_rate", "40", "--num_requests", "12", "--seed", "7"]


def test_a_replay_sends_the_same_and_verify_names_a_changed_setting(
    decoupled_server: Server, narrow_server: Server, tmp_path: Path
) -> None:
    target = ["--url", decoupled_server.addresses.grpc, "--warmup_requests", "1"]
    assert_all_done(bench(*_LINE, *target, "--run_dir", "before", cwd=tmp_path), tmp_path / "before")
    recorded = manifest(tmp_path / "before")
    names = {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls"}
    assert recorded["deployment"]["models"].keys() == names
    assert recorded["deployment"]["server"] == "triton"

    verified = bench("verify", "before", cwd=tmp_path)
    assert (verified.returncode, verified.stdout.partition(":")[0]) == (0, "Nothing differs")
    replayed = bench("replay", "before", "--run_dir", "after", cwd=tmp_path)
    assert_all_done(replayed, tmp_path / "after")
    assert manifest(tmp_path / "after")["schedule"] == recorded["schedule"]
    assert manifest(tmp_path / "after")["deployment"] == recorded["deployment"]
    compared = bench(*replayed.stdout.split("Compare: bench ")[1].split(), "--allow_different", "-o", "c.json", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    (pair,) = json.loads((tmp_path / "c.json").read_text())["comparisons"]
    assert not [
        key["what"] for key in pair["disagreements"] if key["weight"] in ("refuse", "changed") and key["what"] != "validity"
    ]

    verified = bench("verify", "before", "--url", narrow_server.addresses.grpc, cwd=tmp_path)
    assert verified.returncode == 3
    rows = [line.split() for line in verified.stdout.splitlines()]
    assert ["model", "tensorrt_llm.parameters.max_num_sequences", "256", "1"] in rows
    assert ["model", "tensorrt_llm.parameters.max_queue_size", "0", "2"] in rows


def test_the_same_server_says_the_same_over_grpc_and_http(decoupled_server: Server, tmp_path: Path) -> None:
    options = ["--url", decoupled_server.addresses.grpc, "--warmup_requests", "1", "--run_dir", "grpc"]
    assert_all_done(bench(*_LINE, *options, cwd=tmp_path), tmp_path / "grpc")
    verified = bench("verify", "grpc", "-i", "http", "--url", decoupled_server.addresses.http, cwd=tmp_path)
    assert [line.split() for line in verified.stdout.splitlines()[4:]] == [["target", "protocol", "grpc", "http"]]
