"""Findings from the server's own numbers: each provoked, and each quiet where the two sides agree."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from bench_records.manifest import Manifest
from bench_records.record import Outcome, Record, TokenSource
from reports.findings.finding import RunFacts
from reports.findings.server import (
    CountersDisagree,
    MetricsDisagree,
    OutsideServerClock,
    PhasesExceedLatency,
    PrefixCacheWarmed,
    RequestsDisagree,
    TokensDisagree,
)
from reports.metrics.phases import ENGINE_E2E, ENGINE_TTFT, Phase
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.findings.runs import CLOSED, paused_streams
from tests.reports.manifests import counted_by_server, machine_use
from tests.reports.watched import engine_times, metric, statistics

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


# ---- counters_disagree: requests


@pytest.mark.parametrize(("counted", "expected"), [(100, False), (99, True), (101, True), (-5, True)])
def test_a_server_that_counts_other_requests_is_found(
    make_report: MakeReport, steady_run: SteadyRun, counted: int, expected: bool
) -> None:
    finding = finding_of(make_report(steady_run(100), **counted_by_server(10 + counted, before=10)), "counters_disagree")
    assert (finding is not None) == expected
    if finding is not None:
        assert finding.evidence == {
            "counter": "requests",
            "ours_least": 100,
            "ours_most": 100,
            "server": counted,
            "target": None,
        }
        assert finding.severity.value == "warning"
        of_server = f"The server counted {counted} requests" if counted > 0 else "The count of requests of the server fell by 5"
        assert finding.sentence == f"{of_server}; 100 of this run reached it."
        assert ("Other clients" in finding.advice) == (counted > 100)


def test_failed_requests_may_have_reached_the_server(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [
        *steady_run(90),
        *(failed(90 + k, 900, Outcome.TIMEOUT, 900, 950) for k in range(4)),
        *(failed(94 + k, 900, Outcome.CONNECT, 900, 901) for k in range(3)),
        failed(97, 970, Outcome.LOST),
        failed(98, 980, Outcome.NOT_SENT),
        failed(99, 990, Outcome.CANCELLED, 990, 995),
    ]
    for counted in (90, 93, 96):
        assert finding_of(make_report(records, **counted_by_server(counted)), "counters_disagree") is None
    for counted in (89, 97):
        finding = finding_of(make_report(records, **counted_by_server(counted)), "counters_disagree")
        assert finding is not None
        assert (finding.evidence["ours_least"], finding.evidence["ours_most"]) == (90, 96)
        assert "90 to 96 of this run" in finding.sentence


def test_a_lost_worker_of_a_closed_loop_may_have_sent_more_than_its_last_requests(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    lost = [failed(90 + k, 900, Outcome.LOST) for k in range(3)]
    report = make_report([*steady_run(90), *lost], load=CLOSED, **counted_by_server(100))
    assert finding_of(report, "counters_disagree") is None
    for records, counted in (([*steady_run(90), *lost], 89), (steady_run(93), 100)):
        report = make_report(records, load=CLOSED, **counted_by_server(counted))
        assert finding_of(report, "counters_disagree") is not None


@pytest.mark.parametrize(("fails", "expected"), [(2, False), (3, True)])
def test_a_request_that_its_client_ended_may_be_counted_as_two_failures(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make, fails: int, expected: bool
) -> None:
    """As of an ensemble on Triton 24.10: 38 successes and 2 failures of 39 requests."""
    counted = counted_by_server(38)
    counted["server_statistics"]["after"]["tensorrt_llm"]["fail"]["count"] = fails
    records = [*steady_run(38), failed(38, 380, Outcome.TIMEOUT, 380, 390)]
    assert (finding_of(make_report(records, **counted), "counters_disagree") is not None) == expected
    refused = [*steady_run(38), failed(38, 380, Outcome.REFUSED, 380, 390)]
    assert finding_of(make_report(refused, **counted), "counters_disagree") is not None


def test_a_server_without_statistics_may_count_in_its_metrics(make_report: MakeReport, steady_run: SteadyRun) -> None:
    for counted, expected in ((100, False), (140, True)):
        samples = metric("vllm:request_success_total", {-1: 0, 2: counted}, finished_reason="stop")
        assert (finding_of(make_report(steady_run(100), server=samples), "counters_disagree") is not None) == expected


def test_what_is_not_known_is_not_compared(make_report: MakeReport, steady_run: SteadyRun) -> None:
    other_model = {"before": statistics(other=(0, 1.0)), "after": statistics(other=(3, 1.0))}
    for facts in ({}, {"server_statistics": None}, {"server_statistics": other_model}):
        assert finding_of(make_report(steady_run(20), **facts), "counters_disagree") is None


# ---- counters_disagree: metrics


@pytest.mark.parametrize(("counted", "expected"), [(100, False), (40, True), (0, True)])
def test_metrics_of_another_server_are_found(
    make_report: MakeReport, steady_run: SteadyRun, counted: int, expected: bool
) -> None:
    labels = {"model": "tensorrt_llm", "version": "1"}
    samples = metric("nv_inference_request_success", {-1: 3, 2: 3 + counted}, **labels) + metric(
        "nv_inference_request_failure", {-1: 0, 2: 0}, reason="OTHER", **labels
    )
    telemetry = {"url": "http://host:8002/metrics"}
    finding = finding_of(
        make_report(steady_run(100), server=samples, telemetry=telemetry, **counted_by_server(100)), "counters_disagree"
    )
    assert (finding is not None) == expected
    if finding is not None:
        sentence = f"The metrics at http://host:8002/metrics count {counted} requests; the server's statistics 100."
        assert finding.sentence == sentence
        unnamed = finding_of(make_report(steady_run(100), server=samples, **counted_by_server(100)), "counters_disagree")
        assert unnamed is not None
        assert unnamed.sentence == f"The metrics count {counted} requests; the server's statistics 100."


# ---- counters_disagree: tokens; steady_run's answers have 3 tokens each


@pytest.mark.parametrize(("counted", "expected"), [(300, False), (297, False), (303, False), (296, True), (304, True)])
def test_tokens_that_one_side_alone_has_seen(
    make_report: MakeReport, steady_run: SteadyRun, counted: int, expected: bool
) -> None:
    samples = metric("vllm:generation_tokens_total", {-1: 1000, 2: 1000 + counted})
    finding = finding_of(make_report(steady_run(100), server=samples), "counters_disagree")
    assert (finding is not None) == expected
    if finding is not None:
        assert finding.evidence == {"counter": "tokens", "ours": 300.0, "server": float(counted)}
        assert finding.sentence == f"The server counted {counted} output tokens; 300 arrived."


def test_counters_that_were_read_before_the_last_answer_are_not_compared(
    make_report: MakeReport, failed: Make, answered: Make
) -> None:
    """The server died after 1.5 s: what it had counted at its last reading lacks the requests that it answered since."""
    alive = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)]) for k in range(140)]
    dead = [failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(140, 200)]
    stale = metric("vllm:request_success_total", {-1: 0, 1.2: 110}) + metric("vllm:generation_tokens_total", {-1: 0, 1.2: 110})
    assert finding_of(make_report([*alive, *dead], server=stale), "counters_disagree") is None
    late = metric("vllm:request_success_total", {-1: 0, 2.5: 110})
    assert finding_of(make_report([*alive, *dead], server=late), "counters_disagree") is not None


def test_tokens_are_not_compared_where_ours_cannot_be_exact(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    samples = metric("vllm:generation_tokens_total", {-1: 0, 2: 900})
    retokenised = steady_run(100, output_tokens_source=TokenSource.TEXT)
    with_a_failure = [*steady_run(100), failed(100, 1000, Outcome.TIMEOUT, 1000, 1010)]
    for records in (retokenised, with_a_failure):
        assert finding_of(make_report(records, server=samples), "counters_disagree") is None


# ---- phases_exceed_latency; an exchange of steady_run takes 121 ms


@pytest.mark.parametrize(("whole_ms", "expected"), [(10, False), (121, False), (128, False), (129, True), (500, True)])
def test_a_part_is_not_longer_than_the_whole(
    make_report: MakeReport, steady_run: SteadyRun, whole_ms: float, expected: bool
) -> None:
    finding = finding_of(make_report(steady_run(100), **counted_by_server(100, ms=whole_ms / 4)), "phases_exceed_latency")
    assert (finding is not None) == expected
    if finding is not None:
        assert finding.severity.value == "warning"
        assert finding.evidence["client_ms"] == pytest.approx(121.0)
        assert f"{whole_ms:.2f} ms on average, where the client measured 121.00 ms for the whole." in finding.sentence


def test_the_phase_that_exceeds_the_latency_most_is_reported(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = [
        sample
        for name, total_s in (("time_to_first_token", 13.0), ("e2e_request_latency", 40.0))
        for sample in (
            *metric(f"vllm:{name}_seconds_sum", {-1: 0, 2: total_s}),
            *metric(f"vllm:{name}_seconds_count", {-1: 0, 2: 100}),
        )
    ]
    finding = finding_of(make_report(steady_run(100), server=samples), "phases_exceed_latency")
    assert finding is not None
    assert (finding.evidence["phase"], finding.evidence["server_ms"]) == ("E2E, by the engine", pytest.approx(400.0))


# ---- outside_server_clock; TTFT and E2E latency of steady_run are 100 and 120 ms


@pytest.mark.parametrize(
    ("ttft_ms", "e2e_ms", "expected"),
    [(100, 120, None), (91, 111, None), (60, 80, ("TTFT, by the engine", 40.0)), (97, 90, ("E2E, by the engine", 30.0))],
)
def test_time_that_the_server_does_not_count_is_named(
    make_report: MakeReport, steady_run: SteadyRun, ttft_ms: float, e2e_ms: float, expected: tuple[str, float] | None
) -> None:
    finding = finding_of(make_report(steady_run(100), server=engine_times(ttft_ms, e2e_ms)), "outside_server_clock")
    assert (finding is None) == (expected is None)
    if finding is not None and expected is not None:
        assert finding.severity.value == "note"
        assert (finding.evidence["span"], finding.evidence["outside_ms"]) == (expected[0], pytest.approx(expected[1]))
        assert f"{expected[1]:.1f} ms" in finding.sentence


@pytest.mark.parametrize(
    ("protocol", "named", "not_named"),
    [
        ("grpc", "instances of these models", "HTTP"),
        ("http", "instances of these models", "tokenizer"),
        ("http_infer", "instances of these models", "tokenizer"),
        ("openai", "HTTP front end and tokenizer", "Triton"),
        ("openai_completions", "HTTP front end and tokenizer", "Triton"),
    ],
)
def test_what_delays_requests_before_the_servers_clock_is_named_by_the_protocol(
    make_report: MakeReport, steady_run: SteadyRun, protocol: str, named: str, not_named: str
) -> None:
    target = {"model": "m", "protocol": protocol, "streaming": True}
    report = make_report(steady_run(100), server=engine_times(60, 80), target=target)
    finding = finding_of(report, "outside_server_clock")
    assert finding is not None
    assert named in finding.advice
    assert not_named not in finding.advice
    assert ("front-end" if protocol.startswith("openai") else "model") in finding.brief


@pytest.mark.parametrize(
    ("pause_ms", "others_cores", "beside"),
    [(0.0, 0.1, None), (3_000.0, 0.1, "target_paused"), (0.0, 1.0, "machine_shared"), (3_000.0, 1.0, "target_paused")],
)
def test_front_ends_are_not_advised_beside_a_pause_or_a_full_machine(
    make_report: MakeReport, answered: Make, pause_ms: float, others_cores: float, beside: str | None
) -> None:
    records = [
        replace(record, token_times_ns=tuple(at + 50_000_000 for at in record.token_times_ns))
        for record in paused_streams(answered, pause_ms)
    ]
    target = {"model": "m", "protocol": "openai", "streaming": True}
    report = make_report(records, server=engine_times(5, 900, count=48), target=target, **machine_use(others_cores))
    finding = finding_of(report, "outside_server_clock")
    assert finding is not None
    assert finding.evidence["beside"] == beside
    assert ("front-end processes" in finding.advice, "front-end processes" in finding.brief) == (beside is None,) * 2
    assert beside is None or (finding_of(report, beside) is not None and beside in finding.advice)


def test_answers_that_a_proxy_holds_back_until_they_are_whole_do_not_wait_before_the_servers_clock(
    make_report: MakeReport, answered: Make
) -> None:
    """The engine's first token is 900 ms old when the stream comes, all at once, with its last one."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 1_000, 50)]) for k in range(100)]
    report = make_report(records, server=engine_times(100, 995))
    assert finding_of(report, "outside_server_clock") is None
    assert finding_of(report, "answers_left_out") is not None


