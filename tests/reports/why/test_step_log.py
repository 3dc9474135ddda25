"""The step log of an engine: read, whatever became of the file, and joined with the requests of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from bench_records.manifest import EmbeddedServer
from bench_records.record import Outcome, Record
from reports.errors import ServerTimesError
from reports.metrics.catalogue import E2E
from reports.metrics.request_phases import Phase, client_clock, monotonic_start_ns, phase_times
from reports.render.console import console_text
from reports.run_report import RunReport
from reports.why.answer import Detail, explain_logged
from reports.why.documents import document
from reports.why.json_file import document as json_document
from reports.why.step_log import read_step_log, with_step_log
from reports.why.words import steps_text
from serving.engines.step_log import COLUMNS, StepLog
from tests.reports.manifests import clock_readings

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
Row = tuple[int | str | None, ...]

_STARTED = "2026-11-22T01:23:51+00:00"
_OFFSET_NS = 1_795_306_986_682_515_898  # of the manifest's clocks
_START_NS = 1_795_310_631_000_000_000 - _OFFSET_NS  # of the run, on the monotonic clock


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _head(offset_ns: int = _OFFSET_NS, version: int = 1) -> str:
    return "#" + json.dumps({"step_log": version, "realtime_minus_monotonic_ns": offset_ns})


def _row(start_ms: float, took_ms: float, prefill: int | None, decode: int | None, kind: str = "batch") -> Row:
    """A step that began ``start_ms`` after the run."""
    sequences = (decode or 0) + bool(prefill)
    return (_START_NS + _ns(start_ms), _ns(took_ms), kind, sequences, 0, prefill, decode, 0, 0, sequences)


def _text(rows: Sequence[Row], head: str | None = None) -> str:
    cells = ("".join(("," if k else "") + ("" if cell is None else str(cell)) for k, cell in enumerate(row)) for row in rows)
    return "\n".join([head or _head(), ",".join(COLUMNS), *cells, ""])


def _log(path: Path, rows: Sequence[Row], head: str | None = None) -> Path:
    path.write_text(_text(rows, head))
    return path


# ---- reading


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


def test_the_starts_of_the_run_s_boot_are_read_and_a_cut_row_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    other_boot = _text([_row(-9_000, 5, 0, 1)], _head(_OFFSET_NS + 10**12))
    killed = _text([_row(0, 5, 0, 1), _row(5, 5, 0, 2)])[:-1] + "\n1234,5,cut\n"
    last = _text([_row(20, 5, 0, 3), _row(25, 5, 0, 4)])
    path.write_text(other_boot + killed + last[: last.rindex(",")])
    assert read_step_log(path, _OFFSET_NS).decode_tokens.tolist() == [1, 2, 3]
    assert read_step_log(path, None).decode_tokens.tolist() == [1, 2, 3]


def test_the_log_of_a_server_on_another_host_has_the_boot_of_its_last_start(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    offset_ns = _OFFSET_NS + 10**12
    path.write_text("".join(_text([_row(at, 5, 0, 1)], _head(head)) for at, head in ((0, 7), (5, offset_ns), (20, offset_ns))))
    assert read_step_log(path, _OFFSET_NS).start_ns.size == 2
    assert read_step_log(path, 7).start_ns.size == 1


def test_a_start_whose_head_was_cut_is_left_out(tmp_path: Path) -> None:
    """A disk may be full at a start; the next one ends the line."""
    path = tmp_path / "steps.csv"
    whole = _text([_row(0, 5, 0, 1)])
    path.write_text(_head()[:30] + ",cut\n" + whole + _head()[:40])
    assert read_step_log(path, _OFFSET_NS).start_ns.size == 1
    path.write_text(_head()[:30] + ",cut\n")
    with pytest.raises(ServerTimesError, match="the head of its one start was cut"):
        read_step_log(path, _OFFSET_NS)


def test_a_log_too_large_to_read_is_one_sentence(tmp_path: Path) -> None:
    path = _log(tmp_path / "steps.csv", [_row(0, 5, 0, 1)])
    with path.open("ab") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(ServerTimesError, match="more than 1 GiB"):
        read_step_log(path, _OFFSET_NS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("start_ns,duration_ns\n1,2\n", "the file is no step log"),
        ("", "the file is no step log"),
        (_text([], _head(version=2)), "version 2 of the log; this bench reads version 1"),
        ('#{"step_log": 1\n', "the head of a start cannot be read"),
        (_text([_row(0, 5, 0, 1)]) + "what,5,batch,1,0,0,1,0,0,1\n", "a row is damaged"),
        (_text([_row(0, 5, 0, 1)]) + "7,5\n" + _text([_row(9, 5, 0, 1)]), "a row is damaged"),
        (_text([_row(0, 5, 0, 1), _row(3, 5, 0, 1)]), "its steps have no times, or overlap"),
        (_text([_row(0, -5, 0, 1)]), "its steps have no times, or overlap"),
        (_head() + "\nstart_ns,kind\n5,batch\n", "a row is damaged"),
    ],
)
def test_another_or_a_damaged_file_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(ServerTimesError, match=f"^--step_log .*{problem}"):
        read_step_log(path, _OFFSET_NS)


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
    text = _text(whole)
    head = text.index("\n", text.index("\n") + 1) + 1
    left = max(head, len(text) - cut)
    path.write_text(text[:left])
    steps = read_step_log(path, _OFFSET_NS)
    kept = text[head:left].count("\n")
    assert steps.duration_ns.tolist() == [row[1] for row in whole[:kept]]
    assert steps.decode_tokens.tolist() == [row[6] for row in whole[:kept]]


@given(content=st.binary(max_size=80), at=st.integers(0, 400), deleted=st.integers(0, 40))
def test_no_damage_is_more_than_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, deleted: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "steps.csv"
    whole = _text([_row(5.0 * k, 4, k, 1) for k in range(6)]).encode()
    path.write_bytes(whole[:at] + content + whole[at + deleted :])
    with suppress(ServerTimesError):
        assert (read_step_log(path, _OFFSET_NS).duration_ns >= 0).all()


# ---- joining


def _answered(make: Make, index: int, first_ms: float, last_ms: float, **changes: Any) -> Record:
    """A request that the engine had from its due time on, with its first and its last token then; the client a ms later."""
    times: dict[str, Any] = {
        "server_arrival_ns": _START_NS + _ns(first_ms - 10),
        "server_queue_ns": 0,
        "server_prefill_ns": _ns(10),
        "server_decode_ns": _ns(last_ms - first_ms),
    }
    return make(index, first_ms - 11, first_ms - 11, [(first_ms + 1, 1), (last_ms + 1, 5)], **(times | changes))


@pytest.fixture
def run(answered: Make, make_report: MakeReport) -> Callable[..., RunReport]:
    def of(*records: Record) -> RunReport:
        report: RunReport = make_report(list(records), **clock_readings(), started_at=_STARTED)
        assert monotonic_start_ns(report.manifest) == _START_NS
        return report

    return of


_STEPS = [
    _row(90, 10, 30, 0),  # its own prefill
    _row(101, 4, 0, 1),
    _row(106, 14, 500, 1),  # a prompt of another request
    _row(121, 4, 0, 2),
    _row(126, 19, 64, 2),
    _row(146, 4, 0, 2),
]


def test_the_decode_is_divided_into_steps_with_and_without_prompts(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    """From 100 to 150 ms: 14 and 19 ms in steps with prompts, 17 in others and between steps."""
    logged = with_step_log(
        run(_answered(answered, 0, 100, 150), _answered(answered, 1, 120, 150)), _log(tmp_path / "s", _STEPS)
    )
    assert (logged.timed, logged.divided) == (2, 2)
    before = phase_times(run(_answered(answered, 0, 100, 150)).requests, E2E, True, client_clock(logged.report.manifest))
    times = phase_times(logged.report.requests, E2E, True, client_clock(logged.report.manifest))
    assert (times.by_phase[Phase.DECODE_BESIDE_PREFILL] / 1e6).tolist() == pytest.approx([33.0, 19.0])
    assert (times.by_phase[Phase.DECODE] / 1e6).tolist() == pytest.approx([17.0, 11.0])
    assert times.by_phase[Phase.RETURN][0] == before.by_phase[Phase.RETURN][0]
    whole = sum(times.by_phase.values()) + times.contradiction_ns
    assert (whole == times.latency_ns).all()


def test_the_largest_share_has_its_remedy(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    """Half of the tokens that were in prefill at once, where that is more than the requests in flight."""
    engine = EmbeddedServer(engine={"max_num_tokens": 2_048, "max_num_sequences": 256})
    records = [_answered(answered, 0, 100, 150, input_tokens=500)]
    report = run(*records)
    served = replace(report, manifest=with_fields(report.manifest, server=engine))
    logged = with_step_log(served, _log(tmp_path / "s", _STEPS))
    text = " ".join(console_text(document(explain_logged(logged, [E2E], 0.99))).split())
    assert "53 % decode beside prefill, 27 % decode" in text
    assert "Let a step take fewer tokens of a prompt (bench serve: --max_num_tokens" in text
    assert "--max_num_tokens 250 " in text


def test_no_decode_is_divided_where_the_steps_of_one_are_unknown(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    """Its decode would count as without prompts."""
    steps = [*_STEPS[:4], _row(126, 19, None, None), _STEPS[5]]
    records = [_answered(answered, 0, 100, 150), _answered(answered, 1, 100, 125)]
    logged = with_step_log(run(*records), _log(tmp_path / "s", steps))
    assert (logged.timed, logged.divided) == (2, 1)
    times = phase_times(logged.report.requests, E2E, True, client_clock(logged.report.manifest))
    assert Phase.DECODE_BESIDE_PREFILL not in times.by_phase
    assert (times.by_phase[Phase.DECODE] / 1e6).tolist() == [50.0, 25.0]
    text = steps_text(logged)
    assert text.startswith("The decode is not divided: the step log knows the steps of 1 of the 2 requests")
    assert "6 steps had a request of the run. The contents of 5 of them are known." in text
    [facts] = logged.facts()
    assert (facts.steps, facts.known, facts.beside) == (6, 5, 1)


def test_of_unknown_steps_nothing_is_counted(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    steps = [(*_row(at, took, None, None)[:-1], None) for at, took in ((90, 10), (101, 14), (121, 29))]
    logged = with_step_log(run(_answered(answered, 0, 100, 150)), _log(tmp_path / "s", steps))
    [facts] = logged.facts()
    assert (facts.steps, facts.known, facts.beside, facts.most_kv_blocks) == (3, 0, None, None)
    assert "None with prompts" not in steps_text(logged)


def test_a_cancelled_request_does_not_keep_the_others_from_being_divided(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    cancelled = with_fields(_answered(answered, 1, 100, 133), outcome=Outcome.CANCELLED)
    logged = with_step_log(run(_answered(answered, 0, 100, 150), cancelled), _log(tmp_path / "s", _STEPS))
    assert (logged.timed, logged.divided) == (1, 1)


def test_steps_of_other_clients_are_not_the_run_s(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    """Between two requests of the run, others have the server."""
    later = [_row(start + 1_000, *rest) for start, *rest in ((90, 10, 30, 0), (101, 24, 0, 1), (126, 24, 0, 1))]
    others = [_row(300 + 10 * k, 9, 64, 1) for k in range(20)]
    records = [_answered(answered, 0, 100, 150), _answered(answered, 1, 1_100, 1_150)]
    logged = with_step_log(run(*records), _log(tmp_path / "s", [*_STEPS, *others, *later]))
    [facts] = logged.facts()
    assert (facts.steps, facts.beside) == (9, 2)


def test_steps_of_prompts_alone_hold_up_the_decode(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    """Without chunked prefill a step with prompts has no decode: all of it is added."""
    steps = [_row(90, 10, 30, 0), _row(101, 4, 0, 1), _row(106, 39, 500, 0), _row(146, 4, 0, 1)]
    engine = EmbeddedServer(engine={"max_num_tokens": 2_048, "max_num_sequences": 256, "enable_chunked_context": False})
    report = run(_answered(answered, 0, 100, 150))
    served = replace(report, manifest=with_fields(report.manifest, server=engine))
    logged = with_step_log(served, _log(tmp_path / "s", steps))
    [facts] = logged.facts()
    assert (facts.beside, facts.beside_ms, facts.compared, facts.added_ms) == (1, 39.0, 1, 39.0)
    text = " ".join(console_text(document(explain_logged(logged, [E2E], 0.99))).split())
    assert "While a request was in decode, 1 step processed prompts, and took 39.0 ms on average." in text
    assert "--enable_chunked_context --step_log" in text


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "the log has no steps"),
        ([_row(0, 50, 0, 1)], "the log ends 0.1 s before the run's first token"),
        ([_row(5_150, 50, 0, 1)], "the log begins 5.0 s after the run's last token"),
        ([_row(0, 102, 0, 1), _row(103, 90, 0, 1)], "it is the log of another engine"),
    ],
)
def test_a_log_of_another_time_or_engine_is_one_sentence(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path, steps: list[Row], problem: str
) -> None:
    with pytest.raises(ServerTimesError, match=problem):
        with_step_log(run(_answered(answered, 0, 100, 150)), _log(tmp_path / "s", steps))


def test_a_run_without_the_engine_s_times_has_no_steps(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    with pytest.raises(ServerTimesError, match="measure it with --server_timings"):
        with_step_log(run(answered(0, 0, 0, [(5, 1)])), _log(tmp_path / "s", _STEPS))


# ---- what the steps did


def _many_steps() -> list[Row]:
    """200 steps of 4 ms for a sequence and 8 for two; each tenth has a prompt, which adds 20 ms."""
    rows, at = list[Row](), 100.0
    for k in range(200):
        decode, prefill = 1 + k // 100, 64 if k % 10 == 9 else 0
        took = 4.0 * decode + (20.0 if prefill else 0.0)
        rows.append(_row(at, took, prefill, decode))
        at += took + 1.0
    return rows


def test_what_prompts_added_is_seen_beside_steps_without_any(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    rows = [_row(90, 9, 30, 0), *_many_steps()]
    end_ms = 100.0 + 90 * 5.0 + 90 * 9.0 + 10 * 25.0 + 10 * 29.0 - 1.0
    logged = with_step_log(run(_answered(answered, 0, 99, end_ms)), _log(tmp_path / "s", rows))
    [whole] = logged.facts()
    assert (whole.steps, whole.beside, whole.compared) == (201, 20, 20)
    assert whole.added_ms == pytest.approx(20.0)
    assert whole.beside_ms == pytest.approx(26.0)
    first, second = logged.facts(np.array([0.0, (99.0 + end_ms) / 2.0, end_ms]) * 1e6)
    assert first.alone_ms is not None
    assert 4.0 < first.alone_ms < 8.0
    assert second.alone_ms == pytest.approx(8.0)
    why = explain_logged(logged, [E2E], 0.99, Detail(stretches=2))
    assert len(why.runs[0].steps) == 2
    text = str(document(why))
    assert "201 steps had a request of the run. While a request was in decode, 20 steps processed prompts" in text
    found: Any = json_document(why)["runs"]
    assert sum(stretch["beside"] for stretch in found[0]["step_log"]["over_time"]) == 20
    phases = {phase["phase"]: phase for phase in found[0]["latencies"][0]["percentiles"][-1]["phases"]}
    assert phases["decode_beside_prefill"]["mean_ms"]["value"] == pytest.approx(520.0)
    assert phases["decode_beside_prefill"]["source"] == "step log"
