"""The repository for NVIDIA's container: written parameters and tensors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.repository.ngc import ngc_model_configs, write_ngc_repository
from serving.repository.ngc_parameters import PARAMETERS
from serving.repository.ngc_spec import NgcSpec
from serving.repository.pipeline import MODEL_NAMES
from tests.serving.repository.conftest import MakeEngine
from tools.reference.markdown import plain
from tools.reference.repository_parameters import repository_parameters_markdown

# Upstream's table of tensorrt_llm/config.pbtxt: key of the parameters block, template variable, a value, what is written.
_UPSTREAM = """
max_beam_width                    max_beam_width                    4                     4
gpt_model_type                    batching_strategy                 inflight_batching     inflight_batching
encoder_model_path                encoder_engine_dir                DIR                   DIR
max_tokens_in_paged_kv_cache      max_tokens_in_paged_kv_cache      2560                  2560
max_attention_window_size         max_attention_window_size         1024,512              1024,512
sink_token_length                 sink_token_length                 4                     4
batch_scheduler_policy            batch_scheduler_policy            max_utilization       max_utilization
kv_cache_free_gpu_mem_fraction    kv_cache_free_gpu_mem_fraction    0.85                  0.85
cross_kv_cache_fraction           cross_kv_cache_fraction           0.5                   0.5
kv_cache_host_memory_bytes        kv_cache_host_memory_bytes        45000000000           45000000000
kv_cache_onboard_blocks           kv_cache_onboard_blocks           False                 false
exclude_input_in_output           exclude_input_in_output           True                  true
cancellation_check_period_ms      cancellation_check_period_ms      50                    50
stats_check_period_ms             stats_check_period_ms             200                   200
recv_poll_period_ms               recv_poll_period_ms               10                    10
iter_stats_max_iterations         iter_stats_max_iterations         500                   500
request_stats_max_iterations      request_stats_max_iterations      1                     1
enable_kv_cache_reuse             enable_kv_cache_reuse             true                  true
normalize_log_probs               normalize_log_probs               false                 false
enable_chunked_context            enable_chunked_context            true                  true
gpu_device_ids                    gpu_device_ids                    0;1                   0;1
participant_ids                   participant_ids                   1                     1
num_nodes                         num_nodes                         2                     2
lora_cache_optimal_adapter_size   lora_cache_optimal_adapter_size   16                    16
lora_cache_max_adapter_size       lora_cache_max_adapter_size       32                    32
lora_cache_gpu_memory_fraction    lora_cache_gpu_memory_fraction    0.1                   0.1
lora_cache_host_memory_bytes      lora_cache_host_memory_bytes      1073741824            1073741824
lora_prefetch_dir                 lora_prefetch_dir                 EMPTY                 EMPTY
decoding_mode                     decoding_mode                     top_k                 top_k
lookahead_window_size             lookahead_window_size             5                     5
lookahead_ngram_size              lookahead_ngram_size              3                     3
lookahead_verification_set_size   lookahead_verification_set_size   0                     0
medusa_choices                    medusa_choices                    {0},{0,0}             {0},{0,0}
eagle_choices                     eagle_choices                     {0},{1}               {0},{1}
gpu_weights_percent               gpu_weights_percent               0.5                   0.5
enable_context_fmha_fp32_acc      enable_context_fmha_fp32_acc      true                  true
multi_block_mode                  multi_block_mode                  0                     false
cuda_graph_mode                   cuda_graph_mode                   1                     true
cuda_graph_cache_size             cuda_graph_cache_size             32                    32
speculative_decoding_fast_logits  speculative_decoding_fast_logits  true                  true
guided_decoding_backend           guided_decoding_backend           xgrammar              xgrammar
xgrammar_tokenizer_info_path      xgrammar_tokenizer_info_path      INFO                  INFO
"""
_ROWS = [tuple(line.split()) for line in _UPSTREAM.split("\n") if line]

# Further options that a value requires.
_COMPANIONS = {
    "cross_kv_cache_fraction": {"encoder_engine_dir": "DIR"},
    **{
        f"lookahead_{size}": {
            "decoding_mode": "lookahead",
            "lookahead_window_size": "5",
            "lookahead_ngram_size": "3",
            "lookahead_verification_set_size": "0",
        }
        for size in ("window_size", "ngram_size", "verification_set_size")
    },
    "medusa_choices": {"decoding_mode": "medusa"},
    "eagle_choices": {"decoding_mode": "eagle"},
    "cuda_graph_cache_size": {"cuda_graph_mode": "true"},
    "speculative_decoding_fast_logits": {"participant_ids": "1"},
    "guided_decoding_backend": {"xgrammar_tokenizer_info_path": "INFO"},
    "xgrammar_tokenizer_info_path": {"guided_decoding_backend": "xgrammar"},
}
_ALWAYS = {
    "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
    "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
    "gpt_model_type": "inflight_fused_batching",
}


def _places(tmp_path: Path, make_engine: MakeEngine) -> dict[str, str]:
    """Files and folders for the placeholders in capitals of the table."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "info.json").write_text('{"encoded_vocab": [], "tokenizer_str": "", "stop_token_ids": []}')
    return {"DIR": str(make_engine("encoder")), "EMPTY": str(tmp_path / "empty"), "INFO": str(tmp_path / "info.json")}


