"""``tensorrt_llm_bls`` in a fake Triton, with the real preprocessing and a fake core model."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.tokenizer import load_tokenizer

TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
NextToken = Callable[[list[int]], int]  # prompt and output so far → token


class Answer:
    """Response of another model: tensors, or an error."""

    def __init__(self, tensors: dict[str, Any], error: tuple[str, int] | None = None) -> None:
        self._tensors = tensors
        self._error = error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> Any:
        message, code = self._error or ("", 0)
        return SimpleNamespace(message=lambda: message, code=lambda: code)

    def output_tensors(self) -> list[Any]:
        return [
            SimpleNamespace(name=lambda name=name: name, as_numpy=lambda values=values: np.asarray(values))
            for name, values in self._tensors.items()
        ]


class FakeCore:
    """Greedy decoding with a function as the network, with the core model's inputs and outputs."""

    def __init__(self, next_token: NextToken, token_s: float = 0.0) -> None:
        self._next = next_token
        self._token_s = token_s
        self.requests: list[dict[str, Any]] = []
        self.stopped: set[str] = set()
        self.generated = 0
        self.fail_after: int | None = None
        self.trailing_outputs: dict[str, Any] = {}
        self.more: Callable[[list[int]], dict[str, Any]] = lambda tokens: {}

    def answers(self, request_id: str, inputs: dict[str, Any], outputs: list[str]) -> Iterator[Answer]:
        if "stop" in inputs:
            self.stopped.add(request_id)
            return
        self.requests.append({"id": request_id, "outputs": outputs, **inputs})
        rows = [
            (row, sequence)
            for row in range(len(inputs["input_ids"]))
            for sequence in range(int(inputs.get("num_return_sequences", np.ones(1)).reshape(-1)[0]))
        ]
        streams = {key: self._one(request_id, key, inputs) for key in rows}
        while streams:  # the responses of the sequences alternate
            for key, stream in list(streams.items()):
                tokens = next(stream, None)
                if tokens is None:
                    del streams[key]
                    if self.trailing_outputs:
                        yield Answer({"output_ids": np.zeros((1, 1, 0), np.int32), **self.trailing_outputs})
                elif self.fail_after is not None and self.generated > self.fail_after:
                    yield Answer({}, ("the engine broke", 13))
                    return
                else:
                    yield self._answer(key, tokens, inputs, outputs)

    def _one(self, request_id: str, key: tuple[int, int], inputs: dict[str, Any]) -> Iterator[list[int]]:
        row, index = key
        sequence = inputs["input_ids"][row, : inputs["input_lengths"].reshape(-1)[row]].tolist()
        wanted = int(inputs["request_output_len"].reshape(-1)[row])
        draft = inputs["draft_input_ids"][0].tolist() if "draft_input_ids" in inputs else None
        streaming = "streaming" in inputs and bool(inputs["streaming"].any())
        new: list[int] = []
        while len(new) < wanted and request_id not in self.stopped:
            token = self._next([*sequence, *new]) + index
            new.append(token)
            self.generated += 1
            time.sleep(self._token_s)
            if streaming:
                yield [token]
            if token == inputs["end_id"].reshape(-1)[row] or (draft is not None and draft[: len(new)] != new):
                break
        if not streaming:
            yield new

    def _answer(self, key: tuple[int, int], tokens: list[int], inputs: dict[str, Any], outputs: list[str]) -> Answer:
        beams = int(inputs.get("beam_width", np.ones(1)).reshape(-1)[0])
        table = np.zeros((1, beams, len(tokens)), np.int32)
        lengths = [max(0, len(tokens) - beam) for beam in range(beams)]  # each beam is one token shorter than the previous one
        for beam, length in enumerate(lengths):
            table[0, beam, :length] = tokens[:length]
        values = {
            "output_ids": table,
            "sequence_length": np.int32([lengths]),
            "batch_index": np.int32([[key[0]]]),
            "sequence_index": np.int32([[key[1]]]),
            "num_input_tokens": np.int32([[inputs["input_lengths"].reshape(-1)[key[0]]]]),
            "num_output_tokens": np.int32([[len(tokens)]]),
            **self.more(tokens),
        }
        return Answer({name: value for name, value in values.items() if name in outputs})


