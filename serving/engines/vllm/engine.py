"""vLLM as an engine: its ``AsyncLLM`` in a process of another environment, which runs ``host.py``."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.engines.process_engine import Link, ProcessEngine, join, listen, refuse, start
from serving.engines.protocol import (
    HISTOGRAM_BOUNDS_S,
    TOKENS_ONLY,
    Deliver,
    EngineOptions,
    Front,
    Increment,
    Returns,
    Sampling,
)
from serving.engines.unsupported import first_unsupported
from serving.engines.vllm.environment import environment
from serving.errors import EngineError

_HOST = Path(__file__).with_name("host.py")
_UNSUPPORTED = {  # a field of Sampling → the tensor that sets it
    "top_p_decay": "runtime_top_p_decay",
    "top_p_min": "runtime_top_p_min",
    "top_p_reset_id": "runtime_top_p_reset_ids",
    "beam_width": "beam_width",
    "draft_ids": "draft_input_ids",
}
_SUPPORTED_RETURNS = ("log_probs", "perf_metrics")
_OWN = {  # an argument of vLLM → the option that sets it
    "model": "engine_dir",
    "max_num_seqs": "max_num_sequences",
    "max_num_batched_tokens": "max_num_tokens",
    "enable_prefix_caching": "enable_kv_cache_reuse",
    "enable_chunked_prefill": "enable_chunked_context",
    "gpu_memory_utilization": "kv_cache_free_gpu_mem_fraction",
    "num_gpu_blocks_override": "max_tokens_in_paged_kv_cache",
    "tensor_parallel_size": "tensor_parallel_size",
}
_OURS = ("skip_tokenizer_init", "disable_log_stats")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "seq_length")  # Llama and most others, GPT-2, and older ones


class VllmEngine(ProcessEngine):
    """An ``Engine`` over ``serving/engines/vllm/host.py``."""

    def __init__(self, engine_dir: Path, options: EngineOptions, front: Front | None = None) -> None:
        """Load a Hugging Face checkpoint, or join a process that has; ``front`` None: of this process alone.

        Raises EngineError.
        """
        if front is None:
            super().__init__(_start(engine_dir, options, None))
        elif front.number > 0:
            super().__init__(join(front.name), front.on_stop)
        else:
            with listen(front.name) as listener:  # once it is ready the started process alone keeps it: all learn of its end
                try:
                    super().__init__(_start(engine_dir, options, listener), front.on_stop)
                except Exception as error:
                    refuse(listener, front.count - 1, str(error))
                    raise

    def submit(
        self,
        request_id: int,
        input_ids: Sequence[int],
        sampling: Sampling,
        deliver: Deliver,
        *,
        streaming: bool,
        returns: Returns = TOKENS_ONLY,
    ) -> None:
        name = first_unsupported(_UNSUPPORTED, _SUPPORTED_RETURNS, sampling, returns)
        if name is not None:
            deliver(Increment((), error=f"{name}: the vllm engine does not support it"))
        else:
            super().submit(request_id, input_ids, sampling, deliver, streaming=streaming, returns=returns)


def _start(engine_dir: Path, options: EngineOptions, listener: socket.socket | None) -> Link:
    settings = {
        "arguments": engine_arguments(engine_dir, options),
        "kv_cache_tokens": options.gpu_cache_tokens,
        "bounds_s": HISTOGRAM_BOUNDS_S,
        "listener": None if listener is None else listener.fileno(),
    }
    command = (options.engine_python, str(_HOST))
    return start(lambda pipe: [*command, str(pipe), json.dumps(settings)], environment(os.environ), listener)


def check_options(options: EngineOptions) -> None:
    """Raise EngineError for a setting that vLLM does not have, and an ``engine_arg`` that has an option of its own."""
    if options.max_queue_size:
        raise EngineError("--max_queue_size: the vllm engine does not limit its queue; leave it at 0")
    _further_arguments(options)


def engine_arguments(engine_dir: Path, options: EngineOptions) -> Mapping[str, object]:
    """The arguments of vLLM's ``AsyncEngineArgs``. Raises EngineError as ``check_options`` does."""
    check_options(options)
    model = os.fsencode(engine_dir).decode(errors="surrogateescape")  # Triton's stub has what is not ASCII as bytes
    return {
        "model": model,
        "skip_tokenizer_init": not _guides(engine_dir, options),
        "disable_log_stats": True,
        "max_num_seqs": options.max_num_sequences,
        "max_num_batched_tokens": options.max_num_tokens,
        "enable_prefix_caching": options.enable_kv_cache_reuse,
        "enable_chunked_prefill": options.enable_chunked_context,
        "gpu_memory_utilization": options.kv_cache_free_gpu_mem_fraction,
        "tensor_parallel_size": options.tensor_parallel_size,
        **_further_arguments(options),
    }


def read_context_tokens(engine_dir: Path, options: EngineOptions) -> int | None:
    """The context length of a checkpoint, or that of ``engine_arg``; None where ``config.json`` does not give it.

    Raises EngineError when ``engine_dir`` is no checkpoint.
    """
    limit = _further_arguments(options).get("max_model_len")
    path = engine_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{engine_dir} is no Hugging Face checkpoint: {path} cannot be read: {error}") from error
    lengths = [config[key] for key in _CONTEXT_KEYS if isinstance(config.get(key), int)]
    return limit if isinstance(limit, int) else next(iter(lengths), None)


def _guides(engine_dir: Path, options: EngineOptions) -> bool:
    """Whether vLLM loads a tokenizer, which only guides need."""
    return bool(options.guided_decoding_backend) and any((engine_dir / name).is_file() for name in _TOKENIZERS)


def _further_arguments(options: EngineOptions) -> Mapping[str, object]:
    arguments: dict[str, object] = {}
    for text in options.engine_arg:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise EngineError(f"--engine_arg must be KEY=VALUE, an argument of vLLM's AsyncEngineArgs, not {text!r}")
        if key in _OWN:
            raise EngineError(f"--engine_arg {key}: --{_OWN[key]} sets it")
        if key in _OURS:
            raise EngineError(f"--engine_arg {key}: bench sets it itself")
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return arguments