def _spec(engine: Path, options: dict[str, str] | None = None, **changes: Any) -> NgcSpec:
    given = {"engine_dir": str(engine), **(options or {})}
    parameters = {option: PARAMETERS[option].parse(text) for option, text in given.items()}
    return NgcSpec(**{"tokenizer_dir": DEMO_ENGINE_DIR, "parameters": parameters, **changes})


def _read(repository: Path) -> dict[str, Any]:
    return {
        path.parent.name: text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
        for path in repository.glob("*/config.pbtxt")
    }


def _parameters(config: Any) -> dict[str, str]:
    return {key: value.string_value for key, value in config.parameters.items()}


def test_table_of_parameters_is_upstreams() -> None:
    ours = {(parameter.key, parameter.option) for parameter in PARAMETERS.values()}
    assert ours == {(key, option) for key, option, _, _ in _ROWS} | {("gpt_model_path", "engine_dir")}


def test_docs_list_every_parameter() -> None:
    page = repository_parameters_markdown()
    for parameter in PARAMETERS.values():
        assert f"| `--{parameter.option}`" in page
        assert plain(parameter.help) in page


@pytest.mark.parametrize(("key", "option", "text", "written"), _ROWS)
def test_only_set_parameters_are_written_under_upstreams_keys(
    tmp_path: Path, make_engine: MakeEngine, key: str, option: str, text: str, written: str
) -> None:
    places = _places(tmp_path, make_engine)
    engine = make_engine()
    options = {name: places.get(value, value) for name, value in {**_COMPANIONS.get(option, {}), option: text}.items()}
    write_ngc_repository(_spec(engine, options), tmp_path / "repository")
    text = (tmp_path / "repository" / "tensorrt_llm" / "config.pbtxt").read_text()
    assert "${" not in text
    parameters = _parameters(_read(tmp_path / "repository")["tensorrt_llm"])
    assert parameters[key] == places.get(written, written)
    keys = {row[1]: row[0] for row in _ROWS}
    guided = {"tokenizer_dir"} if "guided_decoding_backend" in options else set()
    assert set(parameters) == {*_ALWAYS, "gpt_model_path", *(keys[name] for name in options), *guided}