def test_a_few_ms_outside_of_the_servers_clock_are_the_network(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 12, 1), (10 * k + 14, 1)]) for k in range(100)]
    assert finding_of(make_report(records, server=engine_times(5, 6)), "outside_server_clock") is None


# ---- prefix_cache_warmed


def _reuse(share: float) -> list[Any]:
    return metric("vllm:prefix_cache_hits_total", {-1: 500, 2: 500 + 1000 * share}) + metric(
        "vllm:prefix_cache_queries_total", {-1: 900, 2: 1900}
    )


def _repeated(share: float | None) -> dict[str, Any]:
    return {"workload": {"repeated_prefix": None if share is None else {"share": share, "unit": "tokens"}}}


@pytest.mark.parametrize(
    ("reused", "repeated", "severity"),
    [
        (0.0, 0.0, None),
        (0.009, 0.009, None),
        (0.01, 0.0, "note"),
        (None, 0.01, "note"),
        (0.02, 0.02, "note"),
        (0.24, 0.3, "note"),
        (0.25, 0.3, "warning"),
        (0.0, 0.9, None),  # the server keeps no prefixes, and reports it
        (None, 0.9, "note"),  # it may, and does not report it
        (None, 0.0, None),
        (None, None, None),
        (0.5, None, "warning"),
    ],
)
def test_what_the_server_found_in_its_cache_counts_before_what_it_could_have_found(
    make_report: MakeReport, steady_run: SteadyRun, reused: float | None, repeated: float | None, severity: str | None
) -> None:
    samples = [] if reused is None else _reuse(reused)
    finding = finding_of(make_report(steady_run(100), server=samples, **_repeated(repeated)), "prefix_cache_warmed")
    assert (None if finding is None else finding.severity.value) == severity


