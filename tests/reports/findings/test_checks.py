"""All kinds of findings: each is documented and provoked, and a run without faults has none."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

import reports.findings
from bench_records.client_sample import ClientSample
from bench_records.record import Outcome, Record, TokenSource
from reports.findings.checks import KINDS, Validity, validity
from reports.findings.client import WorkerKilled
from reports.findings.consistency import OutputLongerThanAsked, TokensCountedFromText
from reports.findings.distribution import WorkersLost
from reports.findings.finding import Finding, Severity
from reports.findings.in_flight import UsersInStep
from reports.findings.outcomes import Errors, NothingDone, PromptEchoed, WarmUpFailed
from reports.run_report import RunReport
from tests.reports.findings.runs import (
    AT_ONCE,
    CEILING,
    CLOSED,
    EXPONENTIAL,
    chunks_joined,
    closed_loop,
    cold_start,
    dies,
    doubled_tokens,
    full_for_moments,
    held_at_ceiling,
    held_open,
    in_step,
    late_sends,
    paused_streams,
    queue_of_one_server,
    sends_of,
    served_in_batches,
    stretched_sends,
    withdrawn,
)
from tests.reports.manifests import calibration, clock_readings, counted_by_server, machine_use, rate_limit
from tests.reports.watched import (
    WorkerUsage,
    engine_parts,
    engine_times,
    limited_clocks,
    machine_samples,
    metric,
    worker_samples,
)
from tests.reports.worker_hosts import worker_host, worker_hosts
from workloads.arrivals.processes import Exponential, Gamma

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]
Runs = Iterator[tuple[list[Record], dict[str, Any]]]
"""Records, and the keywords of ``make_report``."""


# ---- every kind


def _client_runs(answered: Make, steady: list[Record]) -> Runs:
    yield late_sends(answered, 20, 100), {}
    yield late_sends(answered, 60, 100), {}
    yield late_sends(answered, 20, 100, count=8), {"load": CLOSED}
    yield stretched_sends(answered, 1.08), {}
    yield stretched_sends(answered, 1.2), {}
    lost = [msgspec.structs.replace(record, outcome=Outcome.LOST, sent_ns=None) for record in steady[1::2]]
    yield [*steady[::2], *lost], {}
    for samples in _causes_of_delay():
        yield late_sends(answered, 20, 100), {"client": samples}
        yield stretched_sends(answered, 1.08), {"client": samples, "criteria": {"slo": ["e2e<=5010ms"]}}
    yield stretched_sends(answered, 1.08), {"criteria": {"slo": ["e2e<=5010ms"]}}
    idle, busy, collecting = WorkerUsage(0.1), WorkerUsage(0.95), WorkerUsage(0.1, gc_longest_ms=55.0)
    yield steady, {"client": worker_samples([9.0] * 300, WorkerUsage(0.1, wait_share=0.8), every_ms=2.5)}
    yield steady, {"client": worker_samples([9.0] * 300, WorkerUsage(0.1, wait_share=None), every_ms=2.5)}
    yield steady, {"client": worker_samples([9.0] * 300, idle, every_ms=2.5)}
    yield steady, {"client": worker_samples([60.0] * 300, busy, every_ms=2.5)}
    yield steady, {"client": worker_samples([60.0] * 300, collecting, every_ms=2.5)}
    yield steady, {"client": [*worker_samples([60.0] * 300, idle, every_ms=2.5), *machine_samples(8, steal_cores=0.4)]}
    yield steady, clock_readings(stepped_ms=-1_500)
    yield steady, clock_readings(slept_ms=60_000)
    yield steady, {"connections": {"limit_reached": 7}}
    yield steady, {"calibration": calibration(rate_limit(50), rate_limit(None, 125))}
    simulation = {"model": "model.json", "digest": "0f", "fitted_to": ["a"], "replicas": 2, "router": "rr", "draws": 3}
    yield steady, {"simulation": simulation}
    yield steady, {"simulation": simulation | {"replicas": 1, "beyond": ["81 requests a second, fitted up to 67"]}}
    yield steady, {"simulation": simulation | {"doubts": ["a has the finding machine_shared: steps took longer"]}}


def _causes_of_delay() -> Iterator[list[ClientSample]]:
    """Samples of a client for each cause of delays of 20 and of 80 ms that is known."""
    quiet = [0.1] * 200
    yield [*worker_samples(quiet), *machine_samples(5, steal_cores=0.4)]
    yield worker_samples(quiet, WorkerUsage(0.1, gc_longest_ms=55.0))
    yield worker_samples(quiet, WorkerUsage(0.95))
    yield worker_samples(quiet, WorkerUsage(0.1, wait_share=0.5))
    yield worker_samples([0.1] * 100 + [60.0] + [0.1] * 99)
    yield worker_samples(quiet)


def _load_runs(answered: Make) -> Runs:
    yield held_at_ceiling(answered, waits_ms=2_000), {"load": CEILING}
    burst = [answered(k, 0, 20 * k, [(20 * k + 20, 1)], released_ns=20_000_000 * k) for k in range(700)]
    yield burst, {"load": CEILING}
    yield closed_loop(answered, 8, 100, 100.0), {"load": CLOSED | {"ran_out": True}}
    yield queue_of_one_server(answered, 13.0), {}
    yield cold_start(answered), {}
    for slots in (52, 10_000):
        yield full_for_moments(answered, slots), {}
    yield in_step(answered, 100, 2.0, 15.0), {"load": CLOSED}
    yield served_in_batches(answered, 64, [1_000.0 + k % 7 for k in range(192)]), {"load": AT_ONCE}
    yield sends_of(answered, Gamma(100.0, 0.3), count=3_000), {"load": EXPONENTIAL}
    yield sends_of(answered, Gamma(100.0, 0.85), count=4_000), {"load": EXPONENTIAL}
    yield sends_of(answered, Exponential(80.0)), {"load": EXPONENTIAL}
    yield sends_of(answered, Gamma(100.0, 0.965), count=60_000), {"load": EXPONENTIAL}


def _target_runs(answered: Make) -> Runs:
    yield paused_streams(answered, 0.0), machine_use(others_cores=1.0)
    yield paused_streams(answered, 3_000.0), {}
    yield paused_streams(answered, 3_000.0), {"client": worker_samples([0.1] * 280 + [2_900.0] + [0.1] * 60)}
    times = {"server": engine_times(5.0, 900.0, count=48) + engine_parts(1.0, 9.0, 30.0, 48)}
    yield paused_streams(answered, 0.0), machine_use(others_cores=1.0) | times
    yield paused_streams(answered, 3_000.0), times


def _answer_runs(answered: Make, failed: Make, steady_run: SteadyRun) -> Runs:
    yield [failed(0, 0, Outcome.CONNECT, 0, 1)], {}
    yield [*steady_run(200), failed(200, 2_000, Outcome.TIMEOUT, 2_000, 2_100)], {}
    yield dies(answered, failed), {}
    too_long = "HTTP status 400: Requested tokens (600) exceed context window of 512"
    yield [*steady_run(20), failed(20, 200, Outcome.SERVER_ERROR, 200, 201, error=too_long)], {}
    yield steady_run(4), {"warm_up": {"requests": 1, "failures": ["queue full"]}}
    for ignore_eos in (False, True):
        yield [answered(0, 0, 0, [(5, 1)], requested_output_tokens=2, ignore_eos=ignore_eos, prompt_echoed=True)], {}
    yield [answered(0, 0, 0, [(5, 1)], requested_output_tokens=2, finish_reason="length")], {}
    yield steady_run(4, has_reasoning=True), {}
    chat = {"model": "m", "protocol": "openai", "streaming": True, "sends_finish_reason": False}
    yield steady_run(4), {"target": chat}
    yield steady_run(4, finish_reason="stop", end_marker_missing=True), {"target": chat}
    for doubled in (1, 10):
        yield doubled_tokens(answered, doubled), {}
    yield [answered(0, 0, 0, [(100, 1), (110, 1)], output_tokens=5)], {}
    yield [answered(k, 10 * k, 10 * k, [(10 * k + 100, 30)], text_tokens=50) for k in range(20)], {}
    yield (
        [
            answered(
                k,
                10 * k,
                10 * k,
                [(10 * k + 100, 1)],
                input_tokens=19,
                requested_input_tokens=8 + k % 5,
                server_counted_input=True,
            )
            for k in range(9)
        ],
        {},
    )
    yield [*steady_run(90), *(answered(k, 10 * k, 10 * k, [(10 * k + 100, 3)]) for k in range(90, 100))], {}
    yield held_open(answered, 400), {}
    for joined, alone in ((50, 50), (1, 999), (10, 0)):
        yield chunks_joined(answered, joined, alone), {}
    yield [with_fields(record, output_tokens=None) for record in chunks_joined(answered, 10, 0)], {}
    yield chunks_joined(answered, 50, 50), {"target": chat, "warm_up": {"requests": 0, "failures": []}}


def _server_runs(steady: list[Record]) -> Runs:
    for counted in (99, 101):
        yield steady, counted_by_server(counted)
    labels = {"model": "tensorrt_llm"}
    successes, failures = "nv_inference_request_success", "nv_inference_request_failure"
    samples = [*metric(successes, {-1: 0, 2: 40}, **labels), *metric(failures, {-1: 0, 2: 0}, **labels)]
    yield steady, {"server": samples} | counted_by_server(100)
    for tokens in (200, 400):
        yield steady, {"server": metric("vllm:generation_tokens_total", {-1: 0, 2: tokens})}
    yield steady, counted_by_server(100, ms=100.0)
    yield steady, {"server": engine_times(60.0, 8.0)}
    yield steady, {"server": engine_times(60.0, 8.0), "target": {"model": "m", "protocol": "openai", "streaming": True}}
    yield steady, {"server": engine_times(100.0, 120.0) + engine_parts(1.0, 9.0, 30.0)}
    yield steady, {"server": metric("vllm:num_preemptions_total", {-1: 0, 2: 22})}
    yield steady, {"server": limited_clocks("power cap", 0.5)}
    for hits, repeated in ((20, 0.02), (500, 0.1)):
        counters = (("vllm:prefix_cache_hits_total", hits), ("vllm:prefix_cache_queries_total", 1_000))
        samples = [sample for name, count in counters for sample in metric(name, {-1: 0, 2: count})]
        workload = {"repeated_prefix": {"share": repeated, "unit": "tokens"}}
        yield steady, {"server": samples, "workload": workload}
        yield steady, {"server": samples, "workload": {**workload, "dataset": "prompts.json"}}


def _cancelled_runs(steady: list[Record]) -> Runs:
    before_first_token = withdrawn(steady[0], tokens=0)
    yield [before_first_token], {}
    yield [before_first_token, *steady[1:]], {}
    from_text = {"output_tokens_source": TokenSource.TEXT}
    chat = {"model": "m", "protocol": "openai", "streaming": True, "sends_finish_reason": False, "retokenised_ratio": 1.2}
    cut = [with_fields(withdrawn(record, tokens=1), **from_text) for record in steady[:2]]
    yield [*cut, *steady[2:]], {}
    yield [*cut, *steady[2:]], {"target": chat, "warm_up": {"requests": 0, "failures": []}}
    yield [with_fields(record, **from_text) for record in steady], {"target": chat}
    yield [before_first_token, withdrawn(steady[1], tokens=0), withdrawn(steady[2], tokens=0), *steady[3:]], {}
    asked = {"requested_output_tokens": 101}
    cancelled = [msgspec.structs.replace(withdrawn(record, tokens=1), **asked) for record in steady[:100]]
    yield [*cancelled, *steady[100:]], {"server": metric("vllm:generation_tokens_total", {-1: 0, 3: 10_400})}


def _incomplete_runs(steady: list[Record]) -> Runs:
    yield steady, {"interrupted": True}
    for gave_up in (True, False):
        end = {"rule": "--until", "reason": "it is precise", "gave_up": gave_up, "at_s": 7.0, "requests": 700}
        yield steady, {"early_end": end}
    yield steady, {"criteria": {"until": "p99_e2e±1%"}}
    recovered = {"scheduled": 40, "written_down": 35, "lost": 4, "not_sent": 1, "journals": 2, "torn_bytes": 17}
    yield steady, {"recovered": recovered, "problem": "disk full"}
    yield steady, {"problem": "worker 0 on host-0: disk full", **worker_hosts(worker_host(0))}
    yield steady, {"workload": {"dropped_too_long": 1}}
    yield steady, {"workload": {"whole_dataset": True}}
    yield [msgspec.structs.replace(record, session="a") for record in steady[:100]], {"workload": {"whole_dataset": True}}
    broken_off = msgspec.structs.replace(steady[1], outcome=Outcome.NOT_SENT, sent_ns=None, done_ns=None, parent=0)
    yield [msgspec.structs.replace(steady[0], outcome=Outcome.TIMEOUT), broken_off, *steady[2:]], {"load": {"mode": "sessions"}}


def _distributed_runs(steady: list[Record]) -> Runs:
    yield steady, worker_hosts(worker_host(0), worker_host(1, lost="nothing was heard of it"))
    yield steady, worker_hosts(worker_host(0), worker_host(1, stopped="it was stopped on its host"))
    yield steady, worker_hosts(worker_host(0, jump_ms=250.0), worker_host(1, uncertainty_ms=12.0))
    yield steady, worker_hosts(worker_host(0), turned_away=[{"host": "c", "reason": "the run has its 2 workers"}])
    yield steady, worker_hosts(worker_host(0), dropped=[{"from": "10.0.0.9", "reason": "not a message", "count": 3}])


@pytest.fixture(scope="module")
def provoked(make_report: MakeReport, answered: Make, failed: Make, steady_run: SteadyRun) -> tuple[Finding, ...]:
    """The findings of runs that provoke every kind, with each severity and each advice that it has."""
    runs = (
        *_client_runs(answered, steady_run(100)),
        *_load_runs(answered),
        *_target_runs(answered),
        *_answer_runs(answered, failed, steady_run),
        *_server_runs(steady_run(100)),
        *_cancelled_runs(steady_run(200)),
        *_incomplete_runs(steady_run(100)),
        *_distributed_runs(steady_run(100)),
    )
    return tuple(finding for records, keywords in runs for finding in make_report(records, **keywords).findings)


def test_every_kind_is_provoked_with_each_of_its_severities(provoked: tuple[Finding, ...]) -> None:
    expected = {(kind.code, severity) for kind in KINDS for severity in kind.severities}
    assert {(finding.code, finding.severity) for finding in provoked} == expected


def test_every_kind_is_provoked_with_each_of_its_advices(provoked: tuple[Finding, ...]) -> None:
    assert {(finding.code, finding.advice) for finding in provoked} == {
        (kind.code, advice) for kind in KINDS for advice in kind.advices
    }


def test_every_finding_has_a_sentence_and_evidence_for_json(provoked: tuple[Finding, ...]) -> None:
    for finding in provoked:
        assert finding.sentence[0].isupper() or finding.sentence[0].isdigit()
        assert "{" not in finding.sentence
        assert json.loads(json.dumps(finding.evidence, allow_nan=False)) == finding.evidence
        assert finding.evidence


def test_every_kind_is_checked() -> None:
    for module in pkgutil.iter_modules(reports.findings.__path__, "reports.findings."):
        importlib.import_module(module.name)
    assert {kind for kind in Finding.__subclasses__() if kind.__module__.startswith("reports.")} == set(KINDS)


def test_every_kind_is_documented() -> None:
    assert len({kind.code for kind in KINDS}) == len(KINDS) > 15
    for kind in KINDS:
        assert kind.when[0].islower()
        assert not kind.when.endswith(".")
        assert len(set(kind.severities)) == len(kind.severities) > 0
        assert kind.advices
        assert all(advice[0].isupper() and advice.endswith(".") for advice in kind.advices)


# ---- runs


def test_a_run_without_faults_has_no_findings(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(700))
    assert report.findings == ()
    assert report.valid


def test_an_empty_manifest_provokes_nothing(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert make_report(steady_run(700), workload={}, warm_up={}, interrupted=None).findings == ()


def test_the_most_severe_finding_comes_first(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], prompt_echoed=True) for k in range(20)]
    records[3] = failed(3, 30, Outcome.REFUSED, 30, 60)
    report = make_report(records, interrupted=True, warm_up={"failures": ["x"]})
    severities = [finding.severity.value for finding in report.findings]
    assert severities == ["invalid", "warning", "warning", "note", "note"]


def test_only_an_invalid_finding_makes_a_run_invalid() -> None:
    invalid, warning, note = NothingDone(scheduled=3), WarmUpFailed(failed=1, first_error="x"), PromptEchoed(requests=1)
    assert [finding.severity for finding in (invalid, warning, note)] == list(Severity)
    assert validity(()) is validity((warning, note)) is Validity.VALID
    assert validity((note, invalid)) is Validity.INVALID


def test_runs_that_are_not_valid_by_failed_requests_alone_have_a_validity_of_their_own() -> None:
    errors = Errors(failed=3, share=1.0, by_kind={"timeout": 3}, first_error=None)
    assert errors.severity is Severity.INVALID
    assert validity((errors,)) is validity((errors, NothingDone(scheduled=3))) is Validity.REQUESTS_FAILED
    assert validity((errors, WorkersLost(workers="1 (a)", requests=2))) is Validity.INVALID


@pytest.mark.parametrize(
    ("kind", "one", "several"),
    [
        (lambda n: WorkerKilled(n, "killed"), "1 request has no record (", "2 requests have no record ("),
        (lambda n: WorkersLost("1 (a)", n), "whether 1 request was sent.", "whether 2 requests were sent."),
        (lambda n: OutputLongerThanAsked(n, n, 0.01), "1 answer was longer", "2 answers were longer"),
        (lambda n: OutputLongerThanAsked(n, n, 0.01), "requested: 1 token too", "requested: 2 tokens too"),
        (lambda n: Errors(n, 0.01, {"timeout": n}, None), "1 request failed", "2 requests failed"),
    ],
)
def test_a_sentence_counts_one_thing_and_several(kind: Callable[[int], Finding], one: str, several: str) -> None:
    assert one in kind(1).sentence
    assert several in kind(2).sentence


def test_users_of_an_unknown_number_keep_in_step_too() -> None:
    sentences = [
        UsersInStep(users, 1.5, 12, 0.9, at_once=at_once).sentence
        for users, at_once in ((8, False), (None, False), (None, True))
    ]
    assert [sentence.partition(" keep in step: 90% of the answers end")[0] for sentence in sentences] == [
        "The 8 users",
        "The users",
        "The answers",
    ]


@pytest.mark.parametrize(("ratio", "more"), [(None, False), (0.9, False), (1.005, False), (1.13, True)])
def test_a_text_of_random_tokens_is_mentioned_where_it_makes_more_tokens(ratio: float | None, more: bool) -> None:
    sentence = TokensCountedFromText(7, 7, 0.5, ratio).sentence
    assert ("makes 1.13 times as many" in sentence) is more
    assert ("Text of random tokens" in sentence) is more
