"""Findings about the answers: each provoked, and each absent where the answers are as requested."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_records.manifest import Manifest
from bench_records.record import FAILURES, Outcome, Record, TokenSource
from reports.findings.finding import RunFacts, Severity
from reports.findings.outcomes import (
    EndMarkerMissing,
    Errors,
    FinishReasonMissing,
    NothingDone,
    OutputShorterThanAsked,
    PromptEchoed,
    ReasoningAlone,
    WarmUpFailed,
)
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of
from tests.reports.findings.runs import withdrawn

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


# ---- nothing_done


def test_nothing_done(make_report: MakeReport, failed: Make) -> None:
    report = make_report([failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(3)])
    finding = finding_of(report, "nothing_done")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.INVALID, {"scheduled": 3})
    assert not report.valid


def test_where_nothing_failed_no_failures_are_to_be_seen(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    cancelled = [withdrawn(record, tokens=1) for record in steady_run(3)]
    unsent = [failed(k, 10 * k, Outcome.NOT_SENT) for k in range(3)]
    for report in (make_report(cancelled), make_report(unsent, interrupted=True)):
        finding = finding_of(report, "nothing_done")
        assert finding is not None
        assert finding.evidence == {"scheduled": 3}
        assert "see the failures" not in finding.advice + finding.brief
        assert not report.valid


def test_one_success_is_not_nothing(make_report: MakeReport, failed: Make, answered: Make) -> None:
    report = make_report([answered(0, 0, 0, [(5, 1)]), failed(1, 0, Outcome.CONNECT, 0, 1)])
    assert finding_of(report, "nothing_done") is None


# ---- errors


@pytest.mark.parametrize(
    ("failures", "severity"), [(0, None), (1, "warning"), (2, "warning"), (3, "invalid"), (200, "invalid")]
)
def test_errors_above_one_in_a_hundred_make_a_run_invalid(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make, failures: int, severity: str | None
) -> None:
    records = steady_run(200)
    for k in range(failures):
        records[k] = failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 5)
    assert severity_of(make_report(records), "errors") == severity


def test_errors_have_kinds_share_and_the_first_message(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = steady_run(10)
    records[3] = failed(3, 30, Outcome.TIMEOUT, 30, 99, error="no end within 1 s")
    records[5] = failed(5, 50, Outcome.REFUSED, 50, 51, error="queue full")
    records[7] = failed(7, 70, Outcome.REFUSED, 70, 71, error="queue full")
    finding = finding_of(make_report(records), "errors")
    assert finding is not None
    assert finding.evidence == {
        "failed": 3,
        "share": 0.3,
        "by_kind": {"refused": 2, "timeout": 1},
        "first_error": "no end within 1 s",
        "too_long": 0,
    }


@pytest.mark.parametrize("kind", [kind for kind in FAILURES if kind is not Outcome.NOT_SENT])
def test_every_kind_of_failure_is_an_error(make_report: MakeReport, steady_run: SteadyRun, failed: Make, kind: Outcome) -> None:
    records = steady_run(10)
    sent = None if kind is Outcome.LOST else 0
    records[0] = failed(0, 0, kind, sent, sent)
    finding = finding_of(make_report(records), "errors")
    assert finding is not None
    assert finding.evidence["by_kind"] == {kind.value: 1}


def test_requests_that_were_not_sent_are_no_errors(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(5), failed(5, 50, Outcome.NOT_SENT)]
    assert finding_of(make_report(records, interrupted=True), "errors") is None


# ---- output_shorter_than_asked


def test_answers_that_ended_by_themselves_are_a_note(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 1)], requested_output_tokens=5)
    records[6] = answered(6, 60, 60, [], requested_output_tokens=4)
    finding = finding_of(make_report(records), "output_shorter_than_asked")
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert finding.evidence == pytest.approx({"requests": 2, "share": 0.2, "asked_tokens": 33, "got_tokens": 25, "at_limit": 0})
    assert "ended by themselves" in finding.advice


def test_answers_shorter_against_the_ask_are_a_warning(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10, ignore_eos=True)
    records[4] = answered(4, 40, 40, [(140, 1)], requested_output_tokens=5, ignore_eos=True)
    finding = finding_of(make_report(records), "output_shorter_than_asked")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert "--ignore_eos" in finding.advice


@pytest.mark.parametrize("ignore_eos", [False, True])
@pytest.mark.parametrize(
    ("reasons", "limit"), [(("length",), True), (("length", "stop"), True), (("stop", "stop", "length"), False)]
)
def test_answers_that_the_server_cut_at_its_own_limit_have_an_advice_of_their_own(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make, reasons: tuple[str, ...], limit: bool, ignore_eos: bool
) -> None:
    """Servers end an answer with the reason `length` at the context's end, too; --ignore_eos cannot change that."""
    short = [
        answered(
            k, 10 * k, 10 * k, [(10 * k + 100, 1)], finish_reason=reason, ignore_eos=ignore_eos,
            output_tokens_source=TokenSource.SERVER, requested_output_tokens=5,
        )
        for k, reason in enumerate(reasons)
    ]  # fmt: skip
    finding = finding_of(make_report([*short, *steady_run(20)[len(short) :]]), "output_shorter_than_asked")
    assert finding is not None
    assert finding.severity is (Severity.WARNING if ignore_eos else Severity.NOTE)
    assert ("raise the limit" in finding.advice, "limit" in finding.brief) == (limit, limit)
    assert finding.evidence["at_limit"] == reasons.count("length")
    assert f"that a limit of length ended {reasons.count('length')} of them" in finding.sentence


