"""Engines: the libraries that run a model, each as an implementation of one protocol."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from serving.engines.protocol import Engine, EngineOptions, Front, SharedEngine
from serving.errors import INSTALL_EMBEDDED, EngineError

ENGINE_NAMES = ("openvino", "tensorrt_llm", "vllm")
SHARED_ENGINE_NAMES = ("vllm",)
"""Engines that several instances of the core model can share."""


def check_installed(name: str, options: EngineOptions) -> None:
    """Raise EngineError with installation instructions when the library of the engine ``name`` is missing, and for an option
    that it does not have."""
    if name == "openvino" and importlib.util.find_spec("openvino_genai") is None:
        raise EngineError(f"the engine openvino needs OpenVINO GenAI; install it with: {INSTALL_EMBEDDED}")
    if options.step_log:
        from serving.engines.step_log import check_step_log

        check_step_log(Path(options.step_log))
    if name == "tensorrt_llm" and importlib.util.find_spec("tensorrt_llm") is None:
        raise EngineError(
            "the engine tensorrt_llm needs TensorRT-LLM; install it, on a machine with an NVIDIA GPU, with: "
            "pip install 'inflight-bench[tensorrt-llm]'"
        )
    if name == "vllm":
        from serving.engines.vllm.engine import check_options
        from serving.engines.vllm.environment import check_python

        check_python(options.engine_python)
        check_options(options)


def read_context_tokens(name: str, engine_dir: Path, options: EngineOptions) -> int | None:
    """The most tokens of prompt and output together, without loading the engine; None where its folder does not give it.

    Raises EngineError when ``engine_dir`` is not an engine of that kind.
    """
    match name:
        case "openvino":
            from serving.engines.openvino.folder import read_limits

            return read_limits(engine_dir).context_tokens
        case "tensorrt_llm":
            from serving.engines.tensorrt_llm.engine import read_limits as read_tensorrt_llm_limits

            return read_tensorrt_llm_limits(engine_dir).context_tokens
        case _:
            from serving.engines.vllm.engine import read_context_tokens as read_vllm_context_tokens

            return read_vllm_context_tokens(engine_dir, options)


def open_engine(name: str, engine_dir: Path, options: EngineOptions) -> Engine:
    """Load the engine in ``engine_dir``.

    Raises EngineError when the name is unknown, the folder is not an engine of that kind, or its library is missing.
    """
    match name:
        case "openvino":
            from serving.engines.openvino.engine import OpenVinoEngine

            return OpenVinoEngine(engine_dir, options)
        case "tensorrt_llm":
            from serving.engines.tensorrt_llm.engine import TensorRtLlmEngine

            return TensorRtLlmEngine(engine_dir, options)
        case "vllm":
            from serving.engines.vllm.engine import VllmEngine

            return VllmEngine(engine_dir, options)
        case _:
            raise EngineError(f"unknown engine {name!r}; known: {', '.join(ENGINE_NAMES)}")


def open_shared_engine(name: str, engine_dir: Path, options: EngineOptions, front: Front) -> SharedEngine:
    """Load the engine in ``engine_dir`` for several processes, or join the one that has. Raises EngineError."""
    if name not in SHARED_ENGINE_NAMES:
        raise EngineError(f"the engine {name} cannot be shared; one of {', '.join(SHARED_ENGINE_NAMES)} can")
    from serving.engines.vllm.engine import VllmEngine

    return VllmEngine(engine_dir, options, front)
