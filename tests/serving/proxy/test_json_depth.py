"""The depth of a JSON text, also of one that a parser would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.proxy.json_depth import is_too_deep

_LEAVES = st.none() | st.booleans() | st.integers() | st.text('[]{}"\\a', max_size=8)
_DOCUMENTS = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[]{}"\\', max_size=4), inner, max_size=4)
)


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


@given(_DOCUMENTS, st.integers(0, 6))
def test_document_is_too_deep_where_its_value_is(document: Any, levels: int) -> None:
    assert is_too_deep(json.dumps(document).encode(), levels) == (_depth(document) > levels)


@pytest.mark.parametrize("text", [b"[" * 101, b'{"a":' * 101, b'"[' + b'"' + b"[{" * 51, b"]" * 0 + b"[" * 101 + b"!"])
def test_text_that_is_deep_before_its_error_is_too_deep(text: bytes) -> None:
    assert is_too_deep(text)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100 + b"]" * 100,
        b"[" + b"[]," * 5000 + b"[]]",
        b'{"text_input": "' + b"[{" * 5000 + b'\\"' + b"[" * 5000 + b'"}',
        b'"' + b'\\"[' * 200_000,  # a string without an end: not searched again from each quote
        b"",
    ],
)
def test_many_brackets_side_by_side_or_in_a_string_are_not_deep(text: bytes) -> None:
    assert not is_too_deep(text)
