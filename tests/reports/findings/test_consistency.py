"""Findings about numbers that must agree: each provoked, and each absent where they agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from bench_records.manifest import Manifest
from bench_records.record import Outcome, Record, TokenSource
from reports.findings.consistency import (
    AnswersLeftOut,
    InputTokensDisagree,
    LittlesLaw,
    TokenCountsDisagree,
    TokenCountsUnknown,
    TokensCountedFromText,
)
from reports.findings.finding import RunFacts, Severity
from reports.metrics.catalogue import ITL_COVERAGE
from reports.metrics.requests import Requests
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of
from tests.reports.findings.runs import (
    CLOSED,
    chunks_joined,
    doubled_tokens,
    held_open,
)
from tests.reports.watched import WorkerUsage, worker_samples

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


# ---- token_counts_disagree, littles_law


def test_the_server_counts_other_tokens_than_came(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 1), (150, 1)], output_tokens=5)
    finding = finding_of(make_report(records), "token_counts_disagree")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence == pytest.approx({"requests": 1, "share": 0.1, "in_responses": 29, "reported": 32})


def test_counts_that_agree_are_unknown_or_of_failures_do_not_disagree(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make, failed: Make
) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 3)], token_counts=None, output_tokens=4)
    records[5] = answered(5, 50, 50, [(150, 3)], output_tokens=None)
    records[6] = failed(6, 60, Outcome.STREAM_CUT, 60, 90, output_tokens=9, token_times_ns=(70_000_000,), token_counts=(1,))
    assert finding_of(make_report(records), "token_counts_disagree") is None


def test_itl_is_not_shown_of_the_faster_answers_alone(make_report: MakeReport, answered: Make) -> None:
    report = make_report(chunks_joined(answered, 50, 50))
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert finding.evidence == pytest.approx(
        {"share": 2 / 3, "tpot_of_known_ms": 10.0, "tpot_of_all_ms": 15.0, "untried": False}
    )
    assert finding.sentence.endswith("have a mean TPOT of 10.00 ms, -33% to all.")
    assert report.metrics.itl_ms is None
    assert report.metrics.icl_ms is not None
    assert report.metrics.tpot_ms is not None


def test_itl_that_covers_nearly_all_gaps_is_shown_with_its_share(make_report: MakeReport, answered: Make) -> None:
    report = make_report(chunks_joined(answered, 1, 999))
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.evidence["share"] == pytest.approx(1998 / 1999)
    assert report.metrics.itl_ms is not None
    assert report.metrics.itl_ms.mean.value == pytest.approx(10.0)


def test_counts_that_are_all_known_give_an_itl_without_a_finding(make_report: MakeReport, answered: Make) -> None:
    report = make_report(chunks_joined(answered, 0, 100))
    assert finding_of(report, "token_counts_unknown") is None
    assert report.metrics.itl_ms is not None


def test_counts_that_are_all_unknown_explain_a_missing_itl(make_report: MakeReport, answered: Make) -> None:
    report = make_report(chunks_joined(answered, 100, 0))
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.evidence == {"share": 0.0, "tpot_of_known_ms": None, "tpot_of_all_ms": 20.0, "untried": False}
    assert finding.advice.startswith("ITL is not shown")
    assert report.metrics.itl_ms is None


@pytest.mark.parametrize(
    ("in_text", "severity"), [(30, None), (34, None), (24, None), (50, "warning"), (10, "warning"), (None, None)]
)
def test_texts_that_make_other_counts_than_the_servers(
    make_report: MakeReport, answered: Make, in_text: int | None, severity: str | None
) -> None:
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 100, 30)], output_tokens=30, text_tokens=None if k % 2 else in_text)
        for k in range(40)
    ]
    report = make_report(records)
    assert severity_of(report, "text_tokens_disagree") == severity
    if in_text == 50:
        finding = finding_of(report, "text_tokens_disagree")
        assert finding is not None
        assert finding.evidence == {"requests": 20, "in_text": 1_000, "reported": 600, "chunks": 20}
        assert "600 tokens for 20 answers whose text has 1,000" in finding.sentence


@pytest.mark.parametrize(
    ("ratio", "in_text", "severity"), [(1.6, 60, None), (1.6, 70, "warning"), (None, 45, "warning"), (0.8, 39, None)]
)
def test_random_tokens_whose_text_has_more_of_them_are_no_lying_count(
    make_report: MakeReport, answered: Make, ratio: float | None, in_text: int, severity: str | None
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 30)], text_tokens=in_text) for k in range(20)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "retokenised_ratio": ratio}
    assert severity_of(make_report(records, target=target), "text_tokens_disagree") == severity


@pytest.mark.parametrize(("chunks", "tokens_each", "severity"), [(30, 1, None), (15, 2, "warning"), (24, 1, None)])
def test_tokens_without_text_are_counted_by_the_chunks_that_carry_them(
    make_report: MakeReport, answered: Make, chunks: int, tokens_each: int, severity: str | None
) -> None:
    """A model whose vocabulary exceeds the tokenizer's: nearly all of its tokens are empty text, one in a chunk."""
    records = [
        answered(k, 100 * k, 100 * k, [(100 * k + at, tokens_each) for at in range(chunks)], output_tokens=30, text_tokens=2)
        for k in range(20)
    ]
    assert severity_of(make_report(records), "text_tokens_disagree") == severity


