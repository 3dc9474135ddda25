"""What can go wrong while measuring.

HarnessError
├── TargetError         the deployment to be measured cannot be used as asked
├── RunError            the run itself could not be carried out
└── JournalError        what a run left is not what this version writes, or is damaged
"""

from __future__ import annotations


class HarnessError(Exception):
    """Base of everything that this package raises on purpose; its text is fit to be shown to a user."""


class TargetError(HarnessError):
    """The deployment cannot be reached, lacks the model, or the model is not of a known kind."""


class RunError(HarnessError):
    """The run could not be carried out: every warm-up failed, a worker did not start."""


class JournalError(HarnessError):
    """A journal, or the schedule that it belongs to, cannot be read: damaged, or another version's."""
