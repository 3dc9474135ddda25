"""Synthetic prompts: exact lengths, and equal blocks for equal hashes and for no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LengthLimits
from workloads.prompts.exact_text import TextCodec
from workloads.prompts.synthesis import Synthesis, has_prompts
from workloads.table.workload import Workload, WorkloadFacts

_BLOCK = 4
_WORDS = TextCodec(lambda ids: " ".join(f"w{token}" for token in ids), lambda text: [int(w[1:]) for w in text.split()])


def _lengths(*rows: tuple[int, int]) -> Workload:
    columns = {"input_tokens": [row[0] for row in rows], "output_tokens": [row[1] for row in rows]}
    return Workload.of_columns(WorkloadFacts("azure", "trace.csv"), len(rows), columns)


def test_requests_have_the_classes_of_their_rows_and_none_is_that_of_probes() -> None:
    columns = {"input_tokens": [2, 3, 4], "output_tokens": [1] * 3, "request_class": ["GPT-4, API log", None, "probe"]}
    workload = Workload.of_columns(WorkloadFacts("burstgpt", "trace.csv"), 3, columns)
    drawn = Synthesis(workload, range(100), 1).draw(None).requests
    assert [request.traffic_class for request in drawn] == ["GPT-4, API log", None, "probe of the file"]


def _blocks(rows: list[list[int]], lengths: list[int]) -> Workload:
    columns = {"input_tokens": lengths, "output_tokens": [1] * len(rows), "block_hashes": rows}
    return Workload.of_columns(WorkloadFacts("mooncake", "trace.jsonl", block_tokens=_BLOCK), len(rows), columns)


@given(rows=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=8), seed=st.integers(0, 2**31))
def test_prompts_have_the_lengths_of_their_rows(rows: list[tuple[int, int]], seed: int) -> None:
    for codec in (None, _WORDS):
        drawn = Synthesis(_lengths(*rows), range(10**6), seed, codec).draw(None)
        assert [(len(r.input_ids or ()), r.output_tokens) for r in drawn.requests] == rows
        assert [r.input_tokens for r in drawn.requests] == [row[0] for row in rows]
        assert (codec is None) is (drawn.requests[0].prompt is None)


@given(
    rows=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), min_size=2, max_size=6),
    partial=st.integers(1, _BLOCK),
)
def test_blocks_are_equal_exactly_where_their_hashes_are(rows: list[list[int]], partial: int) -> None:
    lengths = [_BLOCK * (len(row) - 1) + partial for row in rows]
    drawn = Synthesis(_blocks(rows, lengths), range(10**9), 1).draw(None).requests
    tokens: dict[int, tuple[int, ...]] = {}
    for row, request, length in zip(rows, drawn, lengths, strict=True):
        ids = request.input_ids or ()
        assert len(ids) == length
        for number, block_hash in enumerate(row[:-1]):
            block = ids[_BLOCK * number : _BLOCK * (number + 1)]
            assert tokens.setdefault(block_hash, block) == block
        last = ids[_BLOCK * (len(row) - 1) :]
        assert tokens.get(row[-1], last)[:partial] == last
    assert len(set(tokens.values())) == len(tokens)


def test_a_request_does_not_depend_on_how_many_are_drawn_or_dropped() -> None:
    workload = _lengths((5, 1), (50, 1), (7, 1))
    everything = Synthesis(workload, range(1000), 3).draw(None).requests
    short = Synthesis(workload, range(1000), 3, limits=LengthLimits(max_input_len=10)).draw(None)
    assert short.requests == (everything[0], everything[2])
    assert (short.rows, short.dropped_too_long) == (3, 1)
    assert Synthesis(workload, range(1000), 3).draw(2).requests == everything[:2]
    assert Synthesis(workload, range(1000), 4).draw(None).requests != everything


@pytest.mark.parametrize("codec", [None, _WORDS])
def test_a_part_of_a_trace_has_the_prompts_that_it_has_in_the_whole(codec: TextCodec | None) -> None:
    rows = [(7, 1), (9, 1), (7, 1), (9, 1)]
    whole = Synthesis(_lengths(*rows), range(10**6), 3, codec).draw(None).requests
    part = Synthesis(_lengths(*rows[2:]), range(10**6), 3, codec, first_row=2).draw(None).requests
    assert part == whole[2:]
    assert part != whole[:2]


def test_a_partial_last_block_without_a_hash_is_the_row_s_own() -> None:
    drawn = Synthesis(_blocks([[1, 2], [1, 2], [1, 2]], [10, 10, 8]), range(10**9), 1).draw(None).requests
    one, other, whole = (tuple(request.input_ids or ()) for request in drawn)
    assert (len(one), len(other)) == (10, 10)
    assert one[:8] == other[:8] == whole
    assert not set(one[8:]) & {*other[8:], *whole}
    alone = Synthesis(_lengths((2, 1), (2, 1)), range(10**9), 1).draw(None).requests
    assert (one[8:], other[8:]) == tuple(tuple(request.input_ids or ()) for request in alone)


def test_of_blocks_of_one_token_none_may_be_missing() -> None:
    facts, columns = WorkloadFacts("qwen", "t", block_tokens=1), {"input_tokens": [2], "output_tokens": [1]}
    with pytest.raises(WorkloadError, match=r"^row 1: 1 blocks are fewer than its 2 tokens need$"):
        Synthesis(Workload.of_columns(facts, 1, columns | {"block_hashes": [[5]]}), range(9), 1).draw(None)


def test_a_row_s_own_tokens_are_not_those_of_the_block_with_its_number() -> None:
    """Block 0 has the tokens that end row 1 whole, and row 0 ends with half a block of its own."""
    own, block = Synthesis(_blocks([[7], [7, 0]], [6, 8]), range(5_000), 3).draw(None).requests
    assert (own.input_ids or ())[4:] != (block.input_ids or ())[4:6]


def test_rows_that_are_too_long_are_counted_and_those_that_are_kept_are_known() -> None:
    limits = LengthLimits(max_input_len=10, context_tokens=12)
    found = Synthesis(_lengths((50, 1), (5, 7), (5, 8), (10, 2), (11, 1)), range(50), 3, limits=limits).draw(None)
    assert [request.input_tokens for request in found.requests] == [5, 10]
    assert (found.kept, found.rows, found.dropped_too_long) == ((1, 3), 5, 3)


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_requests_end_as_asked(ignore_eos: bool) -> None:
    (request,) = Synthesis(_lengths((5, 1)), range(50), 3, ignore_eos=ignore_eos).draw(None).requests
    assert request.ignore_eos is ignore_eos


def test_a_trace_of_blocks_without_any_hash_is_one_of_lengths() -> None:
    facts = WorkloadFacts("mooncake", "trace.jsonl", block_tokens=_BLOCK)
    workload = Workload.of_columns(facts, 1, {"input_tokens": [9], "output_tokens": [1]})
    (request,) = Synthesis(workload, range(50), 3, _WORDS).draw(None).requests
    assert (request.input_tokens, len((request.prompt or "").split())) == (9, 9)


def test_what_a_text_lacks_is_drawn_from_the_stream_of_its_row() -> None:
    """Token 1 has no text, so half of each prompt is drawn again, in order, from seed, stream and the row's number."""
    codec = TextCodec(
        lambda ids: "".join(" abc"[token] for token in ids if token != 1), lambda text: [" abc".index(c) for c in text]
    )
    workload, token_ids = _lengths((12, 1), (12, 1)), [3, 1, 2, 1]  # positions count, not ids
    made, drawn = (Synthesis(workload, token_ids, 5, text_codec).draw(None).requests for text_codec in (codec, None))
    for row, (request, first) in enumerate(zip(made, drawn, strict=True)):
        again = [token_ids[position] for position in generator(5, Stream.TEXTS, row).integers(0, 4, 200).tolist()]
        with_text = [token for token in [*(first.input_ids or ()), *again] if token != 1]
        assert request.input_ids == tuple(with_text[:12])