@pytest.mark.parametrize("output_tokens", [None, 3, 4])
def test_answers_as_long_as_asked_longer_or_of_unknown_length_are_not_short(
    make_report: MakeReport, answered: Make, output_tokens: int | None
) -> None:
    record = answered(0, 0, 0, [(10, 3)], output_tokens=output_tokens, requested_output_tokens=3)
    assert finding_of(make_report([record]), "output_shorter_than_asked") is None


@pytest.mark.parametrize(("got", "expected"), [(95, False), (75, False), (74, True)])
def test_text_that_encodes_to_a_few_tokens_less_is_no_short_answer(
    make_report: MakeReport, answered: Make, got: int, expected: bool
) -> None:
    counted = {"output_tokens": got, "output_tokens_source": TokenSource.TEXT, "requested_output_tokens": 100}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], token_counts=None, **counted) for k in range(20)]
    assert (finding_of(make_report(records), "output_shorter_than_asked") is not None) is expected


@pytest.mark.parametrize(("reason", "expected"), [("length", False), ("stop", True), (None, True)])
def test_text_of_an_answer_with_all_its_tokens_by_its_finish_reason_is_no_short_answer(
    make_report: MakeReport, answered: Make, reason: str | None, expected: bool
) -> None:
    counted = {"output_tokens": 10, "output_tokens_source": TokenSource.TEXT, "requested_output_tokens": 100}
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], token_counts=None, finish_reason=reason, **counted) for k in range(20)
    ]
    assert (finding_of(make_report(records), "output_shorter_than_asked") is not None) is expected


def test_one_failure_that_was_counted_from_text_does_not_hide_short_answers(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 9)], requested_output_tokens=10) for k in range(20)]
    records[4] = failed(4, 40, Outcome.TIMEOUT, 40, 50, output_tokens=1, output_tokens_source=TokenSource.TEXT)
    finding = finding_of(make_report(records), "output_shorter_than_asked")
    assert finding is not None
    assert finding.evidence["requests"] == 19


