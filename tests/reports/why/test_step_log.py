"""The step log of an engine, joined with the requests of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from bench_records.manifest import EmbeddedServer
from bench_records.record import Outcome, Record
from bench_records.step_log import StepLogFileError
from reports.metrics.catalogue import E2E
from reports.metrics.request_phases import Phase, client_clock, monotonic_start_ns, phase_times
from reports.render.console import console_text
from reports.run_report import RunReport
from reports.why.answer import Detail, explain_logged
from reports.why.documents import document
from reports.why.json_file import document as json_document
from reports.why.step_log import with_step_log
from reports.why.words import steps_text
from tests.reports.manifests import clock_readings
from tests.step_logs import START_NS, Row, log_row, ns, write_log

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_STARTED = "2026-11-22T01:23:51+00:00"


# ---- joining


def _answered(make: Make, index: int, first_ms: float, last_ms: float, **changes: Any) -> Record:
    """A request that the engine had from its due time on, with its first and its last token then; the client a ms later."""
    times: dict[str, Any] = {
        "server_arrival_ns": START_NS + ns(first_ms - 10),
        "server_queue_ns": 0,
        "server_prefill_ns": ns(10),
        "server_decode_ns": ns(last_ms - first_ms),
    }
    return make(index, first_ms - 11, first_ms - 11, [(first_ms + 1, 1), (last_ms + 1, 5)], **(times | changes))


@pytest.fixture
def run(answered: Make, make_report: MakeReport) -> Callable[..., RunReport]:
    def of(*records: Record) -> RunReport:
        report: RunReport = make_report(list(records), **clock_readings(), started_at=_STARTED)
        assert monotonic_start_ns(report.manifest) == START_NS
        return report

    return of


_STEPS = [
    log_row(90, 10, 30, 0),  # its own prefill
    log_row(101, 4, 0, 1),
    log_row(106, 14, 500, 1),  # a prompt of another request
    log_row(121, 4, 0, 2),
    log_row(126, 19, 64, 2),
    log_row(146, 4, 0, 2),
]


def test_the_decode_is_divided_into_steps_with_and_without_prompts(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    """From 100 to 150 ms: 14 and 19 ms in steps with prompts, 17 in others and between steps."""
    logged = with_step_log(
        run(_answered(answered, 0, 100, 150), _answered(answered, 1, 120, 150)), write_log(tmp_path / "s", _STEPS)
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
    logged = with_step_log(served, write_log(tmp_path / "s", _STEPS))
    text = " ".join(console_text(document(explain_logged(logged, [E2E], 0.99))).split())
    assert "53 % decode beside prefill, 27 % decode" in text
    assert "Let a step take fewer tokens of a prompt (bench serve: --max_num_tokens" in text
    assert "--max_num_tokens 250 " in text


def test_no_decode_is_divided_where_the_steps_of_one_are_unknown(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    """Its decode would count as without prompts."""
    steps = [*_STEPS[:4], log_row(126, 19, None, None), _STEPS[5]]
    records = [_answered(answered, 0, 100, 150), _answered(answered, 1, 100, 125)]
    logged = with_step_log(run(*records), write_log(tmp_path / "s", steps))
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
    steps = [(*log_row(at, took, None, None)[:-1], None) for at, took in ((90, 10), (101, 14), (121, 29))]
    logged = with_step_log(run(_answered(answered, 0, 100, 150)), write_log(tmp_path / "s", steps))
    [facts] = logged.facts()
    assert (facts.steps, facts.known, facts.beside, facts.most_kv_blocks) == (3, 0, None, None)
    assert "None with prompts" not in steps_text(logged)


def test_a_cancelled_request_does_not_keep_the_others_from_being_divided(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    cancelled = with_fields(_answered(answered, 1, 100, 133), outcome=Outcome.CANCELLED)
    logged = with_step_log(run(_answered(answered, 0, 100, 150), cancelled), write_log(tmp_path / "s", _STEPS))
    assert (logged.timed, logged.divided) == (1, 1)


def test_steps_of_other_clients_are_not_the_run_s(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    """Between two requests of the run, others have the server."""
    later = [log_row(start + 1_000, *rest) for start, *rest in ((90, 10, 30, 0), (101, 24, 0, 1), (126, 24, 0, 1))]
    others = [log_row(300 + 10 * k, 9, 64, 1) for k in range(20)]
    records = [_answered(answered, 0, 100, 150), _answered(answered, 1, 1_100, 1_150)]
    logged = with_step_log(run(*records), write_log(tmp_path / "s", [*_STEPS, *others, *later]))
    [facts] = logged.facts()
    assert (facts.steps, facts.beside) == (9, 2)


def test_steps_of_prompts_alone_hold_up_the_decode(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    """Without chunked prefill a step with prompts has no decode: all of it is added."""
    steps = [log_row(90, 10, 30, 0), log_row(101, 4, 0, 1), log_row(106, 39, 500, 0), log_row(146, 4, 0, 1)]
    engine = EmbeddedServer(engine={"max_num_tokens": 2_048, "max_num_sequences": 256, "enable_chunked_context": False})
    report = run(_answered(answered, 0, 100, 150))
    served = replace(report, manifest=with_fields(report.manifest, server=engine))
    logged = with_step_log(served, write_log(tmp_path / "s", steps))
    [facts] = logged.facts()
    assert (facts.beside, facts.beside_ms, facts.compared, facts.added_ms) == (1, 39.0, 1, 39.0)
    text = " ".join(console_text(document(explain_logged(logged, [E2E], 0.99))).split())
    assert "While a request was in decode, 1 step processed prompts, and took 39.0 ms on average." in text
    assert "--enable_chunked_context --step_log" in text


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "the log has no steps"),
        ([log_row(0, 50, 0, 1)], "the log ends 0.1 s before the run's first token"),
        ([log_row(5_150, 50, 0, 1)], "the log begins 5.0 s after the run's last token"),
        ([log_row(0, 102, 0, 1), log_row(103, 90, 0, 1)], "it is the log of another engine"),
    ],
)
def test_a_log_of_another_time_or_engine_is_one_sentence(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path, steps: list[Row], problem: str
) -> None:
    with pytest.raises(StepLogFileError, match=problem):
        with_step_log(run(_answered(answered, 0, 100, 150)), write_log(tmp_path / "s", steps))


def test_a_run_without_the_engine_s_times_has_no_steps(answered: Make, run: Callable[..., RunReport], tmp_path: Path) -> None:
    with pytest.raises(StepLogFileError, match="measure it with --server_timings"):
        with_step_log(run(answered(0, 0, 0, [(5, 1)])), write_log(tmp_path / "s", _STEPS))


# ---- what the steps did


def _many_steps() -> list[Row]:
    """200 steps of 4 ms for a sequence and 8 for two; each tenth has a prompt, which adds 20 ms."""
    rows, at = list[Row](), 100.0
    for k in range(200):
        decode, prefill = 1 + k // 100, 64 if k % 10 == 9 else 0
        took = 4.0 * decode + (20.0 if prefill else 0.0)
        rows.append(log_row(at, took, prefill, decode))
        at += took + 1.0
    return rows


def test_what_prompts_added_is_seen_beside_steps_without_any(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    rows = [log_row(90, 9, 30, 0), *_many_steps()]
    end_ms = 100.0 + 90 * 5.0 + 90 * 9.0 + 10 * 25.0 + 10 * 29.0 - 1.0
    logged = with_step_log(run(_answered(answered, 0, 99, end_ms)), write_log(tmp_path / "s", rows))
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


def test_what_prompts_added_is_beside_all_steps_of_as_many_sequences(
    answered: Make, run: Callable[..., RunReport], tmp_path: Path
) -> None:
    """The last 20 of 200 steps with one sequence took 30 ms, in a pause of the machine: the usual step is still one of 4 ms,
    and each of the 20 with a prompt before took 10 ms more.
    """
    rows, at = [log_row(90, 9, 30, 0)], 100.0
    for k in range(200):
        took, prefill = (30.0, 0) if k >= 180 else (14.0, 64) if k % 9 == 8 else (4.0, 0)
        rows.append(log_row(at, took, prefill, 1))
        at += took + 1.0
    [whole] = with_step_log(run(_answered(answered, 0, 99, at - 1.0)), write_log(tmp_path / "s", rows)).facts()
    assert (whole.beside, whole.compared) == (20, 20)
    assert whole.added_ms == pytest.approx(10.0)
