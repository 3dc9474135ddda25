"""Whole comparisons of run folders: verdict, refusal, conditions, and every format."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import replace as replace_record
from scipy import stats as scipy_stats

from bench_cli import run as bench
from bench_cli.experiments.plan import plan_runs
from bench_records.experiment import ExperimentFolder, PlannedArm, UntilDecided
from bench_records.manifest import DrawnSchedule
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder, RunFolderError
from reports.compare.comparable import Weight, schedules_apart
from reports.compare.comparison import (
    MIXED,
    Arm,
    ArmComparison,
    compare,
    differences_between,
    is_inconclusive,
    overall,
    read_arm,
    read_experiment,
)
from reports.compare.conditions import Status, parse_condition
from reports.compare.difference import Difference, Verdict, compare_measures
from reports.compare.documents import full_document
from reports.compare.formats import COMPARISON
from reports.compare.json_file import document
from reports.compare.looks import Looks, SpreadAtLook
from reports.compare.measures import MEASURES, Measure
from reports.compare.page import comparison_page, difference_cards, tone_of
from reports.compare.pictures import latency_pictures
from reports.compare.spread import Evidence, Spread
from reports.compare.tables import headline, notes, summary_sentence
from reports.criteria import parse_slo
from reports.errors import ConditionError, NotComparableError, NoValidBlockError
from reports.metrics.catalogue import TTFT
from reports.page.page import Tone, render_page
from reports.render.markdown import markdown_text
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import Cause
from tests.reports.manifests import clock_readings
from tests.reports.markup import checked

NAUGHTY = "<script>alert(1)</script>\u202e\x1b[31m|`"


@pytest.fixture
def noisy_run(answered: Callable[..., Record], make_run: Callable[..., RunFolder]) -> Callable[..., RunFolder]:
    """700 requests with lognormal first-token latencies around ``ttft_ms``, equal arrivals for every seed."""

    def make(seed: int, ttft_ms: float = 50.0, failures: int = 0, sent: int = 700, **manifest: Any) -> RunFolder:
        rng = np.random.default_rng(seed)
        ttfts = ttft_ms * rng.lognormal(0.0, 0.2, 700)
        records = [
            answered(k, 10 * k, 10 * k, [(10 * k + first, 1), (10 * k + first + 5, 1), (10 * k + first + 10, 1)])
            for k, first in enumerate(ttfts)
        ]
        for k in range(failures):
            records[k * 50] = Record(
                index=k * 50, outcome=Outcome.SERVER_ERROR, scheduled_ns=10_000_000 * k * 50, requested_output_tokens=3,
                sent_ns=10_000_000 * k * 50, done_ns=10_000_000 * k * 50 + 1, error=NAUGHTY,
            )  # fmt: skip
        return make_run(records[:sent], **manifest)

    return make


def _compare(runs: Sequence[RunFolder], *conditions: str, **options: Any) -> Any:
    arms = [read_arm(run.path) for run in runs]
    return compare(arms, [parse_condition(text) for text in conditions], **options)


def test_a_slower_run_is_worse_by_its_change(noisy_run: Callable[..., RunFolder]) -> None:
    (one,) = _compare([noisy_run(1), noisy_run(2, 60.0)]).comparisons
    assert one.verdict == "worse between these starts"
    ttft = next(d for d in one.differences if d.measure.name == "p50_ttft")
    assert ttft.interval is not None
    assert ttft.interval[0] < 0.20 < ttft.interval[1]
    assert one.pairs is not None
    assert one.pairs.difference_ms.p50 == pytest.approx(10.0, abs=2.0)
    assert "Between these starts, " in COMPARISON.terminal_text(_compare([noisy_run(1), noisy_run(2, 60.0)]))


def test_equal_runs_show_no_difference(noisy_run: Callable[..., RunFolder]) -> None:
    comparison = _compare([noisy_run(1), noisy_run(3)])
    assert comparison.comparisons[0].verdict == "no difference shown"
    assert "Inconclusive: 1 run of each side cannot show a change of TTFT p99; 5 of about 2,000 requests would show 5%." in (
        " ".join(COMPARISON.terminal_text(comparison).split())
    )
    assert comparison_page(comparison).tone is Tone.CAUTION


def test_the_console_fits_a_terminal_of_100_columns(noisy_run: Callable[..., RunFolder]) -> None:
    text = COMPARISON.terminal_text(_compare([noisy_run(1, 2_000.0), noisy_run(2, 2_060.0)]))
    assert max(map(len, text.splitlines())) <= 100
    assert "," in text.split("TTFT p50, ms")[1].splitlines()[0]  # 1,000 ms and more, too


def _with_power(verdict: Verdict, smallest_shown: float | None, error: float = 0.01) -> Difference:
    spread = Spread(0.0, error, 8.0, Evidence.RUNS)
    return Difference(Measure(TTFT, 0.99), 1.0, 1.0, 0.0, None, smallest_shown, 0.5, 1.0, Evidence.RUNS, verdict, None, spread)


@pytest.mark.parametrize(
    ("verdict", "smallest_shown", "inconclusive"),
    [
        (Verdict.NONE, 0.10, False),
        (Verdict.NONE, 0.11, True),
        (Verdict.NONE, None, True),
        (Verdict.BETTER, 0.50, False),
        (Verdict.STARTS_WORSE, 0.50, False),
    ],
)
def test_no_difference_is_conclusive_only_if_a_small_one_would_have_been_shown(
    verdict: Verdict, smallest_shown: float | None, inconclusive: bool
) -> None:
    assert is_inconclusive([_with_power(verdict, smallest_shown)]) is inconclusive


def test_nothing_is_concluded_from_measures_without_an_error() -> None:
    assert is_inconclusive([_with_power(Verdict.NONE, 0.01, error=0.0)])


def test_sides_of_other_numbers_of_runs_are_named_apart(noisy_run: Callable[..., RunFolder], tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for k in range(2):
        noisy_run(k + 10, 50.0).path.rename(tmp_path / "b" / str(k))
    (one,) = compare([read_arm(noisy_run(1).path), read_arm(tmp_path / "b")]).comparisons
    assert headline(one).startswith("Inconclusive: 1 and 2 runs cannot show a change of TTFT p99")


def test_an_inconclusive_comparison_names_its_suspects(noisy_run: Callable[..., RunFolder]) -> None:
    (one,) = _compare([noisy_run(1), noisy_run(3)]).comparisons
    beside = [replace(d, p_value=0.02 if d.measure.name == "p99_e2e" else 0.5) for d in one.differences]
    text = headline(replace(one, differences=tuple(beside)))
    assert "Suspects, each judged alone: E2E latency p99 " in text
    assert "TTFT p50" not in text


def test_a_failed_condition_is_never_left_out_of_the_sentence_above_it(noisy_run: Callable[..., RunFolder]) -> None:
    (one,) = _compare([noisy_run(1), noisy_run(3)], "p50_ttft > -20%").comparisons
    assert [result.status for result in one.conditions] == [Status.FAILED]
    assert "TTFT p50, which --fail_if names, changed by " in headline(one)


@pytest.mark.parametrize(("condition", "status"), [("p50_ttft > 55ms", 1), ("p50_ttft > 70ms", 0), ("p50_ttft > 60ms", 0)])
def test_a_limit_is_judged_of_the_compared_run_alone(
    noisy_run: Callable[..., RunFolder], condition: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(noisy_run(seed, ttft).path) for seed, ttft in ((1, 50.0), (2, 60.0))]
    assert bench(["compare", *paths, "--fail_if", condition]) == status
    captured = capsys.readouterr()
    assert re.search(rf": {condition}: 59\.1 ms; [\d.]+ % of 700 were over \d+ ms; .*50\.0 % allowed", captured.out)
    assert ("counts as passed" in captured.err) is (condition == "p50_ttft > 60ms")


def test_an_undecided_condition_fails_the_build_on_request(
    noisy_run: Callable[..., RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(noisy_run(seed).path) for seed in (1, 2)]
    assert bench(["compare", *paths, "--fail_if", "p50_ttft>50ms", "--undecided", "fail"]) == 1
    assert "it fails, by --undecided fail" in capsys.readouterr().err


def test_what_slo_names_is_judged_and_fails_no_build(
    noisy_run: Callable[..., RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(noisy_run(seed).path) for seed in (1, 2)]
    assert bench(["compare", *paths, "--slo", "p50_ttft<=10ms", "--slo", "ttft<=60ms", "--fail_if", "attainment<99%"]) == 1
    captured = capsys.readouterr().out
    assert "FAILED: p50_ttft<=10ms: " in captured
    assert "FAILED: attainment<99%: " in captured
    assert bench(["compare", *paths, "--slo", "p50_ttft<=10ms"]) == 0


def test_a_constant_measure_is_no_evidence_where_all_others_are_unknown(noisy_run: Callable[..., RunFolder]) -> None:
    differences = _compare([noisy_run(1), noisy_run(3)]).comparisons[0].differences
    assert any(d.measure.name == "failed_share" and d.verdict is Verdict.NONE for d in differences)
    unknown = [
        d if d.measure.name == "failed_share" else replace(d, verdict=Verdict.UNKNOWN, p_value=None, spread=None)
        for d in differences
    ]
    assert overall(unknown) == "cannot be told"
    assert summary_sentence("B", "A", unknown) == "These runs do not show whether B differs from A."


@pytest.mark.parametrize("repeats", [1, 2])
def test_answers_whose_tokens_all_arrived_at_once_are_compared_without_their_tpot(
    answered: Callable[..., Record], make_run: Callable[..., RunFolder], tmp_path: Path, repeats: int
) -> None:
    """A proxy that holds answers back until their end: TPOT is 0, and 0 has no ratio to another number."""
    rng = np.random.default_rng(1)
    for side in "ab":
        (tmp_path / side).mkdir()
        for repeat in range(repeats):
            ends = [10 * k + took for k, took in enumerate(50.0 * rng.lognormal(0.0, 0.2, 200))]
            made = make_run([answered(k, 10 * k, 10 * k, [(end, 1), (end, 1), (end, 1)]) for k, end in enumerate(ends)])
            made.path.rename(tmp_path / side / str(repeat))
    (one,) = compare([read_arm(tmp_path / "a"), read_arm(tmp_path / "b")]).comparisons
    tpot = next(d for d in one.differences if d.measure.name == "mean_tpot")
    assert (tpot.a, tpot.b, tpot.change, tpot.verdict, tpot.reason) == (0.0, 0.0, None, Verdict.UNKNOWN, Cause.ALL_ZERO)


def test_runs_of_other_work_are_refused_with_what_differs(noisy_run: Callable[..., RunFolder]) -> None:
    runs = [noisy_run(1), noisy_run(2, workload={"description": "other", "dropped_too_long": 0})]
    with pytest.raises(NotComparableError, match=r"workload\.description: 7 prompts of test\.json against other"):
        _compare(runs)
    (one,) = _compare(runs, allow_different=True).comparisons
    assert [d.weight for d in one.disagreements] == [Weight.REFUSE]


def test_an_invalid_run_is_refused(noisy_run: Callable[..., RunFolder]) -> None:
    with pytest.raises(NotComparableError, match="validity: valid against errors"):
        _compare([noisy_run(1), noisy_run(2, failures=10)])


def test_runs_that_are_compared_all_the_same_are_not_said_to_be_refused(noisy_run: Callable[..., RunFolder]) -> None:
    """The advice of an allowed comparison was to allow it."""
    runs = [noisy_run(1), noisy_run(2, failures=10, workload={"description": "other", "dropped_too_long": 0})]
    (one,) = _compare(runs, allow_different=True).comparisons
    advices = {d.what: d.advice for d in one.disagreements if d.weight is Weight.REFUSE}
    assert sorted(advices) == ["validity", "workload.description"]
    assert "invalid run" in advices["validity"]
    assert "did different work" in advices["workload.description"]
    assert not any("--allow" in advice or "cannot be compared" in advice for advice in advices.values())


def test_another_seed_warns_and_a_changed_server_is_named(noisy_run: Callable[..., RunFolder]) -> None:
    changed = noisy_run(
        2,
        schedule={"digest": "1e" * 32, "seed": 43},
        target={"model": "ensemble", "protocol": "grpc", "streaming": True},
    )
    (one,) = _compare([noisy_run(1), changed]).comparisons
    assert {d.what: d.weight for d in one.disagreements} == {
        "schedule.digest": Weight.WARN,
        "schedule.seed": Weight.WARN,
        "target.model": Weight.CHANGED,
    }
    assert one.pairs is None


def test_runs_that_sent_other_numbers_of_one_schedule_are_compared_without_pairs(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [noisy_run(1), noisy_run(2, 60.0, sent=690)]
    (one,) = _compare(runs).comparisons
    (warning,) = one.disagreements
    assert (warning.what, warning.weight, warning.values) == ("requests", Weight.WARN, ("700 sent", "690 sent"))
    assert one.pairs is None
    assert {d.evidence for d in one.differences if d.evidence is not None} == {Evidence.REQUESTS}
    assert one.verdict == "worse between these starts"
    assert bench(["compare", *(str(run.path) for run in runs), "--output", str(tmp_path / "compare.html")]) == 0
    assert "700 sent" in capsys.readouterr().out


def test_requests_that_were_sent_in_another_order_are_not_paired(
    steady_run: Callable[..., list[Record]], make_run: Callable[..., RunFolder]
) -> None:
    records = steady_run()
    swapped = [replace_record(record, index=(index + 1) % 700) for index, record in enumerate(records)]
    (one,) = _compare([make_run(records), make_run(swapped)]).comparisons
    assert (one.pairs, one.disagreements) == (None, ())


_CLOSED = {"mode": "closed", "concurrency": 8, "duration_s": 7.0, "ramp_up_s": None, "prepared": 700}


@pytest.mark.parametrize(
    ("a", "b", "noted"),
    [
        ({"load": {**_CLOSED, "ran_out": False}}, {"load": {**_CLOSED, "ran_out": True}}, ["load.ran_out"]),
        ({"workers": {"count": 1, "why": "x"}}, {"workers": {"count": 2, "why": "y"}}, ["workers.count"]),
        ({"workers": {"count": 1, "pinned_cores": []}}, {"workers": {"count": 1, "pinned_cores": [1]}}, []),
        ({"workload": {"requests": 7, "repeated_prefix": {"share": 0.1}}},
         {"workload": {"requests": 7, "repeated_prefix": {"share": 0.2}}}, []),
        ({"connections": {"opened": 8}, "duration_s": 7.0}, {"connections": {"opened": 9}, "duration_s": 7.1}, []),
        ({"load": _CLOSED}, {"load": {**_CLOSED, "max_concurrency": None}}, []),  # a key of a later version, and unused
    ],
    ids=["ran_out", "workers", "cores", "prefix", "connections", "unknown"],
)  # fmt: skip
def test_what_came_out_of_a_run_is_no_setting(
    noisy_run: Callable[..., RunFolder], a: dict[str, Any], b: dict[str, Any], noted: list[str]
) -> None:
    (one,) = _compare([noisy_run(1, **a), noisy_run(2, **b)]).comparisons
    assert [d.what for d in one.disagreements] == noted
    assert {d.weight for d in one.disagreements} <= {Weight.NOTE}


@pytest.mark.parametrize(
    ("a", "b", "what", "weight"),
    [
        ({"load": _CLOSED}, {"load": {**_CLOSED, "concurrency": 9}}, "load.concurrency", Weight.REFUSE),
        ({"load": _CLOSED}, {"load": {**_CLOSED, "ramp_up_s": 2.0}}, "load.ramp_up_s", Weight.REFUSE),
        ({"workload": {"requests": 7}}, {"workload": {"requests": 8}}, "workload.requests", Weight.REFUSE),
        ({"options": {"workers": None}}, {"options": {"workers": 4}}, "options.workers", Weight.WARN),
    ],
)
def test_what_was_asked_of_a_run_is_a_setting(
    noisy_run: Callable[..., RunFolder], a: dict[str, Any], b: dict[str, Any], what: str, weight: Weight
) -> None:
    runs = [noisy_run(1, **a), noisy_run(2, **b)]
    (one,) = _compare(runs, allow_different=True).comparisons
    assert [(d.what, d.weight) for d in one.disagreements] == [(what, weight)]
    if weight is Weight.REFUSE:
        with pytest.raises(NotComparableError, match=what):
            _compare(runs)


def test_repeated_runs_of_a_folder_are_one_arm(noisy_run: Callable[..., RunFolder], tmp_path: Path) -> None:
    for arm, scale in (("a", 1.0), ("b", 1.3)):
        (tmp_path / arm).mkdir()
        for k in range(3):
            noisy_run(k + (10 if arm == "b" else 0), 50.0 * scale).path.rename(tmp_path / arm / str(k))
    (one,) = compare([read_arm(tmp_path / "a"), read_arm(tmp_path / "b")]).comparisons
    assert one.verdict == "worse"
    assert {d.evidence.value for d in one.differences if d.evidence} == {"repeated runs"}


@pytest.mark.parametrize(
    ("condition", "slower", "status"),
    [
        ("p50_ttft > +5%", 60.0, 1),
        ("p50_ttft > +5%", 50.0, 0),
        ("p50_ttft > +40%", 60.0, 0),
        ("request_throughput < -5%", 60.0, 0),
    ],
)
def test_fail_if_fails_only_where_the_evidence_is_there(
    noisy_run: Callable[..., RunFolder], condition: str, slower: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(noisy_run(seed, ttft).path) for seed, ttft in ((1, 50.0), (2, slower))]
    assert bench(["compare", *paths, "--fail_if", condition, "--allow_single"]) == status
    assert ("FAILED" in capsys.readouterr().out) is bool(status)


def test_fail_if_refuses_single_runs_and_names_what_would_do(
    noisy_run: Callable[..., RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(noisy_run(seed).path) for seed in (1, 2)]
    assert bench(["compare", *paths, "--fail_if", "p50_ttft > +5%"]) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in ("--allow_single", "bench experiment", "repeated runs"))


def test_a_condition_without_evidence_is_undecided(noisy_run: Callable[..., RunFolder]) -> None:
    comparison = _compare([noisy_run(1), noisy_run(2, sent=300)], "p99_ttft > +5%", "p50_ttft > +90%")
    assert [result.status for result in comparison.comparisons[0].conditions] == [Status.UNDECIDED, Status.PASSED]
    assert "undecided: p99_ttft" in COMPARISON.terminal_text(comparison)
    conditions = document(comparison)["comparisons"][0]["conditions"]
    assert [condition["status"] for condition in conditions] == ["undecided", "passed"]


@pytest.mark.parametrize("text", ["", "p99_ttft", "p98_ttft > 5%", "p99_tokens > 5%", "failed_share > +5%", "p99_ttft > 5pp"])
def test_a_malformed_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConditionError):
        parse_condition(text)


def test_runs_of_one_name_are_told_apart_by_their_paths(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, (day, ttft) in enumerate((("monday", 50.0), ("tuesday", 60.0))):
        (tmp_path / day).mkdir()
        noisy_run(seed, ttft).path.rename(tmp_path / day / "run")
    monkeypatch.chdir(tmp_path)
    assert bench(["compare", "monday/run", "tuesday/run", "--output", "c.json"]) == 0
    assert "Between these starts, tuesday/run is worse than monday/run: " in " ".join(capsys.readouterr().out.split())
    (pair,) = json.loads(Path("c.json").read_text(encoding="utf-8"))["comparisons"]
    assert (pair["a"], pair["b"]) == ("monday/run", "tuesday/run")
    monkeypatch.chdir(tmp_path / "monday" / "run")
    assert read_arm(Path()).name == "run"


def test_every_format_has_the_same_content(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(noisy_run(seed, ttft).path) for seed, ttft in ((1, 50.0), (2, 60.0))]
    outputs = [tmp_path / f"c.{suffix}" for suffix in ("json", "md", "csv", "html")]
    assert bench(["compare", *paths, *(f"--output={path}" for path in outputs)]) == 0
    content = json.loads(outputs[0].read_text())["comparisons"][0]
    assert content["verdict"] == "worse between these starts"
    assert content["summary"].startswith("Between these starts, ")
    for note in ("One run each", "To show 5%"):
        assert any(note in text for text in content["notes"])
        assert note in outputs[1].read_text()
        assert note in outputs[3].read_text()
    assert all("between these starts" in output.read_text().lower() for output in outputs)
    rows = list(csv.DictReader(outputs[2].open()))
    assert [row["verdict"] for row in rows] == [d["verdict"] for d in content["differences"]]


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [
        ("better", Tone.GOOD), ("no difference shown", Tone.GOOD), ("worse", Tone.BAD),
        ("better between these starts", Tone.CAUTION), ("worse between these starts", Tone.CAUTION),
        (MIXED, Tone.CAUTION), ("cannot be told", Tone.CAUTION),
    ],
)  # fmt: skip
def test_a_page_shows_good_news_bad_news_and_what_is_to_be_weighed(verdict: str, tone: Tone) -> None:
    assert tone_of(verdict) is tone


def test_several_arms_say_that_each_is_judged_by_itself(noisy_run: Callable[..., RunFolder]) -> None:
    """A family of measures is corrected by Holm, one of arms by nothing."""
    several, single = (_compare([noisy_run(seed) for seed in range(1, runs + 1)]) for runs in (4, 2))
    sentence = "Each of 3 arms is judged by itself: if all equal A, one is called different in up to 15% of cases."
    for text in (COMPARISON.terminal_text(several), markdown_text(full_document(several)), comparison_page(several).lead):
        assert sentence in " ".join(text.split())
    assert "by itself" not in COMPARISON.terminal_text(single) + comparison_page(single).lead


def test_the_worst_news_of_several_arms_sets_the_tone(noisy_run: Callable[..., RunFolder]) -> None:
    page = comparison_page(_compare([noisy_run(1), noisy_run(2, 60.0), noisy_run(3)]))
    assert page.tone is Tone.CAUTION  # of single runs


def test_the_cards_of_several_arms_name_theirs(noisy_run: Callable[..., RunFolder]) -> None:
    several = _compare([noisy_run(1), noisy_run(2), noisy_run(3)])
    names = [pair.arm.name for pair in several.comparisons]
    titles = [card.title for card in comparison_page(several).cards]
    assert [title for title in titles if title.startswith("TTFT")] == [f"TTFT p99, {name}" for name in names]
    assert next(card.title for card in comparison_page(_compare([noisy_run(1), noisy_run(2)])).cards) == "TTFT p99"


def test_a_card_shows_the_median_where_the_99th_percentile_is_unknown(noisy_run: Callable[..., RunFolder]) -> None:
    differences = _compare([noisy_run(1), noisy_run(2)]).comparisons[0].differences
    assert [card.title for card in difference_cards(differences)][:2] == ["TTFT p99", "E2E latency p99"]
    few = [replace(d, interval=None) if d.measure.name == "p99_ttft" else d for d in differences]
    assert [card.title for card in difference_cards(few)][:2] == ["TTFT p50", "E2E latency p99"]


def test_text_from_outside_is_shown_as_text(noisy_run: Callable[..., RunFolder]) -> None:
    target = {"model": NAUGHTY, "protocol": "grpc", "streaming": True}
    comparison = _compare([noisy_run(1), noisy_run(2, target=target)])
    markdown, console, page = (
        COMPARISON.markdown_text(comparison),
        COMPARISON.terminal_text(comparison),
        checked(render_page(comparison_page(comparison))),
    )
    assert "<script>" not in markdown
    assert "<script>alert" not in page
    assert not {"\u202e", "\x1b"} & {*markdown, *console, *page}
    assert json.loads(json.dumps(document(comparison), allow_nan=False))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "Missing argument"),
        (["compare", "runs/a"], "at least two runs"),
        (["compare", "a", "b", "--output", "c.pdf"], ".html"),
        (["compare", "a", "b", "--output", "nosuch/c.html"], "--output: nosuch/c.html: there is no folder nosuch"),
        (["compare", "a", "b", "--fail_if", "nonsense"], "p99_ttft"),
        (["compare", "a", "b", "./a"], "a is given twice"),
        (["compare", "a", "--baseline", "a"], "a is given twice"),
    ],
)
def test_usage_errors_are_reported(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_copy_of_a_run_is_neither_a_repeat_nor_another_side(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = noisy_run(1, run_id="a" * 32), noisy_run(2, run_id="b" * 32)
    for name, folder in (("a/1", before), ("a/2", before), ("b/1", after), ("c/1", before)):
        shutil.copytree(folder.path, tmp_path / name)
    copies = (["a", "b"], ["b", "a"], ["a/1", "c"], ["b", "--baseline", "a"])
    for paths in copies:
        assert bench(["compare", *(path if path == "--baseline" else str(tmp_path / path) for path in paths)]) == 2
        assert "hold the same run" in capsys.readouterr().err
    (tmp_path / "b" / "1").rename(tmp_path / "b" / "other")
    assert bench(["compare", str(tmp_path / "b"), str(tmp_path / "b" / "other")]) == 2
    assert "is on two sides" in capsys.readouterr().err
    assert bench(["compare", str(tmp_path / "a" / "1"), str(tmp_path / "b")]) == 0


def test_a_folder_without_runs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    assert bench(["compare", str(tmp_path / "other"), str(tmp_path)]) == 2
    assert "run.json" in capsys.readouterr().err


def test_an_experiment_gets_its_comparison_in_every_format(noisy_run: Callable[..., RunFolder], tmp_path: Path) -> None:
    page = COMPARISON.write_all(_compare([noisy_run(1), noisy_run(2, 60.0)]), tmp_path)
    assert page == tmp_path / "compare.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare.csv", "compare.html", "compare.json", "compare.md"]
    assert json.loads((tmp_path / "compare.json").read_text())["comparisons"][0]["verdict"] == "worse between these starts"
    assert all("worse" in path.read_text() for path in tmp_path.iterdir())


def test_a_recorded_experiment_prints_the_path_of_its_page(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [PlannedArm("a", ()), PlannedArm("<b>", ("--workers", "2"))]
    plan, folder = plan_runs("experiment", ["dataset"], arms, 3, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    for number, run in enumerate(plan.runs):
        noisy_run(number, 60.0 if run.arm else 50.0).path.rename(folder.run_folder(run).path)
    options = ["--arm", "a=", "--arm", "<b>=--workers 2", "--repeats", "3", "--experiment_dir", str(tmp_path)]
    assert bench(["experiment", *options, "dataset"]) == 0
    assert f"Experiment: {tmp_path / 'compare.html'}" in capsys.readouterr().out
    assert "&lt;b&gt; is worse than a" in (tmp_path / "compare.html").read_text(encoding="utf-8")


def test_an_experiment_ends_when_it_is_decided_and_a_second_call_makes_no_run(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runs of three of ten blocks are recorded, and B takes a fifth longer in each."""
    arms = [PlannedArm("a", ()), PlannedArm("b", ("--workers", "2"))]
    plan = plan_runs("experiment", ["dataset"], arms, 10, 0, UntilDecided(10, "p50_ttft"))
    folder = ExperimentFolder(tmp_path)
    folder.write(plan)
    for run in plan.runs[:6]:
        noisy_run(run.block, 60.0 if run.arm else 50.0).path.rename(folder.run_folder(run).path)
    options = ["--arm", "a=", "--arm", "b=--workers 2", "--until", "p50_ttft decided", "--experiment_dir", str(tmp_path)]
    for command in (["experiment", *options, "dataset"], ["compare", str(tmp_path)]):
        assert bench(command) == 0
        shown = capsys.readouterr().out.replace("\n", " ")
        assert "b is worse than a: TTFT p50 +" in shown
        assert ", after 3 of at most 10 blocks." in shown
        assert "left out" not in shown
        assert "p50 decides, and has 80% of the 5 %" in shown
    (first,) = json.loads((tmp_path / "compare.json").read_text())["comparisons"]
    assert first["looks"] == {"blocks": 3, "most_blocks": 10, "measure": "p50_ttft", "decided": True}
    (decides,) = (difference for difference in first["differences"] if difference["measure"] == "p50_ttft")
    plain = differences_between(*read_experiment(folder), runs_paired=True)
    (fixed,) = (difference for difference in plain if difference.measure.name == "p50_ttft")
    assert fixed.interval is not None
    assert decides["interval"][0] < fixed.interval[0] < fixed.interval[1] < decides["interval"][1]


