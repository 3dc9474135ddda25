"""vLLM as an engine, where it differs from the contract: with a fake in its environment, or the real one (`make test-vllm`)."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from serving.engines import check_installed, open_engine, open_shared_engine, read_context_tokens
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.process_engine import ProcessEngine, join, listen
from serving.engines.protocol import (
    Engine,
    EngineOptions,
    FinishReason,
    Front,
    Guide,
    GuideType,
    Increment,
    Returns,
    Sampling,
)
from serving.engines.vllm.engine import engine_arguments
from serving.engines.vllm.environment import environment
from serving.engines.vllm.host import Adapters, Sizes, write_adapter
from serving.errors import EngineError
from serving.text.tokenizer import load_tokenizer
from tests.serving.engines.vllm_python import ARGUMENTS, REAL, checkpoint, vllm_python

_WAIT_S = 60.0
_LATE_S = 1.5  # after which a load has failed
_PROMPT = list(range(100, 130))
_ENDED = "vLLM's engine has ended"
real_only = pytest.mark.skipif(not REAL, reason="the fake vLLM has neither guides nor a network")
fake_only = pytest.mark.skipif(bool(REAL), reason="the fake vLLM does what the real one cannot be made to do")

# A process that opens an engine, starts a long request, says which processes that has made, and waits.
_OWNER = """
import sys, time
from pathlib import Path
import psutil
from serving.engines import open_engine
from serving.engines.protocol import EngineOptions, Sampling
options = EngineOptions(engine_python=sys.argv[1], engine_arg=tuple(sys.argv[3:]))
engine = open_engine("vllm", Path(sys.argv[2]), options)
engine.submit(1, [100, 101], Sampling(4000), lambda increment: None, streaming=True)
print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    opened = _open(tmp_path_factory.mktemp("engine"))
    yield opened
    opened.close()


def _open(folder: Path) -> Engine:
    options = EngineOptions(engine_python=vllm_python(folder), engine_arg=ARGUMENTS)
    return open_engine("vllm", checkpoint(folder), options)


def _answer(
    engine: Engine,
    sampling: Sampling,
    prompt: Sequence[int] = _PROMPT,
    *,
    streaming: bool = False,
    returns: Returns | None = None,
) -> list[Increment]:
    answer: queue.SimpleQueue[Increment] = queue.SimpleQueue()
    engine.submit(time.monotonic_ns(), prompt, sampling, answer.put, streaming=streaming, returns=returns or Returns())
    increments = [answer.get(timeout=_WAIT_S)]
    while not increments[-1].is_last:
        increments.append(answer.get(timeout=_WAIT_S))
    return increments


def _tokens(increments: Sequence[Increment]) -> list[int]:
    return [token for increment in increments for token in increment.token_ids]


@pytest.mark.parametrize(
    ("sampling", "returns", "name"),
    [
        (Sampling(7, beam_width=2, return_beams=2), Returns(), "beam_width"),
        (Sampling(7, draft_ids=(4,)), Returns(), "draft_input_ids"),
        (Sampling(7, top_p_decay=0.5), Returns(), "runtime_top_p_decay"),
        (Sampling(7, top_p_min=0.5), Returns(), "runtime_top_p_min"),
        (Sampling(7, top_p_reset_id=4), Returns(), "runtime_top_p_reset_ids"),
        (Sampling(7), Returns(context_logits=True), "return_context_logits"),
        (Sampling(7), Returns(generation_logits=True), "return_generation_logits"),
    ],
)
def test_what_vllm_lacks_is_refused_with_its_tensor(engine: Engine, sampling: Sampling, returns: Returns, name: str) -> None:
    (refused,) = _answer(engine, sampling, returns=returns)
    assert refused.error == f"{name}: the vllm engine does not support it"


_HIDDEN, _INNER = 128, 256  # of the checkpoint
_RANK = 4
_FELT = (3, 0, 4), (4, 0, 4)  # values and outputs of the attention: alone they are felt where all other weights are small


def _adapter(*rows: tuple[int, int, int], scale: float = 1.0, values: int = _RANK * (_HIDDEN + _INNER)) -> tuple[bytes, bytes]:
    """Weights and config in upstream's layout: random matrices for each row (module, layer, rank)."""
    weights = scale * np.random.default_rng(7).normal(size=(len(rows), values))
    return weights.astype(np.float16).tobytes(), np.array(rows, dtype=np.int32).tobytes()


@pytest.fixture(scope="module")
def with_adapters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("adapters")
    options = EngineOptions(engine_python=vllm_python(folder), engine_arg=(*ARGUMENTS, "enable_lora=true"))
    opened = open_engine("vllm", checkpoint(folder), options)
    yield opened
    opened.close()


