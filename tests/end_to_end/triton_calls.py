"""Calls to a real Triton with ordinary clients: tritonclient over gRPC, plain HTTP for generate."""

from __future__ import annotations

import json
import queue
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from numpy.typing import NDArray

from serving.launch.server import Server

Tensors = Mapping[str, NDArray[Any]]


_DTYPES = {
    "float16": "FP16",
    "int32": "INT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "float32": "FP32",
    "bool": "BOOL",
    "object": "BYTES",
}


def int32(*values: int) -> NDArray[np.int32]:
    """A row of ids or a scalar, shape [1, n]."""
    return np.array([values], dtype=np.int32)


def text(value: str) -> NDArray[np.object_]:
    return np.array([[value.encode()]], dtype=np.object_)


def flag(value: bool) -> NDArray[np.bool_]:
    return np.array([[value]], dtype=np.bool_)


def core_inputs(ids: Sequence[int], output_tokens: int, **more: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {
        "input_ids": int32(*ids),
        "input_lengths": int32(len(ids)),
        "request_output_len": int32(output_tokens),
        "exclude_input_in_output": flag(True),
        **more,
    }


def infer(server: Server, model: str, inputs: Tensors) -> grpcclient.InferResult:
    """One unary request. Raises InferenceServerException."""
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        return client.infer(model, wire(inputs))


def stream(
    server: Server, model: str, requests: Sequence[Tensors], request_ids: Sequence[str] | None = None
) -> list[list[grpcclient.InferResult]]:
    """Send all requests at once over one stream; the responses of each, in order. Raises the first error."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    ids = list(request_ids or (str(k) for k in range(len(requests))))
    collected: dict[str, list[Any]] = {request_id: [] for request_id in ids}
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for request_id, inputs in zip(ids, requests, strict=True):
            client.async_stream_infer(model, wire(inputs), request_id=request_id, enable_empty_final_response=True)
        collect(answers, collected)
        client.stop_stream()
    return [collected[request_id] for request_id in ids]


def collect(answers: queue.Queue[tuple[Any, Any]], collected: dict[str, list[Any]]) -> None:
    """Assign responses of a stream to their requests until all of ``collected`` have their last. Raises the first error."""
    unfinished = len(collected)
    while unfinished:
        result, error = answers.get(timeout=120)
        if error is not None:
            raise error
        response = result.get_response()
        if response.outputs:
            collected[response.id].append(result)
        unfinished -= response.parameters["triton_final_response"].bool_param


def text_of(results: Sequence[grpcclient.InferResult]) -> str:
    return b"".join(result.as_numpy("text_output").reshape(-1)[0] for result in results).decode()


def ids_of(results: Sequence[grpcclient.InferResult]) -> list[int]:
    return [token for result in results for token in result.as_numpy("output_ids").reshape(-1).tolist()]


def generate(server: Server, model: str, body: Mapping[str, Any], verb: str = "generate") -> tuple[int, str]:
    """POST to Triton's generate extension; status and body."""
    request = urllib.request.Request(
        f"http://{server.addresses.http}/v2/models/{model}/{verb}", json.dumps(body).encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics_page(server: Server) -> str:
    """Content of ``/metrics``. The core model updates about 100 values one by one every 100 ms, gauges first."""
    with urllib.request.urlopen(f"http://{server.addresses.metrics}/metrics", timeout=120) as response:
        page: str = response.read().decode()
    return page


def value_of(page: str, name: str, **labels: str) -> float:
    """One value of a page."""
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if match and all(f'{key}="{value}"' in match[1] for key, value in labels.items()):
            return float(match[2])
    raise AssertionError(f"/metrics has no {name} with {labels}")


def settled(server: Server) -> str:
    """A page of /metrics that includes all events before this call.

    The update in progress may have started too early; the next one has not, and it is complete when a third one starts.
    """
    deadline_s = time.monotonic() + 120
    updates: set[float] = set()
    while len(updates) < 4:
        assert time.monotonic() < deadline_s, "the server does not update its metrics"
        page = metrics_page(server)
        updates.add(value_of(page, "nv_trt_llm_general_metrics", general_type="timestamp"))
        time.sleep(0.02)
    return page


def wait_until_idle(server: Server) -> str:
    """Wait until the engine has no request and no used block; returns the page."""
    deadline_s = time.monotonic() + 120
    while any(load := _load(page := settled(server))):
        assert time.monotonic() < deadline_s, f"the engine is not idle: {load}"
    return page


def wait_until_busy(server: Server, requests: int = 1) -> str:
    """Wait until the engine has this many requests; returns the page. Call ``wait_until_idle`` first."""
    deadline_s = time.monotonic() + 120
    while (load := _load(page := metrics_page(server)))[0] < requests:
        assert time.monotonic() < deadline_s, f"the engine has not got {requests} requests: {load}"
        time.sleep(0.05)
    return page


def _load(page: str) -> tuple[float, float]:
    """Requests in the engine, and KV cache blocks in use."""
    return (
        value_of(page, "nv_trt_llm_request_metrics", request_type="active"),
        value_of(page, "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used"),
    )


def generated_tokens(page: str) -> float:
    """Number of tokens generated since the engine's start."""
    return value_of(page, "inflight_bench_engine_generated_tokens")


def wire(inputs: Tensors) -> list[grpcclient.InferInput]:
    """Tensors as inputs of tritonclient."""
    wired = []
    for name, value in inputs.items():
        tensor = grpcclient.InferInput(name, list(value.shape), _DTYPES[str(value.dtype)])
        tensor.set_data_from_numpy(value)
        wired.append(tensor)
    return wired