@pytest.mark.parametrize(
    ("reused", "limit", "severity", "advice"),
    [
        (0.8, 0.8, "note", "earlier prompts of the run"),
        (0.5, 0.8, "note", "earlier prompts of the run"),
        (0.9, 0.8, "warning", "before this run"),
        (0.5, None, "warning", "before this run"),
    ],
)
def test_prompts_that_were_made_to_share_prefixes_are_no_warning_up_to_what_they_share(
    make_report: MakeReport, steady_run: SteadyRun, reused: float, limit: float | None, severity: str, advice: str
) -> None:
    workload = _repeated(0.1)["workload"] | {"shared_prefix_limit": limit}  # the blocks of the account exceed the prefixes
    finding = finding_of(make_report(steady_run(100), server=_reuse(reused), workload=workload), "prefix_cache_warmed")
    assert finding is not None
    assert finding.severity.value == severity
    assert advice in finding.advice


@pytest.mark.parametrize(
    ("most", "advice"), [(0.55, "earlier prompts of the run"), (0.5, "before this run"), (None, "before this run")]
)
def test_a_server_with_smaller_blocks_finds_more_than_our_blocks_repeat_without_being_warm(
    make_report: MakeReport, steady_run: SteadyRun, most: float | None, advice: str
) -> None:
    # measured with vLLM's blocks of 16 tokens: 55 % found where blocks of 32 repeat 50 %
    workload = {"repeated_prefix": {"share": 0.5, "unit": "bytes", "most_share": most}}
    finding = finding_of(make_report(steady_run(100), server=_reuse(0.55), workload=workload), "prefix_cache_warmed")
    assert finding is not None
    assert advice in finding.advice


