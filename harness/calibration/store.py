"""``calibration.json`` in the user's data folder: the latest calibration of each machine that uses the folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
from platformdirs import user_data_path

from bench_errors import BenchError
from bench_records.manifest import CalibrationFacts
from harness.calibration.result import Calibration, Machine
from harness.clients.protocol import NOT_JSON

SCHEMA = 1
_MAX_MACHINES = 32


class CalibrationFileError(BenchError):
    """The file cannot be read; the text names it and the remedy."""


class _Schema(msgspec.Struct):
    schema: object = None


@dataclass(frozen=True, slots=True)
class _File:
    schema: int
    calibrations: tuple[Calibration, ...]


def default_path() -> Path:
    return user_data_path("inflight-bench") / "calibration.json"


def read_calibrations(path: Path) -> tuple[Calibration, ...]:
    """All calibrations in the file; none where there is no file. Raises CalibrationFileError."""
    try:
        raw = path.read_bytes()
        schema = msgspec.json.decode(raw, type=_Schema).schema
        if schema != SCHEMA:
            raise CalibrationFileError(f"{path} has schema {schema}, not {SCHEMA}: run `bench calibrate` again")
        return msgspec.json.decode(raw, type=_File).calibrations
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CalibrationFileError(f"{path} cannot be read: {error.strerror}") from error
    except NOT_JSON as error:
        raise CalibrationFileError(f"{path} is damaged ({error}): run `bench calibrate` again") from error


def keep_calibration(path: Path, calibration: Calibration) -> None:
    """Replace the machine's former calibration by ``calibration``. An unreadable file is overwritten. Raises OSError."""
    try:
        known = read_calibrations(path)
    except CalibrationFileError:
        known = ()
    others = tuple(other for other in known if other.machine != calibration.machine)
    write_calibrations(path, (calibration, *others[: _MAX_MACHINES - 1]))


def write_calibrations(path: Path, calibrations: tuple[Calibration, ...]) -> None:
    """Write the file whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(_File(SCHEMA, calibrations))) + b"\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def find_calibration(path: Path, machine: Machine) -> Calibration | None:
    """The calibration of ``machine``, or None. Raises CalibrationFileError."""
    return next((calibration for calibration in read_calibrations(path) if calibration.machine == machine), None)


def for_manifest(calibration: Calibration | None, name: str) -> CalibrationFacts | None:
    """The manifest's copy for a run over the transport ``name``; None where the machine, or it, is not calibrated."""
    transport = None if calibration is None else calibration.transport(name)
    if calibration is None or transport is None:
        return None
    of_all = {"made_at": calibration.made_at, "quick": calibration.quick, "busy_cores": calibration.busy_cores}
    return msgspec.convert(of_all | msgspec.to_builtins(transport), CalibrationFacts)
