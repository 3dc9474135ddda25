"""Capacity of the LoRA cache."""

from __future__ import annotations

import openvino as ov
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.openvino.lora import LoraCache, weight_bytes
from serving.errors import RequestError

_WEIGHTS = bytes(2 * 4 * 512)  # rank 4 of a layer of 256 in and out
_CONFIG = b"".join(value.to_bytes(4, "little") for value in (1, 0, 4))  # q of layer 0


@pytest.fixture(scope="module")
def network_bytes() -> int:
    return weight_bytes(ov.Core().read_model(DEMO_ENGINE_DIR / "openvino_model.xml"))


def _cache(capacity_bytes: int, tasks: int) -> LoraCache:
    cache = LoraCache(DEMO_ENGINE_DIR, capacity_bytes)
    for task in range(tasks):
        cache.register(task, _WEIGHTS, _CONFIG)
    return cache


def test_network_size_counts_weights_in_compute_precision(network_bytes: int) -> None:
    on_disk = (DEMO_ENGINE_DIR / "openvino_model.bin").stat().st_size  # float16
    assert network_bytes == pytest.approx(2 * on_disk, rel=0.01)


def test_least_recently_used_network_is_evicted_and_rebuilt(network_bytes: int) -> None:
    cache = _cache(2 * network_bytes + 3 * len(_WEIGHTS), tasks=3)
    first, second = cache.model(0), cache.model(1)
    assert cache.model(0) is first  # now the most recently used, so the next evicts the second
    third = cache.model(2)
    assert (cache.model(0), cache.model(2)) == (first, third)
    assert cache.model(1) is not second


def test_one_network_is_kept_for_any_capacity() -> None:
    cache = _cache(2 * len(_WEIGHTS), tasks=2)
    model = cache.model(0)
    assert cache.model(0) is model
    other = cache.model(1)
    assert cache.model(1) is other
    assert cache.model(0) is not model


def test_evicting_an_adapter_evicts_its_network() -> None:
    cache = _cache(len(_WEIGHTS), tasks=1)
    cache.model(0)
    cache.register(1, _WEIGHTS, _CONFIG)
    with pytest.raises(RequestError, match="LoRA task 0 not found"):
        cache.model(0)
