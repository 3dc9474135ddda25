"""What findings say, word for word: of a single thing and of several, and with each part that a sentence may leave out."""

from __future__ import annotations

from typing import Any

import pytest

from reports.findings.calibration import BeyondCalibration
from reports.findings.cancellations import GeneratedOn, LatenciesCutOff
from reports.findings.client import ClientSaturated, ConnectionLimitReached, ObjectivesLostToClient, WorkerKilled
from reports.findings.client_delay import DelayCause
from reports.findings.completeness import (
    BoundReached,
    EndedEarly,
    Interrupted,
    PromptsDropped,
    Recovered,
    SampleTooSmall,
    TurnsNotSent,
)
from reports.findings.consistency import (
    AnswersLeftOut,
    InputTokensDisagree,
    LittlesLaw,
    OutputLongerThanAsked,
    TextTokensDisagree,
    TokenCountsDisagree,
    TokensCountedFromText,
)
from reports.findings.distribution import (
    MessagesDropped,
    WorkerClockJumped,
    WorkerClockUncertain,
    WorkersLost,
    WorkersStopped,
    WorkersTurnedAway,
)
from reports.findings.engine import FrontEndTime, GpuClocksLimited, RequestsPreempted
from reports.findings.finding import Finding
from reports.findings.in_flight import RareQueues, UsersInStep
from reports.findings.load import ArrivalsNotAsAsked, QueueGrowing, RequestsRanOut, WaitedAtCeiling
from reports.findings.outcomes import (
    EndMarkerMissing,
    Errors,
    FinishReasonMissing,
    NothingDone,
    OutputShorterThanAsked,
    PromptEchoed,
    ReasoningAlone,
    StoppedAnswering,
    WarmUpFailed,
)
from reports.findings.server import MetricsDisagree, OutsideServerClock, PrefixCacheWarmed, RequestsDisagree
from reports.findings.simulation import BeyondModel, DoubtfulModel, Simulated
from reports.findings.target import TargetPaused
from reports.metrics.phases import ENGINE_E2E


def _said(finding: Finding, sentence: str) -> Any:
    return pytest.param(finding, sentence, id=f"{finding.code}: {sentence[:60]}")


_OF_THE_CLIENT = [
    _said(
        BeyondCalibration(1_200.0, 1_000.0, 1_300.0, None, 4),
        "In its busiest seconds the client handled 1,200 requests/s where 1,000 are calibrated (with 4 workers).",
    ),
    _said(
        BeyondCalibration(1_000.0, 1_000.0, 5_300.0, 5_100.0, 4),
        "In its busiest seconds the client handled 5,300 responses/s where 5,100 are calibrated (with 4 workers).",
    ),
    _said(
        BeyondCalibration(1_200.0, 1_000.0, 5_300.0, 5_100.0, 1),
        "In its busiest seconds the client handled 1,200 requests/s where 1,000 are calibrated and 5,300 responses/s where "
        "5,100 are calibrated (with 1 worker).",
    ),
    _said(WorkerKilled(1, "status -9"), "A worker of the client did not come to its end: 1 request has no record (status -9)."),
    _said(WorkerKilled(2, None), "A worker of the client did not come to its end: 2 requests have no record."),
    _said(
        WorkerKilled(1_200, "status -9"),
        "A worker of the client did not come to its end: 1,200 requests have no record (status -9).",
    ),
    _said(
        ObjectivesLostToClient(1, 0.98, 0.99, DelayCause.BUSY, None),
        "1 request was sent late and met every objective from the send, but not from the schedule: attainment is 98.0% from "
        "the schedule and 99.0% from the send.",
    ),
    _said(
        ConnectionLimitReached(1, None, None, None, None, None, None),
        "1 request waited for a stream, because the server accepts no more of them at once.",
    ),
    _said(
        ConnectionLimitReached(1_200, None, None, None, None, None, None),
        "1,200 requests waited for a stream, because the server accepts no more of them at once.",
    ),
]