def test_too_few_tokens_are_no_evidence_about_the_servers_counts(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert finding_of(make_report(steady_run(40, text_tokens=3, output_tokens=1)), "text_tokens_disagree") is None


@pytest.mark.parametrize(("chunks", "severity"), [(20, None), (30, "warning")])
def test_more_chunks_than_tokens_are_no_random_tokens(
    make_report: MakeReport, answered: Make, chunks: int, severity: str | None
) -> None:
    times = [(float(at), 1) for at in range(1, chunks + 1)]
    records = [answered(k, 0, 0, times, output_tokens=20, text_tokens=30, token_counts=None) for k in range(20)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "retokenised_ratio": 1.6}
    assert severity_of(make_report(records, target=target), "text_tokens_disagree") == severity


# ---- input_tokens_disagree


@pytest.mark.parametrize(
    ("counted", "template_tokens", "severity"),
    [
        ((128, 128), None, None),
        ((133, 133), 5, None),
        ((133, 133), None, None),  # the same for all: a template
        ((133, None), None, None),  # the others were not counted by the server
        ((133, 133), 0, "warning"),
        ((129, 129), 0, None),  # within 1 %
        ((129, 130), 0, "warning"),  # 1.17 % on average
        ((126, 130), 0, "warning"),  # right on average alone
        ((140, 150), None, "warning"),
        ((100, 100), None, "warning"),  # truncated
    ],
)
def test_prompts_of_other_lengths_than_requested(
    make_report: MakeReport, answered: Make, counted: tuple[int, int | None], template_tokens: int | None, severity: str | None
) -> None:
    records = [
        answered(
            k,
            10 * k,
            10 * k,
            [(10 * k + 100, 1)],
            input_tokens=counted[k % 2] or 128,
            requested_input_tokens=128,
            server_counted_input=counted[k % 2] is not None,
        )
        for k in range(20)
    ]
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": template_tokens}
    report = make_report(records, target=target)
    assert severity_of(report, "input_tokens_disagree") == severity
    if counted == (140, 150):
        finding = finding_of(report, "input_tokens_disagree")
        assert finding is not None
        assert finding.evidence == {
            "requests": 20, "requested": 128.0, "counted": 145.0, "mean_deviation": 17.0, "template_tokens": 0
        }  # fmt: skip


@pytest.mark.parametrize(("counted", "severity"), [(101, None), (99, None), (102, "warning"), (98, "warning")])
def test_prompts_may_deviate_by_one_in_a_hundred(
    make_report: MakeReport, answered: Make, counted: int, severity: str | None
) -> None:
    tokens = {"input_tokens": counted, "requested_input_tokens": 100, "server_counted_input": True}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], **tokens) for k in range(20)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": 0}
    assert severity_of(make_report(records, target=target), "input_tokens_disagree") == severity