def test_an_adapter_changes_the_answers_of_its_task_alone(with_adapters: Engine) -> None:
    plain = _answer(with_adapters, Sampling(12))
    with_adapters.register_lora(3, *_adapter(*_FELT, scale=20.0))
    changed = _answer(with_adapters, Sampling(12, lora_task_id=3))
    assert plain[-1].error is changed[-1].error is None
    assert _tokens(changed) != _tokens(plain) == _tokens(_answer(with_adapters, Sampling(12)))
    assert _tokens(_answer(with_adapters, Sampling(12, lora_task_id=3))) == _tokens(changed)


def test_an_adapter_that_is_sent_again_replaces_that_of_its_task(with_adapters: Engine) -> None:
    with_adapters.register_lora(4, *_adapter(*_FELT, scale=20.0))
    first = _tokens(_answer(with_adapters, Sampling(12, lora_task_id=4)))
    with_adapters.register_lora(4, *_adapter(*_FELT, (3, 1, 4), (4, 1, 2), scale=30.0))
    assert _tokens(_answer(with_adapters, Sampling(12, lora_task_id=4))) != first


@pytest.mark.parametrize(
    ("task", "adapter", "problem"),
    [
        (5, None, "LoRA task 5 not found in cache. Please send LoRA weights with request"),
        (6, _adapter((9, 0, 4)), "lora_config names module 9; the vllm engine supports 1 (self_attn.q_proj)"),
        (7, _adapter((5, 1, 5)), "lora_weights holds 1536 values for layer 1, mlp.gate_proj; rank 5 needs 1920"),
        (8, _adapter((1, 0, 32), values=32 * 256), "LoRA rank 32 is greater than max_lora_rank 16"),
        (9, _adapter((1, 2, 4)), "lora_config names layer 2; the network has 2"),
        (10, _adapter((1, 0, 4), (1, 0, 2)), "lora_config names layer 0, self_attn.q_proj twice"),
        (11, _adapter((1, 0, 0)), "lora_config has rank 0 for layer 0, self_attn.q_proj; it must be above 0"),
        (12, (b"", b""), "lora_config has no rows"),
    ],
)
def test_an_adapter_that_does_not_fit_fails_its_requests_alone(
    with_adapters: Engine, task: int, adapter: tuple[bytes, bytes] | None, problem: str
) -> None:
    if adapter is not None:
        with_adapters.register_lora(task, *adapter)
    for _ in range(2):
        (refused,) = _answer(with_adapters, Sampling(7, lora_task_id=task))
        assert refused.error is not None
        assert problem in refused.error
    assert len(_tokens(_answer(with_adapters, Sampling(7)))) == 7


_SHAPES = {
    1: ("self_attn.q_proj", _HIDDEN, _HIDDEN), 2: ("self_attn.k_proj", _HIDDEN, _HIDDEN),
    3: ("self_attn.v_proj", _HIDDEN, _HIDDEN), 4: ("self_attn.o_proj", _HIDDEN, _HIDDEN),
    5: ("mlp.gate_proj", _INNER, _HIDDEN), 6: ("mlp.down_proj", _HIDDEN, _INNER), 7: ("mlp.up_proj", _INNER, _HIDDEN),
}  # fmt: skip


def _with_weights(folder: Path, added: Mapping[tuple[int, int], NDArray[np.float32]]) -> Path:
    """The checkpoint with random weights, and ``added`` to those of (layer, module)."""
    random = np.random.default_rng(5)
    ones = np.ones(_HIDDEN, np.float32)
    tensors = {"model.norm.weight": ones}
    for name in ("model.embed_tokens", "lm_head"):
        tensors[f"{name}.weight"] = random.normal(0, 0.5, (3072, _HIDDEN)).astype(np.float32)
    for layer in range(2):
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = ones
        for module, (name, outputs, inputs) in _SHAPES.items():
            weights = random.normal(0, 0.1, (outputs, inputs)) + added.get((layer, module), 0.0)
            tensors[f"model.layers.{layer}.{name}.weight"] = weights.astype(np.float32)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return checkpoint(folder)


