"""Statistics of a workload, against plain loops and the known numbers of real traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.readers.detect import read_workload_file
from workloads.table.statistics import lengths_of, prefixes_of, workload_statistics
from workloads.table.workload import Workload, WorkloadFacts

_FACTS = WorkloadFacts("mooncake", "t.jsonl", block_tokens=4)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=200))
def test_percentiles_are_nearest_rank(values: list[int]) -> None:
    (lengths,) = lengths_of(Workload.of_columns(_FACTS, len(values), {"output_tokens": values}))
    ordered = sorted(values)
    assert (lengths.name, lengths.rows, lengths.total) == ("output", len(values), sum(values))
    assert lengths.p50 == ordered[(len(values) + 1) // 2 - 1]
    assert lengths.p90 == ordered[-(-len(values) * 9 // 10) - 1]
    assert lengths.p99 == ordered[-(-len(values) * 99 // 100) - 1]
    assert lengths.max == ordered[-1]
    assert lengths.mean == pytest.approx(sum(values) / len(values))


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 3)), min_size=1, max_size=12))
def test_sharing_is_what_a_cache_of_all_blocks_has_seen(rows: list[tuple[list[int], int]]) -> None:
    # the hash of a block stands for its whole prefix, so equal hashes have equal blocks before them
    chained = [[hash_of(hashes[: end + 1]) for end in range(len(hashes))] for hashes, _ in rows]
    tokens = [max(1, 4 * len(hashes) - cut) for hashes, cut in rows]
    sharing = prefixes_of(Workload.of_columns(_FACTS, len(rows), {"block_hashes": chained, "input_tokens": tokens}))
    assert sharing is not None
    seen: set[int] = set()
    repeated = []
    for hashes, length in zip(chained, tokens, strict=True):
        leading = next((end for end, block_hash in enumerate(hashes) if block_hash not in seen), len(hashes))
        repeated.append(min(4 * leading, length))
        seen.update(hashes)
    assert (sharing.repeated, sharing.total) == (sum(repeated), sum(tokens))
    assert sharing.by_row.tolist() == pytest.approx([part / length for part, length in zip(repeated, tokens, strict=True)])


def hash_of(blocks: list[int]) -> int:
    return sum(5**place * (block + 1) for place, block in enumerate(blocks))


def test_a_known_block_behind_a_new_one_is_no_prefix() -> None:
    columns = {"block_hashes": [[1, 2], [3, 2], [1, 2]], "input_tokens": [8, 8, 8]}
    sharing = prefixes_of(Workload.of_columns(_FACTS, 3, columns))
    assert sharing is not None
    assert sharing.by_row.tolist() == [0.0, 0.0, 1.0]


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=12))
def test_blocks_that_are_hashed_by_themselves_count_where_all_before_them_are_equal(rows: list[list[int]]) -> None:
    """Qwen-Bailian hashes each block alone, so one hash occurs at several places of prompts that share nothing."""
    columns = {"block_hashes": rows, "input_tokens": [4 * len(row) for row in rows]}
    sharing = prefixes_of(Workload.of_columns(_FACTS, len(rows), columns))
    assert sharing is not None
    seen: set[tuple[int, ...]] = set()
    repeated = 0
    for row in rows:
        prefixes = {tuple(row[:depth]) for depth in range(1, len(row) + 1)}
        repeated += 4 * len(prefixes & seen)
        seen |= prefixes
    assert (sharing.repeated, sharing.total) == (repeated, 4 * sum(map(len, rows)))


def test_prefixes_of_texts_are_counted_in_bytes() -> None:
    sharing = prefixes_of(Workload.of_columns(WorkloadFacts("custom", "x"), 2, {"prompt": ["a" * 300, "a" * 300]}))
    assert sharing is not None
    assert (sharing.repeated, sharing.total, sharing.unit) == (256, 600, "bytes")


def test_a_text_without_words_has_none() -> None:
    (lengths,) = lengths_of(Workload.of_columns(WorkloadFacts("upstream", "x"), 4, {"answer": ["", " \n", " a  b ", "c"]}))
    assert (lengths.name, lengths.unit, lengths.rows, lengths.total, lengths.mean) == ("answer", "words", 4, 3, 0.75)


def test_what_an_origin_lacks_is_none() -> None:
    statistics = workload_statistics(Workload.of_columns(WorkloadFacts("x", "y"), 3, {}))
    assert (statistics.rows, statistics.lengths) == (3, ())
    assert (statistics.arrivals, statistics.sessions, statistics.prefixes) == (None, None, None)


@pytest.mark.parametrize("arrivals", [[0], [0, 0, 0]])
def test_requests_at_one_time_have_no_rate(arrivals: list[int]) -> None:
    shown = workload_statistics(Workload.of_columns(_FACTS, len(arrivals), {"arrival_ns": arrivals})).arrivals
    assert shown is not None
    assert (shown.duration_s, shown.rate_per_s, shown.mean_gap_s, shown.gap_cv, shown.instants) == (0.0, None, None, None, 1)


def test_conversations_are_counted_with_their_turns() -> None:
    columns = {"session": ["a", "a", "b", None], "parent": [None, 0, None, None]}
    shown = workload_statistics(Workload.of_columns(_FACTS, 4, columns)).sessions
    assert shown is not None
    assert (shown.sessions, shown.rows, shown.mean_turns, shown.most_turns, shown.waiting_turns) == (2, 3, 1.5, 2, 1)


def test_the_real_traces_have_their_known_statistics(shared_data: Path) -> None:
    azure = workload_statistics(read_workload_file(shared_data / "AzureLLMInferenceTrace_conv.csv").workload)
    assert azure.arrivals is not None
    assert azure.arrivals.rate_per_s is not None
    assert azure.arrivals.gap_cv is not None
    assert (azure.rows, round(azure.arrivals.duration_s)) == (19_366, 3_502)
    assert (round(azure.arrivals.rate_per_s, 2), round(azure.arrivals.gap_cv, 2)) == (5.53, 1.09)
    conversations = workload_statistics(read_workload_file(shared_data / "fastchat_dummy_conversation.json").workload)
    assert conversations.sessions is not None
    assert (conversations.sessions.sessions, conversations.rows) == (500, 1_000)


def test_the_real_trace_of_blocks_shares_what_a_plain_count_says(shared_data: Path) -> None:
    workload = read_workload_file(shared_data / "mooncake_conversation_trace.jsonl").workload
    seen: set[int] = set()
    repeated = 0
    for row in workload.table.select(["block_hashes", "input_tokens"]).to_pylist():
        leading = next(
            (end for end, block_hash in enumerate(row["block_hashes"]) if block_hash not in seen), len(row["block_hashes"])
        )
        repeated += min(512 * leading, row["input_tokens"])
        seen.update(row["block_hashes"])
    sharing = prefixes_of(workload)
    assert sharing is not None
    assert sharing.repeated == repeated
    assert round(sharing.share, 3) == 0.374
