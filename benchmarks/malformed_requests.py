"""Malformed requests for Triton's gRPC protocol: mutations of valid requests to the five models.

A mutated request may happen to stay valid; any request must get a response or an error.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from serving.repository import tensors

MODELS = ("tensorrt_llm", "ensemble", "tensorrt_llm_bls", "preprocessing", "postprocessing")
DTYPES = ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "UINT64", "FP16", "FP32", "FP64", "BF16", "BYTES", "STRING", "")
INTS = (0, 1, 2, 5, 63, -1, -2, 4_096, 5_000, 2**31 - 1, -(2**31))  # none requests a long, valid generation
DIMS = (0, 1, 2, 3, 7, -1, 4_096, 2**31, 2**32, 2**62, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
_INPUTS = {
    "tensorrt_llm": tensors.CORE_INPUTS,
    "ensemble": tensors.ENSEMBLE_INPUTS,
    "tensorrt_llm_bls": tensors.BLS_INPUTS,
    "preprocessing": tensors.PREPROCESSING_INPUTS,
    "postprocessing": tensors.POSTPROCESSING_INPUTS,
}
_PACKED = {
    "BOOL": "?", "UINT8": "B", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT64": "Q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor on the wire; ``raw`` need not match ``dtype`` and ``shape``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: bytes


@dataclass(frozen=True)
class Draft:
    """A request before it is encoded."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...] = ()
    request_id: str = ""
    version: str = ""
    parameters: tuple[tuple[str, Any], ...] = ()
    raw_lost: int = 0  # number of omitted raw contents
    typed: bool = False  # contents in the typed fields instead of the raw ones
    cut: int | None = None  # the encoded message ends here
    history: tuple[str, ...] = field(default=())

    def encode(self) -> bytes:
        message = service_pb2.ModelInferRequest(model_name=self.model, model_version=self.version, id=self.request_id)
        for name, value in (("triton_enable_empty_final_response", True), *self.parameters):
            kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
            setattr(message.parameters[name], kind, value)
        for tensor in self.inputs:
            added = message.inputs.add(name=tensor.name, datatype=tensor.dtype, shape=tensor.shape)
            if self.typed:
                added.contents.int_contents.extend(tensor.raw[:64])
        if not self.typed:
            message.raw_input_contents.extend(tensor.raw for tensor in self.inputs[self.raw_lost :])
        for name in self.outputs:
            message.outputs.add(name=name)
        body: bytes = message.SerializeToString()
        return body[: self.cut] if self.cut is not None else body