def test_minimal_repository_has_only_mandatory_parameters(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    write_ngc_repository(_spec(engine), tmp_path / "repository")
    configs = _read(tmp_path / "repository")
    assert set(configs) == set(MODEL_NAMES)
    core = configs["tensorrt_llm"]
    assert _parameters(core) == _ALWAYS | {"gpt_model_path": str(engine)}
    assert (core.backend, core.max_batch_size, core.model_transaction_policy.decoupled) == ("tensorrtllm", 64, True)
    assert (len(core.instance_group), core.instance_group[0].count) == (1, 1)
    assert core.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_CPU
    assert list(core.dynamic_batching.preferred_batch_size) == [64]
    assert not core.dynamic_batching.HasField("default_queue_policy")
    assert _parameters(configs["preprocessing"]) == {"tokenizer_dir": str(DEMO_ENGINE_DIR), "add_special_tokens": "true"}
    assert _parameters(configs["postprocessing"]) == {"tokenizer_dir": str(DEMO_ENGINE_DIR), "skip_special_tokens": "true"}
    assert configs["ensemble"].platform == "ensemble"
    assert all("${" not in path.read_text() for path in (tmp_path / "repository").rglob("config.pbtxt"))


def test_settings_outside_the_parameters_block_are_written(make_engine: MakeEngine) -> None:
    spec = _spec(
        make_engine(), {"gpu_device_ids": "0;1;2"}, triton_max_batch_size=8, decoupled_mode=False, max_queue_size=100,
        max_queue_delay_microseconds=20, preprocessing_instance_count=2, postprocessing_instance_count=3,
        bls_instance_count=4, logits_datatype="BF16", prompt_embedding_table_data_type="FP32",
        encoder_input_features_data_type="BF16", tensorrt_llm_draft_model_name="draft",
    )  # fmt: skip
    configs = {config.name: config for config in ngc_model_configs(spec)}
    counts = {name: config.instance_group[0].count for name, config in configs.items() if config.instance_group}
    assert counts == {"preprocessing": 2, "tensorrt_llm": 3, "postprocessing": 3, "tensorrt_llm_bls": 4}
    for name in ("tensorrt_llm", "preprocessing"):
        batching = configs[name].dynamic_batching
        assert (batching.default_queue_policy.max_queue_size, batching.max_queue_delay_microseconds) == (100, 20)
    assert not any(config.model_transaction_policy.decoupled for config in configs.values())
    assert {config.max_batch_size for config in configs.values()} == {8}
    types = {tensor.name: tensor.data_type for tensor in (*configs["tensorrt_llm"].input, *configs["tensorrt_llm"].output)}
    assert types["context_logits"] == types["draft_logits"] == model_config_pb2.TYPE_BF16
    assert types["prompt_embedding_table"] == model_config_pb2.TYPE_FP32
    assert types["encoder_input_features"] == model_config_pb2.TYPE_BF16
    assert _parameters(configs["tensorrt_llm_bls"])["tensorrt_llm_draft_model_name"] == "draft"


@pytest.mark.parametrize("excluded", ["true", "false"])
def test_exclusion_of_the_prompt_is_configured_in_bls(make_engine: MakeEngine, excluded: str) -> None:
    spec = _spec(make_engine(), {"exclude_input_in_output": excluded})
    configs = {config.name: config for config in ngc_model_configs(spec)}
    assert _parameters(configs["tensorrt_llm_bls"])["exclude_input_in_output"] == excluded


@pytest.mark.parametrize("tensor_names", ["newest", "v0.19"])
def test_every_model_declares_the_tensors_of_the_containers_version(make_engine: MakeEngine, tensor_names: str) -> None:
    upstream: dict[tuple[str, str], set[str]] = {}
    for line in (Path(__file__).parent / "upstream_tensors.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            model, direction, name, _, _, _, since = line.split()
            ours_alone = name in (
                "IMAGE_SIZES",
                "image_sizes_input",
            )  # read by this package's Python models, in every container
            if since != "gone" and (since != "newest" or tensor_names == "newest" or ours_alone):
                upstream.setdefault((model, direction), set()).add(name)
    if tensor_names == "v0.19":  # it spelled these two as v0.11 did
        for model in ("ensemble", "tensorrt_llm", "tensorrt_llm_bls"):
            upstream[model, "in"] |= {"min_length", "random_seed"}
    for config in ngc_model_configs(_spec(make_engine(), tensor_names=tensor_names)):
        assert {tensor.name for tensor in config.input} == upstream[config.name, "in"]
        assert {tensor.name for tensor in config.output} == upstream[config.name, "out"]


@pytest.mark.parametrize("tensor_names", ["newest", "v0.19"])
def test_ensemble_maps_only_what_both_sides_declare(make_engine: MakeEngine, tensor_names: str) -> None:
    configs = {config.name: config for config in ngc_model_configs(_spec(make_engine(), tensor_names=tensor_names))}
    available = {tensor.name: tensor.data_type for tensor in configs["ensemble"].input}
    unused = set(available)
    for step in configs["ensemble"].ensemble_scheduling.step:
        inputs = {tensor.name: tensor for tensor in configs[step.model_name].input}
        outputs = {tensor.name: tensor.data_type for tensor in configs[step.model_name].output}
        assert {name for name, tensor in inputs.items() if not tensor.optional} <= set(step.input_map)
        for name, source in step.input_map.items():
            assert inputs[name].data_type == available[source]
            unused.discard(source)
        available |= {target: outputs[name] for name, target in step.output_map.items()}
    assert not unused
    assert {tensor.name for tensor in configs["ensemble"].output} <= set(available)


# ---- the Python models in the container


@pytest.mark.parametrize("model", ["preprocessing", "postprocessing", "tensorrt_llm_bls"])
def test_python_model_runs_without_the_package_installed(tmp_path: Path, make_engine: MakeEngine, model: str) -> None:
    write_ngc_repository(_spec(make_engine()), tmp_path / "repository")
    version = tmp_path / "repository" / model / "1"
    (tmp_path / "triton_python_backend_utils.py").write_text("TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1\n")
    # The checkout is not on the path: an import of this package from anywhere but beside model.py fails.
    code = f"""
import sys
sys.path[:] = [p for p in sys.path if p.rstrip('/') != {str(Path(__file__).parents[3])!r}]
sys.path += [{str(tmp_path)!r}, {str(version)!r}]
sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]
import model
import serving
ours = [m.__file__ for n, m in sys.modules.items() if n == 'serving' or n.startswith('serving.')]
assert ours and all(f.startswith({str(version)!r}) for f in ours), ours
assert callable(model.TritonPythonModel.execute)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