@real_only
def test_an_adapter_answers_as_a_checkpoint_with_its_product_added(tmp_path: Path) -> None:
    rows = [(module, layer, 4 if layer else 3) for module in _SHAPES for layer in range(2)]
    weights, config = _adapter(*rows, scale=0.1)
    products: dict[tuple[int, int], NDArray[np.float32]] = {}
    for (module, layer, rank), values in zip(rows, np.frombuffer(weights, np.float16).reshape(len(rows), -1), strict=True):
        _, outputs, inputs = _SHAPES[module]
        down, up = np.split(values.astype(np.float32)[: rank * (inputs + outputs)], [rank * inputs])
        products[layer, module] = up.reshape(outputs, rank) @ down.reshape(rank, inputs)
    arguments = tuple(argument for argument in ARGUMENTS if argument != "load_format=dummy")
    answers = []
    nothing: dict[tuple[int, int], NDArray[np.float32]] = {}
    for name, added, extra in (("with", nothing, ("enable_lora=true",)), ("merged", products, ())):
        options = EngineOptions(engine_python=vllm_python(tmp_path), engine_arg=(*arguments, *extra))
        opened = open_engine("vllm", _with_weights(tmp_path / name, added), options)
        try:
            opened.register_lora(9, weights, config)
            task = 9 if extra else None
            prompts = [list(range(start, start + 20)) for start in range(100, 140, 5)]
            answers.append([_tokens(_answer(opened, Sampling(10, lora_task_id=task), prompt)) for prompt in prompts])
            if extra:
                plain = [_tokens(_answer(opened, Sampling(10), prompt)) for prompt in prompts]
        finally:
            opened.close()
    assert answers[0] == answers[1] != plain


def test_an_adapter_needs_a_server_that_takes_them(engine: Engine) -> None:
    engine.register_lora(3, *_adapter((1, 0, 4)))
    (refused,) = _answer(engine, Sampling(7, lora_task_id=3))
    assert refused.error is not None
    assert "lora_task_id needs a server that was started with --engine_arg enable_lora=true" in refused.error


class _Llm:
    """vLLM where it keeps adapters: the first that is added fails where ``fails``."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.numbers: set[int] = set()

    async def add_lora(self, request: Any) -> bool:
        if self.fails:
            self.fails = False
            raise OSError("no space left")
        self.numbers.add(request.lora_int_id)
        return True

    async def remove_lora(self, number: int) -> bool:
        self.numbers.remove(number)
        return True


_NETWORK = SimpleNamespace(num_attention_heads=4, hidden_size=_HIDDEN, intermediate_size=_INNER, num_hidden_layers=2)


@pytest.fixture
def lora_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's module of requests with adapters, which is not in this environment."""

    def request(name: str, number: int, path: str) -> Any:
        return SimpleNamespace(lora_name=name, lora_int_id=number, lora_path=path)

    for name, module in (("vllm", None), ("vllm.lora", None), ("vllm.lora.request", request)):
        made = ModuleType(name)
        made.LoRARequest = module  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, made)


@pytest.mark.usefixtures("lora_request")
def test_a_request_keeps_the_adapter_of_its_submission_and_unused_ones_are_removed() -> None:
    async def run() -> None:
        llm = _Llm()
        adapters = Adapters(llm, _NETWORK)
        adapters.register(3, *_adapter((1, 0, 4), scale=0.1))
        first = adapters.take(3)
        adapters.register(3, *_adapter((1, 0, 4), scale=0.2))
        second = adapters.take(3)
        assert first is not None
        assert second is not None
        requests = [await adapters.request(each) for each in (first, second)]
        written = [load_file(Path(request.lora_path) / "adapter_model.safetensors") for request in requests]
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
        assert np.abs(written[0][name]).mean() < np.abs(written[1][name]).mean()
        assert llm.numbers == {1, 2}
        adapters.give_back(first)
        adapters.give_back(second)
        while Path(requests[0].lora_path).exists():
            await asyncio.sleep(0.01)
        assert llm.numbers == {2}
        assert Path(requests[1].lora_path).exists()
        adapters.remove()
        assert not Path(requests[1].lora_path).exists()

    asyncio.run(asyncio.wait_for(run(), _WAIT_S))


@pytest.mark.usefixtures("lora_request")
def test_a_load_that_failed_is_tried_again() -> None:
    async def run() -> None:
        adapters = Adapters(_Llm(fails=True), _NETWORK)
        adapters.register(3, *_adapter((1, 0, 4)))
        adapter = adapters.take(3)
        assert adapter is not None
        with pytest.raises(OSError, match="no space left"):
            await adapters.request(adapter)
        assert (await adapters.request(adapter)).lora_int_id == 2
        adapters.remove()

    asyncio.run(asyncio.wait_for(run(), _WAIT_S))


