"""Lengths of files, and pairs of lengths that belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import WorkloadError
from workloads.lengths.families import Constant, Normal
from workloads.lengths.law import Side
from workloads.lengths.samples import (
    Bucket,
    Empirical,
    EmpiricalPairs,
    Histogram,
    Independent,
    read_histogram,
    read_lengths,
)
from workloads.readers.detect import read_workload_file

_PAIRS = st.lists(st.tuples(st.integers(1, 5_000), st.integers(1, 500)), min_size=1, max_size=40)


@given(_PAIRS, st.integers(0, 2**32))
def test_pairs_are_rows_of_the_file(rows: list[tuple[int, int]], seed: int) -> None:
    inputs, outputs = zip(*rows, strict=True)
    drawn = EmpiricalPairs(inputs, outputs, "f").draw(200, seed)
    assert set(zip(drawn[0].tolist(), drawn[1].tolist(), strict=True)) <= set(rows)


@given(_PAIRS, st.integers(0, 2**32))
def test_pairs_have_the_moments_of_the_file(rows: list[tuple[int, int]], seed: int) -> None:
    inputs, outputs = zip(*rows, strict=True)
    pairs = EmpiricalPairs(inputs, outputs, "f")
    for drawn, moments, asked in zip(pairs.draw(20_000, seed), pairs.moments(), pairs.asked_means, strict=True):
        assert asked == moments.mean
        assert float(drawn.mean()) == pytest.approx(moments.mean, abs=5 * moments.stdev / np.sqrt(20_000) + 1e-6)


def test_pairs_keep_the_correlation_that_independent_lengths_lose() -> None:
    inputs = tuple(range(1, 1_001))
    pairs = EmpiricalPairs(inputs, inputs, "f")
    drawn = pairs.draw(5_000, 3)
    assert np.corrcoef(*drawn)[0, 1] == pytest.approx(1.0)
    apart = Independent(Normal(500, 100), Normal(500, 100)).draw(5_000, 3)
    assert abs(np.corrcoef(*apart)[0, 1]) < 0.05


def test_without_a_row_there_are_no_pairs() -> None:
    with pytest.raises(WorkloadError, match=r"^trace\.csv has no row with both lengths$"):
        EmpiricalPairs((), (), "trace.csv")


def test_independent_lengths_state_their_laws_and_moments() -> None:
    lengths = Independent(Normal(128, 5), Constant(9))
    assert lengths.laws == ("128±5", "constant:tokens=9")
    assert [moments.mean for moments in lengths.moments()] == pytest.approx([128.5, 9])
    assert lengths.asked_means == (128, 9)
    assert str(lengths) == "N(128, 5) tokens in, 9 out"


def test_a_file_of_lengths_has_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("# prompts of May\n128\n\n 64 \r\n1\n10000000\n", encoding="utf-8")
    law = read_lengths(path)
    assert law.tokens == (128, 64, 1, 10_000_000)
    assert law.spelling == f"empirical:{path}"


@pytest.mark.parametrize("line", ["0", "-3", "1.5", "12 13", "12,", "x", "10000001", "9" * 5_000, "000000005", "²"])
def test_what_is_no_length_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(f"5\n{line}\n", encoding="utf-8")
    with pytest.raises(WorkloadError) as raised:
        read_lengths(path)
    assert str(raised.value) == f"{path}, line 2: {line[:40]!r} is no length in tokens from 1 to 10,000,000"


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_bytes(b"5\n\xff\xfe")
    with pytest.raises(WorkloadError, match=rf"{path}: .*can't decode byte 0xff"):
        read_lengths(path)


def test_a_file_that_is_not_there_is_named() -> None:
    for read in (read_lengths, lambda path: read_histogram(path, Side.INPUT)):
        with pytest.raises(WorkloadError, match=r"^nothere: No such file or directory$"):
            read(Path("nothere"))


def test_a_side_that_a_histogram_has_twice_is_an_error(tmp_path: Path) -> None:
    """Python's reader of JSON takes the last one, with no word."""
    path = tmp_path / "h.json"
    path.write_text('{"input": [[1, 10, 3]], "output": [[5, 6, 1]], "input": [[100, 100, 1]]}', encoding="utf-8")
    for side in Side:
        with pytest.raises(
            WorkloadError,
            match=r"h\.json: is no JSON that can be read: a key occurs twice in an object with 'input', 'output'$",
        ):
            read_histogram(path, side)


def test_the_keys_of_such_an_object_are_shown_as_far_as_a_line_has_room(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text(f'{{"{"k" * 300}": 1, "{"k" * 300}": 2}}', encoding="utf-8")
    with pytest.raises(WorkloadError) as refused:
        read_histogram(path, Side.INPUT)
    beginning = "a key occurs twice in an object with '"
    assert str(refused.value) == f"{path}: is no JSON that can be read: {beginning}{'k' * (200 - len(beginning))}"


def test_pairs_print_the_name_of_their_file() -> None:
    assert str(EmpiricalPairs((1,), (2,), "data/trace.csv")) == "pairs of lengths of trace.csv"


def test_data_of_one_name_and_other_lengths_have_other_digests() -> None:
    laws = [
        Empirical((1, 2), "f"),
        Empirical((2, 1), "f"),
        Histogram((Bucket(1, 2, 3),), "f"),
        Histogram((Bucket(1, 2, 4),), "f"),
    ]
    assert len({law.digest for law in laws}) == 4
    assert Empirical((1, 2), "g").digest == laws[0].digest
    assert Independent(laws[0], Constant(3)).digests == (laws[0].digest, None)
    assert EmpiricalPairs((1, 2), (2, 1), "f").digests == (laws[0].digest, laws[1].digest)


def test_pairs_of_a_real_trace_keep_its_means_and_its_correlation(shared_data: Path) -> None:
    table = read_workload_file(shared_data / "AzureLLMInferenceTrace_conv.csv", None, strict=False).workload.table
    inputs, outputs = (table[f"{side}_tokens"].to_numpy() for side in ("input", "output"))
    drawn = EmpiricalPairs(tuple(inputs.tolist()), tuple(outputs.tolist()), "f").draw(100_000, 0)
    for sent, of_file in zip(drawn, (inputs, outputs), strict=True):
        assert sent.mean() == pytest.approx(of_file.mean(), abs=5 * of_file.std() / np.sqrt(100_000))
    assert np.corrcoef(*drawn)[0, 1] == pytest.approx(np.corrcoef(inputs, outputs)[0, 1], abs=0.02)