_OF_THE_LOAD = [
    _said(
        WaitedAtCeiling(None, 1, 0.004, 1_250.0, "TTFT", None, 1_020.04, 100.0, 50.0),
        "1 request (0.4%) waited in the client because as many as --max_concurrency allows were in flight, p99 1,250.0 ms. p99 "
        "TTFT is failed from the schedule, which includes the wait, and 1,020.0 ms from the send, which does not.",
    ),
    _said(
        WaitedAtCeiling(1_024, 1_200, 0.25, 1_250.0, "E2E latency", 2_270.0, None, 100.0, 50.0),
        "1,200 requests (25%) waited in the client because 1,024 were in flight, p99 1,250.0 ms. p99 E2E latency is 2,270.0 ms "
        "from the schedule, which includes the wait, and failed from the send, which does not.",
    ),
    _said(
        RequestsRanOut(1_200, 20.0, 0.0123),
        "All 1,200 prepared requests were sent after 0.0123 s of 20 s; the run ended early.",
    ),
    _said(RequestsRanOut(None, None, 12.34), "All prepared requests were sent after 12.3 s; the run ended early."),
    _said(
        QueueGrowing(1.2, 40.4, 1_200, 0.196, 9.95, 9.94),
        "The target completes 9.94 requests/s while 9.9/s arrive: the queue grew from 1 to 40 requests, by 20% of 1,200 "
        "arrivals.",
    ),
    _said(
        ArrivalsNotAsAsked("constant", 12.5, 1_200, 0.0123, None, None, as_scheduled=False),
        "1.2% of 1,200 gaps between sends deviate from the requested constant gaps at 12.5 requests/s.",
    ),
    _said(
        ArrivalsNotAsAsked("exponential", 12.5, 1_200, 0.0123, 0.00012, 1.0, as_scheduled=False),
        "1,200 gaps between sends are not exponential gaps at 12.5 requests/s: Kolmogorov-Smirnov distance 0.012, p = 0.0001.",
    ),
    _said(
        RareQueues(1_064, None, near_limit=False, waited=0, spells=0),
        "No request waited for a place in the target's batch in this run: at most 1,064 answers came at the same time, and its "
        "limit is not known.",
    ),
    _said(
        RareQueues(64, 1_128, near_limit=True, waited=0, spells=0),
        "No request waited for a place in the target's batch in this run: at most 64 answers came at the same time, and its "
        "limit is 1,128.",
    ),
    _said(
        RareQueues(64, None, near_limit=False, waited=1, spells=1),
        "1 request waited for a place in the target's batch, in one spell: at most 64 answers came at the same time, and its "
        "limit is not known.",
    ),
    _said(
        RareQueues(64, 64, near_limit=False, waited=1_200, spells=1_000),
        "1,200 requests waited for a place in the target's batch, in 1,000 spells: at most 64 answers came at the same time, "
        "and its limit is 64.",
    ),
    _said(
        RareQueues(1_063, 1_064, near_limit=False, waited=1_200, spells=2),
        "1,200 requests waited for the first token, in 2 spells: at most 1,063 answers came at the same time, fewer than the "
        "target's limit of 1,064.",
    ),
    _said(
        UsersInStep(None, 0.0204, 12, 0.904),
        "The users keep in step: 90% of the answers end in one third of each 0.0204 s, in 12 waves.",
    ),
    _said(
        UsersInStep(None, 12.34, 3, 1.0, at_once=True),
        "The answers keep in step: 100% of the answers end in one third of each 12.3 s, in 3 waves.",
    ),
    _said(
        UsersInStep(1_200, 1.52, 1_012, 0.904),
        "The 1,200 users keep in step: 90% of the answers end in one third of each 1.5 s, in 1,012 waves.",
    ),
]

