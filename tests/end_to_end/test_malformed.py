"""Malformed requests of every kind that the protocol allows: each gets a response, and other requests are unaffected."""

import queue
import random
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

from serving.launch.server import Server
from serving.repository import tensors
from tests.end_to_end.triton_calls import core_inputs, flag, ids_of, infer, int32, text

_AT_ONCE = 64
_NUMPY = {
    "INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32, "FP16": np.float16, "BOOL": np.bool_,
    "UINT8": np.uint8,
}  # fmt: skip
_EXTREMES = (0, 1, -1, 2, 3, 100, 3071, 3072, 2**31 - 1, -(2**31))
_STRINGS = (b"", b"\xff\xfe", b"a", b"regex", b"json", b"[", b"\x00", "ü😀".encode(), b"{" * 50, b"x" * 5000)


def _values(chance: random.Random, dtype: str, dims: tuple[int, ...] = ()) -> NDArray[Any]:
    """An array of the shape that Triton accepts ([1, *dims]), or of any small shape."""
    if chance.random() < 0.8:
        shape = (1, *(chance.choice((0, 1, 2, 3, 4)) if dim < 0 else dim for dim in dims))
    else:
        shape = tuple(chance.choice((0, 1, 1, 1, 2, 3)) for _ in range(chance.randrange(1, 4)))
    count = int(np.prod(shape))
    if dtype == "STRING":
        return np.array([chance.choice(_STRINGS) for _ in range(count)], dtype=np.object_).reshape(shape)
    if dtype.startswith("FP"):
        picked = [chance.choice((0.0, 0.5, 1.0, -1.0, np.nan, np.inf, 6e4)) for _ in range(count)]
        return np.array(picked).astype(_NUMPY[dtype]).reshape(shape)
    return np.array([chance.choice(_EXTREMES) for _ in range(count)]).astype(np.int64).astype(_NUMPY[dtype]).reshape(shape)


def _spoil(
    chance: random.Random, good: dict[str, NDArray[Any]], specs: tuple[tensors.TensorSpec, ...]
) -> dict[str, NDArray[Any]]:
    """``good`` with one to three tensors missing, added or changed."""
    spoilt = dict(good)
    for _ in range(chance.randrange(1, 4)):
        spec = chance.choice(specs)
        match chance.randrange(10):
            case 0:
                spoilt.pop(chance.choice(sorted(spoilt)), None)
                if not spoilt:
                    return dict(good)
            case 1:
                spoilt[spec.name] = _values(chance, chance.choice(["STRING", *_NUMPY]))
            case _:
                spoilt[spec.name] = _values(chance, spec.dtype, spec.dims)
    if "request_output_len" in spoilt and spoilt["request_output_len"].dtype == np.int32:
        spoilt["request_output_len"] = np.minimum(spoilt["request_output_len"], 4)  # requests that stay valid must be short
    return spoilt


def _send_all(server: Server, model: str, requests: list[dict[str, NDArray[Any]]]) -> tuple[int, int]:
    """Numbers of answered and of rejected requests."""
    done: queue.Queue[Any] = queue.Queue()
    answered = refused = in_flight = 0
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        for number, inputs in enumerate(requests):
            wired = []
            for name, value in inputs.items():
                tensor = grpcclient.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
                tensor.set_data_from_numpy(value)
                wired.append(tensor)
            client.async_infer(model, wired, lambda result, error: done.put(error))
            in_flight += 1
            while in_flight >= _AT_ONCE or (number == len(requests) - 1 and in_flight):
                error = done.get(timeout=120)
                assert error is None or "Traceback" not in str(error)
                answered, refused = (answered + 1, refused) if error is None else (answered, refused + 1)
                in_flight -= 1
    return answered, refused


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
@pytest.mark.slow
def test_5000_malformed_requests_are_answered_and_others_are_unaffected(plain_server: Server, model: str) -> None:
    chance, count = random.Random(model), 5000
    good: dict[str, NDArray[Any]] = dict(core_inputs([5, 6, 7], 3))
    specs = tensors.parse_tensors(tensors.CORE_INPUTS)
    if model == "ensemble":
        good = {"text_input": text("Hello there"), "max_tokens": int32(3), "exclude_input_in_output": flag(True)}
        specs = tensors.parse_tensors(tensors.ENSEMBLE_INPUTS)
    beside = core_inputs(range(10, 40), 12)
    expected = ids_of([infer(plain_server, "tensorrt_llm", beside)])
    answered, refused = _send_all(plain_server, model, [_spoil(chance, good, specs) for _ in range(count)])
    assert answered + refused == count
    assert refused > count / 2
    assert ids_of([infer(plain_server, "tensorrt_llm", beside)]) == expected