def test_a_cache_that_was_warm_before_the_run_has_other_advice(make_report: MakeReport, steady_run: SteadyRun) -> None:
    before = finding_of(make_report(steady_run(100), server=_reuse(0.5), **_repeated(0.1)), "prefix_cache_warmed")
    itself = finding_of(make_report(steady_run(100), server=_reuse(0.1), **_repeated(0.1)), "prefix_cache_warmed")
    assert before is not None
    assert itself is not None
    assert "before this run" in before.advice
    assert "earlier prompts of the run" in itself.advice
    assert before.sentence == (
        "The server found 50% of the prompts' tokens in its prefix cache. 10% of what was sent repeats an earlier prompt."
    )
    unknown = finding_of(make_report(steady_run(100), **_repeated(0.4)), "prefix_cache_warmed")
    assert unknown is not None
    assert unknown.sentence == "A prefix cache may have helped: 40% of what was sent repeats an earlier prompt."


@pytest.mark.parametrize(("workload", "seed_helps"), [
    ({"dataset": "a.json"}, False), ({"trace": "a.jsonl"}, False), ({"trace": "a.csv", "synthetic": True}, True), ({}, True),
])  # fmt: skip
def test_another_seed_is_no_advice_for_prompts_of_a_file(
    make_report: MakeReport, steady_run: SteadyRun, workload: dict[str, Any], seed_helps: bool
) -> None:
    document = _repeated(0.1)["workload"] | workload
    finding = finding_of(make_report(steady_run(100), server=_reuse(0.5), workload=document), "prefix_cache_warmed")
    assert finding is not None
    assert "before this run" in finding.advice
    assert ("--seed" in finding.advice, "--seed" in finding.brief) == (seed_helps, seed_helps)


