"""Scaled traces: lengths by their factors, whole blocks, and the prefixes that prompts had in common."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import WorkloadError
from workloads.prompts.synthesis import Synthesis
from workloads.table.scaling import Scaling, shared_blocks
from workloads.table.statistics import prefixes_of
from workloads.table.workload import Workload, WorkloadFacts

_BLOCK = 4


def _blocks(rows: list[list[int]], lengths: list[int]) -> Workload:
    columns = {"input_tokens": lengths, "output_tokens": [3] * len(rows), "block_hashes": rows}
    return Workload.of_columns(WorkloadFacts("mooncake", "trace.jsonl", block_tokens=_BLOCK), len(rows), columns)


def _lengths(inputs: list[int], outputs: list[int]) -> Workload:
    columns = {"input_tokens": inputs, "output_tokens": outputs}
    return Workload.of_columns(WorkloadFacts("azure", "trace.csv"), len(inputs), columns)


def _hashes(workload: Workload) -> list[list[int]]:
    return list(workload.table["block_hashes"].to_pylist())


def _inputs(workload: Workload) -> list[int]:
    return list(workload.table["input_tokens"].to_pylist())


def _common(row: list[int], other: list[int]) -> int:
    return next((depth for depth, (a, b) in enumerate(zip(row, other, strict=False)) if a != b), min(len(row), len(other)))


@st.composite
def _traces(draw: st.DrawFn) -> Workload:
    """Prompts as paths of a tree: a hash stands for a block and all before it."""
    paths = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8))
    rows = [[int("1" + "".join(map(str, path[: depth + 1]))) for depth in range(len(path))] for path in paths]
    partial = [draw(st.integers(1, _BLOCK)) for _ in rows]
    return _blocks(rows, [_BLOCK * (len(row) - 1) + last for row, last in zip(rows, partial, strict=True)])


@given(trace=_traces(), prefix=st.floats(0.1, 4.0), factor=st.floats(0.1, 4.0))
def test_shared_blocks_and_a_prompt_s_own_tokens_have_their_factors(trace: Workload, prefix: float, factor: float) -> None:
    scaled = Scaling(prefix, factor, 1.0).scaled(trace)
    flat = np.array([block_hash for row in _hashes(trace) for block_hash in row])
    shared = shared_blocks(flat, np.array([len(row) for row in _hashes(trace)])).tolist()
    for row, length, blocks, tokens in zip(_hashes(scaled), _inputs(scaled), shared, _inputs(trace), strict=True):
        assert len(row) == -(-length // _BLOCK)
        kept = max(1, int(np.floor(blocks * (prefix * factor) + 0.5))) if blocks else 0
        own = max(0, tokens - blocks * _BLOCK)
        missing = max(0, blocks * _BLOCK - tokens)
        assert length == kept * _BLOCK - missing + (max(1, int(np.floor(own * factor + 0.5))) if own else 0)


@given(trace=_traces(), prefix=st.floats(0.1, 4.0))
def test_prompts_have_the_scaled_prefix_in_common_and_no_more(trace: Workload, prefix: float) -> None:
    scaled = _hashes(Scaling(prefix=prefix).scaled(trace))
    rows = list(zip(_hashes(trace), scaled, strict=True))
    for (row, one_scaled), (other, other_scaled) in combinations(rows, 2):
        common = _common(row, other)
        expected = max(1, int(np.floor(common * prefix + 0.5))) if common else 0
        assert _common(one_scaled, other_scaled) == expected


@given(trace=_traces(), prefix=st.floats(1.0, 4.0))
def test_equal_hashes_of_a_scaled_trace_give_equal_tokens(trace: Workload, prefix: float) -> None:
    scaled = Scaling(prefix=prefix).scaled(trace)
    tokens: dict[int, tuple[int, ...]] = {}
    for row, request in zip(_hashes(scaled), Synthesis(scaled, range(10**9), 0).draw(None).requests, strict=True):
        ids = tuple(request.input_ids or ())
        for number, block_hash in enumerate(row[:-1]):
            block = ids[_BLOCK * number : _BLOCK * (number + 1)]
            assert tokens.setdefault(block_hash, block) == block
    assert len(set(tokens.values())) == len(tokens)


def test_a_block_under_its_own_hash_has_the_tokens_that_it_had() -> None:
    trace = _blocks([[1, 2, 9], [1, 2, 8]], [12, 12])
    plain = Synthesis(trace, range(10**6), 0).draw(None).requests[0].input_ids or ()
    longer = Synthesis(Scaling(prefix=2.0).scaled(trace), range(10**6), 0).draw(None).requests[0].input_ids or ()
    assert len(longer) == 5 * _BLOCK
    assert (longer[:4], longer[8:12], longer[16:]) == (plain[:4], plain[4:8], plain[8:])


def test_blocks_of_other_places_are_no_prefix_that_is_shared() -> None:
    """Qwen-Bailian hashes each block alone: a prompt's own beginning may be the middle of another one."""
    trace = _blocks([[1, 2, 3], [2, 3, 4], [3, 1, 2]], [12, 12, 12])
    assert shared_blocks(np.array([1, 2, 3, 2, 3, 4, 3, 1, 2]), np.array([3, 3, 3])).tolist() == [0, 0, 0]
    assert _inputs(Scaling(prefix=3.0).scaled(trace)) == [12, 12, 12]


