"""The JSON that programs read is as in docs/schemas: every key is there, every key is documented and of its type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace as with_fields

from bench_cli import run as bench
from bench_cli.simulate.validated import Simulations, Validated
from bench_cli.simulate.validated_json import document as validation_document
from bench_records.record import Outcome, Record
from reports.capacity.comparison import NamedSearch, compare_searches
from reports.capacity.comparison_formats import comparison_document
from reports.capacity.json_file import document as capacity_document
from reports.capacity.ranking import Ranking, Setting
from reports.capacity.ranking_formats import ranking_document
from reports.criteria import parse_slo
from reports.run.summary_json import summary
from reports.run_report import RunReport, read_run
from reports.sweep.json_file import document as sweep_document
from reports.sweep.points import read_sweep
from reports.why.answer import METRICS, Detail, explain
from reports.why.json_file import document as why_document
from simulator.model import read_model
from tests.bench_cli.test_simulate_run import model_file
from tests.bench_cli.validated_runs import BEYOND, validated_run
from tests.reports.capacity.searches import ALL as SEARCHES
from tests.reports.manifests import asked_load
from tests.reports.watched import histogram, machine_samples, metric, statistics, worker_samples

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
SteadyRun = Callable[..., list[Record]]
MakeReport = Callable[..., RunReport]
Make = Callable[..., Record]


def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return schema


def _check(name: str, document: Any) -> None:
    """Held against the schema as it is, and with no key beyond those that it names: readers skip such, we write none."""
    for schema in (_schema(name), _closed(_schema(name))):
        read = json.loads(json.dumps(document, allow_nan=False))
        errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(read)]
        assert errors == []


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(inner) for key, inner in schema.items()}
    return {"additionalProperties": False} | closed if isinstance(schema.get("properties"), dict) else closed


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for inner in schema.values():
            yield from _objects(inner)


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_a_schema_is_valid_and_requires_every_key(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    for part in _objects(schema):
        assert part["required"] == list(part["properties"])
    assert schema["properties"]["schema"]["const"] == 1


@pytest.mark.parametrize("damage", ["missing", "unknown", "type", "version"])
def test_the_check_finds_what_is_wrong(make_report: MakeReport, steady_run: SteadyRun, damage: str) -> None:
    document = summary(make_report(steady_run(20)))
    match damage:
        case "missing":
            del document["metrics"]["ttft_ms"]["scheduled"]["p99"]
        case "unknown":
            document["windows"]["other"] = 1
        case "type":
            document["requests"]["done"] = "20"
        case _:
            document["schema"] = 2
    with pytest.raises(AssertionError):
        _check("summary", document)


# ---- summary.json


def test_a_summary_of_everything_that_can_be_known(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    calibration = {
        "made_at": "2026-11-22T01:23:51+00:00", "quick": False, "transport": "grpc",
        **{key: {"n": 9, "mean_ms": 0.1, "stdev_ms": 0.1, "size_p99_ms": 0.3} for key in ("ttft", "icl", "e2e")},
        "limits": [{"workers": 1, "requests": {"held_per_s": 9.0, "failed_per_s": None, "why": ""},
                    "responses": {"held_per_s": 9.0, "failed_per_s": None, "why": ""}}],
    }  # fmt: skip
    server = [
        *metric("vllm:num_requests_running", {0.0: 1.0, 7.0: 9.0}),
        *metric("vllm:num_requests_waiting", {0.0: 0.0, 7.0: 3.0}),
        *metric("vllm:kv_cache_usage_perc", {0.0: 0.1, 7.0: 0.9}),
        *metric("vllm:prefix_cache_hits_total", {0.0: 0.0, 7.0: 10.0}),
        *metric("vllm:prefix_cache_queries_total", {0.0: 0.0, 7.0: 100.0}),
        *histogram("vllm:time_to_first_token_seconds", {"0.1": 699, "+Inf": 1}, 7.0),
        *metric("vllm:spec_decode_num_drafts_total", {0.0: 0.0, 7.0: 5.0}),
        *metric("vllm:spec_decode_num_draft_tokens_total", {0.0: 0.0, 7.0: 15.0}),
        *metric("vllm:spec_decode_num_accepted_tokens_total", {0.0: 0.0, 7.0: 10.0}),
        *metric("vllm:num_preemptions_total", {0.0: 0.0, 7.0: 2.0}),
        *metric("nv_gpu_utilization", {0.0: 0.5, 7.0: 0.7}),
        *metric("nv_cpu_utilization", {0.0: 0.5, 7.0: 0.7}),
        *metric("host_cpu_energy_joules_total", {-1.0: 0.0, 8.0: 900.0}, zone="package-0"),
    ]
    report = make_report(
        [with_fields(record, cached_input_tokens=3, server_counted_input=True) for record in steady_run(700, worker=0)],
        client=[*worker_samples([0.1] * 280), *machine_samples(7, steal_cores=0.1)],
        server=server,
        calibration=calibration,
        load=asked_load(100.0, "constant"),
        criteria={"slo": ["ttft_ms<=200"]},
        server_statistics={"before": statistics(tensorrt_llm=(0, 0.0)), "after": statistics(tensorrt_llm=(700, 1.0))},
    )
    document = summary(report)
    for key in ("client", "server", "phases", "calibration", "slip_by_worker", "slip_over_time"):
        assert document[key], key
    assert document["server"]["cache_reuse"]
    assert document["server"]["latencies"]
    assert document["server"]["speculation"]
    assert document["prefix_cache"]["usage"]
    assert document["arrivals"]["test"]
    assert document["metrics"]["goodput"]
    assert document["host_energy"]["cpu"]
    assert document["windows"]["steady"]
    _check("summary", document)


def test_a_summary_of_little_that_is_known(make_report: MakeReport, answered: Make, failed: Make) -> None:
    _check("summary", summary(make_report([failed(0, 0, Outcome.CONNECT, 0, 1), failed(1, 10, Outcome.NOT_SENT)])))
    uncounted = answered(0, 0, 0, [(5, 4)], token_counts=None, output_tokens=None)
    _check("summary", summary(make_report([uncounted], streaming=False)))


def test_a_summary_with_objectives_and_failures(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = steady_run(700)
    for k in (100, 300, 500):
        records[k] = failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 500, error="<late>")
    report = make_report(records)
    _check("summary", summary(read_run(report.folder, [parse_slo("e2e_ms<=130"), parse_slo("tpot_ms<=1")])))


# ---- why.json


def test_the_parts_of_one_run_and_of_two(make_report: MakeReport, steady_run: SteadyRun) -> None:
    timed = [
        with_fields(record, server_queue_ns=3 * 10**6, server_prefill_ns=9 * 10**7 * (1 + k % 2))
        for k, record in enumerate(steady_run(700))
    ]
    reports = [make_report(steady_run(700)), make_report(timed)]
    for chosen in ([reports[0]], [reports[1]], reports):
        document = why_document(explain(chosen, METRICS, 0.99, Detail(stretches=3, slowest=2, chosen=(5,))))
        assert document["runs"]
        assert len(document["differences"]) == (2 if len(chosen) == 2 else 0)  # type: ignore[arg-type]
        _check("why", document)


def test_a_percentile_that_cut_off_requests_leave_open_has_its_lower_bound(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    records = steady_run(700)
    records[::10] = [failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 500, error="late") for k in range(0, 700, 10)]
    document: Any = why_document(explain([make_report(records)], METRICS, 0.99))
    _check("why", document)
    middle, tail = document["runs"][0]["latencies"][0]["percentiles"]
    assert (middle["lower_bound_ms"], tail["value_ms"]["value"], tail["lower_bound_ms"]) == (None, None, 500.0)


def test_parts_of_nothing(make_report: MakeReport, failed: Make) -> None:
    _check("why", why_document(explain([make_report([failed(0, 0, Outcome.REFUSED, 0, 1)])], METRICS, 0.99)))


# ---- validation.json


@pytest.mark.parametrize(
    "names", [("near",), ("near", "off", "far"), ("far",)], ids=["one within", "within and beyond", "none within"]
)
def test_validations_of_runs_within_what_was_fitted_and_beyond(tmp_path: Path, names: tuple[str, ...]) -> None:
    runs = {"near": validated_run("near"), "off": validated_run("off", 0.1), "far": validated_run("far", 0.5, BEYOND)}
    model = read_model(model_file(tmp_path / "model.json", doubts=("half has the finding errors: some are left out",)))
    document = validation_document(
        Validated("model.json", model, Simulations(2), tuple(runs[name] for name in names), ("a doubt.",))
    )
    _check("validation", document)


# ---- capacity.json


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_for_capacity_of_every_shape(name: str) -> None:
    _check("capacity", capacity_document(SEARCHES[name]))


def test_a_comparison_of_two_searches() -> None:
    found = [NamedSearch(name, SEARCHES["tiers"]) for name in "ab"]
    _check("capacity-comparison", comparison_document(compare_searches(*found)))


@pytest.mark.parametrize("names", [("crossing", "unknown", "cliff"), ("tiers", "tiers"), ("nothing", "never held")])
def test_rankings_of_settings(names: tuple[str, ...]) -> None:
    settings = tuple(Setting(f"n={k}", SEARCHES[name], f"{k}-n={k}") for k, name in enumerate(names))
    _check("ranking", ranking_document(Ranking(settings, 0.95, None)))


# ---- compare.json, sweep.json, trend.json


def test_comparisons_of_runs_of_one_schedule_of_others_and_of_repeats(
    make_nights: Callable[..., list[Path]], make_report: MakeReport, steady_run: SteadyRun, tmp_path: Path
) -> None:
    def compared(*arguments: str) -> dict[str, Any]:
        assert bench(["compare", *arguments, f"--output={tmp_path / 'c.json'}"]) == 0
        document: dict[str, Any] = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
        _check("compare", document)
        return document

    other = {"schedule": {"digest": "1e" * 32, "seed": 43}}
    nights = make_nights(tmp_path / "a", [("1", 20.0, {}), ("2", 20.0, {}), ("3", 21.0, other)])
    make_nights(tmp_path / "b", [("1", 24.0, {}), ("2", 24.0, {})])
    pairs = compared(str(nights[0]), str(nights[1]), "--fail_if", "p99_ttft > +900%", "--allow_single")
    assert pairs["comparisons"][0]["pairs"]
    assert pairs["comparisons"][0]["conditions"]
    others = compared(str(nights[0]), str(nights[1]), str(nights[2]))
    assert others["comparisons"][1]["pairs"] is None
    assert others["comparisons"][1]["disagreements"]
    compared(str(tmp_path / "a"), str(tmp_path / "b"))
    unstreamed = [str(make_report(steady_run(30), streaming=False).folder.path) for _ in "ab"]
    assert "cannot be told" in [d["verdict"] for d in compared(*unstreamed)["comparisons"][0]["differences"]]


def test_a_sweep(make_sweep: Callable[..., Any], tmp_path: Path) -> None:
    document = sweep_document(read_sweep(make_sweep(tmp_path, (10, 20), {"wait": 20.0}, 2)))
    assert {point["pareto"] for point in document["points"]} >= {True}
    _check("sweep", document)


def test_a_trend_with_a_baseline_and_without(make_nights: Callable[..., list[Path]], tmp_path: Path) -> None:
    other = {"workload": {"description": "other", "dropped_too_long": 0}}
    nights = make_nights(tmp_path / "n", [("1", 20.0, {}), ("2", 24.0, {}), ("3", 20.0, other)])
    for more in ([], ["--baseline", str(nights[0])]):
        assert bench(["trend", str(tmp_path / "n"), f"--output={tmp_path / 't.json'}", *more]) == 0
        _check("trend", json.loads((tmp_path / "t.json").read_text(encoding="utf-8")))