def test_shares_are_of_the_unit_of_whoever_counted(make_report: MakeReport, steady_run: SteadyRun) -> None:
    workload = {"repeated_prefix": {"share": 0.4, "unit": "bytes"}}
    reported = finding_of(make_report(steady_run(100), server=_reuse(0.5), workload=workload), "prefix_cache_warmed")
    unreported = finding_of(make_report(steady_run(100), workload=workload), "prefix_cache_warmed")
    assert reported is not None
    assert unreported is not None
    known = {"repeated_share": 0.4, "limit_share": None, "most_share": None, "prompts_of_file": False}
    assert reported.evidence == {"reused_share": 0.5, "unit": "tokens", **known}
    assert unreported.evidence == {"reused_share": None, "unit": "bytes", **known}
    limits = {"repeated_prefix": {"share": 0.4, "unit": "bytes", "most_share": 0.6}, "shared_prefix_limit": 0.5, "dataset": "a"}
    of_file = finding_of(make_report(steady_run(100), server=_reuse(0.5), workload=limits), "prefix_cache_warmed")
    assert of_file is not None
    assert of_file.evidence == {
        "reused_share": 0.5, "unit": "tokens", "repeated_share": 0.4, "limit_share": 0.5, "most_share": 0.6,
        "prompts_of_file": True,
    }  # fmt: skip


def test_reuse_of_prompts_whose_repetition_is_unknown_in_words() -> None:
    finding = PrefixCacheWarmed(0.5, None, "tokens")
    assert finding.sentence == "The server found 50% of the prompts' tokens in its prefix cache."


# ---- at the thresholds, and in words


def _phase(name: str, server_ms: float, *, whole_ms: float, client_ms: float | None = None) -> Phase:
    return Phase(name, server_ms, client_ms, whole_ms)


def _facts(*phases: Phase) -> RunFacts:
    """An unstreamed run of which nothing else is read."""
    return RunFacts(cast("Any", None), cast("Any", SimpleNamespace(streamed=False)), Manifest(), phases=phases)


@pytest.mark.parametrize(("server_ms", "expected"), [(106.0, False), (106.001, True)])
def test_a_part_may_exceed_the_whole_by_a_twentieth_and_a_millisecond(server_ms: float, expected: bool) -> None:
    assert (PhasesExceedLatency.check(_facts(_phase("queue", server_ms, whole_ms=100.0))) is not None) is expected


def test_of_several_parts_the_one_that_exceeds_most_is_named() -> None:
    found = PhasesExceedLatency.check(
        _facts(_phase("a", 150.0, whole_ms=100.0), _phase("b", 280.0, whole_ms=200.0), _phase("c", 1.0, whole_ms=500.0))
    )
    assert found == PhasesExceedLatency("b", 280.0, 200.0)
    assert found.sentence == "b: 280.00 ms on average, where the client measured 200.00 ms for the whole."


