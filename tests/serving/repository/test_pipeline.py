from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions, SchedulerPolicy
from serving.errors import RepositoryError
from serving.repository.pipeline import (
    DRAFT_MODEL_NAME,
    MODEL_NAMES,
    RepositorySpec,
    check_spec,
    model_configs,
    write_repository,
)
from serving.repository.tensors import Release


def _spec(**changes: Any) -> RepositorySpec:
    return RepositorySpec(**{"engine_dir": DEMO_ENGINE_DIR, "tokenizer_dir": DEMO_ENGINE_DIR, **changes})


def _read(repository: Path) -> dict[str, Any]:
    """The configurations in a repository, parsed as by Triton."""
    return {
        path.parent.name: text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
        for path in repository.glob("*/config.pbtxt")
    }


def _configs(**changes: Any) -> dict[str, Any]:
    return {config.name: config for config in model_configs(_spec(**changes))}


# ---- what is written


@pytest.mark.parametrize("decoupled", [True, False])
def test_configs_round_trip(tmp_path: Path, decoupled: bool) -> None:
    spec = _spec(decoupled_mode=decoupled, triton_max_batch_size=7, bls_instance_count=3, logits_datatype="FP16")
    assert write_repository(spec, tmp_path / "new" / "repository") == tmp_path / "new" / "repository"
    read = _read(tmp_path / "new" / "repository")
    assert set(read) == set(MODEL_NAMES)
    assert read == {config.name: config for config in model_configs(spec)}
    for name, config in read.items():
        assert config.name == name
        assert config.max_batch_size == 7
        assert config.model_transaction_policy.decoupled == (
            decoupled and name in ("tensorrt_llm", "tensorrt_llm_bls", "ensemble")
        )
    assert read["tensorrt_llm_bls"].instance_group[0].count == 3
    (logits,) = [tensor for tensor in read["tensorrt_llm"].output if tensor.name == "context_logits"]
    assert logits.data_type == model_config_pb2.TYPE_FP16


def test_unusual_paths_survive_the_text_format(tmp_path: Path) -> None:
    engine = tmp_path / 'dir "quoted" \\ with\nnewline, ünïcode and ${braces}'
    engine.mkdir()
    write_repository(_spec(engine_dir=engine, tokenizer_dir=engine), tmp_path / "repository")
    read = _read(tmp_path / "repository")
    assert read["tensorrt_llm"].parameters["gpt_model_path"].string_value == str(engine)
    assert read["preprocessing"].parameters["tokenizer_dir"].string_value == str(engine)