def test_an_experiment_that_was_stopped_before_its_first_look_tells_nothing_yet(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of ten blocks: their test has no level, so an interval would hold every change, and every share of failures."""
    arms = [PlannedArm("a", ()), PlannedArm("b", ("--workers", "2"))]
    plan, folder = plan_runs("experiment", ["dataset"], arms, 10, 0, UntilDecided(10)), ExperimentFolder(tmp_path)
    folder.write(plan)
    for run in plan.runs[:4]:
        noisy_run(run.block, 60.0 if run.arm else 50.0, failures=run.arm * (1 + run.block)).path.rename(
            folder.run_folder(run).path
        )
    condition = ["--fail_if", "p50_ttft>+5%", "--output", str(tmp_path / "c.json")]
    assert bench(["compare", str(tmp_path), *condition]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "These runs do not show whether b differs from a, after 2 of at most 10 blocks." in shown
    assert "undecided: p50_ttft>+5%: too few blocks for a look" in shown
    assert "paid for the looks" not in shown
    (only,) = json.loads((tmp_path / "c.json").read_text(), parse_constant=pytest.fail)["comparisons"]
    assert {difference["interval"] for difference in only["differences"]} == {None}


@pytest.mark.parametrize(("sound", "status"), [(1, 1), (2, 0)])
def test_an_experiment_with_one_valid_block_judges_no_change(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], sound: int, status: int
) -> None:
    """What 'bench compare' refuses for single runs: one start of each arm. A limit of the arm alone needs no other start."""
    arms = [PlannedArm("a", ()), PlannedArm("b", ("--workers", "2"))]
    plan, folder = plan_runs("experiment", ["dataset"], arms, 3, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    for number, run in enumerate(plan.runs):
        failures = 8 if run.block >= sound and run.arm else 0  # more than 1 % of 700
        noisy_run(number, failures=failures).path.rename(folder.run_folder(run).path)
    options = ["--arm", "a=", "--arm", "b=--workers 2", "--repeats", "3", "--experiment_dir", str(tmp_path)]
    assert bench(["experiment", *options, "--fail_if", "p50_ttft>+50%", "dataset"]) == status
    shown = capsys.readouterr()
    assert f"Experiment: {tmp_path / 'compare.html'}" in shown.out
    assert ("--fail_if judges a change by repeated runs, and only one block is valid" in shown.err) is (sound == 1)
    if sound == 1:
        _, command = shown.err.rstrip().split("To judge these starts alone: bench ")
        assert bench(shlex.split(command)) == 0
        assert "p50_ttft>+50%: changed by" in " ".join(capsys.readouterr().out.split())
    assert bench(["experiment", *options, "--fail_if", "p50_ttft>90ms", "dataset"]) == 0


def test_blocks_left_out_for_an_arm_s_failed_requests_pass_no_condition(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 % of B's requests failed in two of four blocks, none in the others, which alone passed every condition."""
    arms = [PlannedArm("a", ()), PlannedArm("b", ("--workers", "2"))]
    plan, folder = plan_runs("experiment", ["dataset"], arms, 4, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    for number, run in enumerate(plan.runs):
        noisy_run(number, failures=14 if run.arm and run.block < 2 else 0).path.rename(folder.run_folder(run).path)
    options = ["--arm", "a=", "--arm", "b=--workers 2", "--repeats", "4", "--experiment_dir", str(tmp_path)]
    conditions = ["failed_share>0.2%", "p99_ttft>200ms", "failed_share>+50pp", "p50_ttft>+90%"]
    gates = [word for condition in conditions for word in ("--fail_if", condition)]
    assert bench(["experiment", *options, *gates, "dataset"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "FAILED: failed_share>0.2%: 1.0 %; 1.0 % of 2,800 failed" in shown
    assert "In 2 runs of B that are left out, too many requests failed; the table does not cover that." in shown
    (only,) = json.loads((tmp_path / "compare.json").read_text())["comparisons"]
    assert [result["status"] for result in only["conditions"]] == ["failed", "undecided", "undecided", "undecided"]
    assert only["conditions"][3]["why"].endswith(
        "interval of 2 conditions together, without 2 runs of this arm in which too many requests failed"
    )


def test_limits_of_an_arm_count_its_valid_runs_of_blocks_left_out(noisy_run: Callable[..., RunFolder], tmp_path: Path) -> None:
    """B failed in one of ten blocks and A in five others: without B's valid runs there, its share of failures would double."""
    arms = [PlannedArm("a", ()), PlannedArm("b", ("--workers", "2"))]
    plan, folder = plan_runs("experiment", ["dataset"], arms, 10, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    for number, run in enumerate(plan.runs):
        failures = 14 if (run.block == 0 if run.arm else 1 <= run.block <= 5) else 0
        noisy_run(number, failures=failures).path.rename(folder.run_folder(run).path)
    arms_read = read_experiment(folder)
    assert [(len(arm.runs), len(arm.left_out), len(arm.failed)) for arm in arms_read] == [(4, 6, 5), (4, 6, 1)]
    (only,) = compare(arms_read, [parse_condition("failed_share>0.3%")], runs_paired=True).conditions
    assert (only.status, only.why.split(";")[0]) == (Status.UNDECIDED, "0.20 %")


def test_a_warning_that_both_arms_have_equally_often_is_no_difference(
    noisy_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    """In each block one arm alone has it."""
    arms = [PlannedArm("a", ()), PlannedArm("b", ("--workers", "2"))]
    plan, folder = plan_runs("experiment", ["dataset"], arms, 2, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    for number, run in enumerate(plan.runs):
        readings = clock_readings(500.0 if run.block == run.arm else 0.0)
        noisy_run(number, **readings).path.rename(folder.run_folder(run).path)
    (one,) = compare(read_experiment(folder), runs_paired=True).comparisons
    assert [disagreement.what for disagreement in one.disagreements] == []


def test_an_experiment_of_different_work_names_the_command_that_has_the_option(
    noisy_run: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, folder = (
        plan_runs("experiment", ["dataset"], [PlannedArm("a", ()), PlannedArm("b", ())], 2, 0),
        ExperimentFolder(tmp_path),
    )
    folder.write(plan)
    for number, run in enumerate(plan.runs):
        made = noisy_run(number)
        made.manifest.write_text(json.dumps({**made.read_document()[0], "arrivals": f"those of {run.arm}"}))
        made.path.rename(folder.run_folder(run).path)
    options = ["--arm", "a=", "--arm", "b=", "--repeats", "2", "--experiment_dir", str(tmp_path)]
    assert bench(["experiment", *options, "dataset"]) == 3
    assert f"The option is that of: bench compare {tmp_path} --allow_different" in capsys.readouterr().err


# ---- the verdict of all measures, from some of them


def _judged(verdict: Verdict, p_value: float | None = 0.01, error: float | None = 0.1) -> Difference:
    spread = None if error is None else Spread(0.0, error, 4.0, Evidence.RUNS)
    return Difference(MEASURES[0], None, None, None, None, None, p_value, p_value, None, verdict, None, spread)


_BY_VERDICT = {verdict: _judged(verdict) for verdict in Verdict}
_BY_VERDICT[Verdict.UNKNOWN] = _judged(Verdict.UNKNOWN, None, None)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict.NONE, Verdict.WORSE], "worse"),
        ([Verdict.BETTER, Verdict.NONE], "better"),
        ([Verdict.NONE, Verdict.STARTS_WORSE], "worse between these starts"),
        ([Verdict.NONE, Verdict.STARTS_BETTER], "better between these starts"),
        ([Verdict.BETTER, Verdict.NONE, Verdict.WORSE], "mixed"),
        ([Verdict.STARTS_BETTER, Verdict.STARTS_WORSE], "mixed between these starts"),
        ([Verdict.NONE, Verdict.NONE], "no difference shown"),
        ([Verdict.NONE, Verdict.UNKNOWN], "no difference shown"),
        ([Verdict.UNKNOWN, Verdict.BETTER], "better"),
        ([Verdict.UNKNOWN, Verdict.UNKNOWN], "cannot be told"),
        ([], "cannot be told"),
    ],
)
def test_the_verdict_of_all_measures(verdicts: list[Verdict], expected: str) -> None:
    assert overall([_BY_VERDICT[verdict] for verdict in verdicts]) == expected


@pytest.mark.parametrize(
    ("p_value", "error", "expected"),
    [
        (1.0, 0.0, "cannot be told"),  # one constant value in all runs
        (1.0, 0.1, "no difference shown"),  # equal by chance
        (1.0, None, "cannot be told"),
        (0.5, 0.0, "no difference shown"),
    ],
)
def test_a_measure_is_evidence_where_it_varies(p_value: float, error: float | None, expected: str) -> None:
    assert overall([_BY_VERDICT[Verdict.UNKNOWN], _judged(Verdict.NONE, p_value, error)]) == expected


# ---- folders


def test_an_arm_is_named_by_its_folder_and_holds_its_runs_in_order(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], tmp_path: Path
) -> None:
    (tmp_path / "arm" / "notes").mkdir(parents=True)
    for name, count in (("b", 3), ("a", 2)):
        make_report(steady_run(count)).folder.path.rename(tmp_path / "arm" / name)
    arm, alone = read_arm(tmp_path / "arm"), read_arm(tmp_path / "arm" / "b")
    assert (arm.name, [run.metrics.scheduled for run in arm.runs], arm.blocks_left_out) == ("arm", [2, 3], 0)
    assert (alone.name, [run.metrics.scheduled for run in alone.runs]) == ("b", [3])


def test_an_arm_of_a_relative_path_is_named_by_the_folder_it_leads_to(
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "arm").mkdir()
    make_report(steady_run(2)).folder.path.rename(tmp_path / "arm" / "a")
    (tmp_path / "arm" / "link").symlink_to(tmp_path / "arm" / "a")
    monkeypatch.chdir(tmp_path / "arm" / "a")
    assert [read_arm(Path(path)).name for path in ("", ".", "..", "../a", "../link")] == ["a", "a", "arm", "a", "link"]


def test_a_copy_of_a_run_in_an_arm_is_named_with_its_original(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], tmp_path: Path
) -> None:
    for name, run_id in (("1", "a"), ("2", "b"), ("3", "a")):
        make_report(steady_run(2), run_id=run_id * 32).folder.path.rename(tmp_path / name)
    with pytest.raises(RunFolderError) as refusal:
        read_arm(tmp_path)
    assert str(refusal.value) == (
        f"{tmp_path / '1'} and {tmp_path / '3'} hold the same run, and a copy is no repeat; move one of them elsewhere"
    )


@pytest.fixture
def experiment(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], tmp_path: Path
) -> ExperimentFolder:
    """Two arms in four blocks: 10 requests and the number of the run, of which the second block lacks one run, and the third
    has an invalid one.
    """
    plan = plan_runs("experiment", ["dataset"], [PlannedArm("a", ()), PlannedArm("b", ())], 4, 0)
    folder = ExperimentFolder(tmp_path)
    folder.write(plan)
    for run in plan.runs:
        if (run.block, run.arm) == (1, 1):
            continue
        records = steady_run(10 + 2 * run.block + run.arm)
        if (run.block, run.arm) == (2, 0):
            records = [
                Record(index=0, outcome=Outcome.TIMEOUT, scheduled_ns=0, requested_output_tokens=1, sent_ns=0, done_ns=9)
            ]
        make_report(records).folder.path.rename(folder.run_folder(run).path)
    return folder


def test_the_runs_of_an_arm_and_of_an_experiment_are_read_by_the_criteria_given(experiment: ExperimentFolder) -> None:
    criteria = [parse_slo("p50_ttft<=1s")]
    arms = read_experiment(experiment, criteria)
    for block, run in enumerate(arms[0].runs):
        (experiment.path / "arm").mkdir(exist_ok=True)
        run.folder.path.rename(experiment.path / "arm" / str(block))
    for arm in (*arms, read_arm(experiment.path / "arm", criteria)):
        assert [[gate.requirement for gate in run.gates] for run in arm.runs] == [criteria, criteria]
    (alone,) = read_arm(experiment.path / "arm" / "1", criteria).runs
    assert [gate.requirement for gate in alone.gates] == criteria


def test_the_sound_blocks_of_an_experiment_stay_paired(experiment: ExperimentFolder) -> None:
    a, b = read_experiment(experiment)
    assert (a.name, b.name) == ("a", "b")
    assert [run.metrics.scheduled for run in a.runs] == [10, 16]
    assert [run.metrics.scheduled for run in b.runs] == [11, 17]
    assert (a.blocks_left_out, b.blocks_left_out) == (2, 2)


def test_an_experiment_without_a_sound_block_is_refused(experiment: ExperimentFolder) -> None:
    for run in experiment.read().runs:
        if run.block in (0, 3) and run.arm == 0:
            shutil.rmtree(experiment.run_folder(run).path)
    (invalid,) = (run for run in experiment.read().runs if (run.block, run.arm) == (2, 0))
    with pytest.raises(NoValidBlockError) as refusal:
        read_experiment(experiment)
    assert str(refusal.value) == (
        f"{experiment.path}: every block has an invalid run, so there is nothing to compare; see the findings in "
        f"{experiment.run_folder(invalid).html} first"
    )
    for run in experiment.read().runs:
        if run.arm == 0:
            shutil.rmtree(experiment.run_folder(run).path, ignore_errors=True)
    with pytest.raises(RunFolderError, match="no block has all its runs yet"):
        read_experiment(experiment)


def test_an_experiment_is_no_arm(experiment: ExperimentFolder) -> None:
    with pytest.raises(RunFolderError, match="is the folder of an experiment; give it alone: bench compare"):
        read_arm(experiment.path)


# ---- pairs, curve and refusal


def test_paired_requests_have_their_difference_and_the_share_that_took_longer(
    make_report: Callable[..., RunReport], answered: Callable[..., Record], failed: Callable[..., Record]
) -> None:
    """Among B 15 requests took 3 ms more, 15 took 0.5 ms more, 60 took 1 ms less, and 10 as long; one failed in both runs, and
    one in B.
    """
    more_ms = [3.0] * 15 + [0.5] * 15 + [-1.0] * 60 + [0.0] * 10
    a = [answered(k, 10 * k, 10 * k, [(10 * k + 20, 1)]) for k in range(101)]
    b = [answered(k, 10 * k, 10 * k, [(10 * k + 20 + more, 1)]) for k, more in enumerate(more_ms)]
    timeouts = [failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 9) for k in (100, 101)]
    arms = [Arm(name, (make_report(records),)) for name, records in (("a", [*a, timeouts[1]]), ("b", [*b, *timeouts]))]
    pairs = compare(arms, allow_different=True).comparisons[0].pairs
    assert pairs is not None
    assert (pairs.difference_ms.n, pairs.difference_ms.mean.value) == (100, pytest.approx(-0.075))
    assert pairs.share_slower == pytest.approx(0.3)


