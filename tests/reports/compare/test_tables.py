"""The tables and sentences of a comparison, of differences by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.compare.comparison import Arm, Comparison, RequestPairs
from reports.compare.conditions import AbsoluteCondition, ConditionResult, Status, parse_condition
from reports.compare.difference import Difference, Verdict
from reports.compare.looks import Looks
from reports.compare.measures import Measure
from reports.compare.spread import Evidence, Spread
from reports.compare.tables import (
    change_text,
    conditions_table,
    difference_row,
    difference_table,
    headline,
    interval_text,
    judged_apart,
    notes,
    smallest_shown_text,
    summary_sentence,
)
from reports.render.tables import Quantity
from reports.run_report import RunReport
from reports.statistics.estimate import TooFew
from reports.statistics.percentiles import summarise
from tests.reports.compare.by_hand import FAILED, P50, P99, P99_E2E, RATE, comparison, difference


@pytest.fixture(scope="module")
def run(make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]) -> RunReport:
    return make_report(steady_run(120))


# ---- cells


@pytest.mark.parametrize(
    ("measure", "change", "text"),
    [
        (P99, 0.2545, "+25.4%"),
        (P99, -0.05, "-5.0%"),
        (P99, 0.0, "+0.0%"),
        (P99, 9.99, "+999.0%"),
        (P99, 10.0, "above +1,000%"),
        (P99, 1e20, "above +1,000%"),
        (P99, None, "–"),
        (FAILED, 0.0123, "+1.23 pp"),
        (FAILED, -0.5, "-50.00 pp"),
    ],
)
def test_a_change_is_in_per_cent_or_points(measure: Measure, change: float | None, text: str) -> None:
    assert change_text(measure, change) == text


def test_an_interval_is_two_changes_or_the_reason_for_none() -> None:
    assert interval_text(difference(P99)) == "+10.0% to +40.0%"
    assert interval_text(difference(FAILED, interval=(-0.01, 0.02))) == "-1.00 pp to +2.00 pp"
    assert interval_text(difference(P99, interval=None, reason=TooFew(9, 100))) == "n too small"
    assert interval_text(difference(P99, interval=None)) == "–"


@pytest.mark.parametrize(
    ("measure", "smallest", "text"),
    [
        (P99, 1.0, "-50.0% or +100.0%"),
        (P99, 0.25, "-20.0% or +25.0%"),
        (P99, None, "–"),
        (FAILED, 0.02, "±2.00 pp"),
    ],
)
def test_the_smallest_fall_of_a_ratio_is_the_inverse_of_the_smallest_rise(
    measure: Measure, smallest: float | None, text: str
) -> None:
    assert smallest_shown_text(difference(measure, smallest_shown=smallest)) == text


def test_a_row_has_the_values_in_their_unit_and_changes_in_per_cent() -> None:
    assert difference_row(difference(P99, Verdict.WORSE)) == (
        "TTFT p99, ms",
        Quantity(100.0, "100.00"),
        Quantity(125.0, "125.00"),
        Quantity(25.0, "+25.00"),
        Quantity(25.0, "+25.0%"),
        "+10.0% to +40.0%",
        Quantity(0.04, "0.040"),
        Quantity(50.0, "-33.3% or +50.0%"),
        "worse",
    )
    assert difference_row(difference(FAILED, a=0.01, b=0.03, change=0.02, interval=None, smallest_shown=0.125)) == (
        "Failed requests, %",
        Quantity(1.0, "1.00"),
        Quantity(3.0, "3.00"),
        Quantity(pytest.approx(2.0), "+2.00"),
        Quantity(2.0, "+2.00 pp"),
        "–",
        Quantity(0.04, "0.040"),
        Quantity(12.5, "±12.50 pp"),
        "no difference shown",
    )
    unknown = Difference(P99, None, 5.0, None, None, None, None, None, None, Verdict.UNKNOWN, TooFew(9, 100))
    assert difference_row(unknown)[1:] == (None, Quantity(5.0, "5.00"), None, None, "n too small", None, None, "cannot be told")
    assert difference_row(difference(P99, a=12_345.678))[1] == Quantity(12_345.678, "12,345.68")


@pytest.mark.parametrize(
    ("p_adjusted", "text"),
    [
        (1.0, "1.000"),
        (0.001, "0.001"),
        (0.00099, "<0.001"),
        (0.0, "<0.001"),
        (0.0494, "0.049"),
        (0.0496, "0.0496"),  # a verdict
        (0.04998, "0.04998"),
        (0.0504, "0.050"),  # none
        (0.05 - 1e-8, "0.050"),  # more decimals than anyone reads
    ],
)
def test_a_probability_has_three_decimals_or_those_that_show_its_side_of_5_percent(p_adjusted: float, text: str) -> None:
    assert difference_row(difference(P99, p_adjusted=p_adjusted))[6] == Quantity(p_adjusted, text)


def test_tables_have_a_row_for_each_measure_and_condition(run: RunReport) -> None:
    differences = (difference(P99), difference(FAILED))
    table = difference_table(comparison(run, *differences), "some")
    assert (table.name, table.title, table.columns[0]) == ("some", "Differences", "measure")
    assert table.sides == "lrrrrrrrl"
    assert table.note == (
        "Latencies count from the schedule. Each interval covers its measure alone; p and verdict cover all measures together "
        '(Holm). "Could have shown" is the smallest change that these runs would have detected in four of five cases. With one '
        "run on each side, the change of a latency is at equal lengths: without what the requested lengths explain."
    )
    assert table.rows == tuple(map(difference_row, differences))
    assert difference_table(comparison(run)).name == "differences"
    result = ConditionResult(parse_condition("p99_ttft > +5%"), Status.FAILED, "changed by +9.0%, at least +6.0%")
    conditions = conditions_table([result])
    assert (conditions.name, conditions.title) == ("conditions", "Conditions")
    assert conditions.columns == ("condition", "result", "why")
    assert conditions.rows == (("p99_ttft > +5%", "FAILED", "changed by +9.0%, at least +6.0%"),)


# ---- the verdict in a sentence


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ([Verdict.NONE, Verdict.WORSE], "B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%)."),
        (
            [Verdict.BETTER, Verdict.BETTER],
            "B is better than A: TTFT p50 +25.0% (+10.0% to +40.0%); TTFT p99 +25.0% (+10.0% to +40.0%).",
        ),
        (
            [Verdict.NONE, Verdict.STARTS_BETTER],
            "Between these starts, B is better than A: TTFT p99 +25.0% (+10.0% to +40.0%).",
        ),
        (
            [Verdict.BETTER, Verdict.WORSE],
            "B is better in some and worse in others than A: TTFT p50 +25.0% (+10.0% to +40.0%); TTFT p99 +25.0% "
            "(+10.0% to +40.0%).",
        ),
        (
            [Verdict.STARTS_WORSE, Verdict.STARTS_BETTER],
            "Between these starts, B is better in some and worse in others than A: TTFT p50 +25.0% (+10.0% to +40.0%); TTFT "
            "p99 +25.0% (+10.0% to +40.0%).",
        ),
        ([Verdict.NONE, Verdict.NONE], "No difference between B and A is shown by these runs."),
        ([Verdict.UNKNOWN, Verdict.UNKNOWN], "These runs do not show whether B differs from A."),
    ],
)
def test_the_verdict_in_one_sentence(verdicts: list[Verdict], sentence: str) -> None:
    differences = [difference(measure, verdict) for measure, verdict in zip((P50, P99), verdicts, strict=True)]
    assert summary_sentence("B", "A", differences) == sentence


def test_a_headline_of_one_run_each_names_the_experiment_and_its_time(run: RunReport) -> None:
    worse = difference(P99, Verdict.STARTS_WORSE)
    assert headline(comparison(run, worse)) == (
        "Between these starts, B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%); whether every start would be, 'bench "
        "experiment --repeats 5' would show in about 70 s and the time of the starts."
    )
    assert "would show in about 89 s and" in headline(comparison(run, worse, window_s=8.9))
    assert "would show in about 2 min and" in headline(comparison(run, worse, window_s=9.0))
    assert "would show in about 1,000 min and" in headline(comparison(run, worse, window_s=6_000.0))
    assert headline(comparison(run, worse, window_s=None)).endswith("'bench experiment --repeats 5' would show.")
    repeated = comparison(run, difference(P99, Verdict.WORSE), runs=(2, 2))
    assert headline(repeated) == "B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%)."


def test_a_headline_without_a_difference_names_the_conditions_that_failed_alone(run: RunReport) -> None:
    """A change of 8 % would have been shown, so that no difference is conclusive."""
    relative, absolute = parse_condition("p99_ttft > +5%"), parse_condition("p99_ttft > 300ms")
    assert isinstance(absolute, AbsoluteCondition)
    results = (
        ConditionResult(relative, Status.FAILED, "changed by +9.0%, at least +6.0%", "changed by +9.0%"),
        ConditionResult(relative, Status.PASSED, "changed by +1.0%, at most +2.0%"),
        ConditionResult(absolute, Status.FAILED, "310 ms"),
    )
    compared = comparison(run, difference(P99, smallest_shown=0.08), conditions=results)
    named = "TTFT p99, which --fail_if names, changed by +9.0% when judged alone."
    assert headline(compared) == f"No difference between B and A is shown by these runs. {named}"
    inconclusive = comparison(run, difference(P99, smallest_shown=0.11), conditions=results)
    assert headline(inconclusive).startswith("Inconclusive: ")
    assert headline(inconclusive).endswith(f" {named}")


def test_an_experiment_that_decides_a_measure_does_not_name_its_condition_again(run: RunReport) -> None:
    named = parse_condition("p99_ttft > +5%")
    results = (ConditionResult(named, Status.FAILED, "changed by +25.0%, at least +10.0%", "changed by +25.0%"),)
    looks = Looks(10)
    decided = comparison(run, difference(P99, Verdict.WORSE), runs=(3, 3), conditions=results, looks=looks)
    assert "judged alone" not in headline(decided)
    other = comparison(run, difference(P50, Verdict.WORSE), difference(P99), runs=(3, 3), conditions=results, looks=looks)
    assert headline(other).endswith(" TTFT p99, which --fail_if names, changed by +25.0% when judged alone.")


@pytest.mark.parametrize(
    ("differences", "sentence"),
    [
        (
            [difference(P99), difference(P50)],
            "No difference between B and A is shown by these runs, after 3 of at most 10 blocks; what decides is TTFT p99 "
            "+25.0% (+10.0% to +40.0%).",
        ),
        (
            [difference(P99, Verdict.BETTER), difference(P50)],
            "B is better than A: TTFT p99 +25.0% (+10.0% to +40.0%), after 3 of at most 10 blocks.",
        ),
        (
            [difference(P99), difference(P50, Verdict.WORSE)],
            "B is worse than A: TTFT p50 +25.0% (+10.0% to +40.0%), after 3 of at most 10 blocks; what decides is TTFT p99 "
            "+25.0% (+10.0% to +40.0%).",
        ),
        ([difference(P50)], "No difference between B and A is shown by these runs, after 3 of at most 10 blocks."),
    ],
)
def test_an_experiment_that_ends_when_it_is_decided_names_its_blocks_and_what_decides(
    run: RunReport, differences: list[Difference], sentence: str
) -> None:
    found = comparison(run, *differences, runs=(3, 3), looks=Looks(10, "p99_ttft"))
    assert headline(found) == sentence
    paid = "Intervals and p are paid for the looks after each block: they hold whenever the experiment ends."
    decides = " TTFT p99 decides, and has 80% of the 5 %." if differences[0].measure is P99 else ""
    assert [note for note in notes(found) if "looks" in note] == [paid + decides]
    two = comparison(run, *differences, runs=(2, 2), looks=Looks(10, "p99_ttft"))
    assert not any("looks" in note for note in [*notes(two), *notes(replace(found, looks=None))])


def test_an_inconclusive_headline_names_what_these_runs_cannot_show_and_its_suspects(run: RunReport) -> None:
    def shown(*differences: Difference, runs: tuple[int, int] = (3, 3)) -> str:
        return headline(comparison(run, *differences, runs=runs))

    blunt = difference(P99, smallest_shown=0.345, p_value=0.5)
    assert shown(blunt).startswith("Inconclusive: 3 runs of each side cannot show a change of TTFT p99 below 34%; ")
    assert shown(blunt, runs=(1, 1)).startswith("Inconclusive: 1 run of each side cannot show a change of TTFT p99 below 34%")
    assert shown(blunt, runs=(3, 2)).startswith("Inconclusive: 3 and 2 runs cannot show a change of TTFT p99 below 34%")
    assert "cannot show a change of TTFT p99;" in shown(replace(blunt, smallest_shown=None))
    assert "cannot show a change of TTFT p99 below 1,000%;" in shown(replace(blunt, smallest_shown=8_375_442.7))  # two blocks
    suspects = [
        difference(measure, p_value=p, smallest_shown=0.345)
        for measure, p in ((P99, 0.04), (P50, 0.01), (RATE, 0.03), (P99_E2E, 0.02), (FAILED, 0.06))
    ]
    assert shown(*suspects).endswith(
        ". Suspects, each judged alone: TTFT p50 +25.0% (+10.0% to +40.0%); E2E latency p99 +25.0% (+10.0% to +40.0%); "
        "Request throughput +25.0% (+10.0% to +40.0%)."
    )
    without = difference(P99, spread=None, p_value=None, verdict=Verdict.UNKNOWN)
    assert shown(without) == "Inconclusive: no latency of these runs has an interval."


def test_a_measure_that_differs_only_when_judged_alone_is_noted(run: RunReport) -> None:
    alone = [difference(measure, p_value=0.03, p_adjusted=0.09) for measure in (P50, RATE)]
    shown = difference(P99, Verdict.WORSE)
    compared = comparison(run, shown, *alone, difference(P99_E2E, p_value=0.5), runs=(3, 3))
    assert notes(compared)[0] == (
        "Differs only when judged alone: TTFT p50, Request throughput. Among 4 measures, one often does by chance, so it has "
        "no verdict."
    )
    assert not any("judged alone" in note for note in notes(comparison(run, shown, runs=(3, 3))))
    inconclusive = comparison(run, *alone, difference(P99, p_value=0.5, smallest_shown=0.5), runs=(3, 3))
    assert not any("judged alone" in note for note in notes(inconclusive))


def test_what_would_show_more_is_named_only_if_it_shows_more(run: RunReport) -> None:
    """An error of 0.08 of 5 runs: 9 runs show 20 %, since their error of 0.0596 times 2.98 is below log 1.2."""
    spread = Spread(0.0, 0.08, 8.0, Evidence.RUNS)
    shown = [
        headline(comparison(run, difference(P99, smallest_shown=smallest, p_value=0.5, spread=spread), runs=(5, 5)))
        for smallest in (0.5, 0.21, 0.2, 0.15)
    ]
    assert [sentence.partition("; ")[2] for sentence in shown] == ["9 would show 20%.", "9 would show 20%.", "", ""]


def test_of_single_runs_what_would_show_more_has_a_number_of_requests(run: RunReport) -> None:
    """An error of 0.15: five runs of 120 requests times (3.195 · 0.15 / log 1.1)² / 5, or 5.06, show 10 %."""
    blunt = difference(P99, smallest_shown=0.5, p_value=0.5, spread=Spread(0.0, 0.15, 16.0, Evidence.REQUESTS))
    assert headline(comparison(run, blunt)).endswith("; 5 of about 610 requests would show 10%.")


# ---- notes


def test_a_change_that_is_not_the_ratio_of_its_columns_says_why(run: RunReport) -> None:
    """What the lengths explain may turn the sign of a change."""
    turned, alike = difference(P99_E2E, change=-0.016), difference(P99)
    assert notes(comparison(run, alike, turned))[0] == (
        "At equal lengths: the change of E2E latency p99 is without what the requested lengths explain, and not the plain "
        "ratio of the two columns."
    )
    both = notes(comparison(run, turned, difference(P50, change=0.24)))[0]
    assert both.startswith("At equal lengths: the changes of E2E latency p99, TTFT p50 are without")
    unseen = notes(comparison(run, alike, difference(P50, change=0.25004), difference(RATE, a=0.0, change=None)))
    assert not any("lengths" in note for note in unseen)


def test_paired_requests_are_noted_with_their_median_its_interval_and_the_share_that_took_longer(run: RunReport) -> None:
    difference_ms = summarise(np.tile([-1.0, 2.0, 2.5], 100))
    assert difference_ms is not None
    note, *_ = notes(comparison(run, pairs=RequestPairs(difference_ms, 2 / 3)))
    interval = difference_ms.percentile(0.5).interval_text
    assert interval != "–"
    assert note == (
        "Request by request (300 pairs of one schedule): B − A in TTFT is +2.00 ms in the median "
        f"(95 %: {interval}); 67% of the requests were slower in B."
    )


def test_notes_name_pairs_blocks_single_starts_and_what_would_show_a_small_change(run: RunReport) -> None:
    single = comparison(run, difference(P99))
    texts = notes(single)
    assert texts[0] == (
        "One run each: the intervals lack the variation between starts. Use 'bench experiment --repeats 5' in about 70 s and "
        "the time of the starts, or repeat the runs."
    )
    assert texts[1] == single.recommendation.text if single.recommendation is not None else len(texts) == 1
    assert notes(comparison(run, runs=(2, 2))) == []
    for blocks, text in ((1, "1 block is left out because"), (3, "3 blocks are left out because")):
        repeated = comparison(run, runs=(2, 2))
        (note,) = notes(replace(repeated, arm=replace(repeated.arm, blocks_left_out=blocks)))
        assert note == f"{text} a run is missing, did not come to its end, or is invalid; see its report."


def test_runs_that_are_left_out_since_too_many_requests_failed_are_counted_by_side(
    make_report: Callable[..., RunReport], failed: Callable[..., Record], run: RunReport
) -> None:
    lost = make_report([failed(0, 0, Outcome.CONNECT, 0, 1)])
    found = comparison(run, runs=(2, 2))
    sides = {"baseline": replace(found.baseline, left_out=(run, lost)), "arm": replace(found.arm, left_out=(lost, lost))}
    assert notes(replace(found, **sides)) == [
        "In 1 run of A that is left out, too many requests failed; the table does not cover that.",
        "In 2 runs of B that are left out, too many requests failed; the table does not cover that.",
    ]


def test_sides_that_repeat_schedules_of_their_own_are_noted(run: RunReport) -> None:
    schedule = structs.replace(run.schedule, digest="1e" * 32)
    other = replace(run, manifest=structs.replace(run.manifest, schedule=schedule))
    found = comparison(run, difference(P99, smallest_shown=0.5, p_value=0.5), runs=(2, 2))
    apart = replace(found, arm=replace(found.arm, runs=(other, other)))
    assert notes(apart)[0] == (
        "Each side repeats schedules of its own, so the intervals include what one schedule differs from another, as far as "
        "these runs show it. The same seeds on both sides, drawn by one release (--seed), show smaller changes."
    )
    assert headline(found).startswith("Inconclusive: 2 runs of each side cannot show a change of TTFT p99 below 50%; ")
    assert headline(apart) == (f"{headline(found)[:-1]}; repeats of the same schedules on both sides would show smaller ones.")


def test_how_often_one_of_several_arms_is_called_different_by_chance(run: RunReport) -> None:
    found = comparison(run)
    said = [judged_apart(Comparison((), (found,) * count)) for count in (1, 3, 25)]
    assert said == [
        "",
        "Each of 3 arms is judged by itself: if all equal A, one is called different in up to 15% of cases.",
        "Each of 25 arms is judged by itself: if all equal A, one is called different in up to 100% of cases.",
    ]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((1.0, 1.0), (1.0, 1.0), "All runs come from one start of one server, so this verdict is about that start alone."),
        (
            (1.0, 1.0),
            (9.0, 9.0),
            "All repeats of each side come from one start of its server, so this verdict is about these two starts.",
        ),
        ((1.0,), (9.0, 9.0), "All repeats of B come from one start of its server, so this verdict is about these two starts."),
        (
            (1.0, 5.0),
            (9.0, 9.0),
            "All repeats of B come from one start of its server, so this verdict is about that start of B.",
        ),
        (
            (1.0, 1.0),
            (5.0, 9.0),
            "All repeats of A come from one start of its server, so this verdict is about that start of A.",
        ),
        ((1.0, 5.0), (9.0, 13.0), None),
        ((None, None), (9.0, None), None),
        ((1.0,), (9.0,), None),  # of which the note on single runs says it
    ],
)
def test_repeats_that_come_from_one_start_of_a_server_are_named(
    run: RunReport, a: tuple[float | None, ...], b: tuple[float | None, ...], expected: str | None
) -> None:
    def arm(name: str, began_at: tuple[float | None, ...]) -> Arm:
        manifests = [structs.replace(run.manifest, server_began_at=at) for at in began_at]
        return Arm(name, tuple(replace(run, manifest=manifest) for manifest in manifests))

    found = notes(replace(comparison(run), baseline=arm("A", a), arm=arm("B", b)))
    about_starts = [note for note in found if "one start" in note]
    assert about_starts == ([] if expected is None else [expected])
    assert expected is None or found[0] == expected


def test_no_experiment_is_advised_of_simulations_which_have_no_starts(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], run: RunReport
) -> None:
    """'bench experiment' measures a server, and shows nothing of a model."""
    simulated = make_report(steady_run(120), simulation={"model": "m.json", "digest": "0f" * 32})
    worse = difference(P50, Verdict.STARTS_WORSE, evidence=Evidence.REQUEST_PAIRS)
    compared = comparison(simulated, worse)
    assert "bench experiment" not in " ".join((headline(compared), *notes(compared)))
    assert notes(compared)[0] == (
        "One simulation each: repeats of both with other seeds (--seed) show what the schedule changes."
    )
    assert "bench experiment" in headline(comparison(run, worse))


def test_small_numbers_of_both_sides_are_no_zeros() -> None:
    cells = difference_row(difference(RATE, a=0.0042, b=0.0039))[1:4]
    assert [cell.text for cell in cells if isinstance(cell, Quantity)] == ["0.0042", "0.0039", "-0.0003"]
    for b, text in ((100.0, "+0.00"), (100.25, "+0.25"), (99.75, "-0.25")):
        assert difference_row(difference(P99, b=b))[3] == Quantity(b - 100.0, text)
