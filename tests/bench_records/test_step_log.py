"""The step log of an engine, read, whatever became of the file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.step_log import StepLogFileError, opened_step_log, read_step_log
from serving.engines.step_log import StepLog
from tests.step_logs import OFFSET_NS, log_head, log_row, log_text, write_log


def test_the_engine_s_own_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    log = StepLog(path, {"engine": "openvino"})
    log.add((1_000, 20, "batch", 3, 4, 64, 2, 1, 77, 9))
    log.add((1_030, 5, "single", 1, 0, None, None, None, None, None))
    log.add((1_040, 15, "batch", 3, 0, None, None, None, None, 9))
    log.close()
    assert read_step_log(path, None).start_ns.size == 0  # nothing was flushed
    log = StepLog(path, {"engine": "openvino"})
    log.add((1_000, 20, "batch", 3, 4, 64, 2, 1, 77, 9))
    log.add((1_030, 5, "single", 1, 0, None, None, None, None, None))
    log.add((1_040, 15, "batch", 3, 0, None, None, None, None, 9))
    log.flush()
    steps = read_step_log(path, None)
    assert steps.end_ns.tolist() == [1_020, 1_055]
    assert steps.prefill_tokens.tolist()[0] == 64
    assert np.isnan(steps.prefill_tokens[1])
    assert steps.waiting.tolist() == [4, 0]
    assert steps.single_end_ns.tolist() == [1_035]
    assert steps.after_single().tolist() == [False, True]
    at_ns = np.array([1_000.0, 1_035.0, 5_000.0])
    assert steps.has_token(at_ns).tolist() == [True, True, False]
    assert steps.only(slice(1, None)).after_single().tolist() == [True]


def test_the_starts_of_the_run_s_boot_are_read_and_a_cut_row_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    other_boot = log_text([log_row(-9_000, 5, 0, 1)], log_head(OFFSET_NS + 10**12))
    killed = log_text([log_row(0, 5, 0, 1), log_row(5, 5, 0, 2)])[:-1] + "\n1234,5,cut\n"
    last = log_text([log_row(20, 5, 0, 3), log_row(25, 5, 0, 4)])
    path.write_text(other_boot + killed + last[: last.rindex(",")])
    assert read_step_log(path, OFFSET_NS).decode_tokens.tolist() == [1, 2, 3]
    assert read_step_log(path, None).decode_tokens.tolist() == [1, 2, 3]


def test_the_log_of_a_server_on_another_host_has_the_boot_of_its_last_start(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    offset_ns = OFFSET_NS + 10**12
    path.write_text(
        "".join(log_text([log_row(at, 5, 0, 1)], log_head(head)) for at, head in ((0, 7), (5, offset_ns), (20, offset_ns)))
    )
    assert read_step_log(path, OFFSET_NS).start_ns.size == 2
    assert read_step_log(path, 7).start_ns.size == 1
    steps_of = opened_step_log(path)
    path.unlink()
    assert [steps_of(offset).start_ns.size for offset in (7, offset_ns, None)] == [1, 2, 2]
    assert steps_of(offset_ns) is steps_of(None)


def test_a_start_whose_head_was_cut_is_left_out(tmp_path: Path) -> None:
    """A disk may be full at a start; the next one ends the line."""
    path = tmp_path / "steps.csv"
    whole = log_text([log_row(0, 5, 0, 1)])
    path.write_text(log_head()[:30] + ",cut\n" + whole + log_head()[:40])
    assert read_step_log(path, OFFSET_NS).start_ns.size == 1
    path.write_text(log_head()[:30] + ",cut\n")
    with pytest.raises(StepLogFileError, match="the head of its one start was cut"):
        read_step_log(path, OFFSET_NS)


def test_a_log_too_large_to_read_is_one_sentence(tmp_path: Path) -> None:
    path = write_log(tmp_path / "steps.csv", [log_row(0, 5, 0, 1)])
    with path.open("ab") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(StepLogFileError, match="more than 1 GiB"):
        read_step_log(path, OFFSET_NS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("start_ns,duration_ns\n1,2\n", "the file is no step log"),
        ("", "the file is no step log"),
        (log_text([], log_head(version=2)), "version 2 of the log; this bench reads version 1"),
        ('#{"step_log": 1\n', "the head of a start cannot be read"),
        (log_text([log_row(0, 5, 0, 1)]) + "what,5,batch,1,0,0,1,0,0,1\n", "a row is damaged"),
        (log_text([log_row(0, 5, 0, 1)]) + "7,5\n" + log_text([log_row(9, 5, 0, 1)]), "a row is damaged"),
        (log_text([log_row(0, 5, 0, 1), log_row(3, 5, 0, 1)]), "its steps have no times, or overlap"),
        (log_text([log_row(0, -5, 0, 1)]), "its steps have no times, or overlap"),
        (log_head() + "\nstart_ns,kind\n5,batch\n", "a row is damaged"),
    ],
)
def test_another_or_a_damaged_file_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(StepLogFileError, match=f"^--step_log .*{problem}"):
        read_step_log(path, OFFSET_NS)


@given(
    rows=st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 2_048), st.integers(0, 256)), min_size=1, max_size=20),
    cut=st.integers(0, 200),
)
def test_a_log_that_was_cut_anywhere_has_its_first_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], cut: int
) -> None:
    """An engine may be killed while it writes."""
    path = tmp_path_factory.mktemp("cut") / "steps.csv"
    whole = [(2_000_000 * k, took, "batch", 1, 0, prefill, decode, 0, 0, 1) for k, (took, prefill, decode) in enumerate(rows)]
    text = log_text(whole)
    head = text.index("\n", text.index("\n") + 1) + 1
    left = max(head, len(text) - cut)
    path.write_text(text[:left])
    steps = read_step_log(path, OFFSET_NS)
    kept = text[head:left].count("\n")
    assert steps.duration_ns.tolist() == [row[1] for row in whole[:kept]]
    assert steps.decode_tokens.tolist() == [row[6] for row in whole[:kept]]


@given(content=st.binary(max_size=80), at=st.integers(0, 400), deleted=st.integers(0, 40))
def test_no_damage_is_more_than_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, deleted: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "steps.csv"
    whole = log_text([log_row(5.0 * k, 4, k, 1) for k in range(6)]).encode()
    path.write_bytes(whole[:at] + content + whole[at + deleted :])
    with suppress(StepLogFileError):
        assert (read_step_log(path, OFFSET_NS).duration_ns >= 0).all()