@pytest.mark.filterwarnings("error")
def test_pairs_without_any_two_answers_have_no_difference(
    make_report: Callable[..., RunReport], failed: Callable[..., Record]
) -> None:
    runs = [make_report([failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 9) for k in range(3)]) for _ in range(2)]
    assert compare([Arm("a", runs[:1]), Arm("b", runs[1:])], allow_different=True).comparisons[0].pairs is None


def test_streamed_and_unstreamed_answers_are_compared_by_their_ends(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    """The same answers, which begin after 100 ms and end after 120 ms: E2E latencies less TTFTs were 20 ms, "slower in B"."""
    streamed, unstreamed = (make_report(steady_run(120), streaming=streaming) for streaming in (True, False))
    arms = [Arm("streamed", (streamed,)), Arm("unstreamed", (unstreamed,)), Arm("both", (streamed, unstreamed))]

    def quantiles_ms(pair: ArmComparison) -> set[float]:
        return {round(latency_ms, 6) for point in pair.curve for latency_ms in (point.a_ms, point.b_ms)}

    for order in (arms, [arms[1], arms[0]], [arms[2], arms[0]]):
        compared = compare(order, allow_different=True)
        for pair in compared.comparisons:
            assert quantiles_ms(pair) == {120.0}
            assert not any(difference.measure.metric.streamed_only for difference in pair.differences)
        pictures = latency_pictures(compared)
        assert pictures[0].title == "E2E latency from schedule, by percentile"
    pair = compare(arms, allow_different=True).comparisons[0]
    assert pair.pairs is not None
    assert (pair.pairs.difference_ms.p50, pair.pairs.share_slower) == (0.0, 0.0)
    assert "B − A in E2E latency is +0.00 ms in the median" in notes(pair)[0]
    (alike,) = compare([arms[0], Arm("again", (streamed,))]).comparisons
    assert quantiles_ms(alike) == {100.0}


def test_the_curve_has_the_differences_of_quantiles_in_ms(noisy_run: Callable[..., RunFolder]) -> None:
    a, b = noisy_run(1), noisy_run(2, 60.0)
    (one,) = _compare([a, b]).comparisons
    points = {point.q: point for point in one.curve}
    assert [*points] == [0.01, 0.02, *(percent / 100 for percent in range(5, 100, 5)), 0.98, 0.99, 0.995, 0.999]
    assert points[0.999].interval_ms is None  # of 700 requests
    median = next(d for d in one.differences if d.measure.name == "p50_ttft")
    assert median.interval is not None
    assert (points[0.5].a_ms, points[0.5].b_ms) == (pytest.approx(median.a), pytest.approx(median.b))
    assert points[0.5].interval_ms == pytest.approx([points[0.5].a_ms * share for share in median.interval])


def test_the_curve_leaves_out_what_reaches_into_the_failures_of_one_run(noisy_run: Callable[..., RunFolder]) -> None:
    runs = [read_run(run) for run in (noisy_run(1), noisy_run(2, failures=14))]  # 2 % of 700
    points = compare([Arm(str(k), (run,)) for k, run in enumerate(runs)], allow_different=True).comparisons[0].curve
    assert max(point.q for point in points) == 0.98
    assert len(points) == 22


def test_the_curve_of_repeated_runs_has_the_interval_between_runs(
    make_report: Callable[..., RunReport], answered: Callable[..., Record]
) -> None:
    """Runs of one constant latency each, ms; of logarithms Welch's interval, in turn or not."""
    latencies = ((100.0, 110.0, 125.0), (120.0, 118.0, 160.0))

    def run(latency_ms: float) -> RunReport:
        return make_report([answered(k, 10 * k, 10 * k, [(10 * k + latency_ms, 1)]) for k in range(120)])

    arms = [Arm(str(k), tuple(run(latency_ms) for latency_ms in side)) for k, side in enumerate(latencies)]
    a, b = (np.log(side) for side in latencies)
    low, high = scipy_stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    middle = math.exp(a.mean())
    for in_turn in (False, True):
        points = {point.q: point for point in compare(arms, runs_paired=in_turn).comparisons[0].curve}
        assert points[0.5].a_ms == pytest.approx(middle)
        assert points[0.5].interval_ms == pytest.approx((middle * math.expm1(low), middle * math.expm1(high)), rel=1e-6)


@pytest.mark.parametrize(("digests", "evidence"), [("xxxx", Evidence.RUNS), ("xxyy", Evidence.SCHEDULES)])
def test_the_curve_has_the_interval_of_the_table_at_its_quantile(
    noisy_run: Callable[..., RunFolder], digests: str, evidence: Evidence
) -> None:
    """With what one schedule differs from another, where each side repeats one of its own."""
    runs = [read_run(noisy_run(seed, schedule={"digest": digest, "seed": 1})) for seed, digest in enumerate(digests)]
    (one,) = compare([Arm("a", tuple(runs[:2])), Arm("b", tuple(runs[2:]))]).comparisons
    median = next(d for d in one.differences if d.measure.name == "p50_ttft")
    point = next(point for point in one.curve if point.q == 0.5)
    assert (median.evidence, median.a, median.b) == (evidence, point.a_ms, point.b_ms)
    assert median.a is not None
    assert median.interval is not None
    assert point.interval_ms == pytest.approx([median.a * limit for limit in median.interval])


def test_runs_are_paired_where_they_are_said_to_be_measured_in_turn(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    arms = [Arm(name, tuple(make_report(steady_run(120)) for _ in range(2))) for name in ("a", "b")]
    by_default, in_turn = differences_between(*arms), differences_between(*arms, runs_paired=True)
    assert {d.evidence for d in by_default} - {None} == {Evidence.RUNS}
    assert {d.evidence for d in in_turn} - {None} == {Evidence.RUN_PAIRS}


def test_differences_of_an_experiment_that_ends_when_it_is_decided_pay_for_its_looks(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    run, looks = make_report(steady_run(120)), Looks(10)
    (one,) = compare([Arm("a", (run,) * 3), Arm("b", (run,) * 3)], runs_paired=True, looks=looks).comparisons
    assert one.looks is looks
    spreads = [d.spread for d in one.differences if d.spread is not None]  # 120 requests have no p99
    assert {(type(spread), getattr(spread, "blocks", None)) for spread in spreads} == {(SpreadAtLook, 3)}
    (plain,) = compare([one.baseline, one.arm], runs_paired=True).comparisons
    assert (plain.looks, {type(d.spread) for d in plain.differences}) == (None, {Spread, type(None)})


def test_runs_of_blocks_left_out_count_in_conditions(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], failed: Callable[..., Record]
) -> None:
    """In one of three runs of B 20 of 120 requests failed, 5.6 % of all. The change covers the other two runs."""
    run = make_report(steady_run(120))
    lost = make_report(steady_run(100) + [failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(100, 120)])
    sides = [Arm("a", (run,) * 2), Arm("b", (run,) * 2, 1, (lost,))]
    conditions = [parse_condition(text) for text in ("p50_ttft > +50%", "failed_share > 1%")]
    (change, share) = compare(sides, conditions, runs_paired=True).conditions
    assert change.status is Status.UNDECIDED
    assert change.why == "changed by +0.0%: no spread, without 1 run of this arm in which too many requests failed"
    assert share.why.startswith("5.6 %; ")
    (change, share) = compare([sides[0], replace(sides[1], left_out=(run,))], conditions, runs_paired=True).conditions
    assert (change.status, share.why.partition(";")[0]) == (Status.PASSED, "0.0 %")


def test_arms_measured_in_turn_have_as_many_runs(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    runs = tuple(make_report(steady_run(120)) for _ in range(2))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        compare([Arm("a", runs), Arm("b", runs[:1])], runs_paired=True)


def test_a_refusal_names_both_arms_and_what_is_different_of_the_work_alone(noisy_run: Callable[..., RunFolder]) -> None:
    load = {"load": {"mode": "closed"}}
    other = noisy_run(2, load={"mode": "open"}, arrivals="other", bench_version="2")
    runs = [read_run(run) for run in (noisy_run(1, **load), other)]
    with pytest.raises(NotComparableError) as refusal:
        compare([Arm("here", (runs[0],)), Arm("there", (runs[1],))])
    assert str(refusal.value) == (
        "here and there cannot be compared. arrivals: constant arrivals at 100 requests/s against other; load.mode: closed "
        "against open. Runs of different work cannot be compared: measure both alike, or use --allow_different."
    )
    lost = noisy_run(2, failures=14, arrivals="other", interrupted=True)
    with pytest.raises(NotComparableError) as refusal:
        compare([Arm("here", (runs[0],)), Arm("there", (read_run(lost),))], allow_simulated=True)
    assert str(refusal.value) == (
        "here and there cannot be compared. validity: valid against errors; arrivals: constant arrivals at 100 requests/s "
        "against other; load.mode: closed against –. An invalid run cannot be compared; see its report, and measure again. "
        "Runs of different work cannot be compared: measure both alike, or use --allow_different."
    )


def test_a_simulated_run_beside_a_measured_one_is_refused_unless_that_is_allowed(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    simulated = make_report(steady_run(120), simulation={"model": "m.json", "digest": "0f" * 32})
    arms = [Arm("simulated", (simulated,)), Arm("measured", (make_report(steady_run(120)),))]
    for order in (arms, arms[::-1]):
        for allow_different in (False, True):
            with pytest.raises(NotComparableError, match=r"cannot be compared\. simulation: "):
                compare(order, allow_different=allow_different)
    (one,) = compare(arms, allow_simulated=True).comparisons
    assert [disagreement.what for disagreement in one.disagreements] == ["simulation"]
    assert not one.simulated


def test_seeds_of_one_schedule_are_no_difference(noisy_run: Callable[..., RunFolder]) -> None:
    """A schedule that was replayed has another seed, or none."""
    drawn, replayed, other = (
        read_run(noisy_run(1, schedule={"digest": digest, "seed": seed})) for digest, seed in (("x", 1), ("x", None), ("y", 2))
    )
    for run, differing in ((replayed, set()), (other, {"schedule.digest", "schedule.seed"})):
        (one,) = compare([Arm("here", (drawn,)), Arm("there", (run,))]).comparisons
        assert {disagreement.what for disagreement in one.disagreements} == differing


def test_settings_that_differ_between_two_servers_fit_a_screen(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    """Five repeats a side with the same seeds, of text over OpenAI's API and of token ids over gRPC."""

    def side(protocol: str, first_digest: int, *, token_ids: bool, parameters: dict[str, str]) -> tuple[RunReport, ...]:
        target = {"protocol": protocol, "streaming": True, "token_ids": token_ids, "model_parameters": parameters}
        return tuple(
            make_report(steady_run(40), target=target, schedule={"digest": f"{first_digest + k:02x}" * 32, "seed": 100 + k})
            for k in range(5)
        )

    parameters = {f"parameter_{k}": str(k) for k in range(25)}
    arms = [
        Arm("openai", side("openai", 1, token_ids=False, parameters={})),
        Arm("triton", side("grpc", 10, token_ids=True, parameters=parameters)),
    ]
    compared = compare(arms)
    (pair,) = document(compared)["comparisons"]
    assert len(pair["disagreements"]) == 28
    assert {len(value) for value in pair["disagreements"][0]["values"]} == {64}
    assert COMPARISON.terminal_text(compared).endswith(
        """
Differences in the settings, A | B:
    warn  schedule.digest: 5 different | 5 different, none in common
          Both sides have the same seeds. With seed 100, 40 requests are in both runs, with the same
          times and lengths, so their prompts differ. One side sends text, the other token ids. Part
          of the difference may come from here.
    warn  target.protocol: openai (× 5) | grpc (× 5)
          Part of the difference may come from here; keep it equal on both sides.
 changed  target.model_parameters: not known (× 5) | 25 values (× 5)
          target.token_ids: False (× 5) | True (× 5)
          If all else is equal, this is the change that the comparison measures."""
    )
    assert r"- target.model\_parameters: not known (× 5) \| 25 values (× 5)" in markdown_text(full_document(compared))
    page = checked(render_page(comparison_page(compared)))
    assert "<p>target.model_parameters: not known (× 5) | 25 values (× 5)</p><p>target.token_ids: False" in page
    assert page.count("this is the change that the comparison measures") == 1


def test_settings_of_runs_in_turn_are_compared_within_blocks(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    """Every block has a seed of its own; the arms differ in their model."""

    def run(block: int, model: str) -> RunReport:
        schedule = {"digest": f"{block:064x}", "seed": block}
        return make_report(steady_run(120), schedule=schedule, target={"model": model, "protocol": "grpc", "streaming": True})

    arms = [Arm(model, tuple(run(block, model) for block in range(2))) for model in ("m", "n")]
    (paired,) = compare(arms, runs_paired=True).comparisons
    (unpaired,) = compare(arms).comparisons
    assert [disagreement.what for disagreement in paired.disagreements] == ["target.model"]
    assert [disagreement.what for disagreement in unpaired.disagreements] == [
        "target.model"
    ]  # both sides have the same schedules
    assert {d.evidence for d in paired.differences} - {None} == {Evidence.RUN_PAIRS}
    assert {d.evidence for d in unpaired.differences} - {None} == {Evidence.RUNS}
    assert not paired.single_runs
    assert paired.pairs is None
    assert paired.baseline is arms[0]
    assert paired.arm is arms[1]


# ---- sides of other schedules


def _repeats(make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]], seed: int, slow: float) -> Arm:
    """Five runs of one schedule at a queue, whose services vary from run to run by a thousandth."""
    records = [queued_run(30.0, seed, slow * (20.0 + 0.02 * k), 2_000) for k in range(5)]
    digest = {"schedule": {"digest": f"{seed:02x}" * 32, "seed": seed}}
    return Arm(f"seed {seed}", tuple(make_report(records_of_run, **digest) for records_of_run in records))


@pytest.fixture(scope="module")
def repeats(make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]]) -> Callable[..., Arm]:
    return lambda seed, slow=1.0: _repeats(make_report, queued_run, seed, slow)


def test_repeats_of_one_seed_against_repeats_of_another_are_no_evidence_of_another_server(repeats: Callable[..., Arm]) -> None:
    """Equal servers, whose values hardly vary from run to run, and do from schedule to schedule."""
    baseline, arm = repeats(1), repeats(2)
    alike = compare_measures(MEASURES, baseline.measured, arm.measured, requests_paired=False, runs_paired=False)
    assert any(d.verdict.differs for d in alike)  # by the spread of the runs alone
    conditions = [parse_condition(text) for text in ("p50_ttft > +0%", "p50_ttft < +0%", "p99_e2e > +0%", "p99_e2e < +0%")]
    comparison = compare([baseline, arm], conditions)
    (one,) = comparison.comparisons
    assert not any(d.verdict.differs for d in one.differences)
    assert all(low <= 0.0 <= high for low, high in (point.interval_ms for point in one.curve if point.interval_ms is not None))
    assert {result.status for result in one.conditions} == {Status.UNDECIDED}
    assert all(
        phrase in COMPARISON.terminal_text(comparison)
        for phrase in ("The same seeds on both sides", "measure both sides with the same seeds")
    )


def test_a_change_beyond_what_schedules_differ_is_found_between_them(repeats: Callable[..., Arm]) -> None:
    (one,) = compare([repeats(1), repeats(2, 1.4)], [parse_condition("p50_ttft > +20%")]).comparisons
    assert one.verdict == "worse"
    assert one.conditions[0].failed
    assert one.recommendation is None


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        ("xx", "yy", True),
        ("xx", "xxx", False),
        ("xy", "yx", False),
        ("xxy", "xyy", True),
        ("vw", "xyz", False),  # the spread of the runs has that of the schedules
        ("xxxx", "vwyz", True),
        ("x", "yyy", True),
        ("x", "xxx", False),
        ("x", "vwyz", False),
        ("x", "y", False),  # within the runs
        ("xx", "y", True),
    ],
)
def test_schedules_are_apart_where_repeats_lack_their_spread(
    noisy_run: Callable[..., RunFolder], a: str, b: str, apart: bool
) -> None:
    run = read_run(noisy_run(1))

    def side(digests: str) -> list[RunReport]:
        return [
            replace(run, manifest=structs.replace(run.manifest, schedule=DrawnSchedule(digest=digest, seed=1)))
            for digest in digests
        ]

    assert schedules_apart(side(a), side(b)) is apart
    assert schedules_apart(side(b), side(a)) is apart


def test_the_curve_of_runs_that_were_sent_at_different_rates_has_no_intervals(
    make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]]
) -> None:
    runs = [make_report(queued_run(rate, 1, 5.0), schedule={"digest": f"{rate}", "seed": 1}) for rate in (20.0, 40.0)]
    (one,) = compare([Arm(run.folder.path.name, (run,)) for run in runs], [parse_condition("p50_ttft > +0%")]).comparisons
    assert one.curve
    assert all(point.interval_ms is None for point in one.curve)
    assert {(d.verdict, d.reason) for d in one.differences} == {(Verdict.UNKNOWN, Cause.SENT_UNLIKE)}
    assert one.conditions[0].status is Status.UNDECIDED