def pack_strings(*values: bytes) -> bytes:
    """BYTES elements in Triton's raw contents: each preceded by its 4-byte length."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def int32(name: str, *values: int) -> Tensor:
    return Tensor(name, "INT32", (1, len(values)), struct.pack(f"<{len(values)}i", *values))


def sound_request(model: str, streaming: bool = False) -> Draft:
    """A valid request of a few tokens."""
    flag = Tensor("streaming" if model == "tensorrt_llm" else "stream", "BOOL", (1, 1), bytes([streaming]))
    prompt = pack_strings(b"What is machine learning?")
    inputs: tuple[Tensor, ...]
    if model == "tensorrt_llm":
        inputs = (int32("input_ids", 5, 6, 700), int32("input_lengths", 3), int32("request_output_len", 4), flag)
    elif model == "preprocessing":
        inputs = (Tensor("QUERY", "BYTES", (1, 1), prompt), int32("REQUEST_OUTPUT_LEN", 4))
    elif model == "postprocessing":
        inputs = (replace(int32("TOKENS_BATCH", 5, 6, 700), shape=(1, 1, 3)), int32("SEQUENCE_LENGTH", 3))
    else:
        inputs = (Tensor("text_input", "BYTES", (1, 1), prompt), int32("max_tokens", 4), flag)
    return Draft(model, inputs)


def malformed_requests() -> st.SearchStrategy[Draft]:
    """Valid requests with one to four mutations each, and a few without inputs."""
    return st.one_of(
        _mutated(), _mutated(), _mutated(), _mutated(), _mutated(), st.sampled_from(MODELS).map(lambda m: Draft(m, ()))
    )


@st.composite
def _mutated(draw: st.DrawFn) -> Draft:
    draft = sound_request(draw(st.sampled_from(MODELS)), draw(st.booleans()))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4]))):
        mutate = draw(st.sampled_from(_MUTATIONS))
        draft = replace(mutate(draw, draft), history=(*draft.history, mutate.__name__))
    return draft


def malformed_bodies() -> st.SearchStrategy[tuple[str, bytes]]:
    """Path and body of an HTTP request to ``generate`` or ``generate_stream``: JSON with odd fields, or invalid JSON."""
    paths = st.builds(
        "/v2/models/{}/{}".format,
        st.sampled_from([*MODELS, "nosuch"]),
        st.sampled_from(["generate", "generate", "generate_stream", "infer"]),
    )
    names = {spec.name for model in ("ensemble", "tensorrt_llm_bls") for spec in tensors.parse_tensors(_INPUTS[model])}
    scalars = st.one_of(
        st.none(), st.booleans(), st.sampled_from([*INTS, 2**63, 2**64, -(2**70)]), st.sampled_from(FLOATS), st.text(max_size=8)
    )
    values = st.one_of(scalars, st.lists(scalars, max_size=4), st.dictionaries(st.text(max_size=4), scalars, max_size=2))
    fields = st.dictionaries(st.one_of(st.sampled_from(sorted(names)), st.text(max_size=6)), values, max_size=4)
    sound = st.fixed_dictionaries({"text_input": st.just("Hello there"), "max_tokens": st.just(4)})
    bodies = st.one_of(
        st.tuples(sound, fields).map(lambda parts: json.dumps({**parts[0], **parts[1]}).encode()),
        fields.map(lambda some: json.dumps(some).encode()),
        st.binary(max_size=60),
        st.just(b'{"text_input": ' + b"[" * 2_000),
    )
    return st.tuples(paths, bodies)


def values_of(dtype: str, count: int) -> st.SearchStrategy[bytes]:
    """Raw contents of ``count`` elements, mostly extreme values."""
    if dtype == "BYTES":
        return st.lists(st.one_of(st.binary(max_size=12), st.sampled_from(_STRINGS)), min_size=count, max_size=count).map(
            lambda values: pack_strings(*values)
        )
    code = _PACKED.get(dtype, "i")
    if code in "efd":
        floats = FLOATS if code != "e" else tuple(value for value in FLOATS if not 7e4 < abs(value) < 1e39)
        elements: st.SearchStrategy[Any] = st.sampled_from(floats)
    elif code == "?":
        elements = st.booleans()
    else:
        bits = 8 * struct.calcsize(code)
        mask = (1 << bits) - 1
        half = 0 if code in "BQ" else 1 << (bits - 1)
        elements = st.sampled_from(INTS).map(lambda value: ((value + half) & mask) - half)
    return st.lists(elements, min_size=count, max_size=count).map(lambda values: struct.pack(f"<{len(values)}{code}", *values))


_STRINGS = (
    b"",
    b"a",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x00",
    "é".encode()[:1],
    b"json",
    b"regex",
    b"((((",
    b'{"type": "object"}',
    b" " * 300,
)


def _change(draft: Draft, position: int, **changes: Any) -> Draft:
    changed = replace(draft.inputs[position], **changes)
    return replace(draft, inputs=(*draft.inputs[:position], changed, *draft.inputs[position + 1 :]))


def _position(draw: st.DrawFn, draft: Draft) -> int | None:
    return draw(st.integers(0, len(draft.inputs) - 1)) if draft.inputs else None


def drop_tensor(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    return draft if position is None else replace(draft, inputs=draft.inputs[:position] + draft.inputs[position + 1 :])


def double_tensor(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    return draft if position is None else replace(draft, inputs=(*draft.inputs, draft.inputs[position]))


def other_dtype(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    return draft if position is None else _change(draft, position, dtype=draw(st.sampled_from(DTYPES)))


def other_shape(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    shape = tuple(draw(st.lists(st.sampled_from(DIMS), max_size=5)))
    return draft if position is None else _change(draft, position, shape=shape)


def other_shape_that_fits(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    if position is None:
        return draft
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    count = 1
    for dim in shape:
        count *= dim
    return _change(draft, position, shape=shape, raw=draw(values_of(draft.inputs[position].dtype, count)))


def other_bytes(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    if position is None:
        return draft
    raw = draft.inputs[position].raw
    mutated = st.one_of(
        st.binary(max_size=40), st.just(b""), st.just(raw[:-1]), st.just(raw + b"\0"), st.just(b"\xff" * len(raw))
    )
    return _change(draft, position, raw=draw(mutated))


def other_values(draw: st.DrawFn, draft: Draft) -> Draft:
    position = _position(draw, draft)
    if position is None:
        return draft
    tensor = draft.inputs[position]
    count = max(1, len(tensor.raw) // 4) if tensor.dtype == "INT32" else 1
    return _change(draft, position, raw=draw(values_of(tensor.dtype, count)))


def known_tensor(draw: st.DrawFn, draft: Draft) -> Draft:
    """An optional input of the model, of its dtype and rank, with values of any kind."""
    specs = [spec for spec in tensors.parse_tensors(_INPUTS.get(draft.model, tensors.CORE_INPUTS)) if spec.optional]
    spec = draw(st.sampled_from(specs))
    dims = (1, *(draw(st.integers(0, 3)) if dim == -1 else dim for dim in spec.dims))
    count = 1
    for dim in dims:
        count *= dim
    dtype = "BYTES" if spec.dtype == "STRING" else spec.dtype
    added = Tensor(spec.name, dtype, dims, draw(values_of(dtype, count)))
    return replace(draft, inputs=(*(tensor for tensor in draft.inputs if tensor.name != spec.name), added))


def unknown_tensor(draw: st.DrawFn, draft: Draft) -> Draft:
    dtype = draw(st.sampled_from(DTYPES))
    count = draw(st.integers(0, 4))
    added = Tensor(draw(st.text(max_size=12)), dtype, (1, count), draw(values_of(dtype, count)))
    return replace(draft, inputs=(*draft.inputs, added))


def named_outputs(draw: st.DrawFn, draft: Draft) -> Draft:
    names = st.one_of(
        st.text(max_size=8),
        st.sampled_from(["output_ids", "text_output", "OUTPUT", "INPUT_ID", "context_logits", "num_output_tokens", ""]),
    )
    return replace(draft, outputs=tuple(draw(st.lists(names, max_size=4))))


def other_model(draw: st.DrawFn, draft: Draft) -> Draft:
    names = st.one_of(st.text(max_size=8), st.sampled_from(MODELS), st.just("x" * 5_000))
    versions = st.sampled_from(["", "", "1", "2", "-1", "one", "9" * 30])
    return replace(draft, model=draw(names), version=draw(versions))


def other_id(draw: st.DrawFn, draft: Draft) -> Draft:
    return replace(draft, request_id=draw(st.one_of(st.text(max_size=30), st.just("i" * 100_000))))


def odd_parameters(draw: st.DrawFn, draft: Draft) -> Draft:
    names = st.sampled_from(
        ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "Streaming", "shared_memory_region",
         "binary_data", "classification", "triton_enable_empty_final_response", "odd", "headers"]
    )  # fmt: skip
    values = st.one_of(st.booleans(), st.sampled_from([0, 1, -1, 2**62]), st.floats(), st.text(max_size=8))
    return replace(draft, parameters=(*draft.parameters, (draw(names), draw(values))))


def lost_contents(draw: st.DrawFn, draft: Draft) -> Draft:
    return replace(draft, raw_lost=draw(st.integers(1, 9)))


def typed_contents(draw: st.DrawFn, draft: Draft) -> Draft:
    return replace(draft, typed=True)


def cut_message(draw: st.DrawFn, draft: Draft) -> Draft:
    return replace(draft, cut=draw(st.integers(0, 200)))


_MUTATIONS = (
    drop_tensor, double_tensor, other_dtype, other_shape, other_shape_that_fits, other_bytes, other_bytes, other_values,
    other_values, known_tensor, known_tensor, known_tensor, unknown_tensor, named_outputs, other_model, other_id,
    odd_parameters, lost_contents, typed_contents, cut_message,
)  # fmt: skip
