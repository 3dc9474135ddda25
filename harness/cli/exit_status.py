"""The table of exit statuses."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit status of every verb."""

    VALID = 0
    FAILED = 1  # the target or the run failed
    USAGE = 2
    INVALID = 3  # the run was completed, and its numbers are not valid
    INTERRUPTED = 130
