"""``tensorrt_llm`` of the ``llmapi`` target: text in, text out, over TensorRT-LLM's LLM API, without a prebuilt engine.

``model.yaml`` beside ``model.py`` (or the file in ``LLM_CONFIG_PATH``) has the arguments of ``LLM(...)``. An asyncio loop on
its own thread runs all requests concurrently. A streamed response contains the new text only, so the pieces join to the
unstreamed text; with ``accumulate_tokens: true`` in ``triton_config`` each contains the whole text so far.
Source: tensors and rules of ``all_models/llmapi`` in TensorRT-LLM's ``triton_backend``.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.errors import ServingError
from serving.models.llmapi.request import LlmApiRequest, parse_llmapi_request
from serving.models.parameters import Parameters, error_response, failure_response, response_to_error, scalar

_ABORT_GRACE_S = 5.0  # after it, an aborted request is ended without the library
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_NOT_INSTALLED = (
    "TensorRT-LLM is not installed: serve in NVIDIA's container, or pip install 'tensorrt-llm>=1.0' "
    "for the Python that Triton runs"
)
_NOT_ENDED = f"the request was stopped, and the LLM API did not end it within {_ABORT_GRACE_S:g} s"
_LAUNCHER_VARIABLES = ("OMPI_", "PMIX_", "PMI_")  # of a parent mpirun: with them an instance would join its MPI world


class TritonPythonModel:
    """One instance with one LLM; ``execute`` parses requests and submits them to the loop."""

    def initialize(self, args: dict[str, str]) -> None:
        model_config = json.loads(args["model_config"])
        parameters = Parameters(args["model_config"])
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(model_config)
        folder = Path(args["model_repository"]) / args["model_version"]
        arguments, triton = _read_settings(Path(os.environ.get("LLM_CONFIG_PATH", folder / "model.yaml")))
        _check_triton_config(triton, model_config, self._decoupled)
        self._accumulate = bool(triton.get("accumulate_tokens", False))
        self._cancellation_check_s = float(triton.get("cancellation_check_period_ms", 100)) / 1e3
        _choose_gpus(parameters.text("gpu_device_ids", ""), args["model_instance_name"])
        self._running: dict[int, _Running] = {}
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llmapi")
        self._thread.start()
        try:
            self._llm = self._in_loop(_open(arguments)).result()
        except BaseException:
            self._stop_loop()
            raise
        self._in_loop(self._cancel_abandoned())

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                parsed = None if scalar(request, "stop") else parse_llmapi_request(request, self._decoupled)
            except Exception as error:
                sender.send(response_to_error(error, "the request could not be read"), flags=_FINAL)
                continue
            if parsed is None:
                self._in_loop(self._stop(request.request_id(), sender))
            else:
                self._in_loop(self._serve(_Running(request.request_id(), sender, parsed)))

    def finalize(self) -> None:
        self._closing = True
        self._in_loop(self._abort_all()).result()
        self._llm.shutdown()
        self._stop_loop()

    def _in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop_loop(self) -> None:
        self._in_loop(_end_tasks()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, running: _Running) -> None:
        self._running[id(running)] = running
        running.task = asyncio.current_task()
        try:
            last = await self._generate(running)
        except asyncio.CancelledError:  # the model is unloaded, or the library did not end an aborted request
            last = failure_response("the model is being unloaded") if self._closing else _cancelled(_NOT_ENDED)
        except Exception as error:  # the library raises ValueError or TypeError for invalid requests
            respond = error_response if isinstance(error, ValueError | TypeError) else failure_response
            last = respond(f"the LLM API failed: {error}")
        del self._running[id(running)]  # before the last response: afterwards Triton must not be queried for cancellation
        if last is None:
            running.sender.send(flags=_FINAL)
        else:
            running.sender.send(last, flags=_FINAL)

    async def _generate(self, running: _Running) -> Any:
        """Send all responses but the last, and return that; None when a stream ended without a finished result."""
        parsed = running.parsed
        output = self._llm.generate_async(
            parsed.prompt,
            sampling_params=_sampling_params(parsed.sampling),
            lora_request=_lora_request(parsed.lora),
            streaming=parsed.streaming,
        )
        running.output = output
        if not parsed.streaming:
            return running.response((await output).outputs[0], whole_text=True)
        async for result in output:
            response = running.response(result.outputs[0], self._accumulate)
            if result.finished:
                return response
            running.sender.send(response)
        return None

    async def _stop(self, request_id: str, sender: Any) -> None:
        """Abort the requests with this id. The response is CANCELLED for every id, as in upstream's llmapi model."""
        if not request_id:
            sender.send(error_response("stop needs the request id of the request to stop"), flags=_FINAL)
            return
        for running in list(self._running.values()):
            if running.request_id == request_id:
                running.abort()
        sender.send(_cancelled(f"request {request_id} is stopped"), flags=_FINAL)

    async def _abort_all(self) -> None:
        for running in list(self._running.values()):
            running.abort()

    async def _cancel_abandoned(self) -> None:
        while True:
            await asyncio.sleep(self._cancellation_check_s)
            for running in list(self._running.values()):
                try:
                    if running.sender.is_cancelled():
                        running.abort()
                except Exception as error:  # concerns this request only
                    pb_utils.Logger.log_error(f"llmapi: the check for cancellation of a request failed: {error!r}")


