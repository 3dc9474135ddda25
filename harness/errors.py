"""Errors of measuring (the tree of all errors is in ``bench_errors``)."""

from __future__ import annotations

from bench_errors import BenchError, ExitStatus

_LONGEST_TEXT = 4_000  # characters


class _CutText(Exception):  # noqa: N818  a part of errors
    """The text of an error, which may repeat a server's: only its beginning is kept."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} …")


class TargetError(_CutText, BenchError):
    """The deployment cannot be reached, lacks the model, or the model is not of a known kind."""


class NoSuchModelError(TargetError):
    """The server has no model of the requested name."""


class RunError(_CutText, BenchError):
    """The run could not be carried out, as where a worker did not start."""


class WarmUpError(RunError):
    """Every warm-up request failed."""


class JournalError(BenchError):
    """A journal, or the schedule that it belongs to, cannot be read: damaged, or of another version."""

    exit_status = ExitStatus.USAGE


class TokenError(BenchError):
    """The token of a distributed run cannot be read, or is none."""

    exit_status = ExitStatus.USAGE
