"""What can go wrong while reporting. Each text is fit to be shown to a user."""

from __future__ import annotations


class CheckPerfError(Exception):
    """The reference file cannot be used; the text names the option."""


class OpStatsError(Exception):
    """The statistics cannot be appended to the file; the text names the option."""


class NotComparableError(Exception):
    """The runs measured different work, or one of them is invalid; the text says what differs."""


class ConditionError(ValueError):
    """A condition cannot be read; the text says how one is written."""
