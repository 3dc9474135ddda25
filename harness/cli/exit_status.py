"""What ``bench`` exits with."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit statuses of every verb."""

    VALID = 0
    FAILED = 1  # the target or the run failed
    USAGE = 2
    INVALID = 3  # the run took place and cannot be believed
    INTERRUPTED = 130
