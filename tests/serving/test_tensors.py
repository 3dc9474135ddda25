"""The tables of tensors, and the same tables as upstream's reference gives them (skipped where that file is absent)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tritonclient.grpc import model_config_pb2

from serving import tensors
from serving.tensors import TensorSpec, parse_tensors

_REFERENCE = Path("/work/shared/reference/upstream-trtllm-backend.md")

_TABLES = {
    "ensemble": (tensors.ENSEMBLE_INPUTS, tensors.TEXT_OUTPUTS),
    "preprocessing": (tensors.PREPROCESSING_INPUTS, tensors.PREPROCESSING_OUTPUTS),
    "postprocessing": (tensors.POSTPROCESSING_INPUTS, tensors.POSTPROCESSING_OUTPUTS),
    "tensorrt_llm": (tensors.CORE_INPUTS, tensors.CORE_OUTPUTS),
    "tensorrt_llm_bls": (tensors.BLS_INPUTS, tensors.TEXT_OUTPUTS),
}
_MODELS = pytest.mark.parametrize("model", sorted(_TABLES))


def test_line_of_a_table_is_a_tensor() -> None:
    table = """
    name?   FP16      -1,3  ragged
    other   {logits}  1     reshape
    """
    assert parse_tensors(table, "BF16") == (
        TensorSpec("name", "FP16", (-1, 3), optional=True, reshape_to_scalar=False, ragged=True),
        TensorSpec("other", "BF16", (1,), optional=False, reshape_to_scalar=True, ragged=False),
    )


@_MODELS
def test_names_are_unique(model: str) -> None:
    for table in _TABLES[model]:
        names = [tensor.name for tensor in parse_tensors(table)]
        assert len(names) == len(set(names))


@_MODELS
def test_types_are_tritons_and_dims_are_sizes(model: str) -> None:
    for table in _TABLES[model]:
        for tensor in parse_tensors(table):
            assert f"TYPE_{tensor.dtype}" in model_config_pb2.DataType.keys()  # noqa: SIM118  an enum, no dict
            assert tensor.dims
            assert all(dim == -1 or dim > 0 for dim in tensor.dims)
            assert not tensor.reshape_to_scalar or tensor.dims == (1,)


def test_logits_take_the_type_that_is_asked_for() -> None:
    types = {tensor.name: tensor.dtype for tensor in parse_tensors(tensors.CORE_OUTPUTS, "FP16")}
    assert (types["context_logits"], types["generation_logits"], types["cum_log_probs"]) == ("FP16", "FP16", "FP32")


@_MODELS
def test_outputs_are_plain(model: str) -> None:
    for tensor in parse_tensors(_TABLES[model][1]):
        assert (tensor.optional, tensor.reshape_to_scalar, tensor.ragged) == (False, False, False)


# ---- against the reference


@dataclass(frozen=True)
class _Upstream:
    """One row of a reference table."""

    is_input: bool
    tensor: TensorSpec
    only_in_v011: bool


_ROW = re.compile(r"\| (in|out) \| (~~)?`(\w+)`(?:~~)? \| (\S+) \| \[([-0-9, ]+)\] \| ([^|]*) \|")
_DTYPES = {
    "{logits_datatype}": "FP32",
    "{encoder_input_features_data_type}": "FP16",
    "{prompt_embedding_table_data_type}": "FP16",
}


def _reference(model: str) -> list[_Upstream]:
    if not _REFERENCE.is_file():
        pytest.skip(f"{_REFERENCE} is not here")
    text = _REFERENCE.read_text(encoding="utf-8")
    section = re.search(rf"^### 2\.\d {model}\b.*?(?=^###? )", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = []
    for direction, struck, name, dtype, dims, flags in _ROW.findall(section[0]):
        spec = TensorSpec(
            name=name,
            dtype=_DTYPES.get(dtype, dtype),
            dims=tuple(int(dim) for dim in dims.split(",")),
            optional="opt" in flags.split(),
            reshape_to_scalar="reshape[]" in flags.split(),
            ragged="ragged" in flags.split(),
        )
        rows.append(_Upstream(direction == "in", spec, bool(struck)))
    assert len(rows) > 3
    return rows


# What text-only preprocessing does not give; upstream feeds these to its vision encoders.
_MULTIMODAL = {
    "PIXEL_VALUES",
    "ASPECT_RATIO_IDS",
    "ASPECT_RATIO_MASK",
    "CROSS_ATTENTION_MASK",
    "IMAGE_SIZES",
    "IS_VIDEO_INPUT",
    "ATTENTION_MASK",
    "IMAGE_GRID_THW",
    "VISION_INPUT_ID",
}


@_MODELS
def test_every_tensor_of_upstreams_newest_version_is_declared_alike(model: str) -> None:
    inputs, outputs = ({tensor.name: tensor for tensor in parse_tensors(table)} for table in _TABLES[model])
    for row in _reference(model):
        if row.only_in_v011 or (model == "preprocessing" and not row.is_input and row.tensor.name in _MULTIMODAL):
            continue
        ours = (inputs if row.is_input else outputs).get(row.tensor.name)
        assert ours == row.tensor


def test_multimodal_outputs_are_all_that_preprocessing_lacks() -> None:
    ours = {tensor.name for tensor in parse_tensors(tensors.PREPROCESSING_OUTPUTS)}
    upstream = {row.tensor.name for row in _reference("preprocessing") if not row.is_input and not row.only_in_v011}
    assert upstream - ours == _MULTIMODAL


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm", "tensorrt_llm_bls"])
def test_names_that_v011_used_are_accepted_and_may_be_left_out(model: str) -> None:
    ours = {tensor.name: tensor for tensor in parse_tensors(_TABLES[model][0])}
    renamed = [row.tensor for row in _reference(model) if row.is_input and row.only_in_v011]
    assert {"min_length", "random_seed"} <= {tensor.name for tensor in renamed}
    for tensor in renamed:
        if tensor.name in ("min_length", "random_seed"):
            assert (ours[tensor.name].dtype, ours[tensor.name].dims) == (tensor.dtype, tensor.dims)
            assert ours[tensor.name].optional


@_MODELS
def test_what_upstream_does_not_have_may_be_left_out_by_its_clients(model: str) -> None:
    upstream = {row.tensor.name for row in _reference(model) if row.is_input}
    extra = [tensor for tensor in parse_tensors(_TABLES[model][0]) if tensor.name not in upstream]
    assert all(tensor.optional for tensor in extra)
