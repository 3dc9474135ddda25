"""A request that empties the prefix cache: its answer, and failures of the engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from serving.errors import EngineError


class _Sender:
    def __init__(self) -> None:
        self.sent: list[tuple[Any, int]] = []

    def send(self, response: Any, flags: int = 0) -> None:
        self.sent.append((response, flags))


def _answer(error: Exception | None) -> Any:
    """The only response, which is the last, of a model whose engine raises ``error``."""
    from serving.models.core.model import TritonPythonModel

    def reset() -> None:
        if error is not None:
            raise error

    model: Any = object.__new__(TritonPythonModel)
    model._engine = SimpleNamespace(reset_prefix_cache=reset)
    sender = _Sender()
    model._reset_prefix_cache(sender)
    [(response, flags)] = sender.sent
    assert flags == 1
    return response


def test_an_emptied_cache_is_answered_without_an_output(backend: Any) -> None:
    answer = _answer(None)
    assert answer.tensors == {}
    assert answer.error is None


@pytest.mark.parametrize("error", [EngineError("2 requests are in flight"), OSError("2 requests are in flight")])
def test_a_cache_that_cannot_be_emptied_is_a_failure_of_the_server(backend: Any, error: Exception) -> None:
    failure = _answer(error).error
    assert (failure.message, failure.code) == ("server error: reset_prefix_cache: 2 requests are in flight", "internal")
