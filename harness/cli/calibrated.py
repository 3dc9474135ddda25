"""What a measuring verb takes along of this machine's calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from harness.calibration.result import this_machine
from harness.calibration.store import CalibrationFileError, default_path, find_calibration, for_manifest


def calibration_for_run(protocol: str, environment: Mapping[str, Any]) -> dict[str, Any] | None:
    """A copy for the manifest of what `bench calibrate` found for ``protocol``; None where it has not run here.

    ``environment`` is ``describe_environment``'s. A file that cannot be read is a warning: the run is none the worse for it.
    """
    try:
        return for_manifest(find_calibration(default_path(), this_machine(environment)), protocol)
    except CalibrationFileError as error:
        click.echo(f"Warning: {error}", err=True)
        return None
