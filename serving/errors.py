"""Errors of serving (the tree of all errors is in ``bench_errors``)."""

from __future__ import annotations

from bench_errors import BenchError, ExitStatus

# Begins the error of a response where the request was right and the server failed: a gRPC stream of Triton 24.10 has errors as
# texts alone.
SERVER_FAILURE = "server error: "

INSTALL_EMBEDDED = "pip install 'inflight-bench[embedded]'"


class ServingError(BenchError):
    """Base of the errors of serving: a model's ``execute`` turns it into the error of one response."""


class RequestError(ServingError):
    """One request cannot be served: the text names the input and the reason. The requests beside it go on."""


class ClientError(ServingError):
    """A running server could not be queried; the text holds the server's own message."""


class EngineError(ServingError):
    """An engine cannot be opened, or failed while it ran."""


class StepLogError(EngineError):
    """The file of --step_log cannot be used."""

    exit_status = ExitStatus.USAGE


class EngineBuildError(ServingError):
    """A checkpoint cannot be turned into an engine."""


class RepositoryError(ServingError):
    """A model repository cannot be written with these options."""


class TemplateError(ServingError):
    """A configuration template cannot be filled."""


class LaunchError(ServingError):
    """The server did not start, or did not become ready in time."""