def test_a_row_without_a_text_of_its_length_keeps_the_length_that_it_asked_for() -> None:
    in_pairs = TextCodec(lambda ids: "a" * ((len(ids) + 1) // 2), lambda text: [1, 2] * len(text))
    (request,) = Synthesis(_lengths((3, 1)), range(3), 0, in_pairs).draw(None).requests
    assert (request.input_tokens, request.requested_input_tokens) == (4, 3)


@pytest.mark.parametrize(("prompts", "has_any"), [(["a", None], True), (["a", "b"], True), ([None, None], False)])
def test_a_workload_has_prompts_where_any_row_has_one(prompts: list[str | None], has_any: bool) -> None:
    workload = Workload.of_columns(WorkloadFacts("openai", "p.jsonl"), 2, {"prompt": prompts})
    assert has_prompts(workload) is has_any


def test_ids_come_from_the_vocabulary() -> None:
    (request,) = Synthesis(_lengths((200, 1)), [3, 5, 8], 0).draw(None).requests
    assert set(request.input_ids or ()) == {3, 5, 8}


@pytest.mark.parametrize(
    ("workload", "codec", "problem"),
    [
        (
            _blocks([[1]], [3]),
            _WORDS,
            "trace.jsonl: its shared prefixes are made of token ids; model must name one that takes them, as tensorrt_llm, or "
            "protocol openai_completions with tokenizer_dir sends them to a server of OpenAI's protocols",
        ),
        (_blocks([[1, 2], [1]], [8, 9]), None, "row 2: 1 blocks are fewer than its 9 tokens need"),
        (_blocks([[1]], [8]), None, "row 1: 1 blocks are fewer than its 8 tokens need"),
        (
            Workload.of_columns(WorkloadFacts("azure", "t.csv"), 1, {"input_tokens": [4]}),
            None,
            "t.csv: some rows have neither a prompt nor both lengths",
        ),
        (
            _lengths((99, 1)),
            None,
            "every prompt of trace.csv is longer than max_input_len 50 allows; nothing is left to send",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(workload: Workload, codec: TextCodec | None, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        Synthesis(workload, range(10), 0, codec, LengthLimits(max_input_len=50)).draw(None)
    assert str(refused.value) == problem