def test_failures_are_no_short_answers(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = steady_run(10)
    records[4] = failed(4, 40, Outcome.STREAM_CUT, 40, 50, output_tokens=1)
    assert finding_of(make_report(records), "output_shorter_than_asked") is None


# ---- prompt_echoed, warm_up_failed


@pytest.mark.parametrize(("echoed", "severity"), [(True, "note"), (False, None), (None, None)])
def test_an_echoed_prompt(make_report: MakeReport, steady_run: SteadyRun, echoed: bool | None, severity: str | None) -> None:
    report = make_report(steady_run(4, prompt_echoed=echoed))
    assert severity_of(report, "prompt_echoed") == severity
    if severity is not None:
        finding = finding_of(report, "prompt_echoed")
        assert finding is not None
        assert finding.evidence == {"requests": 4}


def test_a_failed_warm_up(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(4), warm_up={"requests": 10, "failures": ["queue full", "timeout"]})
    finding = finding_of(report, "warm_up_failed")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.WARNING, {"failed": 2, "first_error": "queue full"})
    assert WarmUpFailed.check(RunFacts(report.requests, report.metrics, Manifest())) is None


# ---- reasoning_alone


def test_answers_of_reasoning_alone_are_counted(make_report: MakeReport, answered: Make, failed: Make) -> None:
    reasoned = {"has_reasoning": True}
    report = make_report(
        [
            answered(0, 0, 0, [(5, 1), (9, 1)], first_output_ns=9_000_000, **reasoned),
            answered(1, 0, 0, [(5, 1), (9, 1)], **reasoned),
            answered(2, 0, 0, [(5, 1), (9, 1)], has_reasoning=False),
            failed(3, 0, Outcome.STREAM_CUT, 0, 9, **reasoned),
        ]
    )
    finding = finding_of(report, "reasoning_alone")
    assert finding is not None
    assert finding.evidence == {"requests": 1, "share": 1 / 3}


def test_answers_without_reasoning_are_not_reasoning_alone(make_report: MakeReport, steady_run: SteadyRun) -> None:
    for reasoning in ({"has_reasoning": False}, {}, {"has_reasoning": True, "first_output_ns": 10**9}):
        assert finding_of(make_report(steady_run(4, **reasoning)), "reasoning_alone") is None


# ---- words


def test_outcomes_in_words() -> None:
    assert NothingDone(1_200).sentence == "None of 1,200 requests succeeded."
    assert Errors(1_202, 0.125, {"refused": 1_200, "timeout": 2}, "queue full").sentence == (
        "1,202 requests failed (12.5%): 1,200 refused, 2 timeout. The first error: queue full"
    )
    assert WarmUpFailed(1_200, "queue full").sentence == "1,200 warm-up requests failed. The first error: queue full"
    assert OutputShorterThanAsked(1_200, 0.25, 33_000.0, 25_000.0, 0).sentence == (
        "1,200 answers (25%) were shorter than requested: 25,000 of 33,000 tokens in all."
    )
    assert PromptEchoed(1_200).sentence == "1,200 answers begin with the prompt."
    assert ReasoningAlone(1_200, 0.125).sentence == "1,200 answers (12.5%) have reasoning and no other text."


@pytest.mark.parametrize(("share", "severity"), [(0.01, Severity.WARNING), (0.0101, Severity.INVALID)])
def test_errors_are_invalid_above_one_in_a_hundred(share: float, severity: Severity) -> None:
    assert Errors(1, share, {"timeout": 1}, None).severity is severity


@pytest.mark.parametrize(
    ("message", "is_too_long"),
    [
        ("This model's maximum context length is 512 tokens. However, you requested 600 tokens", True),  # vLLM
        ("Requested tokens (600) exceed context window of 512", True),  # llama-cpp-python
        ("The input (600 tokens) is longer than the model's context length (512 tokens).", True),  # SGLang
        ("Prompt length (600) exceeds maximum input length (512). Set log level to info", True),  # TensorRT-LLM
        ("prompt length (600) should not exceed max_num_tokens (512)", True),  # trtllm-serve
        ("Input validation error: `inputs` must have less than 512 tokens. Given: 600", True),  # text-generation-inference
        ("the prompt of 600 tokens is too long", True),
        ("Exceeds maximum queue size", False),
        ("the server took too long", False),
        ("HTTP status 504: processing the input took too long", False),
        ("HTTP status 503: the input queue is too long", False),
        ("rate limit of max input tokens per minute", False),
    ],
)
def test_a_prompt_that_is_too_long_is_no_reason_to_lower_the_load(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make, message: str, is_too_long: bool
) -> None:
    records = steady_run(10)
    error = f"HTTP status 400: {message}"
    records[3:5] = [failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 1, error=error) for k in (3, 4)]
    records[6] = failed(6, 60, Outcome.TIMEOUT, 60, 99, error="no end within 10 s")
    finding = finding_of(make_report(records), "errors")
    assert finding is not None
    assert finding.evidence["too_long"] == (2 if is_too_long else 0)
    assert ("--max_input_len" in finding.advice) is ("--max_input_len" in finding.brief) is is_too_long
    assert ("lower the load" in finding.brief) is not is_too_long


