"""The tables of tensors against upstream's, from the independent ``upstream_tensors.txt``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tritonclient.grpc import model_config_pb2

from serving.repository import tensors
from serving.repository.tensors import Datatypes, Release, TensorSpec, parse_tensors

_TABLES = {
    "ensemble": (tensors.ENSEMBLE_INPUTS, tensors.TEXT_OUTPUTS),
    "preprocessing": (tensors.PREPROCESSING_INPUTS, tensors.PREPROCESSING_OUTPUTS),
    "postprocessing": (tensors.POSTPROCESSING_INPUTS, tensors.POSTPROCESSING_OUTPUTS),
    "tensorrt_llm": (tensors.CORE_INPUTS, tensors.CORE_OUTPUTS),
    "tensorrt_llm_bls": (tensors.BLS_INPUTS, tensors.TEXT_OUTPUTS),
}
_MODELS = pytest.mark.parametrize("model", sorted(_TABLES))

# Additions to upstream's tensors: see serving/text/detokenization.py.
_OURS = {
    ("postprocessing", "in"): {"DETOKENIZATION_CONTEXT"},
    ("tensorrt_llm", "out"): {"detokenization_context"},
}
_V011_NAMES = {"min_length", "random_seed"}


@dataclass(frozen=True)
class _Upstream:
    """One line of the independent table."""

    model: str
    direction: str
    tensor: TensorSpec
    since: str


def _read_upstream() -> list[_Upstream]:
    lines = Path(__file__).with_name("upstream_tensors.txt").read_text().splitlines()
    rows = []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        model, direction, name, dtype, dims, flags, since = line.split()
        dtype = {"{logits}": "BF16", "{prompt_embedding_table}": "FP32", "{encoder_input_features}": "FP64"}.get(dtype, dtype)
        chosen = {flag: flag in flags.split(",") for flag in ("optional", "reshape", "ragged")}
        assert sum(chosen.values()) == (0 if flags == "-" else len(flags.split(",")))
        spec = TensorSpec(name, dtype, tuple(map(int, dims.split(","))), *chosen.values())
        rows.append(_Upstream(model, direction, spec, since))
    return rows


_UPSTREAM = _read_upstream()


def _ours(model: str, direction: str) -> dict[str, TensorSpec]:
    table = _TABLES[model][0 if direction == "in" else 1]
    return {tensor.name: tensor for tensor in parse_tensors(table, Datatypes("BF16", "FP32", "FP64"))}


@pytest.mark.parametrize("direction", ["in", "out"])
@_MODELS
def test_tensors_are_upstreams_newest_plus_listed_additions(model: str, direction: str) -> None:
    newest = {
        row.tensor.name: row.tensor
        for row in _UPSTREAM
        if (row.model, row.direction) == (model, direction) and row.since != "gone"
    }
    if model == "ensemble" and direction == "in":  # upstream fixes it to FP16 there, and then the core's type must be that
        newest["prompt_embedding_table"] = _ours("tensorrt_llm_bls", "in")["prompt_embedding_table"]
    assert len(newest) > 0
    ours = _ours(model, direction)
    extra = _OURS.get((model, direction), set()) | (_V011_NAMES & set(ours))
    assert {name: tensor for name, tensor in ours.items() if name not in extra} == newest
    assert extra <= set(ours)
    assert direction == "out" or all(ours[name].optional for name in extra)  # upstream's clients do not send it


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm", "tensorrt_llm_bls"])
def test_names_of_v011_are_accepted_beside_the_new_ones(model: str) -> None:
    gone = {row.tensor.name: row.tensor for row in _UPSTREAM if row.model == model and row.since == "gone"}
    assert set(gone) == _V011_NAMES
    for old, new in (("min_length", "min_tokens"), ("random_seed", "seed")):
        ours = _ours(model, "in")
        assert (ours[old].dtype, ours[old].dims) == (gone[old].dtype, gone[old].dims)
        assert ours[old] == TensorSpec(old, *(getattr(ours[new], field) for field in TensorSpec.__slots__[1:]))


_IN_RELEASE = {
    Release.V0_11: {"v0.11", "gone"},
    Release.V0_19: {"v0.11", "v0.19"},
    Release.NEWEST: {"v0.11", "v0.19", "newest"},
}
_IN_EVERY_CONTAINER = {"IMAGE_SIZES", "image_sizes_input"}  # read by our Python models


@pytest.mark.parametrize("release", list(Release))
@pytest.mark.parametrize("direction", ["in", "out"])
@_MODELS
def test_tensors_of_a_release_are_upstreams(model: str, direction: str, release: Release) -> None:
    rows = [row for row in _UPSTREAM if (row.model, row.direction) == (model, direction)]
    expected = {row.tensor.name for row in rows if row.since in _IN_RELEASE[release]}
    if release is Release.V0_19 and direction == "in" and model != "preprocessing":  # it spelled these two as v0.11 did
        expected |= {row.tensor.name for row in rows if row.tensor.name in _V011_NAMES}
    table = _TABLES[model][0 if direction == "in" else 1]
    names = {tensor.name for tensor in parse_tensors(table, release=release)}
    ours = _OURS.get((model, direction), set()) | (_IN_EVERY_CONTAINER if release is Release.V0_19 else set())
    assert names - ours == expected - ours


def test_table_line_is_parsed_to_a_tensor() -> None:
    table = """
    name?   FP16      -1,3  ragged
    other   {logits}  1     reshape
    """
    assert parse_tensors(table, Datatypes("BF16")) == (
        TensorSpec("name", "FP16", (-1, 3), optional=True, reshape_to_scalar=False, ragged=True),
        TensorSpec("other", "BF16", (1,), optional=False, reshape_to_scalar=True, ragged=False),
    )


@_MODELS
def test_names_are_unique(model: str) -> None:
    for table in _TABLES[model]:
        names = [tensor.name for tensor in parse_tensors(table)]
        assert len(names) == len(set(names))


@_MODELS
def test_types_are_tritons(model: str) -> None:
    for table in _TABLES[model]:
        for tensor in parse_tensors(table):
            assert f"TYPE_{tensor.dtype}" in model_config_pb2.DataType.keys()  # noqa: SIM118  an enum, no dict
