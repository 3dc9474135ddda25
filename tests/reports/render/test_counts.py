"""Counts in sentences have a noun and a verb that fit them."""

from __future__ import annotations

import pytest

from bench_records.record import Outcome
from reports.findings.cancellations import GeneratedOn, LatenciesCutOff
from reports.findings.client import ConnectionLimitReached, ObjectivesLostToClient
from reports.findings.completeness import PromptsDropped, SampleTooSmall
from reports.findings.consistency import TokensCountedFromText
from reports.findings.finding import Finding
from reports.findings.outcomes import (
    EndMarkerMissing,
    Errors,
    NothingDone,
    OutputShorterThanAsked,
    PromptEchoed,
    ReasoningAlone,
    WarmUpFailed,
)
from reports.render.counts import counted, percent


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 prompts"), (1, "1 prompt"), (1.0, "1 prompt"), (2, "2 prompts"), (1_200, "1,200 prompts")]
)
def test_a_count_has_its_noun(number: float, text: str) -> None:
    assert counted(number, "prompt") == text


def test_a_count_has_its_verb() -> None:
    assert [counted(number, "prompt is", "prompts are") for number in (1, 2)] == ["1 prompt is", "2 prompts are"]


@pytest.mark.parametrize(
    ("finding", "sentence"),
    [
        (Errors(1, 0.5, {"timeout": 1}, None), "1 request failed (50.0%): "),
        (Errors(1, 0.0001, {"timeout": 1}, None), "1 request failed (0.01%): "),
        (Errors(1, 0.0104, {"timeout": 1}, None), "1 request failed (1.04%): "),  # which makes a run invalid, as 1 % does not
        (Errors(1, 0.01, {"timeout": 1}, None), "1 request failed (1.0%): "),
        (OutputShorterThanAsked(1, 0.0002, 9.0, 8.0, 0), "1 answer (0.02%) was shorter than requested: "),
        (NothingDone(1), "None of 1 request succeeded."),
        (WarmUpFailed(1, "full"), "1 warm-up request failed. "),
        (OutputShorterThanAsked(1, 0.5, 9.0, 8.0, 0), "1 answer (50%) was shorter than requested: "),
        (PromptEchoed(1), "1 answer begins with the prompt."),
        (ReasoningAlone(1, 0.5), "1 answer (50.0%) has reasoning and no other text."),
        (EndMarkerMissing(1, 0.5), "1 answer (50.0%) ended without [DONE]."),
        (PromptsDropped(1), "1 prompt was dropped as too long."),
        (SampleTooSmall(1, 662, False), "1 latency cannot support p99"),
        (ConnectionLimitReached(1, None, None, None, None, None, None), "1 request waited for a stream"),
        (ObjectivesLostToClient(1, 0.9, 0.95, None, None), "1 request was sent late and met every objective from the send"),
        (TokensCountedFromText(1, 0, 0.5, None), "The output tokens of 1 answer that was cut off were counted from text: "),
        (TokensCountedFromText(1, 1, 0.5, None), "The output tokens of 1 answer were counted from text: "),
        (GeneratedOn(1, 30.0, 40.0), "The server generated 30 tokens that did not arrive; 1 cancelled request had 40 of "),
        (
            LatenciesCutOff(1, 0.5, {Outcome.TIMEOUT.value: 1}, 100.0, 100.0, ["max_ttft"]),
            "1 request (50.0%) was cut off before its answer ended, after 100 ms: 1 timed out. ",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Finding) else "",
)
def test_a_finding_about_one_request_is_in_the_singular(finding: Finding, sentence: str) -> None:
    assert finding.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (0.0, 0, "0%"), (1.0, 0, "100%"), (0.234, 0, "23%"), (0.0006, 0, "0.1%"), (0.00001, 1, "0.001%"),
        (0.9996, 1, "99.96%"), (0.99, 0, "99%"), (0.5, 1, "50.0%"),
    ],
)  # fmt: skip
def test_a_share_of_some_is_never_none_or_all(share: float, decimals: int, text: str) -> None:
    assert percent(share, decimals) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0104, "1.04%"), (0.01, "1.0%"), (0.00996, "1.0%"), (0.010004, "1.0004%"), (0.0106, "1.1%")]
)
def test_a_share_above_its_limit_is_shown_to_be(share: float, text: str) -> None:
    assert percent(share, 1, 0.01) == text
