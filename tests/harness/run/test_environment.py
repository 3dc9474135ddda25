from __future__ import annotations

import getpass
import os
import socket
from importlib.metadata import version
from pathlib import Path

import msgspec

from harness.run.environment import describe_environment, gpu_driver_version, gpu_models


def test_description_is_json_and_has_the_versions_that_are_installed() -> None:
    described = msgspec.to_builtins(describe_environment())
    assert described["packages"]["grpcio"] == version("grpcio")
    assert "vllm-that-does-not-exist" not in described["packages"]
    assert described["event_reader"] in ("compiled", "interpreted")
    assert described["cores"] == len(os.sched_getaffinity(0))
    assert 2**28 < described["memory_bytes"] < 2**50


def test_description_names_neither_the_machine_nor_its_user() -> None:
    words = set(msgspec.json.encode(describe_environment()).decode().replace('"', " ").replace(",", " ").split())
    assert not {socket.gethostname(), getpass.getuser(), str(Path.home())} & words


def test_gpus_and_their_driver_are_those_of_the_kernel_module(tmp_path: Path) -> None:
    for bus, name in (("0000:1b:00.0", "NVIDIA H200"), ("0000:04:00.0", "NVIDIA H100 80GB HBM3")):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        (tmp_path / "gpus" / bus / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 16\n")
    versions = {
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17 22:55:48 UTC 2024\nGCC version: 12.3.0\n": (
            "535.161.08"
        ),
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder)\n": "550.54.15",
    }
    for text, number in versions.items():
        (tmp_path / "version").write_text(text)
        assert gpu_driver_version(tmp_path) == number
    assert gpu_models(tmp_path) == ("NVIDIA H100 80GB HBM3", "NVIDIA H200")


def test_without_the_kernel_module_nothing_is_known(tmp_path: Path) -> None:
    assert (gpu_models(tmp_path / "none"), gpu_driver_version(tmp_path / "none")) == (None, None)