@dataclass(slots=True, eq=False)
class _Running:
    """A request in flight; used on the loop's thread, except for parsing."""

    request_id: str
    sender: Any
    parsed: LlmApiRequest
    output: Any = None  # the LLM API's RequestOutput
    task: asyncio.Task[Any] | None = None
    is_aborted: bool = False

    def abort(self) -> None:
        """Abort in the library; if the request has not ended after the grace period, cancel its task."""
        if self.output is None or self.task is None or self.is_aborted:
            return
        self.is_aborted = True
        self.task.get_loop().call_later(_ABORT_GRACE_S, self.task.cancel)
        try:
            self.output.abort()
        except Exception as error:  # the request still ends after the grace period
            pb_utils.Logger.log_error(f"llmapi: the LLM API failed to abort a request: {error!r}")

    def response(self, output: Any, whole_text: bool) -> Any:
        """One response with the requested outputs, in the types of the configuration."""
        values: dict[str, NDArray[Any]] = {"text_output": _text(output.text if whole_text else output.text_diff)}
        wanted = self.parsed.returned
        if "finish_reason" in wanted:
            values["finish_reason"] = _text(str(output.finish_reason or ""))
        if "stop_reason" in wanted:
            values["stop_reason"] = _text("" if output.stop_reason is None else str(output.stop_reason))
        if "cumulative_logprob" in wanted and output.cumulative_logprob is not None:
            values["cumulative_logprob"] = np.array([output.cumulative_logprob], np.float32)
        if self.parsed.sampling.get("return_perf_metrics") and output.request_perf_metrics is not None:
            values |= _perf_metrics(output.request_perf_metrics)
        requested = self.parsed.wanted_outputs
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in values.items() if name in requested])


async def _open(arguments: Mapping[str, Any]) -> Any:
    """Create the LLM on the loop's thread, where its outputs are awaited."""
    try:
        from tensorrt_llm import LLM
    except ImportError as error:
        raise ServingError(f"{_NOT_INSTALLED} ({error})") from None
    return LLM(**arguments)


async def _end_tasks() -> None:
    """Cancel all tasks on the loop: requests in flight, which end with an error, and the cancellation checks."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _sampling_params(values: Mapping[str, object]) -> Any:
    from tensorrt_llm import SamplingParams

    return SamplingParams(**values)


def _lora_request(values: Mapping[str, object] | None) -> Any:
    if values is None:
        return None
    from tensorrt_llm.executor import LoRARequest

    return LoRARequest(**values)


class _TritonConfig(TypedDict, total=False):
    max_batch_size: int
    decoupled: bool
    accumulate_tokens: bool
    cancellation_check_period_ms: float


def _read_settings(path: Path) -> tuple[Mapping[str, object], _TritonConfig]:
    """The arguments of ``LLM(...)``, and the content of ``triton_config``."""
    import yaml

    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ServingError(f"{path} cannot be read: {error}") from None
    if not isinstance(settings, dict) or "model" not in settings:
        raise ServingError(f"{path} must define the model: 'model: DIRECTORY or Hugging Face id'")
    triton: _TritonConfig = settings.pop("triton_config", None) or {}
    return settings, triton


def _check_triton_config(triton: Mapping[str, object], model_config: Mapping[str, Any], decoupled: bool) -> None:
    """Raise ServingError where ``triton_config``, which may repeat values of ``config.pbtxt``, contradicts it."""
    for name, value in (("max_batch_size", model_config["max_batch_size"]), ("decoupled", decoupled)):
        if triton.get(name, value) != value:
            raise ServingError(f"{name} is {triton[name]} in model.yaml but {value} in config.pbtxt: make them equal")


def _choose_gpus(gpu_device_ids: str, instance_name: str) -> None:
    """Set the GPUs of this instance from ``0,1;2,3``; before TensorRT-LLM is imported, which reads the variable once."""
    if not gpu_device_ids:
        return
    groups = gpu_device_ids.split(";")
    instance = int(instance_name.rpartition("_")[2])
    if instance >= len(groups):
        raise ServingError(f"gpu_device_ids {gpu_device_ids} has no GPUs for instance {instance}: give one group per instance")
    os.environ["CUDA_VISIBLE_DEVICES"] = groups[instance]
    for name in [name for name in os.environ if name.startswith(_LAUNCHER_VARIABLES)]:
        del os.environ[name]


def _perf_metrics(metrics: Any) -> dict[str, NDArray[Any]]:
    cache, times, drafts = metrics.kv_cache_metrics, metrics.timing_metrics, metrics.speculative_decoding
    values: dict[str, NDArray[Any]] = {
        "kv_cache_reused_block": np.array([cache.num_reused_blocks], np.int32),
        "kv_cache_missed_block": np.array([cache.num_missed_blocks], np.int32),
        "kv_cache_alloc_new_blocks": np.array([cache.num_new_allocated_blocks], np.int32),
        "kv_cache_alloc_total_blocks": np.array([cache.num_total_allocated_blocks], np.int32),
        "kv_cache_hit_rate": np.array([cache.kv_cache_hit_rate], np.float32),
        "acceptance_rate": np.array([drafts.acceptance_rate], np.float32),
        "total_accepted_draft_tokens": np.array([drafts.total_accepted_draft_tokens], np.int32),
        "total_draft_tokens": np.array([drafts.total_draft_tokens], np.int32),
    }
    for name in ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time"):
        since_epoch = getattr(times, name)  # a timedelta of the steady clock
        nanoseconds = (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1_000
        values[f"{name}_ns"] = np.array([nanoseconds], np.int64)
    return values


def _cancelled(message: str) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.CANCELLED))


def _text(text: str) -> NDArray[np.object_]:
    return np.array([text.encode("utf-8", "replace")], dtype=np.object_)