def test_prompts_may_deviate_by_exactly_one_in_a_hundred(make_report: MakeReport, answered: Make) -> None:
    """2 and 3 tokens of 200, which are more than a server may begin or end a prompt with."""
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": 0}
    for counted, expected in ((202, None), (203, "warning")):
        tokens = {"input_tokens": counted, "requested_input_tokens": 200, "server_counted_input": True}
        records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], **tokens) for k in range(20)]
        assert severity_of(make_report(records, target=target), "input_tokens_disagree") == expected


@pytest.mark.parametrize(("counted", "template_tokens"), [((32, 33), 12), ((33, 33), 12), ((31, 32), 12), ((32, 33), None)])
def test_a_token_at_the_edge_of_a_template_is_no_deviation_however_short_the_prompt(
    make_report: MakeReport, answered: Make, counted: tuple[int, int], template_tokens: int | None
) -> None:
    tokens = {"requested_input_tokens": 20, "server_counted_input": True}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 9, 1)], input_tokens=counted[k % 2], **tokens) for k in range(20)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": template_tokens}
    assert finding_of(make_report(records, target=target), "input_tokens_disagree") is None


@pytest.mark.parametrize(("counted", "severity"), [((21, 21), None), ((19, 21), None), ((22, 22), "warning")])
def test_a_token_at_one_end_of_a_prompt_without_a_template_is_no_deviation(
    make_report: MakeReport, answered: Make, counted: tuple[int, int], severity: str | None
) -> None:
    tokens = {"requested_input_tokens": 20, "server_counted_input": True}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 9, 1)], input_tokens=counted[k % 2], **tokens) for k in range(20)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": 0}
    assert severity_of(make_report(records, target=target), "input_tokens_disagree") == severity


@pytest.mark.parametrize(
    ("counted", "severity"), [((50, 53), None), ((49, 53), None), ((48, 54), "warning"), ((53, 54), "warning")]
)
def test_a_prompt_may_merge_with_its_template_at_both_ends(
    make_report: MakeReport, answered: Make, counted: tuple[int, int], severity: str | None
) -> None:
    tokens = {"requested_input_tokens": 40, "server_counted_input": True}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 9, 1)], input_tokens=counted[k % 2], **tokens) for k in range(20)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": 11}
    assert severity_of(make_report(records, target=target), "input_tokens_disagree") == severity


def test_a_template_that_nearly_all_prompts_share_is_no_deviation(make_report: MakeReport, answered: Make) -> None:
    counted = {"requested_input_tokens": 100, "server_counted_input": True}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 9, 1)], input_tokens=125 - (k == 7), **counted) for k in range(100)]
    report = make_report(records)
    assert finding_of(report, "input_tokens_disagree") is None
    assert report.input_lengths is not None
    assert (report.input_lengths.template_tokens, report.input_lengths.mean_actual) == (25, pytest.approx(99.99))


# ---- answers_left_out


@pytest.mark.parametrize(("at_once", "severity"), [(0, None), (1, None), (2, "warning")])
def test_answers_that_come_at_once_are_left_out_of_tpot(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make, at_once: int, severity: str | None
) -> None:
    records = steady_run(100)
    for k in range(at_once):
        records[k] = answered(k, 10 * k, 10 * k, [(10 * k + 241, 3)])
    report = make_report(records)
    assert severity_of(report, "answers_left_out") == severity
    if severity is not None:
        finding = finding_of(report, "answers_left_out")
        assert finding is not None
        assert finding.evidence == {"shares": {"tpot_ms": 0.02}, "latency_ratio": pytest.approx(2.0)}
        assert finding.sentence.endswith("TPOT 2.0%. These took 2.00 times as long as the others.")


def test_a_metric_that_no_answer_has_is_missing_rather_than_partial(make_report: MakeReport, answered: Make) -> None:
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 100, 1), (10 * k + 110, 1)], token_counts=None, output_tokens=None)
        for k in range(100)
    ]
    report = make_report(records)
    assert report.metrics.tpot_ms is None
    assert finding_of(report, "answers_left_out") is None