@pytest.mark.usefixtures("lora_request")
def test_an_adapter_for_a_network_without_llamas_layers_says_so() -> None:
    async def run() -> None:
        adapters = Adapters(_Llm(), SimpleNamespace(num_attention_heads=4, hidden_size=_HIDDEN))
        adapters.register(3, *_adapter((1, 0, 4)))
        adapter = adapters.take(3)
        assert adapter is not None
        with pytest.raises(ValueError, match=r"need a network with Llama's layers: .*intermediate_size"):
            await adapters.request(adapter)
        adapters.remove()

    asyncio.run(asyncio.wait_for(run(), _WAIT_S))


_FOLDER_OWNER = """
from serving.engines.vllm.host import LockedFolder

folder = LockedFolder()
(folder.path / "adapter").mkdir()
print(folder.path, flush=True)
input()
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def started() -> subprocess.Popen[str]:
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", _FOLDER_OWNER], env=environment, **pipes)

    with started() as killed, started() as living:
        left, kept = (Path(each.stdout.readline().strip()) for each in (killed, living) if each.stdout)
        assert left.parent == kept.parent == tmp_path
        killed.kill()
        killed.wait()
        assert left.exists()
        adapters = Adapters(_Llm(), _NETWORK)
        assert not left.exists()
        assert (kept / "adapter").exists()
        assert len([*tmp_path.iterdir()]) == 2
        adapters.remove()
        living.communicate("\n")
    assert [*tmp_path.iterdir()] == [kept]


def test_matrices_are_those_of_the_layout_and_zero_beyond_their_rank(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    query = random.normal(size=(4, 6)).astype(np.float16), random.normal(size=(10, 4)).astype(np.float16)
    down = random.normal(size=(2, 8)).astype(np.float16), random.normal(size=(6, 2)).astype(np.float16)
    rows = [np.concatenate([part.ravel() for part in pair]) for pair in (query, down)]
    weights = np.stack([np.pad(row, (0, 70 - len(row))) for row in rows])
    config = np.array([[1, 0, 4], [6, 1, 2]], dtype=np.int32)
    sizes = Sizes(2, {"hidden": 6, "queries": 10, "keys": 5, "inner": 8})
    write_adapter(tmp_path / "adapter", weights.tobytes(), config.tobytes(), sizes)
    written = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    named = {name.removeprefix("base_model.model.model.layers."): matrix for name, matrix in written.items()}
    assert set(named) == {f"{layer}.lora_{side}.weight" for layer in ("0.self_attn.q_proj", "1.mlp.down_proj") for side in "AB"}
    assert np.array_equal(named["0.self_attn.q_proj.lora_A.weight"], query[0])
    assert np.array_equal(named["0.self_attn.q_proj.lora_B.weight"], query[1])
    assert np.array_equal(named["1.mlp.down_proj.lora_A.weight"], np.pad(down[0], ((0, 2), (0, 0))))
    assert np.array_equal(named["1.mlp.down_proj.lora_B.weight"], np.pad(down[1], ((0, 0), (0, 2))))
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"]) == (4, 4)  # a scale of 1: the layout's B has it already
    assert settings["target_modules"] == ["down_proj", "q_proj"]


@pytest.mark.parametrize("outside", [3072, 2**31 - 1, -1])
def test_an_id_outside_the_vocabulary_ends_its_request_alone(engine: Engine, outside: int) -> None:
    (refused,) = _answer(engine, Sampling(4), [100, outside])
    assert refused.error == "vLLM rejected the request: a token id lies outside the vocabulary, [0, 3072)"
    assert len(_tokens(_answer(engine, Sampling(4)))) == 4


def test_bad_words_are_not_in_the_answer_and_their_parts_are(engine: Engine) -> None:
    sampling = Sampling(8, greedy=False, seed=5)
    free = _tokens(_answer(engine, sampling))
    single = _tokens(_answer(engine, replace(sampling, bad_words=((free[2],),))))
    assert (single[:2], free[2] in single) == (free[:2], False)
    pair = _tokens(_answer(engine, replace(sampling, bad_words=((1, 2, 3), (free[3], free[4])))))
    assert pair[:4] == free[:4]  # the first of the two alone is allowed
    assert pair[4] != free[4]
    assert (free[3], free[4]) not in pairwise(pair)
    assert _tokens(_answer(engine, sampling)) == free


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (((3072,),), "3072"),
        (((-1,),), "-1"),
        (((5,),) * 129, "bad_words_list may hold 128 words and 1,024 tokens in all"),
        (((5,) * 1025,), "bad_words_list may hold 128 words and 1,024 tokens in all"),
    ],
    ids=["beyond the vocabulary", "below it", "too many words", "too many tokens"],
)
def test_bad_words_that_would_end_the_engine_end_their_request_alone(
    engine: Engine, words: tuple[tuple[int, ...], ...], problem: str
) -> None:
    (refused,) = _answer(engine, Sampling(4, bad_words=words))
    assert refused.error is not None
    assert refused.error.startswith("vLLM rejected the request: ")
    assert problem in refused.error
    assert len(_tokens(_answer(engine, Sampling(4)))) == 4


def test_as_many_bad_words_as_fit_are_excluded(engine: Engine) -> None:
    free = _tokens(_answer(engine, Sampling(4)))
    words = (*((token,) * 8 for token in range(1000, 1127)), (free[0],))
    assert _tokens(_answer(engine, Sampling(4, bad_words=words)))[0] != free[0]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("length", [1, 3])
def test_an_answer_ends_with_a_stop_word(engine: Engine, streaming: bool, length: int) -> None:
    sampling = Sampling(20, greedy=False, seed=5)
    free = _tokens(_answer(engine, sampling))
    word = tuple(free[6 : 6 + length])
    stopped = _answer(engine, Sampling(20, greedy=False, seed=5, stop_words=((1, 2), word)), streaming=streaming)
    end = next(end for end in range(length, 20) if tuple(free[end - length : end]) == word)
    assert _tokens(stopped) == free[:end]
    assert stopped[-1].finish is FinishReason.STOP
    assert streaming or len(stopped) == 1


def test_a_seed_repeats_its_answer_and_another_gives_another(engine: Engine) -> None:
    answers = [
        _tokens(_answer(engine, Sampling(16, greedy=False, temperature=0.9, top_k=50, top_p=0.9, seed=s))) for s in (3, 3, 4)
    ]
    assert answers[0] == answers[1] != answers[2]


def test_seeds_beyond_vllms_own_are_served(engine: Engine) -> None:
    """A request without a seed gets one of 64 bits; vLLM has int64 for a seed, and its engine ends for a larger one."""
    answers = [_tokens(_answer(engine, Sampling(8, greedy=False, seed=seed))) for seed in (2**63, 2**63 + 1, 2**64 - 1)]
    assert [len(tokens) for tokens in answers] == [8, 8, 8]
    assert answers[0] != answers[1]


def test_biases_that_would_end_the_engine_end_their_request_alone(engine: Engine) -> None:
    many = array("f", [1.0] * 1025 + [0.0] * 2047).tobytes()
    (refused,) = _answer(engine, Sampling(3, embedding_bias=many))
    assert refused.error == "vLLM rejected the request: embedding_bias may have 1,024 values that are not 0"
    fits = array("f", [1.0] * 1024 + [0.0] * 2048).tobytes()
    assert len(_tokens(_answer(engine, Sampling(3, embedding_bias=fits)))) == 3


def test_a_bias_decides_the_token(engine: Engine) -> None:
    bias = array("f", [0.0] * 3072)
    bias[77] = 1e4
    assert _tokens(_answer(engine, Sampling(5, embedding_bias=bias.tobytes()))) == [77] * 5


@pytest.mark.parametrize("streaming", [True, False])
def test_each_token_has_its_log_prob(engine: Engine, streaming: bool) -> None:
    increments = _answer(engine, Sampling(6), streaming=streaming, returns=Returns(log_probs=True))
    values = [value for increment in increments if increment.details for value in increment.details.log_probs]
    assert len(values) == len(_tokens(increments)) == 6
    assert all(value < 0 for value in values)


@pytest.mark.parametrize("streaming", [True, False])
def test_performance_metrics_have_times_and_blocks(engine: Engine, streaming: bool) -> None:
    prompt = list(range(700 + streaming, 796 + streaming))
    before_ns = time.monotonic_ns()
    _answer(engine, Sampling(2), prompt)
    details = _answer(engine, Sampling(33), prompt, streaming=streaming, returns=Returns(perf_metrics=True))[-1].details
    assert details is not None
    perf = details.perf
    assert perf is not None
    assert before_ns < perf.first_scheduled_time_ns <= perf.first_token_time_ns <= perf.last_token_time_ns < time.monotonic_ns()
    assert (perf.kv_new_blocks, perf.kv_reused_blocks, perf.kv_total_blocks) == (1, 2, 3)


def test_statistics_count_prompts_reuse_and_times(engine: Engine) -> None:
    before = engine.stats()
    prompt = list(range(500, 596))
    for _ in range(2):
        _answer(engine, Sampling(8), prompt, streaming=True)
    after = engine.stats()
    assert after.prompt_tokens_total - before.prompt_tokens_total == 2 * 96
    assert after.kv_prompt_blocks_total - before.kv_prompt_blocks_total == 2 * 3
    assert after.kv_reused_blocks_total - before.kv_reused_blocks_total == 2  # the last token is always computed
    assert sum(after.time_to_first_token.counts) - sum(before.time_to_first_token.counts) == 2
    assert sum(after.inter_token_latency.counts) - sum(before.inter_token_latency.counts) == 2 * 7
    assert (after.waiting_requests, after.context_requests, after.generation_requests) == (0, 0, 0)


@pytest.fixture(scope="module")
def with_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("with_tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_ENGINE_DIR / name, folder)
    opened = _open(folder)
    yield opened
    opened.close()


@real_only
@pytest.mark.parametrize(
    ("guide", "pattern"),
    [
        (Guide(GuideType.REGEX, "[ab]{4,9}c"), "[ab]{4,9}c"),
        (Guide(GuideType.EBNF_GRAMMAR, 'root ::= "yes" | "no"'), "yes|no"),
        (Guide(GuideType.JSON_SCHEMA, '{"enum": ["a", 5]}'), '"a"|5'),
        (Guide(GuideType.JSON), r"[\[{](.|\n)*"),  # the object may be cut by the length
    ],
)
def test_an_answer_follows_its_guide(with_tokenizer: Engine, guide: Guide, pattern: str) -> None:
    tokens = _tokens(_answer(with_tokenizer, Sampling(60, guide=guide)))
    tokenizer = load_tokenizer(DEMO_ENGINE_DIR)
    text = tokenizer.decode([token for token in tokens if token != tokenizer.eos_token_id])
    assert re.fullmatch(pattern, text.strip())


@real_only
def test_a_guide_without_a_tokenizer_is_refused(engine: Engine) -> None:
    (refused,) = _answer(engine, Sampling(7, guide=Guide(GuideType.REGEX, "a")))
    assert refused.error is not None
    assert "tokenizer" in refused.error


@fake_only
def test_an_engine_that_ends_ends_its_requests_with_the_reason(tmp_path: Path) -> None:
    engine = _open(tmp_path)
    (ended,) = _answer(engine, Sampling(50), [7])
    assert ended.error is not None
    assert _ENDED in ended.error
    (late,) = _answer(engine, Sampling(4))
    assert late.error is not None
    assert _ENDED in late.error
    engine.close()


@fake_only
def test_an_engine_that_does_not_load_gives_its_reason(tmp_path: Path) -> None:
    options = EngineOptions(engine_python=vllm_python(tmp_path))
    with pytest.raises(EngineError, match="no room for the weights"):
        open_engine("vllm", checkpoint(tmp_path, fails="no room for the weights"), options)


@fake_only
def test_an_engine_that_does_not_load_gives_its_reason_to_all_that_share_it(tmp_path: Path) -> None:
    options = EngineOptions(engine_python=vllm_python(tmp_path), engine_arg=ARGUMENTS)
    folder, name = checkpoint(tmp_path, fails="no room for the weights"), str(tmp_path)
    fronts = [Front(number, 3, name, lambda client_id: None) for number in range(3)]
    opening = ThreadPoolExecutor()
    for opened in [opening.submit(open_shared_engine, "vllm", folder, options, front) for front in reversed(fronts)]:
        with pytest.raises(EngineError, match="no room for the weights"):
            opened.result(_WAIT_S)


@pytest.mark.parametrize("python", ["", "/bin/false", "/no/such/python"], ids=["it says why", "it dies", "it does not start"])
@fake_only
def test_a_process_that_joins_after_the_load_has_failed_hears_the_reason_at_once(tmp_path: Path, python: str) -> None:
    options = EngineOptions(engine_python=python or vllm_python(tmp_path), engine_arg=ARGUMENTS)
    folder, name = checkpoint(tmp_path, fails="no room for the weights"), str(tmp_path)
    fronts = [Front(number, 3, name, lambda client_id: None) for number in range(3)]
    opening = ThreadPoolExecutor()
    first = opening.submit(open_shared_engine, "vllm", folder, options, fronts[0])
    late = [opening.submit(_join_late, name) for _ in fronts[1:]]
    with pytest.raises((EngineError, OSError)) as failed:
        first.result(_WAIT_S)
    assert [each.result(_WAIT_S) for each in late] == [str(failed.value)] * 2


def _join_late(name: str) -> str:
    """What a process receives that joins after the first one waits only for those that share its engine."""
    time.sleep(_LATE_S)
    with pytest.raises(EngineError) as refused:
        ProcessEngine(join(name, timeout_s=0.0))
    return str(refused.value)


def test_a_killed_host_ends_the_requests_and_its_engine(tmp_path: Path) -> None:
    engine = _open(tmp_path)
    answer: queue.SimpleQueue[Increment] = queue.SimpleQueue()
    engine.submit(1, _PROMPT, Sampling(4000), answer.put, streaming=True)
    answer.get(timeout=_WAIT_S)
    host = psutil.Process(engine._process.pid)  # type: ignore[attr-defined]
    below = host.children(recursive=True)
    host.kill()
    while (increment := answer.get(timeout=_WAIT_S)).error is None:
        pass
    assert increment.error == "the engine's process has ended"
    assert below
    assert not psutil.wait_procs(below, timeout=120)[1]
    engine.close()


def test_processes_share_an_engine(tmp_path: Path) -> None:
    """Each has request ids of its own and hears of what another's client stops; the engine ends with the first."""
    stopped: queue.SimpleQueue[str] = queue.SimpleQueue()
    options = EngineOptions(engine_python=vllm_python(tmp_path), engine_arg=ARGUMENTS)
    folder, name = checkpoint(tmp_path), str(tmp_path)
    joining = ThreadPoolExecutor().submit(open_shared_engine, "vllm", folder, options, Front(1, 3, name, stopped.put))
    first = open_shared_engine("vllm", folder, options, Front(0, 3, name, stopped.put))
    second, third = joining.result(_WAIT_S), open_shared_engine("vllm", folder, options, Front(2, 3, name, stopped.put))
    answers: dict[Engine, queue.SimpleQueue[Increment]] = {engine: queue.SimpleQueue() for engine in (first, second, third)}
    for engine, tokens in ((first, 5), (second, 6)):
        engine.submit(1, _PROMPT, Sampling(tokens), answers[engine].put, streaming=False)
    assert [len(answers[engine].get(timeout=_WAIT_S).token_ids) for engine in (first, second)] == [5, 6]
    second.announce_stop("client")
    assert [stopped.get(timeout=_WAIT_S) for _ in range(2)] == ["client", "client"]
    for engine in answers:
        engine.submit(2, _PROMPT, Sampling(4000), answers[engine].put, streaming=True)
        answers[engine].get(timeout=_WAIT_S)
    third.close()
    second.cancel(2)
    _until(lambda: first.stats().active_requests == 1)
    first.close()
    assert _last(answers[second]).finish is FinishReason.CANCELLED
    second.submit(3, _PROMPT, Sampling(4), answers[second].put, streaming=True)
    assert _last(answers[second]).error == "the engine's process has ended"