_OF_THE_RUN = [
    _said(Interrupted(None, None), "The run was stopped before its end."),
    _said(
        EndedEarly("--until p99_ttft±5%", "it is ±4 %", False, 1, None),
        "The run was ended by --until p99_ttft±5% after 1 request: it is ±4 %.",
    ),
    _said(
        EndedEarly("--until p99_ttft±5%", "it is ±4 %", False, 1_200, None),
        "The run was ended by --until p99_ttft±5% after 1,200 requests: it is ±4 %.",
    ),
    _said(
        EndedEarly("--stop_if p99_ttft>9ms", "all are", True, 1, 1),
        "The run was ended by --stop_if p99_ttft>9ms after 1 of 1 request: all are.",
    ),
    _said(
        BoundReached("p99_ttft±5%", None, 1),
        "Bound reached: p99_ttft±5% was not reached by 1 request, and it has no interval.",
    ),
    _said(
        BoundReached("p99_ttft±5%", 0.0623, 1_200),
        "Bound reached: p99_ttft±5% was not reached by 1,200 requests, and it is known to ± 6.2 %.",
    ),
    _said(TurnsNotSent(1_002, 1_703), "1,002 of 1,703 requests were not sent, since a turn that they wait for failed."),
    _said(
        Recovered(1_400, 1_350, 1_040, 1_010, 2, 17),
        "The run was cut short: of 1,400 requests, 1,350 were recorded, 1,040 are lost, 1,010 were not sent, and records were "
        "torn or damaged.",
    ),
    _said(PromptsDropped(1), "1 prompt was dropped as too long."),
    _said(SampleTooSmall(1, 662, False), "1 latency cannot support p99, which needs 662."),
    _said(WorkersLost("1 (a)", 1_200), "Lost: worker 1 (a). It is unknown whether 1,200 requests were sent."),
    _said(WorkersLost("1 (a)", 1), "Lost: worker 1 (a). It is unknown whether 1 request was sent."),
    _said(
        WorkersStopped("1 (a), 2 (b)", "it was stopped on its host", 0),
        "Stopped before the end of the run: worker 1 (a), 2 (b); it was stopped on its host.",
    ),
    _said(
        WorkersStopped("1 (a)", "it was stopped on its host", 1),
        "Stopped before the end of the run: worker 1 (a); it was stopped on its host. 1 request was not sent.",
    ),
    _said(
        WorkersStopped("1 (a)", "it was stopped on its host", 1_200),
        "Stopped before the end of the run: worker 1 (a); it was stopped on its host. 1,200 requests were not sent.",
    ),
    _said(WorkerClockJumped(3, "c", 1_250.04), "The clock of worker 3 (c) jumped by at least 1,250.0 ms against the master's."),
    _said(WorkerClockUncertain(3, "c", 1_250.04), "The start of worker 3 (c) is known to ±1,250.0 ms."),
    _said(WorkersTurnedAway("c, d", "the run has its 2 workers"), "Workers took no part: c, d (the run has its 2 workers)."),
    _said(
        MessagesDropped(1, "10.0.0.9", "not a message"),
        "The master dropped 1 message, for example from 10.0.0.9 (not a message).",
    ),
    _said(
        MessagesDropped(1_200, "10.0.0.9", "not a message"),
        "The master dropped 1,200 messages, for example from 10.0.0.9 (not a message).",
    ),
    _said(
        Simulated("model.json", ["a", "b"], 2, "round_robin", 3, "2 replicas"),
        "No server was measured: model.json, fitted to a, b, simulated 2 replicas with a router (round_robin).",
    ),
    _said(
        Simulated("model.json", ["a"], 1, None, 3, "1 replica"),
        "No server was measured: model.json, fitted to a, simulated 1 replica.",
    ),
    _said(DoubtfulModel(["a is unfit", "b is short"]), "The model of this run is in doubt: a is unfit; b is short."),
    _said(
        BeyondModel(["81 requests a second, fitted up to 67", "9 in flight, fitted up to 8"]),
        "The run lies beyond what the model was fitted to: 81 requests a second, fitted up to 67; 9 in flight, fitted up to 8.",
    ),
]

_OF_ANSWERS = [
    _said(NothingDone(1), "None of 1 request succeeded."),
    _said(Errors(1, 0.125, {"timeout": 1}, None), "1 request failed (12.5%): 1 timeout."),
    _said(Errors(12, 0.0100041, {"timeout": 12}, None), "12 requests failed (1.0004%): 12 timeout."),
    _said(
        StoppedAnswering(6.44, 1_200, "connect"),
        "No token of an answer came after 6.4 s: all 1,200 requests that were sent after that failed, most of them as connect.",
    ),
    _said(
        StoppedAnswering(0.0123, 1_200, "timeout", in_flight=8),
        "No token of an answer came after 0.0123 s: 1,200 requests that were in flight then or sent later failed, most of them "
        "as timeout.",
    ),
    _said(WarmUpFailed(1, "queue full"), "1 warm-up request failed. The first error: queue full"),
    _said(
        OutputShorterThanAsked(1, 0.005, 3.0, 2.0, 1),
        "1 answer (0.5%) was shorter than requested: 2 of 3 tokens in all. The server says that a limit of length ended 1 of "
        "them.",
    ),
    _said(
        OutputShorterThanAsked(1_200, 0.25, 33_000.0, 25_000.0, 1_100),
        "1,200 answers (25%) were shorter than requested: 25,000 of 33,000 tokens in all. The server says that a limit of "
        "length ended 1,100 of them.",
    ),
    _said(PromptEchoed(1), "1 answer begins with the prompt."),
    _said(ReasoningAlone(1, 0.125), "1 answer (12.5%) has reasoning and no other text."),
    _said(FinishReasonMissing(1), "The server sent no finish_reason with any of 1 answer, so whether it cut some is unknown."),
    _said(
        FinishReasonMissing(1_234),
        "The server sent no finish_reason with any of 1,234 answers, so whether it cut some is unknown.",
    ),
    _said(EndMarkerMissing(1, 0.5), "1 answer (50.0%) ended without [DONE]."),
    _said(
        LatenciesCutOff(1, 0.125, {"first_token_timeout": 1}, 1_250.4, 1_250.4, ["mean_ttft", "max_ttft"]),
        "1 request (12.5%) was cut off before its answer ended, after 1,250 ms: 1 without a token for too long. Therefore "
        "these are lower bounds: mean_ttft, max_ttft.",
    ),
    _said(
        LatenciesCutOff(
            3_300, 0.25, {"token_gap_timeout": 1_100, "timeout": 1_100, "withdrawn": 1_100}, 1_250.4, 2_250.6, ["mean_e2e"]
        ),
        "3,300 requests (25.0%) were cut off before their answer ended: 1,100 without a further token for too long, 1,100 "
        "timed out, 1,100 cancelled as planned. The shortest had taken 1,250 ms by then, half of them at most 2,251 ms. "
        "Therefore these are lower bounds: mean_e2e.",
    ),
    _said(
        GeneratedOn(1, 1.0, 1_099.6),
        "The server generated 1 token that did not arrive; 1 cancelled request had 1,100 of the requested tokens left.",
    ),
    _said(
        GeneratedOn(1_200, 10_000.4, 12_000.0),
        "The server generated 10,000 tokens that did not arrive; 1,200 cancelled requests had 12,000 of the requested tokens "
        "left.",
    ),
]

