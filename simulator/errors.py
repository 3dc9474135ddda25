"""Errors of the simulator."""

from __future__ import annotations

from bench_errors import BenchError, ExitStatus


class SimulatorError(BenchError):
    """A run cannot be fitted, or a model cannot be read; the text names the file and the remedy."""

    exit_status = ExitStatus.USAGE