@fake_only
def test_an_engine_that_ends_gives_the_reason_to_all_that_share_it(tmp_path: Path) -> None:
    options = EngineOptions(engine_python=vllm_python(tmp_path), engine_arg=ARGUMENTS)
    folder, name = checkpoint(tmp_path), str(tmp_path)
    engines = [
        open_shared_engine("vllm", folder, options, Front(number, 6, name, lambda client_id: None)) for number in range(6)
    ]
    answers: list[queue.SimpleQueue[Increment]] = [queue.SimpleQueue() for _ in engines]
    for engine, answer in zip(engines, answers, strict=True):
        engine.submit(1, _PROMPT, Sampling(4000), answer.put, streaming=True)
        answer.get(timeout=_WAIT_S)
    engines[-1].submit(2, [7], Sampling(50), answers[-1].put, streaming=True)
    for answer in (*answers, answers[-1]):
        assert _ENDED in (_last(answer).error or "")
    for engine in engines:
        engine.close()


@fake_only
def test_a_prefix_cache_that_cannot_be_emptied_gives_the_reason(tmp_path: Path) -> None:
    engine = _open(tmp_path)
    _answer(engine, Sampling(4), [8])
    with pytest.raises(EngineError, match="the cache is not to be emptied"):
        engine.reset_prefix_cache()
    engine.close()