def test_a_streamed_run_of_which_every_answer_comes_at_once_is_not_silent(make_report: MakeReport, answered: Make) -> None:
    """As behind a front end that ignores ``stream``: what is shown as TTFT is the whole latency."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 3)]) for k in range(100)]
    report = make_report(records)
    assert report.metrics.tpot_ms is None
    finding = finding_of(report, "answers_left_out")
    assert finding is not None
    assert finding.evidence == {"shares": {"tpot_ms": 1.0}, "latency_ratio": None}
    assert finding_of(make_report(records, streaming=False), "answers_left_out") is None


def test_answers_of_two_tokens_that_all_come_at_once_are_found_beside_a_stream_that_was_cut(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    """The failure came in two responses, and is no answer."""
    cut = {"output_tokens": 2, "token_times_ns": (10**9, 10**9 + 5), "token_counts": (1, 1)}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 2)]) for k in range(99)]
    report = make_report([*records, failed(99, 990, Outcome.STREAM_CUT, 990, 1_090, **cut)])
    finding = finding_of(report, "answers_left_out")
    assert finding is not None
    assert finding.evidence == {"shares": {"tpot_ms": 1.0}, "latency_ratio": None}


def test_answers_without_tokens_are_left_out_of_latencies(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make
) -> None:
    records = [*steady_run(50), *(answered(k, 10 * k, 10 * k, [], output_tokens=0) for k in range(50, 100))]
    finding = finding_of(make_report(records), "answers_left_out")
    assert finding is not None
    assert finding.evidence["shares"] == {"e2e_ms": 0.5, "ttft_ms": 0.5}


def test_where_every_success_is_left_out_there_are_no_others_to_compare_it_with(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    """The only latency is that of the failure, which counts as infinitely late."""
    records = [answered(0, 0, 0, [], output_tokens=0), failed(1, 10, Outcome.TIMEOUT, 10, 500)]
    finding = finding_of(make_report(records), "answers_left_out")
    assert finding is not None
    assert finding.evidence == {"shares": {"e2e_ms": 1.0, "ttft_ms": 1.0}, "latency_ratio": None}


def test_answers_of_one_token_have_no_tpot_and_are_not_left_out(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)]) for k in range(100)]
    assert finding_of(make_report(records), "answers_left_out") is None


@pytest.mark.parametrize(("doubled", "severity"), [(0, None), (1, "warning"), (10, "invalid")])
def test_more_tokens_than_were_asked_for_came(
    make_report: MakeReport, answered: Make, doubled: int, severity: str | None
) -> None:
    report = make_report(doubled_tokens(answered, doubled))
    assert severity_of(report, "output_longer_than_asked") == severity
    if severity is not None:
        finding = finding_of(report, "output_longer_than_asked")
        assert finding is not None
        assert (finding.evidence["requests"], finding.evidence["tokens_beyond"]) == (doubled, 2 * doubled)


def test_a_single_token_more_than_was_asked_for_is_found(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 2)], requested_output_tokens=2 - (k == 7)) for k in range(100)]
    finding = finding_of(make_report(records), "output_longer_than_asked")
    assert finding is not None
    assert finding.evidence == {"requests": 1, "tokens_beyond": 1.0, "share_of_tokens": 0.005}


def test_text_counted_again_may_have_a_token_more_than_was_asked_for(make_report: MakeReport, answered: Make) -> None:
    source = {"output_tokens": 4, "output_tokens_source": TokenSource.TEXT, "token_counts": None}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], requested_output_tokens=3, **source) for k in range(20)]
    assert finding_of(make_report(records), "output_longer_than_asked") is None


def test_tokens_of_failures_that_were_counted_from_text_are_in_no_number(make_report: MakeReport, failed: Make) -> None:
    cut = {"output_tokens": 7, "output_tokens_source": TokenSource.TEXT, "token_times_ns": (5,)}
    records = [failed(k, 10 * k, Outcome.STREAM_CUT, 10 * k, 10 * k + 9, **cut) for k in range(3)]
    assert finding_of(make_report(records), "tokens_counted_from_text") is None


def test_tokens_of_failures_that_were_counted_from_text_count_where_there_are_several_targets(
    make_requests: Callable[[Sequence[Record]], Requests], answered: Make, failed: Make
) -> None:
    """Beside 3 tokens of one success and 4 of another, which came in no response, 2 were counted of a stream that was cut."""
    from_text = {"output_tokens": 2, "output_tokens_source": TokenSource.TEXT, "token_times_ns": (5,)}
    requests = make_requests([
        answered(0, 0, 0, [(5, 3)]), answered(1, 0, 0, [], output_tokens=4), failed(2, 0, Outcome.STREAM_CUT, 0, 9, **from_text)
    ])  # fmt: skip
    several = RunFacts(requests, cast("Any", None), Manifest(), targets=cast("Any", ("a", "b")))
    assert TokensCountedFromText.check(several) == TokensCountedFromText(1, 0, 2 / 9, None)
    assert TokensCountedFromText.check(replace(several, targets=())) is None


def test_the_only_token_of_a_run_may_be_counted_from_text(make_report: MakeReport, answered: Make) -> None:
    record = answered(0, 0, 0, [(5, 1)], output_tokens_source=TokenSource.TEXT)
    finding = finding_of(make_report([record]), "tokens_counted_from_text")
    assert finding is not None
    assert (finding.evidence["done"], finding.evidence["share"], finding.severity) == (1, 1.0, Severity.WARNING)


def test_one_failure_that_was_counted_from_text_does_not_hide_longer_answers(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 2)], requested_output_tokens=2 - (k == 7)) for k in range(100)]
    records[50] = failed(50, 500, Outcome.TIMEOUT, 500, 600, output_tokens=1, output_tokens_source=TokenSource.TEXT)
    finding = finding_of(make_report(records), "output_longer_than_asked")
    assert finding is not None
    assert finding.evidence["requests"] == 1


def test_answers_that_were_counted_from_their_text_are_said_to_be(make_report: MakeReport, answered: Make) -> None:
    from_text = {"output_tokens": 3, "output_tokens_source": TokenSource.TEXT, "token_counts": None}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 2)], **(from_text if k < 40 else {})) for k in range(100)]
    target = {"model": "m", "protocol": "openai", "streaming": True, "retokenised_ratio": 1.33}
    finding = finding_of(make_report(records, target=target), "tokens_counted_from_text")
    assert finding is not None
    assert finding.evidence == {"requests": 40, "done": 40, "share": 0.5, "ratio": 1.33, "untried": False}
    assert finding.sentence == (
        "The output tokens of 40 answers were counted from text: 50.0% of all output tokens. Text of random tokens makes "
        "1.33 times as many when it is tokenised again."
    )


@pytest.mark.parametrize(("held_open_ms", "severity"), [(1, None), (400, "warning")])
def test_streams_that_stay_open_after_their_last_token_break_littles_law(
    make_report: MakeReport, answered: Make, held_open_ms: float, severity: str | None
) -> None:
    report = make_report(held_open(answered, held_open_ms))
    assert report.metrics.windows.steady is not None
    assert severity_of(report, "littles_law") == severity
    if severity is not None:
        finding = finding_of(report, "littles_law")
        assert finding is not None
        expected = {"mean_in_flight": 50, "rate_per_s": 100, "mean_latency_s": 0.1, "in_step": False}
        assert finding.evidence == pytest.approx(expected, rel=0.02)


# ---- at the thresholds, and in words


@pytest.mark.parametrize(("beyond", "severity"), [(7, "warning"), (8, "invalid")])
def test_tokens_beyond_the_request_are_invalid_above_one_in_a_hundred(
    make_report: MakeReport, answered: Make, beyond: int, severity: str
) -> None:
    """700 answers of one token, one of which has ``beyond`` more; 7 of 707 are 0.99 %, and 8 of 708 are 1.13 %."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)]) for k in range(700)]
    records[9] = answered(9, 90, 90, [(95, 1 + beyond)], requested_output_tokens=1)
    finding = finding_of(make_report(records), "output_longer_than_asked")
    assert finding is not None
    assert finding.severity.value == severity
    assert finding.evidence == pytest.approx(
        {"requests": 1, "tokens_beyond": beyond, "share_of_tokens": beyond / (700 + beyond)}
    )
    assert finding.sentence == (
        f"1 answer was longer than requested: {beyond} tokens too many, {beyond / (700 + beyond):.1%} of all."
    )