class Sender:
    """Fake response sender: records responses, each of which takes ``delay_s``, and reports the client's cancellation."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.responses: list[Any] = []
        self.finals = 0
        self.ended = threading.Event()
        self.came = threading.Event()
        self.cancelled = False
        self.queried_too_late = False
        self.delay_s = delay_s

    def send(self, response: Any = None, flags: int = 0) -> None:
        assert self.finals == 0, "a response after the last"
        time.sleep(self.delay_s)
        if response is not None:
            self.responses.append(response)
            self.came.set()
        self.finals += flags
        if flags:
            self.ended.set()

    def is_cancelled(self) -> bool:
        self.queried_too_late = self.queried_too_late or self.finals > 0
        return self.cancelled

    @property
    def texts(self) -> list[str]:
        assert all(response.error is None for response in self.responses), self.responses[-1].error.message
        return [response.tensors["text_output"].item().decode() for response in self.responses]

    @property
    def error(self) -> Any:
        assert len(self.responses) >= 1
        return self.responses[-1].error


class Bls:
    """A deployed ``tensorrt_llm_bls``."""

    def __init__(self, backend: ModuleType, cores: dict[str, FakeCore], decoupled: bool = True, **parameters: str) -> None:
        self._backend: Any = backend
        self.cores = cores
        self._decoupled = decoupled
        self._preprocessing = _preprocessing()
        self._install()
        from serving.models.bls.model import TritonPythonModel

        self.model = TritonPythonModel()
        block = {"tokenizer_dir": str(DEMO_ENGINE_DIR), **parameters}
        config = json.dumps({"parameters": {name: {"string_value": value} for name, value in block.items()}})
        self.model.initialize({"model_config": config, "model_name": "tensorrt_llm_bls"})

    def _install(self) -> None:
        """Add the other models to the fake module of conftest.py."""
        backend, cores, preprocessing, is_decoupled = self._backend, self.cores, self._preprocessing, self._decoupled

        class InferenceRequest:
            def __init__(
                self, model_name: str, inputs: list[Any], requested_output_names: list[str], request_id: str = ""
            ) -> None:
                self._call = model_name, request_id, {t.name(): t.as_numpy() for t in inputs}, requested_output_names

            def exec(self, decoupled: bool = False) -> Any:
                model_name, request_id, inputs, outputs = self._call
                if model_name == "preprocessing":
                    [answer] = preprocessing.execute([backend.Request(inputs, outputs)])
                    return Answer(answer.tensors, (answer.error.message, 3) if answer.error else None)
                return cores[model_name].answers(request_id, inputs, outputs)

        backend.InferenceRequest = InferenceRequest
        backend.Logger = SimpleNamespace(log_error=lambda message: None)
        backend.using_decoupled_model_transaction_policy = lambda config: is_decoupled

    def send(self, inputs: dict[str, Any], outputs: list[str] | None = None, delay_s: float = 0.0) -> Sender:
        self._install()  # another pipeline may have been installed since
        sender = Sender(delay_s)
        request = self._backend.Request(inputs, outputs or ["text_output"])
        request.get_response_sender = lambda: sender
        request.inputs = lambda: [self._backend.Tensor(name, values) for name, values in inputs.items()]
        self.model.execute([request])
        return sender

    def ask(self, outputs: list[str] | None = None, **inputs: Any) -> Sender:
        """Send, and wait for the end."""
        sender = self.send(request_of(**inputs), outputs)
        assert sender.ended.wait(120), "no final response"
        assert not sender.queried_too_late
        return sender


def request_of(*, prompt: str | list[str] = "the sea", max_tokens: int | None = 12, **more: Any) -> dict[str, Any]:
    """Tensors of a request; words and flags may be plain Python values, None omits a tensor."""
    prompts = [prompt] if isinstance(prompt, str) else prompt
    tensors: dict[str, Any] = {
        "text_input": _bytes([[text] for text in prompts]),
        **({} if max_tokens is None else {"max_tokens": np.full((len(prompts), 1), max_tokens, np.int32)}),
        "exclude_input_in_output": np.full((len(prompts), 1), True),
    }
    for name, value in more.items():
        if value is None:
            del tensors[name]
        elif isinstance(value, list):
            tensors[name] = _bytes([value] * len(prompts))
        elif isinstance(value, np.ndarray):
            tensors[name] = value
        else:
            dtype = np.bool_ if isinstance(value, bool) else np.float32 if isinstance(value, float) else np.int32
            tensors[name] = np.full((len(prompts), 1), value, dtype)
    return tensors


def _bytes(rows: list[list[str]]) -> np.ndarray[Any, Any]:
    return np.array([[word.encode() for word in row] for row in rows], dtype=np.object_)


def _preprocessing() -> Any:
    from serving.models.preprocessing import TritonPythonModel

    model = TritonPythonModel()
    block = {"tokenizer_dir": {"string_value": str(DEMO_ENGINE_DIR)}}
    model.initialize({"model_config": json.dumps({"parameters": block})})
    return model