def test_processes_that_cannot_share_an_engine_say_why(tmp_path: Path) -> None:
    options = EngineOptions(engine_python=vllm_python(tmp_path), engine_arg=ARGUMENTS)
    front = Front(0, 1, str(tmp_path), lambda client_id: None)
    with pytest.raises(EngineError, match="no process has started the engine"):
        join(front.name, timeout_s=0.0)
    with listen(front.name), pytest.raises(EngineError, match="is it loaded twice"):
        open_shared_engine("vllm", checkpoint(tmp_path), options, front)
    with pytest.raises(EngineError, match="the engine openvino cannot be shared"):
        open_shared_engine("openvino", tmp_path, options, front)


def _last(answer: queue.SimpleQueue[Increment]) -> Increment:
    while not (increment := answer.get(timeout=_WAIT_S)).is_last:
        pass
    return increment


def _until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_all_processes_end_with_a_killed_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OWNER, vllm_python(tmp_path), str(checkpoint(tmp_path)), *ARGUMENTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        printed = next(line for line in owner.stdout if re.fullmatch(r"[0-9 ]+\n", line))  # vLLM prints its log before it
        processes = [psutil.Process(int(pid)) for pid in printed.split()]
        assert len(processes) >= 2
        os.kill(owner.pid, signal.SIGKILL)
    assert not psutil.wait_procs(processes, timeout=120)[1]