def test_the_share_of_tokens_beyond_is_of_successes_with_known_counts(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = [
        answered(0, 0, 0, [(5, 3)], requested_output_tokens=1),
        answered(1, 0, 0, [(5, 1)], output_tokens=None),
        answered(2, 0, 0, [(5, 1)]),
        failed(3, 0, Outcome.STREAM_CUT, 0, 9, output_tokens=100, requested_output_tokens=1),
    ]
    finding = finding_of(make_report(records), "output_longer_than_asked")
    assert finding is not None
    assert finding.evidence == {"requests": 1, "tokens_beyond": 2.0, "share_of_tokens": 0.5}


def test_counts_that_disagree_in_words() -> None:
    assert TokenCountsDisagree(1_200, 0.25, 2_900.0, 3_200.0).sentence == (
        "The responses of 1,200 answers (25%) do not sum to the reported token count: 2,900 tokens in responses, "
        "3,200 reported in all."
    )


@pytest.mark.parametrize(("share", "advice"), [(0.0, 2), (ITL_COVERAGE - 0.001, 0), (ITL_COVERAGE, 1), (0.999, 1)])
def test_advice_on_unknown_counts_is_by_the_share_that_itl_covers(share: float, advice: int) -> None:
    finding = TokenCountsUnknown(share, None, 20.0)
    assert finding.advice == finding.advices[advice]


@pytest.mark.parametrize(("warm_up", "advice"), [(0, 4), (1, 0)])
def test_a_run_without_a_warm_up_has_not_asked_for_running_counts(
    make_report: MakeReport, answered: Make, warm_up: int, advice: int
) -> None:
    """vLLM sends them, and was advised as what "servers that send running counts" would be."""
    target = {"model": "m", "protocol": "openai", "streaming": True, "sends_finish_reason": False}
    report = make_report(chunks_joined(answered, 50, 50), target=target, warm_up={"requests": warm_up, "failures": []})
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.advice == finding.advices[advice]
    assert ("warm-up" in finding.brief) == (warm_up == 0)


def test_answers_without_any_count_need_a_tokenizer() -> None:
    assert "(--tokenizer)" in TokenCountsUnknown(0.0, None, None).advice
    assert "--tokenizer" in TokenCountsUnknown(0.0, None, None).brief


def test_unknown_counts_in_words() -> None:
    assert TokenCountsUnknown(0.0, None, 20.0).sentence == "The number of tokens of a chunk is unknown, for all chunks."
    assert TokenCountsUnknown(0.5, None, 20.0).sentence == "The number of tokens is known for 50.0% of the gaps between chunks."
    assert TokenCountsUnknown(0.5, 20.0, None).sentence == "The number of tokens is known for 50.0% of the gaps between chunks."
    assert TokenCountsUnknown(0.5, 25.0, 20.0).sentence == (
        "The number of tokens is known for 50.0% of the gaps between chunks; the answers with known counts have a mean TPOT of "
        "25.00 ms, +25% to all."
    )


def test_unstreamed_answers_have_no_gaps_whose_counts_could_be_unknown(make_report: MakeReport, answered: Make) -> None:
    assert finding_of(make_report(chunks_joined(answered, 50, 50), streaming=False), "token_counts_unknown") is None


def test_other_prompts_in_words() -> None:
    plain = InputTokensDisagree(20, 1_128.0, 1_145.04, 17.0, 0)
    assert plain.sentence == (
        "Prompts of 1,128.0 tokens on average were requested; the server counted 1,145.0. A prompt deviates by 17.0 tokens on "
        "average."
    )
    assert "counted 1,145.0, and 5 of its template. A prompt" in replace(plain, template_tokens=5).sentence


def test_answers_left_out_in_words() -> None:
    assert AnswersLeftOut({"e2e_ms": 0.5, "tpot_ms": 0.021}, None).sentence == (
        "Latencies leave out successful answers: E2E latency 50.0%, TPOT 2.1%."
    )


def test_unstreamed_answers_without_tokens_are_left_out_of_e2e_latency_alone(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make
) -> None:
    records = [*steady_run(96), *(answered(k, 10 * k, 10 * k, [], output_tokens=0, done=10 * k + 242) for k in range(96, 100))]
    finding = finding_of(make_report(records, streaming=False), "answers_left_out")
    assert finding is not None
    assert finding.evidence == {"shares": {"e2e_ms": 0.04}, "latency_ratio": pytest.approx(2.0)}


@pytest.mark.parametrize(("in_text", "expected"), [(199, False), (200, True)])
def test_texts_of_two_hundred_tokens_are_enough(make_report: MakeReport, answered: Make, in_text: int, expected: bool) -> None:
    record = answered(0, 0, 0, [(5, 9)], text_tokens=in_text)
    assert (finding_of(make_report([record]), "text_tokens_disagree") is not None) is expected


@pytest.mark.parametrize(
    ("in_text", "chunks", "expected"),
    [(750, 1, False), (749, 1, True), (749, 750, False), (749, 749, True), (1_333, 1, False), (1_334, 1, True)],
)
def test_texts_may_differ_by_a_quarter(
    make_report: MakeReport, answered: Make, in_text: int, chunks: int, expected: bool
) -> None:
    times = [(float(at), 1) for at in range(1, chunks + 1)]
    record = answered(0, 0, 0, times, output_tokens=1_000, text_tokens=in_text, token_counts=None)
    finding = finding_of(make_report([record]), "text_tokens_disagree")
    assert (finding is not None) is expected
    if finding is not None:
        assert finding.evidence == {"requests": 1, "in_text": in_text, "reported": 1_000, "chunks": chunks}
        assert finding.sentence == (
            f"The server reported 1,000 tokens for 1 answer whose text has {in_text:,} by the run's tokenizer, and which "
            f"came in {'1 chunk' if chunks == 1 else f'{chunks} chunks'}."
        )


@pytest.mark.parametrize(("in_text", "expected"), [(225, False), (224, True), (400, False), (401, True)])
def test_a_text_may_differ_by_exactly_a_quarter(make_report: MakeReport, answered: Make, in_text: int, expected: bool) -> None:
    record = answered(0, 0, 0, [(5, 300)], text_tokens=in_text)
    assert (finding_of(make_report([record]), "text_tokens_disagree") is not None) is expected


def test_littles_law_in_words() -> None:
    assert LittlesLaw(50.04, 100.0, 0.1).sentence == (
        "Little's law fails in the steady window: 50.04 requests were in flight, but 100.00 requests/s with a mean latency of "
        "0.100 s make 10.00."
    )


@pytest.mark.parametrize(("held_open_ms", "expected"), [(6.0, False), (8.0, True)])
def test_littles_law_tolerates_a_twentieth_and_what_the_ends_of_the_window_cut(
    make_report: MakeReport, answered: Make, held_open_ms: float, expected: bool
) -> None:
    """Two latencies of 100 ms are 1.3 % of a window of 15 s, so 6.3 % of the requests in flight are tolerated."""
    report = make_report(held_open(answered, held_open_ms))
    assert (finding_of(report, "littles_law") is not None) is expected


@pytest.mark.parametrize(
    ("every_ms", "latency_ms", "held_open_ms", "closed", "expected"),
    [
        # Two latencies are 14.5 % of a window of 13.8 s, divided by the root of 107 in flight 1.4 %: 6.4 % are tolerated.
        (10, 1_000, 65.0, True, False),
        (10, 1_000, 75.0, True, True),
        (10, 1_000, 200.0, False, False),
        (10, 1_000, 260.0, False, True),
        # They are 0.5 % of a window of 20 s, and fewer than one is in flight: 5.5 % of 0.5317 are tolerated, from 0.5025.
        (100, 50, 3.13, True, False),
        (100, 50, 3.25, True, True),
    ],
)
def test_littles_law_tolerates_less_of_the_ends_of_the_window_in_a_closed_loop(
    make_report: MakeReport, answered: Make, every_ms: int, latency_ms: int, held_open_ms: float, closed: bool, expected: bool
) -> None:
    """The users' ends at either edge are independent."""
    records = [
        answered(k, at, at, [(at + latency_ms, 1)], done=at + latency_ms + held_open_ms)
        for k, at in enumerate(range(0, 15_001 if every_ms == 10 else 20_001, every_ms))
    ]
    report = make_report(records, **({"load": CLOSED} if closed else {}))
    assert report.metrics.windows.steady is not None
    assert (finding_of(report, "littles_law") is not None) is expected


@pytest.mark.parametrize(("held_open_ms", "expected"), [(0.95, False), (1.5, True)])
def test_littles_law_tolerates_a_millisecond_of_each_request(
    make_report: MakeReport, answered: Make, held_open_ms: float, expected: bool
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 4, 1)], done=10 * k + 4 + held_open_ms) for k in range(1_501)]
    report = make_report(records)
    assert report.metrics.windows.steady is not None
    assert (finding_of(report, "littles_law") is not None) is expected