_OF_TOKENS = [
    _said(
        OutputLongerThanAsked(1, 1_200.0, 0.004),
        "1 answer was longer than requested: 1,200 tokens too many, 0.4% of all.",
    ),
    _said(
        OutputLongerThanAsked(1_200, 1.0, 0.0100041),
        "1,200 answers were longer than requested: 1 token too many, 1.0004% of all.",
    ),
    _said(
        TokenCountsDisagree(1, 0.004, 2.0, 5.0),
        "The responses of 1 answer (0.4%) do not sum to the reported token count: 2 tokens in responses, 5 reported in all.",
    ),
    _said(
        TokensCountedFromText(1, 0, 0.0100041, None),
        "The output tokens of 1 answer that was cut off were counted from text: 1.0004% of all output tokens.",
    ),
    _said(
        TokensCountedFromText(1_200, 0, 0.004, 1.0),
        "The output tokens of 1,200 answers that were cut off were counted from text: 0.4% of all output tokens.",
    ),
    _said(
        TokensCountedFromText(1, 1, 0.5, 1.01),
        "The output tokens of 1 answer were counted from text: 50.0% of all output tokens. Text of random tokens makes 1.01 "
        "times as many when it is tokenised again.",
    ),
    _said(
        InputTokensDisagree(1_200, 1_128.04, 1_145.0, 1_017.04, 12),
        "Prompts of 1,128.0 tokens on average were requested; the server counted 1,145.0, and 12 of its template. A prompt "
        "deviates by 1,017.0 tokens on average.",
    ),
    _said(
        AnswersLeftOut({"ttft_ms": 0.0204, "tpot_ms": 0.5}, None),
        "Latencies leave out successful answers: TTFT 2.0%, TPOT 50.0%.",
    ),
    _said(
        AnswersLeftOut({"ttft_ms": 0.0204}, 0.504),
        "Latencies leave out successful answers: TTFT 2.0%. These took 0.50 times as long as the others.",
    ),
    _said(
        TextTokensDisagree(1, 1_000.0, 1.0, 1.0),
        "The server reported 1 token for 1 answer whose text has 1,000 by the run's tokenizer, and which came in 1 chunk.",
    ),
    _said(
        TextTokensDisagree(1_200, 51_000.0, 26_000.0, 1_300.0),
        "The server reported 26,000 tokens for 1,200 answers whose text has 51,000 by the run's tokenizer, and which came in "
        "1,300 chunks.",
    ),
    _said(
        LittlesLaw(1_012.504, 2_000.25, 0.5004),
        "Little's law fails in the steady window: 1,012.50 requests were in flight, but 2,000.25 requests/s with a mean "
        "latency of 0.500 s make 1,000.93.",
    ),
]

