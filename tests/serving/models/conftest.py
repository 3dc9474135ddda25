"""A fake ``triton_python_backend_utils``: the native part of the real module exists only inside Triton's stub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


class Tensor:
    """A named array."""

    def __init__(self, name: str, values: np.ndarray[Any, Any]) -> None:
        self._name = name
        self._values = values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._values


class TritonError:
    """An error with a code."""

    INVALID_ARG = "invalid"
    INTERNAL = "internal"

    def __init__(self, message: str, code: str) -> None:
        self.message = message
        self.code = code


class InferenceResponse:
    """Tensors, or an error."""

    def __init__(self, output_tensors: list[Tensor] | None = None, error: TritonError | None = None) -> None:
        self.tensors = {tensor.name(): tensor.as_numpy() for tensor in output_tensors or []}
        self.error = error


class Request:
    """A request with tensors, as passed to ``execute``."""

    def __init__(
        self, tensors: dict[str, np.ndarray[Any, Any]], outputs: list[str] | None = None, parameters: str = "{}"
    ) -> None:
        self.tensors = tensors
        self._outputs = outputs or []
        self._parameters = parameters

    def inputs(self) -> list[Tensor]:
        return [Tensor(name, values) for name, values in self.tensors.items()]

    def parameters(self) -> str:
        return self._parameters

    def requested_output_names(self) -> list[str]:
        return self._outputs


def _get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    return Tensor(name, request.tensors[name]) if name in request.tensors else None


@pytest.fixture(autouse=True, scope="package")
def backend() -> Iterator[ModuleType]:
    """Install the fake module for the models; afterwards both are removed from ``sys.modules``."""
    module: Any = ModuleType("triton_python_backend_utils")
    module.Tensor = Tensor
    module.TritonError = TritonError
    module.InferenceResponse = InferenceResponse
    module.Request = Request
    module.Logger = SimpleNamespace(log_error=lambda message: None)
    module.get_input_tensor_by_name = _get_input_tensor_by_name
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    sys.modules["triton_python_backend_utils"] = module
    yield module
    for name in [name for name in sys.modules if name.startswith("serving.models.")]:
        del sys.modules[name]
    del sys.modules["triton_python_backend_utils"]