@pytest.mark.parametrize(("lag_ms", "expected"), [(20.0, False), (10.0, True)])
def test_littles_law_tolerates_the_lag_of_the_client(
    make_report: MakeReport, answered: Make, lag_ms: float, expected: bool
) -> None:
    """Exchanges end 15 ms after their last token: no fault of the target if the client's event loops are as late as that."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 4, 1)], done=10 * k + 19) for k in range(1_501)]
    report = make_report(records, client=worker_samples([lag_ms] * 300, WorkerUsage(), every_ms=50.0))
    assert (finding_of(report, "littles_law") is not None) is expected


def test_littles_law_counts_the_sends_at_both_ends_of_the_window(make_report: MakeReport, answered: Make) -> None:
    """Sends at 0, 10, 20 ... 15,000 ms, of which the window begins with one and ends with the last."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], done=10 * k + 500) for k in range(1_501)]
    report = make_report(records)
    window = report.metrics.windows.steady
    assert window is not None
    first = round(window.start_s * 100)
    assert (window.start_s, window.end_s) == (pytest.approx(first / 100, abs=1e-12), 15.0)
    finding = finding_of(report, "littles_law")
    assert finding is not None
    assert finding.evidence["rate_per_s"] == pytest.approx((1_501 - first) / (15.0 - first / 100), rel=1e-12)
    assert finding.evidence["mean_latency_s"] == pytest.approx(0.1, rel=1e-12)


