"""Comparability of runs: which keys of manifests count, how much, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.compare.comparable import (
    Weight,
    differences_within,
    disagreements,
    disagreements_in_turn,
    disturbances,
    one_start,
    other_work,
    refused,
    same_requests,
    where_allowed,
    without_refusals,
)
from reports.compare.lines import lines
from reports.compare.sent import why_other_requests
from reports.findings.engine import GpuClocksLimited
from reports.findings.server import PrefixCacheWarmed
from reports.run_report import RunReport
from tests.reports.findings.runs import paused_streams
from tests.reports.manifests import clock_readings, machine_use

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


@pytest.mark.parametrize(
    ("key", "weight"),
    [
        ("workload.description", Weight.REFUSE),
        ("workload.repeated_prefix.share", None),
        ("workload.whole_dataset", None),  # runs of before have no such key
        ("load.law.name", None),
        ("load.stages", None),
        ("workload.repeated_prefixes", Weight.REFUSE),  # another key, which begins alike
        ("mixture.classes", Weight.REFUSE),
        ("mixture.cancellation.percent", Weight.REFUSE),
        ("mixture.cancellation.requests", None),  # by the seed
        ("mixture.objectives.chat", None),
        ("mixture.probe.requests", None),
        ("arrivals", Weight.REFUSE),
        ("load.max_concurrency", Weight.REFUSE),
        ("load.ran_out", Weight.NOTE),
        ("target.streaming", Weight.REFUSE),
        ("target.protocol", Weight.WARN),
        ("target.model", Weight.CHANGED),
        ("target.continuous_usage", Weight.WARN),
        ("target.server_timings", Weight.WARN),
        ("target.template_tokens", None),
        ("target.retokenised_ratio", None),
        ("target.address", None),
        ("target.embedded.pid", None),
        ("server.version", Weight.CHANGED),
        ("server.engine_files.openvino_model.bin", None),
        ("server.engine.step_log", None),  # each run has a file of its own
        ("target.model_parameters.step_log", None),
        ("target.model_parameters.min_step_time", Weight.CHANGED),
        ("schedule.seed", Weight.WARN),
        ("warm_up.requests", Weight.WARN),
        ("warm_up.failures", None),
        ("options.workers", Weight.WARN),
        ("options.connections", Weight.WARN),
        ("options.extra_body.temperature", Weight.CHANGED),
        ("options.request_timeout", Weight.WARN),
        ("options.token_gap_timeout", Weight.WARN),
        ("options.seed", None),
        ("workers.count", Weight.NOTE),
        ("workers.why", None),
        ("environment.python", Weight.WARN),
        ("bench_version", Weight.WARN),
        ("started_at", None),
        ("server_began_at", None),
    ],
)
def test_the_weight_of_a_key_is_that_of_its_longest_section(
    make_report: MakeReport, steady_run: SteadyRun, key: str, weight: Weight | None
) -> None:
    found = disagreements(*_differing(make_report(steady_run(4)), key))
    if weight is None:
        assert found == ()
    else:
        assert [(disagreement.what, disagreement.weight, disagreement.values) for disagreement in found] == [
            (key, weight, ("one", "other"))
        ]
    assert refused(found) is (weight is Weight.REFUSE)


_TIMED = {"mode": "open", "duration_s": 30.0}
_LAW = {"input": {"law": "128±5"}}


@pytest.mark.parametrize(
    ("a", "b", "refused_for"),
    [
        ({"seed": 1, "requests": 274, "load": _TIMED}, {"seed": 2, "requests": 1_325, "load": _TIMED}, []),
        ({"seed": 1, "requests": 690, "lengths": _LAW}, {"seed": 2, "requests": 693, "lengths": _LAW}, []),
        # nothing that a seed draws:
        ({"seed": 1, "requests": 690}, {"seed": 2, "requests": 693}, ["workload.description", "workload.requests"]),
        (
            {"seed": 1, "requests": 274, "load": _TIMED},
            {"seed": 1, "requests": 325, "load": _TIMED},
            ["workload.description", "workload.requests"],
        ),
        (
            {"seed": 1, "requests": 274, "load": _TIMED, "options": {"num_requests": 274}},
            {"seed": 2, "requests": 325, "load": _TIMED, "options": {"num_requests": None}},
            ["workload.description", "workload.requests"],
        ),
        (
            {"seed": 1, "requests": 9, "load": _TIMED | {"mode": "closed"}},
            {"seed": 2, "requests": 8, "load": _TIMED | {"mode": "closed"}},
            ["workload.description", "workload.requests"],
        ),
        (
            {"seed": 1, "requests": 274, "load": _TIMED},
            {"seed": 2, "requests": 325, "load": _TIMED, "of": "other prompts"},
            ["workload.description"],
        ),
        (
            {"seed": 1, "requests": 274, "load": _TIMED, "of": "prompts of 9 files"},
            {"seed": 2, "requests": 325, "load": _TIMED, "of": "prompts of 8 files"},
            ["workload.description"],
        ),
        (
            {"seed": 1, "requests": 274, "load": _TIMED, "words": "prompts, 9 a second"},
            {"seed": 2, "requests": 325, "load": _TIMED, "words": "prompts, 8 a second"},
            ["workload.description"],
        ),
        (
            {"seed": 1, "requests": 1_274, "load": _TIMED, "words": "up to 1,274 prompts"},
            {"seed": 2, "requests": 325, "load": _TIMED, "words": "up to 325 prompts"},
            [],
        ),
    ],
)
def test_how_many_requests_another_seed_draws_is_no_setting(
    make_report: MakeReport, steady_run: SteadyRun, a: dict[str, Any], b: dict[str, Any], refused_for: list[str]
) -> None:
    run = make_report(steady_run(4))
    found = disagreements(*([_of_seed(run, **side)] for side in (a, b)))
    assert [each.what for each in found if each.weight is Weight.REFUSE] == refused_for
    assert [each.what for each in found if each.weight is Weight.NOTE] == (
        [] if "workload.requests" in refused_for else ["workload.requests"]
    )


def _of_seed(
    run: RunReport, seed: int, requests: int, of: str = "prompts", words: str | None = None, **sections: Any
) -> RunReport:
    workload = {"requests": requests, "description": words or f"{requests:,} {of}"}
    return replace(run, document={**run.document, **sections, "workload": workload, "schedule": {"seed": seed}})


def _differing(run: RunReport, key: str) -> list[list[RunReport]]:
    """Two sides of the run, with other values at a dotted key of the manifest."""
    section, *inner = key.split(".")
    documents = []
    for value in ("one", "other"):
        nested: Any = value
        for name in reversed(inner):
            nested = {name: nested}
        documents.append({**run.document, section: {**run.document.get(section, {}), **nested} if inner else nested})
    return [[replace(run, document=document)] for document in documents]


def test_a_key_that_is_absent_or_null_is_shown_as_absent(make_report: MakeReport, steady_run: SteadyRun) -> None:
    runs = [
        make_report(steady_run(4), bench_version="1.2"),
        make_report(steady_run(4), bench_version=None),
        make_report(steady_run(4)),
    ]
    (one,) = disagreements(runs[:1], runs[1:])
    assert (one.what, one.values) == ("bench_version", ("1.2", "–", "–"))
    (turned,) = disagreements(runs[1:], runs[:1])
    assert (turned.what, turned.values) == ("bench_version", ("–", "–", "1.2"))
    assert disagreements(runs[1:2], runs[2:]) == ()


def test_the_most_serious_disagreement_comes_first(make_report: MakeReport, steady_run: SteadyRun) -> None:
    other = {
        "arrivals": "other",
        "bench_version": "2",
        "target": {"model": "other", "protocol": "grpc", "streaming": True},
        "workers": {"count": 2},
    }
    found = disagreements([make_report(steady_run(4), workers={"count": 1})], [make_report(steady_run(4), **other)])
    assert [disagreement.what for disagreement in found] == ["arrivals", "bench_version", "target.model", "workers.count"]
    assert [disagreement.weight for disagreement in found] == list(Weight)
    mine, theirs = make_report(steady_run(4), workers={"count": 1}), make_report(steady_run(4), **other)
    assert (other_work(mine, theirs), other_work(mine, mine)) == (found[:1], ())
    assert refused(found)
    assert not refused(found[1:])


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("arrivals", "Runs of different work cannot be compared: measure both alike, or use --allow_different."),
        ("bench_version", "Part of the difference may come from here; keep it equal on both sides."),
        ("target.model", "If all else is equal, this is the change that the comparison measures."),
        ("workers.count", "Chosen by load and machine; set it with --workers."),
        ("load.ran_out", "A run whose requests ran out ended before --duration: raise --num_requests for both."),
        ("simulation.fleet.most", "A result of the runs, not a setting."),
    ],
)
def test_a_disagreement_has_the_advice_of_its_key_or_weight(
    make_report: MakeReport, steady_run: SteadyRun, key: str, advice: str
) -> None:
    (one,) = disagreements(*_differing(make_report(steady_run(4)), key))
    assert one.advice == advice


def test_an_invalid_run_is_named_by_its_invalid_findings_alone(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    nothing_done = make_report([failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(4)], interrupted=False)
    noted = make_report(steady_run(4))  # sample_too_small, a note
    (one,) = disagreements([noted], [nothing_done])
    assert (one.what, one.weight) == ("validity", Weight.REFUSE)
    assert one.values == ("valid", "nothing_done, errors")
    assert one.advice == "An invalid run cannot be compared; see its report, and measure again."


def test_an_interrupted_run_is_a_warning(make_report: MakeReport, steady_run: SteadyRun) -> None:
    (one,) = disagreements([make_report(steady_run(4))], [make_report(steady_run(4), interrupted=True)])
    assert (one.what, one.weight, one.values) == ("interrupted", Weight.WARN, ("whole", "interrupted"))
    assert one.advice == "An interrupted run is shorter than requested."
    assert not refused([one])


def test_a_run_that_a_rule_gave_up_is_a_warning_and_one_that_is_precise_is_none(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    end = {"rule": "--stop_if p99_ttft>500ms", "reason": "too many", "gave_up": True, "at_s": 1.0, "requests": 4}
    whole, given_up, precise = (
        make_report(steady_run(4), early_end=early)
        for early in (None, end, end | {"rule": "--until p99_ttft±5%", "gave_up": False})
    )
    (one,) = disagreements([whole], [given_up])
    assert (one.what, one.weight, one.values) == ("ended_early", Weight.WARN, ("–", "--stop_if p99_ttft>500ms"))
    assert one.advice == (
        "A run that --stop_if ended has the numbers of its worst part: they show a load that is too high, and no change."
    )
    assert disagreements([whole], [precise]) == ()


def test_other_numbers_of_requests_are_a_warning_where_the_schedule_is_one(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    (one,) = disagreements([make_report(steady_run(1_000))], [make_report(steady_run(990))])
    assert (one.what, one.weight, one.values) == ("requests", Weight.WARN, ("1,000 sent", "990 sent"))
    assert one.advice == "Some runs sent more of one schedule, so requests are not paired."
    other = make_report(steady_run(990), schedule={"digest": "1e" * 32, "seed": 42})
    found = disagreements([make_report(steady_run(1_000))], [other])
    assert [disagreement.what for disagreement in found] == ["schedule.digest"]


def test_runs_are_of_the_same_requests_where_all_sent_them_in_one_order(make_report: MakeReport, steady_run: SteadyRun) -> None:
    whole, again, short = (make_report(steady_run(count)) for count in (20, 20, 19))
    other = make_report(steady_run(20), schedule={"digest": "1e" * 32, "seed": 42})
    assert same_requests([whole, again])
    assert not same_requests([whole, short])
    assert not same_requests([whole, again, short])
    assert not same_requests([whole, other])


def test_what_disturbed_a_target_is_named_with_the_run_that_it_disturbed(make_report: MakeReport, answered: Make) -> None:
    calm, shared = (make_report(paused_streams(answered, 0.0), **machine_use(others)) for others in (0.0, 1.1))
    stopped = make_report(paused_streams(answered, 3_000.0), **machine_use(0.0))
    found = {disagreement.what: disagreement for disagreement in disagreements([calm], [shared, stopped])}
    assert found["machine_shared"].weight is found["target_paused"].weight is Weight.WARN
    assert found["machine_shared"].values[::2] == ("–", "–")
    assert found["machine_shared"].values[1].startswith("Other programs used 1.10 of the 2 cores")
    assert found["target_paused"].values[2].startswith("No stream had a token for 3.02 s")
    assert [found[what].advice for what in ("machine_shared", "target_paused")] == [
        "Other programs took CPU time from the target: part of the difference may come from them.",
        "The target stopped for a time: part of the difference, of tails above all, may come from that.",
    ]
    assert disturbances(calm) == ()
    assert disturbances(shared) == found["machine_shared"].values[1:2]
    assert disturbances(stopped) == found["target_paused"].values[2:]
    assert "machine_shared" not in {disagreement.what for disagreement in disagreements([calm], [stopped])}


def test_shorter_answers_are_a_warning(make_report: MakeReport, answered: Make) -> None:
    whole, cut = (
        make_report([answered(k, 10 * k, 10 * k, [(10 * k + 50, count)], requested_output_tokens=20) for k in range(20)])
        for count in (20, 18)
    )
    (one,) = disagreements([whole], [cut])
    assert (one.what, one.weight) == ("output_tokens", Weight.WARN)
    assert one.values == ("20.0 tokens an answer, 100% of those requested", "18.0 tokens an answer, 90% of those requested")
    assert one.advice == (
        "Shorter answers end sooner, however fast the server is: E2E latency and tokens/s follow their length. --ignore_eos "
        "makes lengths equal."
    )
    assert disagreements([cut], [cut]) == ()


def test_answers_to_the_same_requests_are_compared_one_by_one(make_report: MakeReport, answered: Make) -> None:
    """Lengths vary so much that a tenth less is no more than chance, unless each answer is compared with its own."""
    lengths = np.minimum(np.random.default_rng(5).geometric(0.05, 300), 64)

    def run(tokens: Iterable[float], digest: str) -> RunReport:
        records = [
            answered(k, 10 * k, 10 * k, [(10 * k + 50, int(count))], requested_output_tokens=64)
            for k, count in enumerate(tokens)
        ]
        return make_report(records, schedule={"digest": digest * 64, "seed": 1})

    def named(a: list[RunReport], b: list[RunReport]) -> bool:
        return "output_tokens" in {disagreement.what for disagreement in disagreements(a, b)}

    shorter = np.ceil(0.9 * lengths)
    a, b, other = run(lengths, "a"), run(shorter, "a"), run(shorter, "b")
    assert named([a], [b])
    assert named([a, a], [b, b])
    assert not named([a], [other])
    assert not named([a, a], [b, other])
    assert not named([a], [b, b])


def test_answers_to_other_requests_are_compared_as_a_whole(make_report: MakeReport, answered: Make) -> None:
    """The first 100 have equal answers on both sides; 20 more of another schedule end after half of what was requested."""
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 50, 20 if k < 100 else 10)], requested_output_tokens=20) for k in range(120)
    ]
    a, b = make_report(records[:100]), make_report(records, schedule={"digest": "1e" * 32, "seed": 7})
    found = {disagreement.what: disagreement.values for disagreement in disagreements([a], [b])}
    assert found["output_tokens"] == (
        "20.0 tokens an answer, 100% of those requested",
        "18.3 tokens an answer, 92% of those requested",
    )


def test_a_warning_of_one_side_alone_is_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    calm, stepped = (make_report(steady_run(20), **clock_readings(stepped_ms)) for stepped_ms in (0.0, 500.0))
    (one,) = disagreements([calm, calm], [stepped, calm])
    assert (one.what, one.weight) == ("clock_stepped", Weight.WARN)
    assert [value == "–" for value in one.values] == [True, True, False, True]
    assert one.advice == ("Part of the difference may come from what such a warning is about; see the reports of these runs.")
    assert disagreements([stepped], [stepped, stepped]) == ()


def test_a_warning_of_one_side_is_named_where_the_other_has_it_as_a_note(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    report = make_report(steady_run(20))
    cold, warm = (
        replace(report, findings=(*report.findings, PrefixCacheWarmed(share, None, "tokens"))) for share in (0.03, 0.8)
    )
    (one,) = disagreements([cold], [warm])
    assert (one.what, one.values[0]) == ("prefix_cache_warmed", "–")
    assert "80" in one.values[1]
    assert disagreements([warm], [warm]) == disagreements([report], [cold]) == ()


def test_what_befell_runs_measured_in_turn_is_counted_over_all_blocks(make_report: MakeReport, steady_run: SteadyRun) -> None:
    """In each block one side alone has the warning, and both have it equally often."""
    calm, stepped = (make_report(steady_run(20), **clock_readings(stepped_ms)) for stepped_ms in (0.0, 500.0))
    assert disagreements_in_turn([calm, stepped], [stepped, calm]) == ()
    (one,) = disagreements_in_turn([calm, stepped], [stepped, stepped])
    assert (one.what, [value == "–" for value in one.values]) == ("clock_stepped", [True, False, False, False])


def test_a_setting_that_differs_in_some_blocks_has_the_values_of_all(make_report: MakeReport, steady_run: SteadyRun) -> None:
    """The last block alone was shown, whatever the others had."""

    def runs(*releases: str, parameters: dict[str, str] | None = None) -> list[RunReport]:
        target = {**_TEXT, "model_parameters": parameters or {}}
        return [make_report(steady_run(4), bench_version=release, target=target) for release in releases]

    (one,) = disagreements_in_turn(runs("1", "2", "3"), runs("1", "4", "5"))
    assert (one.what, one.sides, one.values) == ("bench_version", (("1", "2", "3"), ("1", "4", "5")), ("3", "5"))
    found = disagreements_in_turn(runs("1", "1"), runs("1", "2", parameters={"engine": "e", "max_num_tokens": "8"}))
    assert [str(line) for line in lines(found)] == [
        "bench_version: 1 (× 2) | 1; 2",
        "target.model_parameters: not known (× 2) | 2 values (× 2)",
    ]
    engine, cache = (runs("1", parameters={key: "x"}) for key in ("engine", "cache"))
    found = disagreements_in_turn(engine + runs("1"), cache + cache)
    assert {each.what: each.section for each in found} == {
        "target.model_parameters.cache": "",  # the first block has another one of that section on either side
        "target.model_parameters.engine": "",
    }


def test_answers_of_a_side_without_token_counts_are_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    known, unknown = (
        make_report([structs.replace(record, output_tokens=tokens) for record in steady_run(20)]) for tokens in (3, None)
    )
    found = {disagreement.what: disagreement for disagreement in disagreements([known], [unknown])}["output_tokens"]
    assert (found.weight, found.values[1]) == (Weight.WARN, "no answer of known length")
    assert found.advice == (
        "Only one side has numbers of output tokens, so whether its answers are as long as those of the other side is not "
        "known. With the model's tokenizer (--tokenizer) the texts are counted."
    )
    assert "output_tokens" not in {disagreement.what for disagreement in disagreements([unknown], [unknown])}


def test_answers_that_are_equally_long_are_not_called_shorter(make_report: MakeReport, steady_run: SteadyRun) -> None:
    """3 tokens were requested on one side, 6 on the other, and all answers have 3."""
    asked, more = (
        make_report([structs.replace(record, requested_output_tokens=tokens) for record in steady_run(120)])
        for tokens in (3, 6)
    )
    found = {disagreement.what: disagreement for disagreement in disagreements([asked], [more])}["output_tokens"]
    assert found.advice == (
        "The answers are equally long although other lengths were requested: on one side more of them ended before the "
        "requested length."
    )


def test_clocks_of_a_gpu_that_were_held_down_on_one_side_are_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    cool = make_report(steady_run(20))
    hot = replace(cool, findings=(*cool.findings, GpuClocksLimited("power", 3.0, 900.0, 1)))
    (one,) = disagreements([cool], [hot])
    assert (one.what, one.weight, one.values[0]) == ("gpu_clocks_limited", Weight.WARN, "–")


def test_runs_that_other_hosts_sent_are_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    of_hosts = {"workers": [{"number": number, "host": host} for number, host in enumerate("aab")]}
    here, there = (make_report(steady_run(4), distribution=found) for found in (None, of_hosts))
    own = make_report(steady_run(4), distribution=of_hosts, options={"locust_processes": 3})
    (one,) = disagreements([here], [there])
    assert (one.what, one.weight, one.values) == ("distribution.workers", Weight.WARN, ("this host", "a, b"))
    assert one.advice == "Latencies include the network between client and target: send from the same hosts."
    assert disagreements([here], [own]) == ()


@pytest.mark.parametrize(
    ("replicas", "weight", "names", "advice"),
    [
        (
            (1, 2),
            Weight.WARN,
            ("simulated by m.json", "simulated by m.json, 2 replicas"),
            "No server was measured: the differences are those of a model, and as wrong as it is.",
        ),
        (
            (None, 1),
            Weight.REFUSE,
            ("measured", "simulated by m.json"),
            "A simulated run beside a measured one shows how wrong the model is: 'bench simulate validate' does that, or "
            "--allow_simulated compares them all the same.",
        ),
    ],
)
def test_simulated_runs_are_named_and_refused_beside_measured_ones(
    make_report: MakeReport,
    steady_run: SteadyRun,
    replicas: tuple[int | None, int],
    weight: Weight,
    names: tuple[str, str],
    advice: str,
) -> None:
    """Keys that a simulation alone has are no differences to a measured run."""
    a, b = (
        make_report(
            steady_run(4),
            simulation=None if count is None else {"model": "m.json", "digest": "0f" * 32, "replicas": count},
        )
        for count in replicas
    )
    found = disagreements([a], [b])
    (one,) = [each for each in found if each.what == "simulation"]
    assert (one.weight, one.values, one.advice) == (weight, names, advice)
    others = [each.what for each in found if each.what != "simulation"]
    assert others == ([] if None in replicas else ["simulation.replicas"])
    for allow_different, allow_simulated in ((False, False), (True, False), (False, True)):
        left = without_refusals(found, allow_different=allow_different, allow_simulated=allow_simulated)
        assert (one in left) is not (weight is Weight.REFUSE and allow_simulated)
        work = replace(one, what="arrivals", weight=Weight.REFUSE)
        left = without_refusals([work], allow_different=allow_different, allow_simulated=allow_simulated)
        assert (work in left) is not allow_different


def test_runs_that_are_compared_all_the_same_have_other_advice(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    records = [failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(4)]
    lost = make_report(records, arrivals="other", schedule={"digest": "1e" * 32, "seed": 7})
    simulated = make_report(steady_run(4), simulation={"model": "m.json", "digest": "0f" * 32})
    found = disagreements([simulated], [lost])
    assert not refused(without_refusals(found, allow_different=True, allow_simulated=True))
    assert {each.what: each.advice for each in where_allowed(found)} == {
        "validity": "A difference to an invalid run may come from what made the run invalid; see its report.",
        "simulation": "The differences between a simulated run and a measured one show how wrong the model is.",
        "arrivals": "The runs did different work: part of the difference, or all of it, may come from that.",
        "schedule.digest": (
            "Part of the difference may come from here: measure both sides with the same seeds and the same release."
        ),
        "schedule.seed": "Part of the difference may come from here; keep it equal on both sides.",
    }


# ---- sides of several runs


def _with_seed(make_report: MakeReport, steady_run: SteadyRun, seed: int | None, digest: int, **manifest: Any) -> RunReport:
    return make_report(steady_run(4), schedule={"digest": f"{digest:064x}", "seed": seed}, **manifest)


def test_tokens_that_one_side_counted_from_text_are_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    counted, estimated = (make_report(steady_run(20, output_tokens_source=source)) for source in ("server", "text"))
    found = {disagreement.what: disagreement for disagreement in disagreements([counted], [estimated])}
    named = found["tokens_counted_from_text"]
    assert (named.weight, named.values[0]) == (Weight.WARN, "–")
    assert named.advice == (
        "Numbers of tokens are estimates where they are counted from text: part of their difference may be that."
    )
    assert "tokens_counted_from_text" not in {disagreement.what for disagreement in disagreements([counted], [counted])}


def test_what_both_sides_have_equally_often_is_no_difference(make_report: MakeReport, steady_run: SteadyRun) -> None:
    a, again, b = (
        [_with_seed(make_report, steady_run, seed, seed, workers={"count": seed}) for seed in seeds]
        for seeds in ((1, 2), (2, 1, 1, 2), (1, 2, 2))
    )
    assert disagreements(a, again) == ()
    found = {disagreement.what: disagreement.sides for disagreement in disagreements(a, b)}
    assert found.keys() == {"schedule.digest", "schedule.seed", "workers.count"}
    assert found["schedule.seed"] == (("1", "2"), ("1", "2", "2"))
    assert {disagreement.what for disagreement in differences_within(a)} == found.keys()
    assert {disagreement.what for disagreement in differences_within([a[0], a[1], a[0]])} == found.keys()
    assert differences_within(a[:1]) == differences_within([a[0], a[0]]) == ()


def test_a_fault_that_both_sides_have_is_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    cut = make_report(steady_run(4), interrupted=True)
    assert [disagreement.what for disagreement in disagreements([cut], [cut])] == ["interrupted"]
    assert [disagreement.what for disagreement in differences_within([cut])] == ["interrupted"]


_TEXT = {"model": "m", "protocol": "openai", "streaming": True, "token_ids": False}


def test_other_requests_of_equal_seeds_are_explained(make_report: MakeReport, steady_run: SteadyRun) -> None:
    a, b, other = ([_with_seed(make_report, steady_run, 7, digest) for digest in digests] for digests in ((1, 2), (3, 4), (5,)))
    advice = {found.what: found.advice for found in disagreements(a, b)}
    assert advice == {"schedule.digest": why_other_requests(a, b)}
    assert why_other_requests(a, b).startswith("Both sides have the same seeds. With seed 7, 4 requests are in both runs")
    assert {found.what: found.advice for found in disagreements(a, other)} == advice


def test_a_section_that_one_side_lacks_is_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    parameters = {"engine": "e", "max_num_tokens": "8192"}
    bare, some, full = (
        [make_report(steady_run(4), target={**_TEXT, "model_parameters": each})] * 2
        for each in ({}, {"engine": "e"}, parameters)
    )
    assert [(d.what, d.section) for d in disagreements(bare, full)] == [
        ("target.model_parameters.engine", "target.model_parameters"),
        ("target.model_parameters.max_num_tokens", "target.model_parameters"),
    ]
    assert [(d.what, d.section) for d in disagreements(some, full)] == [("target.model_parameters.max_num_tokens", "")]


@pytest.mark.parametrize(
    ("began_at", "addresses", "expected"),
    [
        ((1.79e9, 1.79e9 + 1.0), ("a:1", "a:1"), True),  # the clock was set meanwhile
        ((1.79e9, 1.79e9 + 2.0), ("a:1", "a:1"), True),
        ((1.79e9 + 2.001, 1.79e9), ("a:1", "a:1"), False),
        ((1.79e9, None), ("a:1", "a:1"), False),
        ((1.79e9, 1.79e9), ("a:1", "b:1"), False),
    ],
)
def test_runs_of_one_start_of_one_server_are_known(
    make_report: MakeReport,
    steady_run: SteadyRun,
    began_at: tuple[float | None, ...],
    addresses: tuple[str, ...],
    expected: bool,
) -> None:
    facts = [{"model": "m", "protocol": "openai", "streaming": True, "address": address} for address in addresses]
    runs = [make_report(steady_run(4), target=target, server_began_at=at) for target, at in zip(facts, began_at, strict=True)]
    assert one_start(runs) is expected
