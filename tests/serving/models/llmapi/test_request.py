"""Responses of an llmapi model instance, with a fake library that shows rare behaviour of the real one."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.serving.models.conftest import Request


class Sender:
    """Records responses; ``ended`` is set by the final one. ``cancelled``: results of ``is_cancelled``, the last repeats."""

    def __init__(self, *cancelled: bool | Exception) -> None:
        self._cancelled = list(cancelled) or [False]
        self.sent: list[Any] = []
        self.ended = threading.Event()

    def send(self, response: Any = None, flags: int = 0) -> None:
        self.sent.append(response)
        if flags:
            self.ended.set()

    def is_cancelled(self) -> bool:
        answer = self._cancelled.pop(0) if len(self._cancelled) > 1 else self._cancelled[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class SentRequest(Request):
    """A request of the model, with its response sender."""

    def __init__(self, sender: Any, request_id: str = "", **tensors: Any) -> None:
        super().__init__({name: np.array([value]) for name, value in tensors.items()}, ["text_output"])
        self._sender = sender
        self._request_id = request_id

    def get_response_sender(self) -> Any:
        return self._sender

    def request_id(self) -> str:
        return self._request_id


class Answer:
    """An output that never completes, and whose abort fails."""

    def __init__(self) -> None:
        self.aborts = 0

    def abort(self) -> None:
        self.aborts += 1
        raise RuntimeError("the executor is gone")

    def __await__(self) -> Any:
        return asyncio.sleep(3600).__await__()


class Model:
    """A started instance, the library's outputs, and the log."""

    def __init__(self, instance: Any, answers: list[Answer], logged: list[str]) -> None:
        self.answers = answers
        self.logged = logged
        self._instance = instance

    def ask(self, *requests: SentRequest) -> None:
        self._instance.execute(list(requests))

    def finish(self) -> None:
        """Unload the instance; repeated calls have no effect."""
        instance, self._instance = self._instance, None
        if instance is not None:
            instance.finalize()


def _library(answers: list[Answer]) -> ModuleType:
    """A fake ``tensorrt_llm`` that records its outputs in ``answers``."""

    class Llm:
        def __init__(self, model: str) -> None: ...

        def generate_async(self, prompt: str, **arguments: Any) -> Answer:
            answers.append(Answer())
            return answers[-1]

        def shutdown(self) -> None: ...

    library: Any = ModuleType("tensorrt_llm")
    library.LLM = Llm
    library.SamplingParams = dict
    return library  # type: ignore[no-any-return]


@pytest.fixture
def model(tmp_path: Path, backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    answers: list[Answer] = []
    logged: list[str] = []

    class Logger:
        log_error = logged.append

    monkeypatch.setitem(sys.modules, "tensorrt_llm", _library(answers))
    monkeypatch.setattr(backend, "using_decoupled_model_transaction_policy", lambda config: True, raising=False)
    monkeypatch.setattr(backend, "Logger", Logger, raising=False)
    monkeypatch.setattr(backend.TritonError, "CANCELLED", "cancelled", raising=False)
    from serving.models.llmapi import model as llmapi

    monkeypatch.setattr(llmapi, "_ABORT_GRACE_S", 0.05, raising=False)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.yaml").write_text("model: m\ntriton_config: {cancellation_check_period_ms: 10}\n")
    instance = llmapi.TritonPythonModel()
    config = {"max_batch_size": 0, "parameters": {}}
    instance.initialize(
        {
            "model_config": json.dumps(config),
            "model_repository": str(tmp_path),
            "model_version": "1",
            "model_instance_name": "m_0",
        }
    )
    model = Model(instance, answers, logged)
    yield model
    model.finish()


def _error(sender: Sender) -> str:
    assert sender.ended.wait(120)
    (response,) = sender.sent
    return str(response.error.message)


@pytest.mark.parametrize("name", ["lora_name", "lora_path"])
def test_adapter_that_is_not_utf8_error_names_the_tensor(model: Model, name: str) -> None:
    lora = {"lora_name": b"a", "lora_id": 1, "lora_path": b"/a"} | {name: b"\xff"}
    sender = Sender()
    model.ask(SentRequest(sender, text_input=b"Hello", **lora))
    assert _error(sender).startswith(f"{name} is not valid UTF-8")


def test_unreadable_request_gets_an_error_and_the_next_is_read(model: Model) -> None:
    odd, good = Sender(), Sender()
    model.ask(SentRequest(odd, text_input=7), SentRequest(good, text_input=b"Hello"))
    assert _error(odd).startswith("server error: the request could not be read: ")
    assert len(model.logged) == 1
    model.finish()
    assert _error(good) == "server error: the model is being unloaded"  # it was still running


def test_stopped_request_ends_after_the_grace_period_if_the_library_does_not_end_it(model: Model) -> None:
    stuck, stop = Sender(), Sender()
    model.ask(SentRequest(stuck, "7", text_input=b"Hello"), SentRequest(stop, "7", stop=True))
    assert _error(stop) == "request 7 is stopped"
    assert "did not end it" in _error(stuck)
    assert stuck.sent[0].error.code == "cancelled"
    assert model.answers[0].aborts == 1


def test_abandoned_request_is_ended_after_a_failed_cancellation_check(model: Model) -> None:
    abandoned = Sender(RuntimeError("no answer"), True)
    model.ask(SentRequest(abandoned, text_input=b"Hello"))
    assert "did not end it" in _error(abandoned)
    assert "no answer" in model.logged[0]