def test_littles_law_holds_of_answers_without_tokens_and_of_streams_that_were_cut_after_some(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    """Both end when their exchange does: a fifth of the answers have no token, or were cut 300 ms after their only one."""
    answers = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)]) for k in range(1_500)]
    for records in (
        [answered(k, 10 * k, 10 * k, [], done=10 * k + 100) if k % 5 == 0 else answer for k, answer in enumerate(answers)],
        [
            failed(k, 10 * k, Outcome.STREAM_CUT, 10 * k, 10 * k + 400, token_times_ns=(10**7 * k + 10**8,), token_counts=(1,))
            if k % 5 == 0
            else answer
            for k, answer in enumerate(answers)
        ],
    ):
        report = make_report(records)
        assert report.metrics.windows.steady is not None
        assert finding_of(report, "littles_law") is None


def test_littles_law_is_of_no_window_in_which_nothing_was_sent(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, 0, 0, [(100 + 10 * k, 1)]) for k in range(700)])
    window = report.metrics.windows.steady
    assert window is not None
    assert window.start_s > 0.0
    assert finding_of(report, "littles_law") is None


def test_answers_in_one_piece_have_no_bias_of_tpot() -> None:
    assert TokenCountsUnknown(0.5, 0.0, 0.0).sentence.endswith("50.0% of the gaps between chunks.")
