"""What can go wrong while serving.

ServingError
├── RequestError        one request is wrong; the server and the requests beside it live on
├── EngineError         an engine cannot be opened, or failed while it ran
├── EngineBuildError    a checkpoint cannot be turned into an engine
├── RepositoryError     a model repository cannot be written as asked
├── TemplateError       a configuration template cannot be filled as asked
└── LaunchError         the server did not start or did not become ready
"""

from __future__ import annotations


class ServingError(Exception):
    """Base of everything that this package raises on purpose; its text is fit to be shown to a user."""


class RequestError(ServingError):
    """One request asks for something impossible; the text says which input and why."""


class EngineError(ServingError):
    """An engine cannot be opened, or failed while it ran."""


class EngineBuildError(ServingError):
    """A checkpoint cannot be turned into an engine."""


class RepositoryError(ServingError):
    """A model repository cannot be written as asked."""


class TemplateError(ServingError):
    """A configuration template cannot be filled as asked."""


class LaunchError(ServingError):
    """The server did not start, or did not become ready in time."""
