"""Errors of measuring (the tree of all errors is in ``bench_errors``)."""

from __future__ import annotations

from bench_errors import BenchError, ExitStatus


class TargetError(BenchError):
    """The deployment cannot be reached, lacks the model, or the model is not of a known kind."""


class RunError(BenchError):
    """The run could not be carried out: every warm-up request failed, or a worker did not start."""


class JournalError(BenchError):
    """A journal, or the schedule that it belongs to, cannot be read: damaged, or of another version."""

    exit_status = ExitStatus.USAGE