@pytest.mark.parametrize(
    ("client_ms", "server_ms", "expected"),
    [
        (200.0, 180.0, False),
        (200.0, 179.0, True),
        (20.0, 10.0, False),
        (20.0, 9.9, True),
        (None, 1.0, False),
        (0.0, 0.0, False),
    ],
)
def test_a_tenth_and_10_ms_outside_of_the_servers_clock_are_named(
    client_ms: float | None, server_ms: float, expected: bool
) -> None:
    found = OutsideServerClock.check(_facts(_phase(ENGINE_TTFT, server_ms, whole_ms=500.0, client_ms=client_ms)))
    assert (found is not None) is expected
    assert OutsideServerClock.check(_facts(_phase("queue", server_ms, whole_ms=500.0, client_ms=client_ms))) is None
    if found is not None and client_ms is not None:
        assert (found.outside_ms, found.share) == (client_ms - server_ms, pytest.approx(1.0 - server_ms / client_ms))
        assert (found.client_ms, found.server_ms) == (client_ms, server_ms)


def test_of_ttft_and_e2e_latency_the_larger_share_outside_is_named() -> None:
    ttft = _phase(ENGINE_TTFT, 50.0, whole_ms=500.0, client_ms=100.0)
    e2e = _phase(ENGINE_E2E, 1_000.0, whole_ms=5_000.0, client_ms=1_500.0)
    found = OutsideServerClock.check(_facts(ttft, e2e))
    assert found is not None
    assert found.span == ENGINE_TTFT
    assert found.sentence == (
        "Mean TTFT from the send is 100.0 ms, the server's own 50.0 ms: 50.0 ms (50%) passed outside of the server's clock, "
        "most likely before it started."
    )


@pytest.mark.parametrize(
    ("reused", "repeated", "severity", "advice"),
    [
        (0.25, 0.24, "warning", 0),
        (0.25, 0.2399, "warning", 1),
        (0.2499, 0.1, "note", 1),
        (None, 0.5, "note", 0),
        (0.5, None, "warning", 0),
    ],
)
def test_a_cache_is_warm_where_more_is_reused_than_the_run_repeats(
    reused: float | None, repeated: float | None, severity: str, advice: int
) -> None:
    finding = PrefixCacheWarmed(reused, repeated, "tokens")
    assert (finding.severity.value, finding.advice) == (severity, finding.advices[advice])


def test_counters_that_disagree_in_words() -> None:
    assert (
        RequestsDisagree(1_200, 1_200, 1_300.0).sentence == "The server counted 1,300 requests; 1,200 of this run reached it."
    )
    assert RequestsDisagree(1_200, 1_250, 1_300.0).sentence == (
        "The server counted 1,300 requests; 1,200 to 1,250 of this run reached it."
    )
    assert MetricsDisagree(1_200, 1_300.0, "http://host").sentence == (
        "The metrics at http://host count 1,300 requests; the server's statistics 1,200."
    )
    assert TokensDisagree(1_200.0, 1_300.0).sentence == "The server counted 1,300 output tokens; 1,200 arrived."


@pytest.mark.parametrize(
    ("finding", "advice"),
    [
        (RequestsDisagree(90, 96, 97.0), 0),
        (RequestsDisagree(90, 96, 89.0), 1),
        (MetricsDisagree(90, 97.0, None), 2),
        (TokensDisagree(300.0, 304.0), 3),
        (TokensDisagree(300.0, 296.0), 4),
    ],
)
def test_counters_that_disagree_have_advice_by_their_direction(finding: CountersDisagree, advice: int) -> None:
    assert finding.advice == CountersDisagree.advices[advice]


def test_tokens_are_not_compared_where_those_of_an_answer_are_unknown(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make
) -> None:
    records = [*steady_run(99), answered(99, 990, 990, [(1_090, 3)], output_tokens=None)]
    samples = metric("vllm:generation_tokens_total", {-1: 0, 2: 900})
    assert finding_of(make_report(records, server=samples), "counters_disagree") is None