def test_settings_become_arguments_of_vllm() -> None:
    options = EngineOptions(
        max_num_sequences=64,
        max_num_tokens=512,
        enable_kv_cache_reuse=False,
        enable_chunked_context=False,
        kv_cache_free_gpu_mem_fraction=0.5,
        tensor_parallel_size=2,
        engine_arg=("load_format=dummy", "max_model_len=1024", 'speculative_config={"method": "ngram"}', "enforce_eager=true"),
    )
    assert engine_arguments(Path("/model"), options) == {
        "model": "/model",
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "gpu_memory_utilization": 0.5,
        "tensor_parallel_size": 2,
        "load_format": "dummy",
        "max_model_len": 1024,
        "speculative_config": {"method": "ngram"},
        "enforce_eager": True,
    }


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("max_num_seqs=4", "--engine_arg max_num_seqs: --max_num_sequences sets it"),
        ("skip_tokenizer_init=false", "--engine_arg skip_tokenizer_init: bench sets it itself"),
        ("dtype", "must be KEY=VALUE"),
        ("a.b=4", "must be KEY=VALUE"),
    ],
)
def test_an_argument_that_has_an_option_is_refused(argument: str, problem: str) -> None:
    with pytest.raises(EngineError, match=problem):
        engine_arguments(Path("/model"), EngineOptions(engine_arg=(argument,)))