def test_the_first_error_is_of_a_failure_that_has_a_message(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [
        answered(0, 0, 0, [(5, 1)], error="a warning beside the answer"),
        failed(1, 10, Outcome.NOT_SENT, error="stopped"),
        failed(2, 20, Outcome.TIMEOUT, 20, 30, error=None),
        failed(3, 30, Outcome.REFUSED, 30, 31, error="queue full"),
    ]
    finding = finding_of(make_report(records), "errors")
    assert finding is not None
    assert (finding.evidence["first_error"], finding.evidence["failed"], finding.evidence["share"]) == (
        "queue full",
        2,
        2 / 3,
    )


def test_failures_without_a_message_have_no_first_error(make_report: MakeReport, failed: Make) -> None:
    finding = finding_of(make_report([failed(0, 0, Outcome.TIMEOUT, 0, 9, error=None)]), "errors")
    assert finding is not None
    assert finding.evidence["first_error"] is None


def test_unstreamed_answers_are_not_reasoning_alone(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(0, 0, 0, [(5, 1)], has_reasoning=True)], streaming=False)
    assert finding_of(report, "reasoning_alone") is None


# ---- finish_reason_missing, end_marker_missing


_CHAT = {"model": "m", "protocol": "openai", "streaming": True, "sends_finish_reason": False}


def test_a_server_without_finish_reasons_is_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    finding = finding_of(make_report(steady_run(8), target=_CHAT), "finish_reason_missing")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.NOTE, {"requests": 8})
    assert FinishReasonMissing(1_234).sentence.startswith("The server sent no finish_reason with any of 1,234 answers")


@pytest.mark.parametrize(
    "target",
    [
        _CHAT | {"sends_finish_reason": None, "protocol": "grpc"},
        {name: value for name, value in _CHAT.items() if name != "sends_finish_reason"},  # a run of an older version
    ],
)
def test_finish_reasons_of_other_protocols_and_older_runs_are_not_missing(
    make_report: MakeReport, steady_run: SteadyRun, target: dict[str, object]
) -> None:
    assert finding_of(make_report(steady_run(8), target=target), "finish_reason_missing") is None


def test_one_finish_reason_is_enough(make_report: MakeReport, steady_run: SteadyRun, answered: Make, failed: Make) -> None:
    records = [*steady_run(8), answered(8, 80, 80, [(90, 1)], finish_reason="stop")]
    assert finding_of(make_report(records, target=_CHAT), "finish_reason_missing") is None
    none_done = [failed(0, 0, Outcome.CONNECT, 0, 1)]
    assert finding_of(make_report(none_done, target=_CHAT), "finish_reason_missing") is None


def test_streams_without_their_end_marker_are_counted(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make, failed: Make
) -> None:
    unmarked = answered(6, 60, 60, [(70, 1)], finish_reason="stop", end_marker_missing=True)
    cut = failed(7, 70, Outcome.STREAM_CUT, 70, 80, end_marker_missing=True)
    finding = finding_of(make_report([*steady_run(6), unmarked, cut], target=_CHAT), "end_marker_missing")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.NOTE, {"requests": 1, "share": pytest.approx(1 / 7)})
    assert EndMarkerMissing(1_234, 0.5).sentence == "1,234 answers (50.0%) ended without [DONE]."
    assert finding_of(make_report(steady_run(6), target=_CHAT), "end_marker_missing") is None
