"""The file of calibrations: written whole, read back the same, and never a reason to fail."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench_records.manifest import HeldRate
from harness.calibration.accuracy import Spread
from harness.calibration.ladder import Limit
from harness.calibration.result import Calibration, Machine, TransportCalibration, WorkersLimits, this_machine
from harness.calibration.store import (
    CalibrationFileError,
    find_calibration,
    for_manifest,
    keep_calibration,
    read_calibrations,
    write_calibrations,
)
from harness.run.environment import describe_environment

_SPREAD = Spread(100, 0.1, 0.05, 0.1, 0.09, 0.4)
_GRPC = TransportCalibration(
    transport="grpc",
    quiet_requests_per_s=20,
    quiet_responses_per_s=400,
    ttft=_SPREAD,
    icl=replace(_SPREAD, n=1900, mean_ms=0.0),
    e2e=_SPREAD,
    limits=(WorkersLimits(1, Limit(800, 950.5, "schedule slip p99 1.30 ms"), Limit(None, None, "there was no time for more")),),
    cpu_us_per_request=120.5,
    cpu_us_per_response=None,
)
_MACHINE = Machine("a processor", 2, "6.1", "3.11.7", "0.1.0")
_CALIBRATION = Calibration(_MACHINE, "2026-11-22T01:23:51+00:00", False, 71.5, 0.03, (_GRPC, replace(_GRPC, transport="sse")))


def test_what_is_kept_comes_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibration.json"
    keep_calibration(path, _CALIBRATION)
    assert find_calibration(path, _MACHINE) == _CALIBRATION
    assert os.listdir(path.parent) == ["calibration.json"]
    assert json.loads(path.read_text())["schema"] == 1


def test_each_machine_keeps_its_latest(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    other = replace(_CALIBRATION, machine=replace(_MACHINE, cores=4))
    later = replace(_CALIBRATION, made_at="2027-01-01T00:00:00+00:00")
    for calibration in (_CALIBRATION, other, later):
        keep_calibration(path, calibration)
    assert read_calibrations(path) == (later, other)
    assert find_calibration(path, replace(_MACHINE, kernel="6.2")) is None


def test_machines_that_were_long_unseen_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    for cores in range(1, 41):
        keep_calibration(path, replace(_CALIBRATION, machine=replace(_MACHINE, cores=cores)))
    assert [calibration.machine.cores for calibration in read_calibrations(path)] == list(range(40, 8, -1))


def test_no_file_is_no_calibration(tmp_path: Path) -> None:
    assert find_calibration(tmp_path / "absent.json", _MACHINE) is None


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"\xff", b'{"schema": "\xe4"}', b'{"x": ' + b"[" * 1_200),
        *(b'{"schema": 1}', b'{"schema": 2, "calibrations": []}', b'{"schema": 1, "calibrations": [{}]}'),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(CalibrationFileError, match=r"calibration\.json (is|has) .*run `bench calibrate` again"):
        find_calibration(path, _MACHINE)
    keep_calibration(path, _CALIBRATION)
    assert read_calibrations(path) == (_CALIBRATION,)


def test_a_torn_file_is_damaged_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    write_calibrations(path, (_CALIBRATION,))
    whole = path.read_bytes().rstrip()
    for length in range(1, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(CalibrationFileError):
            read_calibrations(path)


def test_a_folder_in_its_place_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(CalibrationFileError, match="cannot be read"):
        read_calibrations(tmp_path)


def test_a_run_copies_the_calibration_of_its_transport() -> None:
    copied = for_manifest(_CALIBRATION, "sse")
    assert copied is not None
    assert (copied.made_at, copied.quick, copied.transport) == ("2026-11-22T01:23:51+00:00", False, "sse")
    assert copied.busy_cores == 0.03
    assert copied.ttft.mean_ms == 0.1
    assert copied.limits[0].requests == HeldRate(held_per_s=800, failed_per_s=950.5, why="schedule slip p99 1.30 ms")
    assert for_manifest(None, "grpc") is None
    assert for_manifest(replace(_CALIBRATION, transports=()), "grpc") is None


def test_this_machine_is_identified_by_what_a_calibration_depends_on() -> None:
    machine = this_machine(describe_environment())
    assert machine == this_machine(describe_environment())
    assert 0 < machine.cores <= len(os.sched_getaffinity(0))