def test_longer_prefixes_raise_what_a_cache_reuses_and_longer_prompts_leave_it() -> None:
    trace = _blocks([[1, 2, 9, 10], [1, 2, 8, 11]], [16, 16])
    shares = [scaled.share for factors in (Scaling(), Scaling(prefix=3.0), Scaling(input=3.0), Scaling(prefix=0.5))
              if (scaled := prefixes_of(factors.scaled(trace))) is not None]  # fmt: skip
    assert shares == [8 / 32, 24 / 64, 24 / 96, 4 / 24]


def test_lengths_without_blocks_are_rounded_to_whole_tokens_of_at_least_one() -> None:
    scaled = Scaling(input=0.25, output=1.5).scaled(_lengths([1, 2, 10, 100], [1, 2, 3, 5]))
    assert _inputs(scaled) == [1, 1, 3, 25]
    assert scaled.table["output_tokens"].to_pylist() == [2, 3, 5, 8]


def test_factors_of_1_change_nothing() -> None:
    trace = _blocks([[1, 2]], [7])
    assert Scaling().scaled(trace) is trace
    assert Scaling().entries() == {}
    assert Scaling(prefix=2.0, output=0.5).entries() == {"prefix_factor": 2.0, "output_factor": 0.5}


def test_a_partial_last_block_without_a_hash_is_drawn_and_scaled() -> None:
    """Qwen-Bailian's traces leave such hashes out."""
    trace = _blocks([[1], [1]], [6, 7])
    assert [len(r.input_ids or ()) for r in Synthesis(trace, range(100), 0).draw(None).requests] == [6, 7]
    scaled = Scaling(input=3.0).scaled(trace)
    assert _inputs(scaled) == [18, 21]
    assert [len(row) for row in _hashes(scaled)] == [5, 6]
    assert [_hashes(scaled)[0][:3]] == [_hashes(scaled)[1][:3]]
    assert not set(_hashes(scaled)[0][3:]) & set(_hashes(scaled)[1][3:])


def test_blocks_that_are_repeated_or_added_have_hashes_of_their_own() -> None:
    trace = _blocks([[1, -2, 9], [1, -2, 8]], [12, 12])
    longer = _hashes(Scaling(prefix=3.0).scaled(trace))
    assert [row[:6] for row in longer] == [longer[0][:6]] * 2
    assert [len(row) for row in longer] == [7, 7]
    assert len({*longer[0], *longer[1]}) == 6 + 2
    own = _hashes(Scaling(input=4.0).scaled(_blocks([[7], [-8], []], [4, 4, 2])))
    assert [len(row) for row in own] == [4, 4, 2]
    assert len({block_hash for row in own for block_hash in row}) == 4 + 4 + 2


def test_prompts_that_get_too_long_are_refused_before_their_blocks_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.table.scaling.array", None)
    with pytest.raises(
        WorkloadError, match=r"^prefix_factor 4e[+]06: requests more than 10,000,000 tokens in a request; lower it$"
    ):
        Scaling(prefix=4e6).scaled(_blocks([[1], [1, 2]], [4, 8]))
    with pytest.raises(
        WorkloadError, match=r"^input_factor 4e[+]06: requests more than 10,000,000 tokens in a request; lower it$"
    ):
        Scaling(input=4e6).scaled(_blocks([[1], [2]], [4, 4]))


def test_a_row_without_hashes_is_scaled_by_its_length() -> None:
    columns = {"input_tokens": [6, 8, 8], "output_tokens": [1] * 3, "block_hashes": [None, [1, 2], [1, 2]]}
    trace = Workload.of_columns(WorkloadFacts("mooncake", "trace.jsonl", block_tokens=_BLOCK), 3, columns)
    scaled = Scaling(input=2.0).scaled(trace)
    assert _inputs(scaled) == [12, 16, 16]
    assert [len(row) for row in _hashes(scaled)] == [3, 4, 4]
    assert _hashes(scaled)[1] == _hashes(scaled)[2]


def test_no_rows_are_scaled_to_none_and_the_longest_request_is_allowed() -> None:
    for trace in (_lengths([], []), _blocks([], [])):
        assert len(Scaling(prefix=1.0, input=3.0, output=2.0).scaled(trace)) == 0
    assert _inputs(Scaling(input=2.0).scaled(_lengths([5_000_000], [1]))) == [10_000_000]


@pytest.mark.parametrize(
    ("scaling", "trace", "problem"),
    [
        (
            Scaling(prefix=2.0),
            _lengths([5], [5]),
            "prefix_factor: trace.csv has no block hashes, so nothing that its prompts share is known",
        ),
        (
            Scaling(input=2e6),
            _lengths([50], [5]),
            "input_factor 2e+06: requests more than 10,000,000 tokens in a request; lower it",
        ),
        (
            Scaling(input=0.5, output=2.0),
            Workload.of_columns(WorkloadFacts("openai", "p.json"), 1, {"prompt": ["a"]}),
            "input_factor 0.5, output_factor 2: p.json has prompts of its own, of which the length is that of their text",
        ),
        (
            Scaling(output=2.0),
            Workload.of_columns(WorkloadFacts("azure", "t.csv"), 1, {"input_tokens": [1]}),
            "output_factor 2: t.csv has rows without lengths",
        ),
    ],
)
def test_what_cannot_be_scaled_is_refused(scaling: Scaling, trace: Workload, problem: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        scaling.scaled(trace)
    assert str(raised.value) == problem
