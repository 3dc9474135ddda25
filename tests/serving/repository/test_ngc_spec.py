"""An invalid specification is rejected before anything is written, with a message that names the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.errors import RepositoryError
from serving.repository.ngc import ngc_model_configs, write_ngc_repository
from serving.repository.ngc_parameters import PARAMETERS
from serving.repository.ngc_spec import NgcSpec
from tests.serving.repository.conftest import MakeEngine


def _spec(engine: Path, options: dict[str, str], **changes: Any) -> NgcSpec:
    parameters = {option: PARAMETERS[option].parse(text) for option, text in {"engine_dir": str(engine), **options}.items()}
    return NgcSpec(**{"tokenizer_dir": DEMO_ENGINE_DIR, "parameters": parameters, **changes})


def _refusal(spec: NgcSpec, tmp_path: Path) -> str:
    with pytest.raises(RepositoryError) as caught:
        write_ngc_repository(spec, tmp_path / "repository")
    assert not (tmp_path / "repository").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({}, {"triton_max_batch_size": 0}, "--triton_max_batch_size must be at least 1"),
        ({}, {"bls_instance_count": 2**31}, "--bls_instance_count"),
        ({}, {"max_queue_size": -1}, "--max_queue_size"),
        ({}, {"logits_datatype": "INT8"}, "--logits_datatype must be one of FP32, FP16, BF16"),
        ({}, {"tensor_names": "v0.5"}, "--tensor_names"),
        ({}, {"accumulate_tokens": True, "decoupled_mode": False}, "--accumulate_tokens .* --decoupled_mode"),
        ({"batching_strategy": "V1"}, {}, "--batching_strategy V1 .* --no_decoupled_mode"),
        ({"batching_strategy": "V1", "enable_chunked_context": "1"}, {"decoupled_mode": False}, "--enable_chunked_context"),
        ({"decoding_mode": "lookahead"}, {}, "--decoding_mode lookahead needs --lookahead_window_size"),
        ({"lookahead_ngram_size": "3"}, {}, "--lookahead_ngram_size has no effect without --decoding_mode lookahead"),
        ({"medusa_choices": "{0}"}, {}, "--medusa_choices has no effect"),
        ({"eagle_choices": "{0}", "decoding_mode": "medusa"}, {}, "--eagle_choices has no effect"),
        ({"decoding_mode": "top_p", "max_beam_width": "2"}, {}, "--decoding_mode top_p supports one beam"),
        ({"cuda_graph_cache_size": "3"}, {}, "--cuda_graph_cache_size"),
        ({"cross_kv_cache_fraction": "0.5"}, {}, "--cross_kv_cache_fraction .* --encoder_engine_dir"),
        ({"speculative_decoding_fast_logits": "true"}, {}, "--speculative_decoding_fast_logits .* --participant_ids"),
        ({"guided_decoding_backend": "xgrammar"}, {}, "--guided_decoding_backend and --xgrammar_tokenizer_info_path"),
        ({"lora_cache_optimal_adapter_size": "65"}, {}, "--lora_cache_optimal_adapter_size 65 is larger than"),
        ({"gpu_device_ids": "0,0"}, {}, "--gpu_device_ids has a duplicate id in the instance 0,0"),
        ({"gpu_device_ids": "0,1"}, {}, "--gpu_device_ids gives an instance 2 GPUs, but the engine was built for 1 rank"),
        ({"participant_ids": "1,2"}, {}, "--participant_ids gives an instance 2 ranks"),
        ({"participant_ids": "1"}, {"world_size": 1}, "--world_size is 1, less than the orchestrator and 1 --participant_ids"),
        ({}, {"world_size": 2}, "--world_size is 2, but the engine was built for 1"),
        ({}, {"triton_max_batch_size": 65}, "--triton_max_batch_size is 65, but the engine was built for 64"),
        ({"max_beam_width": "5"}, {}, "--max_beam_width is 5, but the engine was built for 4"),
        ({}, {"tokenizer_dir": Path("/nosuch/tokenizer")}, "--tokenizer_dir: /nosuch/tokenizer is not a folder"),
        ({"guided_decoding_backend": "xgrammar", "xgrammar_tokenizer_info_path": "/no.json"}, {}, "/no.json is not a file"),
        ({"lora_prefetch_dir": "/nosuch"}, {}, "--lora_prefetch_dir: /nosuch is not a folder"),
    ],
)  # fmt: skip
def test_invalid_spec_is_rejected(
    tmp_path: Path, make_engine: MakeEngine, options: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RepositoryError, match=message):
        write_ngc_repository(_spec(make_engine(), options, **changes), tmp_path / "repository")
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"batching_strategy": "V1"}, {"decoupled_mode": False}),
        ({"max_beam_width": "4", "decoding_mode": "beam_search"}, {}),
        ({"gpu_device_ids": "0;1"}, {"world_size": 1}),
        ({"participant_ids": "1"}, {"world_size": 2}),
        ({}, {"triton_max_batch_size": 64}),
        ({"medusa_choices": "{0,0},{1}", "decoding_mode": "medusa"}, {}),
    ],
)
def test_valid_spec_is_accepted(make_engine: MakeEngine, options: dict[str, str], changes: dict[str, Any]) -> None:
    assert len(ngc_model_configs(_spec(make_engine(), options, **changes))) == 5


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ({"kv_cache_type": "CONTINUOUS"}, {}, "paged KV cache"),
        ({"plugins": {"remove_input_padding": False}}, {}, "packed input"),
        ({"plugins": {"gpt_attention_plugin": None}}, {}, "attention plugin"),
        ({"plugins": {"use_paged_context_fmha": False}}, {"enable_chunked_context": "1"}, "--enable_chunked_context needs"),
        ({"plugins": {"use_paged_context_fmha": False}}, {"enable_kv_cache_reuse": "1"}, "--enable_kv_cache_reuse needs"),
        ({"plugins": {"lora_plugin": None}}, {"lora_cache_max_adapter_size": "8"}, "--lora_plugin"),
    ],
)
def test_options_unsupported_by_the_engine_are_rejected(
    tmp_path: Path, make_engine: MakeEngine, engine: dict[str, Any], options: dict[str, str], message: str
) -> None:
    options = options | ({"lora_cache_optimal_adapter_size": "8"} if "lora" in message else {})
    assert message in _refusal(_spec(make_engine(**engine), options), tmp_path)


def test_static_batching_lifts_the_requirements_of_in_flight_batching(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_cache_type="CONTINUOUS", plugins={"remove_input_padding": False})
    assert ngc_model_configs(_spec(engine, {"batching_strategy": "V1"}, decoupled_mode=False))


def test_engine_of_two_ranks_needs_two_gpus_and_both_files(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(world_size=2)
    assert ngc_model_configs(_spec(engine, {"gpu_device_ids": "0,1;2,3"}, world_size=2))
    (engine / "rank1.engine").unlink()
    assert "has no rank1.engine" in _refusal(_spec(engine, {}), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "config.json does not exist"), ("{", "cannot be read"), ("{}", "no build_config"), ("[]", "no build_config")],
)
def test_folder_without_engine_is_rejected(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "engine").mkdir()
    if content is not None:
        (tmp_path / "engine" / "config.json").write_text(content)
    refusal = _refusal(_spec(tmp_path / "engine", {}), tmp_path)
    assert refusal.startswith("--engine_dir: ")
    assert message in refusal


def test_adapters_and_grammar_description_are_validated(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    (tmp_path / "lora" / "seven").mkdir(parents=True)
    options = {"lora_prefetch_dir": str(tmp_path / "lora")}
    assert "is not a task id (a whole number)" in _refusal(_spec(engine, options), tmp_path)
    (tmp_path / "lora" / "seven").rename(tmp_path / "lora" / "7")
    assert "has no model.lora_weights.npy" in _refusal(_spec(engine, options), tmp_path)
    info = tmp_path / "info.json"
    options = {"guided_decoding_backend": "xgrammar", "xgrammar_tokenizer_info_path": str(info)}
    info.write_text("no json")
    assert "is not JSON" in _refusal(_spec(engine, options), tmp_path)
    info.write_text('{"encoded_vocab": []}')
    assert "has no tokenizer_str" in _refusal(_spec(engine, options), tmp_path)


def test_unchecked_container_paths_are_written_unchanged(tmp_path: Path) -> None:
    spec = _spec(Path("/engines/gpt"), {}, tokenizer_dir=Path("/models/gpt"), check_paths=False)
    assert "--triton_max_batch_size must be given" in _refusal(spec, tmp_path)
    spec = _spec(Path("/engines/gpt"), {}, tokenizer_dir=Path("/models/gpt"), check_paths=False, triton_max_batch_size=4)
    core = next(config for config in ngc_model_configs(spec) if config.name == "tensorrt_llm")
    assert core.parameters["gpt_model_path"].string_value == "/engines/gpt"
    spec = _spec(Path("engines/gpt"), {}, tokenizer_dir=Path("/models/gpt"), check_paths=False, triton_max_batch_size=4)
    assert "--engine_dir: engines/gpt must be an absolute path" in _refusal(spec, tmp_path)


def test_engine_dir_is_mandatory(tmp_path: Path) -> None:
    assert "--engine_dir must be given" in _refusal(NgcSpec(DEMO_ENGINE_DIR, {}), tmp_path)


def test_non_empty_folder_is_unchanged(tmp_path: Path, make_engine: MakeEngine) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(RepositoryError, match="is not empty"):
        write_ngc_repository(_spec(make_engine(), {}), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