_OF_THE_TARGET = [
    _said(
        TargetPaused(4.004, 3.021, 1, 0.0204, 3, None),
        "No stream had a token for 3.02 s from 4.00 s on, at the end of which 1 request was in flight; at other times the "
        "longest silence was 0.020 s. It is the longest of 3 such pauses.",
    ),
    _said(
        TargetPaused(4.004, 3.021, 1_023, 0.0204, 2, None),
        "No stream had a token for 3.02 s from 4.00 s on, at the end of which 1,023 requests were in flight; at other times "
        "the longest silence was 0.020 s. It is the longest of 2 such pauses.",
    ),
    _said(
        TargetPaused(4.004, 3.021, 23, 0.0204, 1, 9.0),
        "No stream had a token for 3.02 s from 4.00 s on, at the end of which 23 requests were in flight; at other times the "
        "longest silence was 0.020 s.",
    ),
    _said(
        RequestsDisagree(1_200, 1_250, -1_300.0, "http://a"),
        "The count of requests of the server at http://a fell by 1,300; 1,200 to 1,250 of this run reached it.",
    ),
    _said(RequestsDisagree(2, 2, -1.0), "The count of requests of the server fell by 1; 2 of this run reached it."),
    _said(RequestsDisagree(2, 2, 0.0, "http://a"), "The server at http://a counted 0 requests; 2 of this run reached it."),
    _said(RequestsDisagree(2, 2, 1.0), "The server counted 1 request; 2 of this run reached it."),
    _said(
        MetricsDisagree(1_200, 1.0, "http://host"),
        "The metrics at http://host count 1 request; the server's statistics 1,200.",
    ),
    _said(MetricsDisagree(2, 1_200.0, None), "The metrics count 1,200 requests; the server's statistics 2."),
    _said(
        OutsideServerClock(ENGINE_E2E, 1_049.96, 0.504, 2_100.04, 1_050.0),
        "Mean E2E from the send is 2,100.0 ms, the server's own 1,050.0 ms: 1,050.0 ms (50%) passed outside of the server's "
        "clock, most likely before it started.",
    ),
    _said(
        PrefixCacheWarmed(None, 0.004, None),
        "A prefix cache may have helped: 0.4% of what was sent repeats an earlier prompt.",
    ),
    _said(
        FrontEndTime(1_100.4, 0.254, 4_400.4, 3_300.4),
        "1,100 of 4,400 ms (25%) of the server's own mean E2E latency passed in its front end; the engine, with its queue, "
        "took 3,300 ms.",
    ),
    _said(RequestsPreempted(1, 1), "The engine preempted running requests 1 time, in a run of 1 request."),
    _said(RequestsPreempted(1_022, 1_700), "The engine preempted running requests 1,022 times, in a run of 1,700 requests."),
    _said(GpuClocksLimited("power cap", 0.504, None, 1), "Power cap: clocks were held down, for 0.50 s."),
    _said(GpuClocksLimited("heat", 12.34, 1_305.4, 2), "Heat: clocks fell to 1,305 MHz, for 12.3 s, on 2 GPUs."),
]


@pytest.mark.parametrize(
    ("finding", "sentence"), [*_OF_THE_CLIENT, *_OF_THE_LOAD, *_OF_THE_RUN, *_OF_ANSWERS, *_OF_TOKENS, *_OF_THE_TARGET]
)
def test_the_sentence_of_a_finding(finding: Finding, sentence: str) -> None:
    assert finding.sentence == sentence


_QUIET: dict[str, Any] = {
    "lag_p99_ms": 60.0, "lag_mean_ms": 9.5, "lag_max_ms": 70.0, "wake_ups": 300, "p50_latency_from_sent_ms": 100.0,
    "p99_icl_ms": 40.0, "cpu_share": 0.1, "run_queue_wait_share": 0.02, "run_queue_wait_ms": 0.3, "gc_longest_ms": 1.0,
    "steal_cores": 0.0, "unstamped_reads": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "cause"),
    [
        ({}, ""),
        ({"run_queue_wait_share": None}, ""),
        ({"cpu_share": 0.954}, " (95% of a core used)"),
        ({"run_queue_wait_share": 0.304}, " (30% of the time spent waiting for a core)"),
        ({"gc_longest_ms": 55.04}, " (longest garbage collection 55.0 ms)"),
        ({"steal_cores": 0.404}, " (40% of a core taken by the hypervisor)"),
    ],
)
def test_the_sentence_of_a_late_client_ends_with_the_measurement_that_shows_the_cause(
    measured: dict[str, Any], cause: str
) -> None:
    both = "The client's workers ran late, and its sends and times of arrival are late: "
    lag, latency = (
        "they woke 9.5 ms late on average, 60.0 ms at p99, ",
        "compared with a median latency of 100.0 ms from the send",
    )
    assert ClientSaturated(**_QUIET | measured).sentence == f"{both}{lag}{latency}{cause}."
    assert ClientSaturated(**_QUIET | measured | {"lag_p99_ms": None, "lag_mean_ms": None, "unstamped_reads": 0}).sentence == (
        f"The client's workers ran late, and its sends are late: {latency}{cause}."
    )
    assert ClientSaturated(**_QUIET | measured | {"unstamped_reads": 1}).sentence == f"{both}{lag}{latency}{cause}."