def test_a_queue_without_limit_takes_none() -> None:
    with pytest.raises(EngineError, match="--max_queue_size"):
        engine_arguments(Path("/model"), EngineOptions(max_queue_size=5))


def test_the_environment_must_have_vllm_alone(tmp_path: Path) -> None:
    check_installed("vllm", EngineOptions(engine_python=vllm_python(tmp_path)))
    for python, problem in {
        "": "--engine vllm needs --engine_python",
        "/no/python": "is no program",
        "/bin/false": "is no Python",
        sys.executable: "has no vLLM",
    }.items():
        with pytest.raises(EngineError, match=problem):
            check_installed("vllm", EngineOptions(engine_python=python))


@fake_only
def test_vllm_and_triton_in_one_environment_are_refused(tmp_path: Path) -> None:
    python = vllm_python(tmp_path)
    (tmp_path / "libraries" / "pytriton").mkdir()
    with pytest.raises(EngineError, match="vLLM and nvidia-pytriton in one environment"):
        check_installed("vllm", EngineOptions(engine_python=python))


def test_its_processes_do_not_see_the_libraries_of_tritons_wheel() -> None:
    own = {"LD_LIBRARY_PATH": "/site/nvidia_pytriton.libs:/cuda/lib", "PYTHONHOME": "", "VLLM_NO_USAGE_STATS": "0"}
    variables = environment(own)
    assert variables["LD_LIBRARY_PATH"] == "/cuda/lib"
    assert "PYTHONHOME" not in variables
    assert variables["VLLM_NO_USAGE_STATS"] == "0"  # the user's own value stays


def test_context_length_of_a_checkpoint(tmp_path: Path) -> None:
    assert read_context_tokens("vllm", checkpoint(tmp_path), EngineOptions()) == 4096
    assert read_context_tokens("vllm", checkpoint(tmp_path), EngineOptions(engine_arg=("max_model_len=512",))) == 512
    (tmp_path / "config.json").write_text('{"n_positions": 1024}')  # GPT-2
    assert read_context_tokens("vllm", tmp_path, EngineOptions()) == 1024
    (tmp_path / "config.json").write_text("{}")
    assert read_context_tokens("vllm", tmp_path, EngineOptions()) is None
    with pytest.raises(EngineError, match="is no Hugging Face checkpoint"):
        read_context_tokens("vllm", tmp_path / "missing", EngineOptions())