def test_python_models_are_one_import_of_a_class_that_exists(tmp_path: Path) -> None:
    write_repository(_spec(), tmp_path)
    for name in MODEL_NAMES:
        model = tmp_path / name / "1" / "model.py"
        assert model.exists() == (name != "ensemble")
        if name == "ensemble":
            assert (tmp_path / name / "1").is_dir()  # Triton requires a version folder nevertheless
            continue
        (statement,) = ast.parse(model.read_text()).body
        assert isinstance(statement, ast.ImportFrom)
        assert [alias.name for alias in statement.names] == ["TritonPythonModel"]
        source = Path(DEMO_ENGINE_DIR.parent.parent, *(statement.module or "").split(".")).with_suffix(".py")
        classes = [node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
        assert "TritonPythonModel" in classes


_ENGINE_OPTIONS = EngineOptions(
    max_tokens_in_paged_kv_cache=640,
    max_num_sequences=5,
    max_num_tokens=99,
    enable_kv_cache_reuse=False,
    enable_chunked_context=False,
    kv_cache_free_gpu_mem_fraction=0.5,
    batch_scheduler_policy=SchedulerPolicy.MAX_UTILIZATION,
    max_queue_size=7,
    max_beam_width=2,
    guided_decoding_backend="",
    lora_cache_host_memory_bytes=4096,
    engine_python="/vllm/bin/python",
    tensor_parallel_size=2,
    engine_arg=("load_format=dummy",),
)


def test_options_of_the_spec_become_parameters() -> None:
    configs = _configs(
        exclude_input_in_output=True, accumulate_tokens=True, skip_special_tokens=False, add_special_tokens=False,
        max_queue_delay_microseconds=50, engine="vllm", engine_options=_ENGINE_OPTIONS,
    )  # fmt: skip
    parameters = {
        name: {key: value.string_value for key, value in config.parameters.items()} for name, config in configs.items()
    }
    core = parameters["tensorrt_llm"]
    own = ("step_log", "min_step_time")  # the engine openvino alone has them
    assert {name: core[name] for name in dataclasses.asdict(_ENGINE_OPTIONS) if name not in own} == {
        "max_tokens_in_paged_kv_cache": "640",
        "max_num_sequences": "5",
        "max_num_tokens": "99",
        "enable_kv_cache_reuse": "false",
        "enable_chunked_context": "false",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "batch_scheduler_policy": "max_utilization",
        "max_queue_size": "7",
        "max_beam_width": "2",
        "guided_decoding_backend": "none",
        "lora_cache_host_memory_bytes": "4096",
        "engine_python": "/vllm/bin/python",
        "tensor_parallel_size": "2",
        "engine_arg": '["load_format=dummy"]',
    }
    assert (core["engine"], core["exclude_input_in_output"]) == ("vllm", "true")
    assert parameters["tensorrt_llm_bls"]["accumulate_tokens"] == "true"
    assert parameters["preprocessing"]["add_special_tokens"] == "false"
    assert parameters["postprocessing"]["skip_special_tokens"] == "false"
    assert configs["preprocessing"].dynamic_batching.max_queue_delay_microseconds == 50
    assert not configs["postprocessing"].HasField("dynamic_batching")  # a cancelled ensemble would never end


def test_instances_of_the_core_model_share_the_engine() -> None:
    core = _configs(core_instance_count=3, engine="vllm")["tensorrt_llm"]
    assert core.instance_group[0].count == 3
    assert core.parameters["core_instance_count"].string_value == "3"
    with pytest.raises(RepositoryError, match="core_instance_count: instances share an engine of vllm alone"):
        check_spec(_spec(core_instance_count=3))


def test_batches_hold_one_request() -> None:
    configs = _configs()
    for name in ("preprocessing", "tensorrt_llm", "tensorrt_llm_bls"):
        assert list(configs[name].dynamic_batching.preferred_batch_size) == [1]


# ---- the ensemble


def _tensors(config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {tensor.name: tensor for tensor in config.input}, {tensor.name: tensor for tensor in config.output}


def test_ensemble_maps_only_tensors_declared_by_both_sides_with_one_type() -> None:
    configs = _configs()
    inputs, outputs = _tensors(configs["ensemble"])
    available = {name: tensor.data_type for name, tensor in inputs.items()}
    for step in configs["ensemble"].ensemble_scheduling.step:
        step_inputs, step_outputs = _tensors(configs[step.model_name])
        for name, source in step.input_map.items():
            assert available[source] == step_inputs[name].data_type, (step.model_name, name)
        produced = {target: step_outputs[name].data_type for name, target in step.output_map.items()}
        assert not set(produced) & set(available)  # nothing is produced twice
        available |= produced
    for name, tensor in outputs.items():
        assert available[name] == tensor.data_type


def test_ensemble_provides_every_mandatory_input() -> None:
    configs = _configs()
    steps = configs["ensemble"].ensemble_scheduling.step
    assert [step.model_name for step in steps] == ["preprocessing", "tensorrt_llm", "postprocessing"]
    for step in steps:
        required = {tensor.name for tensor in configs[step.model_name].input if not tensor.optional}
        assert required <= set(step.input_map)


def test_ensemble_uses_every_input_and_every_step_output() -> None:
    ensemble = _configs()["ensemble"]
    steps = ensemble.ensemble_scheduling.step
    consumed = {source for step in steps for source in step.input_map.values()}
    produced = {target for step in steps for target in step.output_map.values()}
    inputs, outputs = _tensors(ensemble)
    assert set(inputs) <= consumed
    assert produced <= consumed | set(outputs)


@pytest.mark.parametrize(
    ("core_input", "source"),
    [
        ("runtime_top_k", "top_k"),
        ("runtime_top_p", "top_p"),
        ("len_penalty", "length_penalty"),
        ("streaming", "stream"),
        ("seed", "seed"),
        ("random_seed", "random_seed"),
        ("min_length", "min_length"),
        ("end_id", "_OUT_END_ID"),
        ("request_output_len", "_REQUEST_OUTPUT_LEN"),
    ],
)
def test_ensemble_routes_as_upstreams_does(core_input: str, source: str) -> None:
    _, core, _ = _configs()["ensemble"].ensemble_scheduling.step
    assert core.input_map[core_input] == source


# ---- what is refused


def test_non_empty_folder_is_rejected_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(RepositoryError, match=f"{tmp_path} is not empty"):
        write_repository(_spec(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_empty_folder_is_used(tmp_path: Path) -> None:
    write_repository(_spec(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(MODEL_NAMES)


_COUNTS = [
    "triton_max_batch_size", "preprocessing_instance_count", "postprocessing_instance_count", "bls_instance_count"
]  # fmt: skip
_OPTIONS = ["max_num_sequences", "max_num_tokens", "max_tokens_in_paged_kv_cache"]


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("field", [*_COUNTS, *_OPTIONS])
def test_count_below_one_error_names_the_field(field: str, value: int) -> None:
    changes = {field: value} if field in _COUNTS else {"engine_options": EngineOptions(**{field: value})}
    with pytest.raises(RepositoryError, match=rf"\b{field} must be at least 1, not {value}"):
        check_spec(_spec(**changes))


@pytest.mark.parametrize("field", ["engine_dir", "tokenizer_dir"])
def test_missing_folder_error_names_the_field(tmp_path: Path, field: str) -> None:
    with pytest.raises(RepositoryError, match=f"{field}: {tmp_path}/nosuch is not a folder"):
        check_spec(_spec(**{field: tmp_path / "nosuch"}))


def test_negative_queue_delay_error_names_the_field() -> None:
    with pytest.raises(RepositoryError, match="max_queue_delay_microseconds"):
        check_spec(_spec(max_queue_delay_microseconds=-1))


def test_unknown_engine_error_lists_the_known_ones() -> None:
    with pytest.raises(RepositoryError, match="unknown engine 'abacus'; known: openvino, tensorrt_llm"):
        check_spec(_spec(engine="abacus"))


@pytest.mark.parametrize("option", [{"step_log": "/tmp/steps.csv"}, {"min_step_time": "8ms"}])
def test_the_step_log_and_the_least_time_of_a_step_belong_to_one_engine(option: dict[str, str], tmp_path: Path) -> None:
    """A draft engine would write to the same file, and is faster than its target."""
    options = EngineOptions(**option)  # type: ignore[arg-type]
    configs = _configs(draft_engine_dir=tmp_path, engine_options=options)
    [(name, value)] = option.items()
    assert [model for model, config in configs.items() if name in config.parameters] == ["tensorrt_llm"]
    assert configs["tensorrt_llm"].parameters[name].string_value == value
    with pytest.raises(RepositoryError, match=f"{name}: only the engine openvino has it, not tensorrt_llm"):
        check_spec(_spec(engine="tensorrt_llm", engine_options=options))


def test_draft_engine_becomes_a_core_model_configured_in_bls(tmp_path: Path) -> None:
    other = tmp_path / "draft"
    other.mkdir()
    configs = _configs(draft_engine_dir=other)
    assert set(configs) == {*MODEL_NAMES, DRAFT_MODEL_NAME}
    draft, target, bls = (configs[name] for name in (DRAFT_MODEL_NAME, "tensorrt_llm", "tensorrt_llm_bls"))
    assert draft.parameters["gpt_model_path"].string_value == str(other)
    assert target.parameters["gpt_model_path"].string_value == str(DEMO_ENGINE_DIR)
    assert bls.parameters["tensorrt_llm_draft_model_name"].string_value == DRAFT_MODEL_NAME
    assert "tensorrt_llm_draft_model_name" not in _configs()["tensorrt_llm_bls"].parameters
    with pytest.raises(RepositoryError, match=r"draft_engine_dir: .*nowhere is not a folder"):
        check_spec(_spec(draft_engine_dir=tmp_path / "nowhere"))


def test_exclusion_of_the_prompt_is_configured_in_bls() -> None:
    for excluded in (True, False):
        config = _configs(exclude_input_in_output=excluded)["tensorrt_llm_bls"]
        assert config.parameters["exclude_input_in_output"].string_value == str(excluded).lower()


def test_release_0_11_passes_logits_through_postprocessing() -> None:
    newest, old = (_configs(upstream_release=release) for release in (Release.NEWEST, Release.V0_11))
    steps = [{step.model_name: step for step in configs["ensemble"].ensemble_scheduling.step} for configs in (newest, old)]
    assert "generation_logits" in steps[0]["tensorrt_llm"].output_map
    assert steps[1]["tensorrt_llm"].output_map["generation_logits"] == "_generation_logits"
    assert steps[1]["postprocessing"].input_map["GENERATION_LOGITS"] == "_generation_logits"
    assert steps[1]["postprocessing"].output_map["OUT_GENERATION_LOGITS"] == "generation_logits"
    outputs = {tensor.name for tensor in old["ensemble"].output}
    assert outputs == {"text_output", "cum_log_probs", "output_log_probs", "context_logits", "generation_logits"}
    inputs = {tensor.name for tensor in old["ensemble"].input}
    assert {"min_length", "random_seed"} <= inputs
    assert not inputs & {"min_tokens", "seed", "return_num_output_tokens"}


def test_release_0_11_has_logits_in_fp32_alone() -> None:
    with pytest.raises(RepositoryError, match=r"logits_datatype FP16: release 0\.11"):
        check_spec(_spec(upstream_release=Release.V0_11, logits_datatype="FP16"))


def test_unknown_handling_of_ids_beyond_the_vocabulary_is_named_in_the_error() -> None:
    with pytest.raises(RepositoryError, match="out_of_vocabulary_ids must be refuse or wrap, not 'clip'"):
        check_spec(_spec(out_of_vocabulary_ids="clip"))


@pytest.mark.parametrize("datatype", ["FLOAT", "INT32", ""])
def test_unsupported_logits_type_is_named_in_the_error(tmp_path: Path, datatype: str) -> None:
    with pytest.raises(RepositoryError, match="logits_datatype"):
        write_repository(_spec(logits_datatype=datatype), tmp_path)


@pytest.mark.parametrize("field", _COUNTS)
def test_count_too_large_for_the_config_error_names_the_field(tmp_path: Path, field: str) -> None:
    with pytest.raises(RepositoryError, match=field):
        write_repository(_spec(**{field: 2**31}), tmp_path)


def test_rejected_spec_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError):
        write_repository(_spec(bls_instance_count=0), tmp_path / "repository")
    assert list(tmp_path.iterdir()) == []
