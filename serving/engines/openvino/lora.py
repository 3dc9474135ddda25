"""LoRA in the OpenVINO engine: adapters in upstream's layout, added to the graph of an exact copy of the network.

Layout (``hf_lora_convert.py`` and TensorRT-LLM's LoRA documentation): a row of ``lora_config`` is module id, layer, rank; the
same row of ``lora_weights`` is A [rank, in], then B [out, rank], flat, zero-padded, already scaled by alpha / rank.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from serving.engines.openvino.logits import LogitsModel
from serving.errors import RequestError

# TensorRT-LLM's module ids → layer names of Hugging Face's Llama and related models.
_MODULES = {
    1: "self_attn.q_proj",
    2: "self_attn.k_proj",
    3: "self_attn.v_proj",
    4: "self_attn.o_proj",
    5: "mlp.gate_proj",
    6: "mlp.down_proj",
    7: "mlp.up_proj",
}


@dataclass(frozen=True, eq=False)
class Adapter:
    """One task's adapter: ``weights`` float16 [modules, values], ``config`` int32 [modules, 3]."""

    weights: NDArray[np.float16]
    config: NDArray[np.int32]


class LoraCache:
    """LRU cache of the adapters by task and of the networks built with them.

    A network is a copy with its own weights, and counts with their size. Networks are evicted before adapters, since they can
    be rebuilt; the most recently used adapter and network are kept whatever their size.
    """

    def __init__(self, engine_dir: Path, capacity_bytes: int) -> None:
        self._engine_dir = engine_dir
        self._capacity_bytes = capacity_bytes
        self._adapters: OrderedDict[int, Adapter] = OrderedDict()
        self._models: OrderedDict[int, LogitsModel] = OrderedDict()
        self._network_bytes: int | None = None  # set when the first network is read

    def register(self, task_id: int, weights: bytes, config: bytes) -> None:
        rows = np.frombuffer(config, dtype=np.int32).reshape(-1, 3)
        known = self._adapters.get(task_id)
        adapter = Adapter(np.frombuffer(weights, dtype=np.float16).reshape(len(rows), -1), rows)
        if known is None or not (np.array_equal(known.weights, adapter.weights) and np.array_equal(known.config, rows)):
            self._adapters[task_id] = adapter
            self._models.pop(task_id, None)
        self._adapters.move_to_end(task_id)
        self._evict()

    def model(self, task_id: int) -> LogitsModel:
        """Raises RequestError for an unknown task (with upstream's message), or an adapter that does not fit the network."""
        if task_id not in self._adapters:
            raise RequestError(f"LoRA task {task_id} not found in cache. Please send LoRA weights with request")
        self._adapters.move_to_end(task_id)
        if task_id not in self._models:
            model = ov.Core().read_model(self._engine_dir / "openvino_model.xml")
            if self._network_bytes is None:
                self._network_bytes = weight_bytes(model)
            add_adapter(model, self._adapters[task_id])
            self._models[task_id] = LogitsModel(model)
        self._models.move_to_end(task_id)
        self._evict()
        return self._models[task_id]

    def _evict(self) -> None:
        while len(self._models) > 1 and self._bytes() > self._capacity_bytes:
            self._models.popitem(last=False)
        while len(self._adapters) > 1 and self._adapter_bytes() > self._capacity_bytes:
            evicted, _ = self._adapters.popitem(last=False)
            self._models.pop(evicted, None)

    def _bytes(self) -> int:
        return self._adapter_bytes() + len(self._models) * (self._network_bytes or 0)

    def _adapter_bytes(self) -> int:
        return sum(adapter.weights.nbytes for adapter in self._adapters.values())


def weight_bytes(model: Any) -> int:
    """Memory of an ``openvino.Model``'s constants when compiled with ``EXACT``: floats as float32."""
    constants = [node.output(0) for node in model.get_ops() if node.get_type_name() == "Constant"]
    return sum(
        math.prod(output.get_shape()) * max(output.get_element_type().size, 4 if output.get_element_type().is_real() else 1)
        for output in constants
    )


def add_adapter(model: Any, adapter: Adapter) -> None:
    """Add the adapter's matrix products to the layers of an ``openvino.Model``. Raises RequestError where one does not fit."""
    layers = {node.get_friendly_name(): node for node in model.get_ops() if node.get_type_name() == "MatMul"}
    for (module, layer, rank), values in zip(adapter.config.tolist(), adapter.weights, strict=True):
        if module not in _MODULES:
            raise RequestError(f"lora_config names module {module}; the embedded engine supports {_known_modules()}")
        part = f"layers.{layer}.{_MODULES[module]}/"
        matching = [node for name, node in layers.items() if part in name]
        if len(matching) != 1:
            raise RequestError(f"lora_config names layer {layer}, module {module}: the network has no {part[:-1]}")
        _add_product(matching[0], rank, values, part)


def _add_product(node: Any, rank: int, values: NDArray[np.float16], part: str) -> None:
    inputs = node.input_value(0).get_partial_shape()[-1].get_length()
    outputs = node.output(0).get_partial_shape()[-1].get_length()
    needed = rank * (inputs + outputs)
    if rank < 1 or needed > len(values):
        raise RequestError(f"lora_weights holds {len(values)} values for {part[:-1]}; rank {rank} needs {needed}")
    down = values[: rank * inputs].reshape(rank, inputs).astype(np.float32)
    up = values[rank * inputs : needed].reshape(outputs, rank).astype(np.float32)
    consumers = list(node.output(0).get_target_inputs())
    narrow = ops.matmul(node.input_value(0), ops.constant(down), False, True)
    added = ops.add(node.output(0), ops.matmul(narrow, ops.constant(up), False, True))
    for consumer in consumers:
        consumer.replace_source_output(added.output(0))


def _known_modules() -> str:
    return ", ".join(f"{number} ({name})" for number, name in _MODULES.items())
