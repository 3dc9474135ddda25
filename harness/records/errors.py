"""What can be wrong with a run's folder."""

from __future__ import annotations


class RunFolderError(Exception):
    """A run folder cannot be read or written; the text names the file and says what to do."""
