"""Errors of reporting (the tree of all errors is in ``bench_errors``)."""

from __future__ import annotations

from bench_errors import BenchError, ExitStatus


class CheckPerfError(BenchError):
    """The reference file cannot be used; the text names the option."""

    exit_status = ExitStatus.USAGE


class ConditionError(BenchError):
    """A condition cannot be read; the text shows how one is written."""

    exit_status = ExitStatus.USAGE


class MissingLibraryError(BenchError):
    """An optional library is not installed; the text names the extra that installs it."""


class OpStatsError(BenchError):
    """The statistics cannot be appended to the file; the text names the option."""


class ServerTimesError(BenchError):
    """A server's times of requests cannot be read, or belong to no request of the run; the text says what would do."""

    exit_status = ExitStatus.USAGE


class NotComparableError(BenchError):
    """The runs measured different work, or one of them is invalid; the text names what differs."""

    exit_status = ExitStatus.INVALID


class NoValidBlockError(NotComparableError):
    """Each block of an experiment that has all its runs has one that is not valid; the text names the first."""
