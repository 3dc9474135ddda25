"""Inputs of a Python-backend model: its ``config.pbtxt`` parameters and the tensors of a request; and error responses."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from serving.errors import SERVER_FAILURE, RequestError, ServingError
from serving.repository.routing import CLIENT_NAMES

_NAME = re.compile(r"\w+")
_TRUE = {"true", "1", "t", "y", "yes"}
_FALSE = {"false", "0", "f", "n", "no"}


class Parameters:
    """The ``parameters`` block of a model's configuration, with typed access. An unfilled ``${…}`` counts as absent."""

    def __init__(self, model_config: str) -> None:
        block = json.loads(model_config).get("parameters", {})
        self._values = {key: value["string_value"] for key, value in block.items()}

    def text(self, key: str, default: str | None = None) -> str:
        """A parameter as text. Raises ServingError when the key is absent and has no default."""
        value = self._values.get(key, "")
        if value and not value.startswith("${"):
            return str(value)
        if default is None:
            raise ServingError(f"parameter {key} of the model's config.pbtxt is not set")
        return default

    def file_name(self, key: str, default: str | None = None) -> str:
        """A parameter as the name of a file or folder, which ``os.fsencode`` encodes as UTF-8. Raises ServingError as ``text``.

        Python in Triton's stub has ASCII file names, whatever the locale: other characters are bytes.
        """
        return os.fsdecode(self.text(key, default).encode())

    def folder(self, key: str, default: str | None = None) -> Path:
        """A parameter as a path. Raises ServingError as ``text``."""
        return Path(self.file_name(key, default))

    def integer(self, key: str, default: int) -> int:
        value = self.text(key, str(default))
        try:
            return int(value)
        except ValueError:
            raise ServingError(f"parameter {key} must be a whole number, not {value!r}") from None

    def number(self, key: str, default: float) -> float:
        value = self.text(key, str(default))
        try:
            return float(value)
        except ValueError:
            raise ServingError(f"parameter {key} must be a number, not {value!r}") from None

    def boolean(self, key: str, default: bool) -> bool:
        value = self.text(key, str(default)).strip().lower()
        if value not in _TRUE | _FALSE:
            raise ServingError(f"parameter {key} must be true or false, not {value!r}")
        return value in _TRUE


def scalar(request: Any, name: str) -> Any:
    """The single value of an optional input tensor, or None when it was not sent. Raises RequestError for several."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    values = tensor.as_numpy()
    if values.size != 1:
        raise RequestError(f"{name} must hold one value, but its shape is {list(values.shape)}")
    return values.reshape(-1)[0].item() if values.dtype != object else values.reshape(-1)[0]


def required(request: Any, name: str) -> Any:
    """A mandatory input tensor as an array. Raises RequestError if it is missing: Triton only counts a request's inputs, and
    accepts one that has an optional input instead of a mandatory one."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        raise RequestError(f"{name} is missing")
    return tensor.as_numpy()


def error_response(message: str, invalid: bool = True) -> Any:
    """Error response: INVALID_ARG for an ``invalid`` request, else INTERNAL."""
    code = pb_utils.TritonError.INVALID_ARG if invalid else pb_utils.TritonError.INTERNAL
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))


def failure_response(message: str) -> Any:
    """Error response to a request that was right: INTERNAL, and a text that says so where a client gets the text alone."""
    return error_response(f"{SERVER_FAILURE}{message}", invalid=False)


def response_to_error(error: Exception, failure: str) -> Any:
    """Error response to the request that raised ``error``: an exception that leaves ``execute`` would fail the whole batch.

    A RequestError is passed on, with its tensors' names in the text models: a step of the ensemble cannot see who calls it.
    Any other exception is internal: it is logged, with ``failure`` as the description.
    """
    if isinstance(error, RequestError):
        return error_response(_with_client_names(str(error)))
    pb_utils.Logger.log_error(f"{failure}: {error!r}")
    return failure_response(f"{failure}: {error}")


def _with_client_names(message: str) -> str:
    named = [f"{name} is {CLIENT_NAMES[name]}" for name in dict.fromkeys(_NAME.findall(message)) if name in CLIENT_NAMES]
    return f"{message} (in a request of ensemble or tensorrt_llm_bls, {' and '.join(named)})" if named else message
