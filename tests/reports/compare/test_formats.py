"""A comparison that is written by hand, whole, in each format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.compare.comparable import Disagreement, Weight
from reports.compare.comparison import Arm, ArmComparison, Comparison, QuantilePoint, RequestPairs
from reports.compare.conditions import ConditionResult, Status, parse_condition
from reports.compare.difference import Difference, Verdict
from reports.compare.formats import COMPARISON, rows
from reports.compare.json_file import document
from reports.compare.looks import Looks
from reports.compare.measures import Measure
from reports.compare.page import comparison_page, difference_cards, tone_of
from reports.compare.pictures import change_picture, latency_pictures, quantile_difference_picture
from reports.compare.tables import conditions_table, difference_table, headline
from reports.glossary import terms
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT
from reports.page.page import Card, Note, Remark, Tone
from reports.render.picture import Axis, Colour, Dots, Line, Mark, Picture, Shape, Spans, Stroke, Trail, Whiskers
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import TooFew
from reports.statistics.percentiles import summarise
from tests.reports.compare.by_hand import FAILED, P50, P50_E2E, P99, P99_E2E, RATE, comparison, difference


@pytest.fixture(scope="module")
def run(make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]) -> RunReport:
    return make_report(steady_run(120))


@pytest.fixture(scope="module")
def pair(run: RunReport) -> ArmComparison:
    found = (
        Disagreement("target.max_batch_size", Weight.CHANGED, (("8", "8"), ("64", "64")), "the subject"),
        Disagreement("schedule.seed", Weight.WARN, (("1", "1"), ("2", "3")), "keep the seed"),
        Disagreement("target.protocol", Weight.REFUSE, (("grpc", "grpc"), ("http", "http")), "measure again"),
        Disagreement("answers", Weight.NOTE, (("a", "b"), ("c", "d")), "a note " * 20),
    )
    failed = ConditionResult(parse_condition("p99_ttft > +5%"), Status.FAILED, "at least +10.0%", "changed by +25.0%")
    return comparison(
        run,
        difference(P99, Verdict.WORSE),
        difference(FAILED, a=0.01, b=0.03, change=0.02, interval=None, smallest_shown=0.125, p_value=0.5),
        runs=(2, 2),
        disagreements=found,
        conditions=(failed,),
        curve=(QuantilePoint(0.5, 100.0, 110.0, (-1.0, 2.0)), QuantilePoint(0.9, 200.0, 190.0, None)),
    )


def _of(*pairs: ArmComparison) -> Comparison:
    return Comparison((pairs[0].baseline, *(pair.arm for pair in pairs)), pairs)


def test_the_text_of_a_terminal(pair: ArmComparison) -> None:
    assert (
        COMPARISON.terminal_text(_of(pair))
        == """\
A: A (2 runs)   B: B (2 runs)

measure                  A       B    change     95 % interval  verdict
------------------  ------  ------  --------  ----------------  -------------------
TTFT p99, ms        100.00  125.00    +25.0%  +10.0% to +40.0%  worse
Failed requests, %    1.00    3.00  +2.00 pp                 –  no difference shown

B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%).

To show 5% of TTFT p99 in four of five cases: 22 repeats of about 120 requests each.

Differences in the settings, A | B:
 changed  target.max_batch_size: 8 (× 2) | 64 (× 2)
          the subject
    warn  schedule.seed: 1 (× 2) | 2; 3
          keep the seed
  refuse  target.protocol: grpc (× 2) | http (× 2)
          measure again
    note  answers: a; b | c; d
          a note a note a note a note a note a note a note a note a note a note a note a note a note
          a note a note a note a note a note a note a note

FAILED: p99_ttft > +5%: at least +10.0%"""
    )


def test_a_long_name_of_a_measure_wraps_on_a_terminal(run: RunReport) -> None:
    lines = COMPARISON.terminal_text(_of(comparison(run, difference(Measure(OUTPUT_TOKEN_THROUGHPUT))))).splitlines()
    assert lines[4].startswith("Output token throughput,  100.00  125.00")
    assert lines[5].rstrip() == "tokens/s"


def test_a_long_value_of_a_setting_is_one_word_on_a_terminal(run: RunReport) -> None:
    """A path or an address that is broken at a hyphen, or at the end of a line, cannot be copied."""
    path = "-".join(["/models/of-a-name"] * 7)
    found = Disagreement("target.tokenizer_dir", Weight.CHANGED, ((path,), ("b",)), "the subject")
    assert COMPARISON.terminal_text(_of(comparison(run, difference(P99), disagreements=(found,)))).endswith(
        f"""
 changed  target.tokenizer_dir:
              {path}
              | b
          the subject"""
    )


def test_the_text_of_a_pull_request(pair: ArmComparison) -> None:
    only = replace(pair, disagreements=pair.disagreements[:2])
    assert (
        COMPARISON.markdown_text(_of(only))
        == """\
### A (A) against B (B)

**B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%).**

| measure            |      A |      B |   B − A |   change |    95 % interval |   p (Holm) |   could have shown | verdict             |
|:-------------------|-------:|-------:|--------:|---------:|-----------------:|-----------:|-------------------:|:--------------------|
| TTFT p99, ms       | 100.00 | 125.00 |  +25.00 |   +25.0% | +10.0% to +40.0% |      0.040 |   -33.3% or +50.0% | worse               |
| Failed requests, % |   1.00 |   3.00 |   +2.00 | +2.00 pp |                – |      0.040 |          ±12.50 pp | no difference shown |

To show 5% of TTFT p99 in four of five cases: 22 repeats of about 120 requests each.

Differences in the settings, A \\| B:

changed: the subject

- target.max\\_batch\\_size: 8 (× 2) \\| 64 (× 2)

warn: keep the seed

- schedule.seed: 1 (× 2) \\| 2; 3

- FAILED: `p99_ttft > +5%`: at least +10.0%
"""  # noqa: E501
    )


def test_several_arms_follow_each_other_and_a_sentence_on_both(pair: ArmComparison) -> None:
    bare = replace(pair, disagreements=(), conditions=())
    for text in (COMPARISON.terminal_text, COMPARISON.markdown_text):
        one, two = text(_of(bare)).strip(), text(_of(bare, bare)).strip()
        apart = "Each of 2 arms is judged by itself: if all equal A, one is called different in up to 10% of cases."
        assert " ".join(two.split()) == " ".join(f"{one} {one} {apart}".split())
        assert "settings" not in one


def test_the_rows_of_a_table_file(pair: ArmComparison) -> None:
    assert list(rows(_of(pair)))[1:] == [
        ("A", "B", "p99_ttft", "ms", 100.0, 125.0, 0.25, 0.1, 0.4, 0.5, 0.01, 0.04, "worse", None),
        ("A", "B", "failed_share", "share", 0.01, 0.03, 0.02, None, None, 0.125, 0.5, 0.04, "no difference shown", None),
    ]


def test_the_json_of_a_comparison(
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    failed: Callable[..., Record],
    run: RunReport,
    pair: ArmComparison,
) -> None:
    invalid = make_report([*steady_run(60), *(failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(60, 120))])
    arm = replace(pair.arm, runs=(pair.arm.runs[0], invalid))
    of_run = {"path": str(run.folder.path), "validity": "valid", "digest": "0f" * 32}
    of_invalid = {"path": str(invalid.folder.path), "validity": "invalid", "digest": "0f" * 32}
    found = document(_of(replace(pair, arm=arm, disagreements=pair.disagreements[1:2])))
    assert found == {
        "schema": 1,
        "arms": [{"name": "A", "runs": [of_run, of_run]}, {"name": "B", "runs": [of_run, of_invalid]}],
        "comparisons": [
            {
                "a": "A",
                "b": "B",
                "verdict": "worse",
                "inconclusive": False,
                "summary": "B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%).",
                "looks": None,
                "notes": ["To show 5% of TTFT p99 in four of five cases: 22 repeats of about 120 requests each."],
                "recommendation": {"title": "TTFT p99", "change": 0.05, "repeats": 22, "requests": 120},
                "differences": [
                    {
                        "measure": "p99_ttft",
                        "title": "TTFT p99",
                        "unit": "ms",
                        "relative": True,
                        "higher_is_better": False,
                        "a": 100.0,
                        "b": 125.0,
                        "difference": 25.0,
                        "change": 0.25,
                        "interval": (0.1, 0.4),
                        "has_upper_limit": True,
                        "smallest_shown": 0.5,
                        "p_value": 0.01,
                        "p_adjusted": 0.04,
                        "evidence": "repeated runs",
                        "verdict": "worse",
                        "reason": None,
                    },
                    {
                        "measure": "failed_share",
                        "title": "Failed requests",
                        "unit": "share",
                        "relative": False,
                        "higher_is_better": False,
                        "a": 0.01,
                        "b": 0.03,
                        "difference": pytest.approx(0.02),
                        "change": 0.02,
                        "interval": None,
                        "has_upper_limit": None,
                        "smallest_shown": 0.125,
                        "p_value": 0.5,
                        "p_adjusted": 0.04,
                        "evidence": "repeated runs",
                        "verdict": "no difference shown",
                        "reason": None,
                    },
                ],
                "quantiles": [
                    {"q": 0.5, "a_ms": 100.0, "b_ms": 110.0, "interval_ms": (-1.0, 2.0)},
                    {"q": 0.9, "a_ms": 200.0, "b_ms": 190.0, "interval_ms": None},
                ],
                "pairs": None,
                "disagreements": [
                    {
                        "what": "schedule.seed",
                        "weight": "warn",
                        "values": ["1", "1", "2", "3"],
                        "sides": [["1", "1"], ["2", "3"]],
                        "advice": "keep the seed",
                    }
                ],
                "conditions": [
                    {"condition": "p99_ttft > +5%", "failed": True, "status": "failed", "why": "at least +10.0%"},
                ],
            }
        ],
    }


def _json_of(pair: ArmComparison) -> Any:
    (found,) = document(_of(pair))["comparisons"]  # type: ignore[misc]
    return found


def test_the_json_of_what_only_some_comparisons_have(run: RunReport) -> None:
    difference_ms = summarise(np.tile([-1.0, 2.0, 2.5], 100))
    assert difference_ms is not None
    unknown = Difference(P99, None, 5.0, None, None, None, None, None, None, Verdict.UNKNOWN, TooFew(9, 100))
    bare = _json_of(comparison(run, unknown, pairs=RequestPairs(difference_ms, 2 / 3)))
    interval = difference_ms.percentile(0.5).interval
    assert interval is not None
    assert bare["pairs"] == {"n": 300, "median_difference_ms": 2.0, "interval_ms": interval, "share_slower": 2 / 3}
    assert (bare["verdict"], bare["inconclusive"], bare["recommendation"]) == ("cannot be told", True, None)
    assert bare["differences"] == [
        {
            "measure": "p99_ttft",
            "title": "TTFT p99",
            "unit": "ms",
            "relative": True,
            "higher_is_better": False,
            "b": 5.0,
            "verdict": "cannot be told",
            "reason": "n too small",
        }
        | dict.fromkeys(("a", "difference", "change", "interval", "has_upper_limit", "smallest_shown"))
        | dict.fromkeys(("p_value", "p_adjusted", "evidence"))
    ]


@pytest.mark.parametrize(
    ("differences", "measure", "decided"),
    [
        ([difference(P99, Verdict.WORSE), difference(P50)], "p99_ttft", True),
        ([difference(P99), difference(P50, Verdict.BETTER)], "p99_ttft", False),
        ([difference(P50, Verdict.BETTER)], None, False),
    ],
)
def test_the_json_of_an_experiment_that_ends_when_it_is_decided(
    run: RunReport, differences: list[Difference], measure: str | None, decided: bool
) -> None:
    found = _json_of(comparison(run, *differences, runs=(3, 3), looks=Looks(10, "p99_ttft")))
    assert found["looks"] == {"blocks": 3, "most_blocks": 10, "measure": measure, "decided": decided}


# ---- the page


def test_the_page_of_a_comparison(pair: ArmComparison) -> None:
    page = comparison_page(_of(pair))
    assert (page.title, page.lead, page.aside, page.tone) == (
        "B against A",
        "A is A; all others are compared with it.",
        "",
        Tone.BAD,
    )
    assert page.facts == tuple((name, "2 runs, 240 successful requests; tensorrt_llm over grpc") for name in "AB")
    assert page.verdict == "B is worse than A: TTFT p99 +25.0% (+10.0% to +40.0%)."
    assert page.cards == (Card("TTFT p99", "+25.0%", "", "95 %: +10.0% to +40.0%; worse"),)
    assert page.terms == terms()
    assert page.footer == (
        "Drag in a picture to zoom, double-click to reset. Click a series to hide it, a column's head to sort. How differences "
        "are judged: docs/explanation/comparison.md of inflight-bench."
    )
    of_arm, settings, conditions, latency = page.sections
    assert [(section.id, section.title, section.pairs) for section in page.sections] == [
        ("arm1", "B against A", True),
        ("arm1-settings", "Differences in the settings, A | B", False),
        ("arm1-conditions-section", "Conditions", False),
        ("latency", "Latency", True),
    ]
    table, note, *pictures = of_arm.blocks
    assert table == difference_table(pair, "arm1-differences")
    assert note == Note("To show 5% of TTFT p99 in four of five cases: 22 repeats of about 120 requests each.")
    assert [picture.name for picture in pictures if isinstance(picture, Picture)] == ["arm1-changes", "arm1-quantiles"]
    assert settings.blocks == (
        (
            Remark("note", ("target.max_batch_size: 8 (× 2) | 64 (× 2)",), "the subject", "changed"),
            Remark("warning", ("schedule.seed: 1 (× 2) | 2; 3",), "keep the seed", "warn"),
            Remark("invalid", ("target.protocol: grpc (× 2) | http (× 2)",), "measure again", "refuse"),
            Remark("note", ("answers: a; b | c; d",), "a note " * 20, "note"),
        ),
    )
    assert conditions.blocks == (conditions_table(pair.conditions, "arm1-conditions"),)
    assert [picture.name for picture in latency.blocks if isinstance(picture, Picture)] == ["percentiles", "distribution"]


def test_the_page_of_several_arms_names_them(run: RunReport, pair: ArmComparison) -> None:
    unknown = structs.replace(run.manifest, target=structs.replace(run.manifest.target, model=None, protocol=None))
    other = replace(pair.arm, name="C\x1b", runs=(replace(run, manifest=unknown),))
    bare = comparison(run, difference(P50), arm=other)
    page = comparison_page(_of(pair, bare))
    assert page.title == "C\ufffd against B against A"
    assert page.lead == (
        "A is A; all others are compared with it. Each of 2 arms is judged by itself: if all equal A, one is called different "
        "in up to 10% of cases."
    )
    assert page.verdict == " ".join(map(headline, (pair, bare)))
    assert page.facts[-1] == ("C\ufffd", "1 run, 120 successful requests; unknown model over ?")
    assert [card.title for card in page.cards] == ["TTFT p99, B", "TTFT p50, C\ufffd"]
    assert [section.id for section in page.sections] == [
        "arm1", "arm1-settings", "arm1-conditions-section", "arm2", "latency",
    ]  # fmt: skip
    assert page.sections[3].title == "C\ufffd against A"


@pytest.mark.parametrize(
    ("differences", "tone"),
    [
        ([difference(P99, Verdict.BETTER), difference(P50)], Tone.GOOD),
        ([difference(P99, smallest_shown=0.05)], Tone.GOOD),
        ([difference(P99, smallest_shown=0.5)], Tone.CAUTION),
        ([difference(P99, Verdict.WORSE)], Tone.BAD),
        ([difference(P99, Verdict.STARTS_WORSE)], Tone.CAUTION),
        ([difference(P99, Verdict.WORSE), difference(P50, Verdict.BETTER)], Tone.CAUTION),
    ],
)
def test_a_page_has_the_tone_of_its_worst_comparison(run: RunReport, differences: list[Difference], tone: Tone) -> None:
    one, good = comparison(run, *differences), comparison(run, difference(P99, Verdict.BETTER))
    for pairs in ((one,), (one, good), (good, one)):
        assert comparison_page(_of(*pairs)).tone is tone
    failed = ConditionResult(parse_condition("p99_ttft > +5%"), Status.FAILED, "")
    passed = replace(failed, status=Status.PASSED)
    assert comparison_page(_of(replace(good, conditions=(passed, failed)))).tone is Tone.BAD
    assert comparison_page(_of(replace(good, conditions=(passed,)))).tone is Tone.GOOD


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [
        (Verdict.WORSE, Tone.BAD), (Verdict.BETTER, Tone.GOOD), (Verdict.NONE, Tone.GOOD), ("mixed", Tone.CAUTION),
        (Verdict.STARTS_BETTER, Tone.CAUTION), (Verdict.STARTS_WORSE, Tone.CAUTION), (Verdict.UNKNOWN, Tone.CAUTION),
    ],
)  # fmt: skip
def test_the_tone_of_a_verdict(verdict: str, tone: Tone) -> None:
    assert tone_of(verdict) is tone


def test_each_group_of_measures_has_the_card_of_its_first_with_an_interval() -> None:
    without = {"interval": None, "reason": TooFew(9, 100)}
    tokens = Measure(OUTPUT_TOKEN_THROUGHPUT)
    found = [difference(measure) for measure in (tokens, RATE, FAILED, P50)] + [difference(P99, **without)]
    cards = difference_cards([*found, difference(P99_E2E, **without), difference(P50_E2E, **without)])
    assert [card.title for card in cards] == ["TTFT p50", "E2E latency p99", "Request throughput", "Output token throughput"]
    assert cards[1] == Card("E2E latency p99", "+25.0%", "", "no interval: n too small; no difference shown")


# ---- the pictures


def _assert_marks(picture: Picture | None, *expected: Mark) -> None:
    assert picture is not None
    assert len(picture.marks) == len(expected)
    for mark, wanted in zip(picture.marks, expected, strict=True):
        assert type(mark) is type(wanted)
        for field in fields(mark):
            value, other = getattr(mark, field.name), getattr(wanted, field.name)
            if isinstance(other, np.ndarray):
                assert value.shape == other.shape, field.name
                np.testing.assert_allclose(value, other, err_msg=field.name)
            else:
                assert value == other, field.name


def _at(*values: float) -> FloatArray:
    return np.array(values)


def test_the_picture_of_changes(run: RunReport) -> None:
    verdicts = (Verdict.WORSE, Verdict.BETTER, Verdict.NONE, Verdict.WORSE)
    found = [difference(measure, verdict) for measure, verdict in zip((P99, P50, P99_E2E, RATE), verdicts, strict=True)]
    unknown = [difference(FAILED), difference(P50_E2E, interval=None), difference(P50_E2E, change=None)]
    picture = change_picture(comparison(run, *unknown, *found), "some")
    assert picture is not None
    assert (picture.name, picture.title) == ("some-changes", "What changed in B")
    assert picture.caption == (
        "The change from A to B with its 95 % interval, for each measure alone; the colour is the verdict."
    )
    assert picture.x == Axis("change", "%")
    ticks = ((1.0, "Request throughput"), (2.0, "E2E latency p99"), (3.0, "TTFT p50"), (4.0, "TTFT p99"))
    assert picture.y == Axis("measure", ticks=ticks)
    note = "95 %: +10.0% to +40.0%"
    _assert_marks(
        picture,
        Trail("no change", _at(0, 0), _at(0.5, 4.5), Colour.GREY, Stroke.DASHED),
        Spans("better", _at(3), _at(10), _at(40), Colour.GREEN),
        Dots("better", _at(25), _at(3), Colour.GREEN, Shape.POINT, (note,)),
        Spans("worse", _at(4, 1), _at(10, 10), _at(40, 40), Colour.RED),
        Dots("worse", _at(25, 25), _at(4, 1), Colour.RED, Shape.POINT, (note, note)),
        Spans("no difference shown", _at(2), _at(10), _at(40), Colour.GREY),
        Dots("no difference shown", _at(25), _at(2), Colour.GREY, Shape.POINT, (note,)),
    )
    assert change_picture(comparison(run, *unknown), "some") is None


@pytest.mark.parametrize(
    ("change", "interval", "beyond"),
    [(10.0, (9.0, 10.0), False), (9.0, (8.0, 10.1), True), (10.1, (10.05, 10.2), True), (0.0, (-0.1, 0.1), False)],
)
def test_a_change_is_drawn_up_to_ten_times(run: RunReport, change: float, interval: tuple[float, float], beyond: bool) -> None:
    picture = change_picture(comparison(run, difference(P99, change=change, interval=interval)), "some")
    assert picture is not None
    assert picture.caption.endswith(" What lies above +1,000% is drawn there.") is beyond
    (bar,), (dot,) = ([mark for mark in picture.marks if isinstance(mark, kind)] for kind in (Spans, Dots))
    drawn = [float(at[0]) for at in (bar.low, dot.x, bar.high)]
    assert drawn == pytest.approx([min(1_000.0, 100.0 * at) for at in (interval[0], change, interval[1])])
    assert dot.notes[0].startswith("above +1,000%, 95 %: ") is (change > 10.0)


def test_the_picture_of_what_differs_by_percentile(run: RunReport, pair: ArmComparison) -> None:
    points = (*pair.curve, QuantilePoint(0.99, 300.0, 330.0, (5.0, 50.0)))
    picture = quantile_difference_picture(replace(pair, curve=points), "some")
    assert picture is not None
    assert (picture.name, picture.title) == ("some-quantiles", "TTFT: difference by percentile")
    assert picture.caption == (
        "How much longer (above 0) or shorter B's percentile is than A's. A bar is the 95 % interval of that point alone, "
        "where it has an end. Each further nine takes the same space."
    )
    assert (picture.y, [text for _, text in picture.x.ticks]) == (
        Axis("TTFT, B − A", "ms"),
        ["0", "50", "75", "90", "99"],
    )
    curve = (
        Line("no difference", _at(0, 2), _at(0, 0), Colour.GREY, Stroke.DASHED),
        Line("B − A", _at(np.log10(2), 1, 2), _at(10, -10, 30), Colour.BLUE),
    )
    _assert_marks(picture, *curve, Whiskers("B − A", _at(np.log10(2), 2), _at(-1, 5), _at(2, 50), Colour.SKY))
    bare = [replace(point, interval_ms=None) for point in points]
    _assert_marks(quantile_difference_picture(replace(pair, curve=tuple(bare)), "some"), *curve)
    assert quantile_difference_picture(replace(pair, curve=()), "some") is None


def test_the_latencies_of_all_arms_have_a_line_each(
    make_report: Callable[..., RunReport], failed: Callable[..., Record], run: RunReport
) -> None:
    """The seventh has the colour of the first, and is dashed; without a success there is none."""
    lost = make_report([failed(0, 0, Outcome.CONNECT, 0, 1)])
    arms = [Arm(f"{k}", (run, run)) for k in range(7)]
    by_percentile, distribution = latency_pictures(Comparison((*arms, Arm("lost", (lost,))), ()))
    assert (by_percentile.name, distribution.name) == ("percentiles", "distribution")
    assert by_percentile.title == "TTFT from schedule, by percentile"
    colours = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.RED, Colour.BLUE)
    for picture in (by_percentile, distribution):
        lines = [mark for mark in picture.marks if isinstance(mark, Line)]
        assert [(line.name, line.colour, line.stroke) for line in lines] == [
            (f"{k}", colour, Stroke.DASHED if k == 6 else Stroke.SOLID) for k, colour in enumerate(colours)
        ]
        assert {line.y.size for line in lines} == {240 if picture is by_percentile else 241}
    assert latency_pictures(Comparison((Arm("lost", (lost,)),), ())) == ()


def test_a_line_ends_where_latencies_were_cut_off(
    make_report: Callable[..., RunReport], answered: Callable[..., Record], failed: Callable[..., Record]
) -> None:
    """Latencies of 1 to 100 ms, and ten requests that were cancelled after 49.5 ms."""
    records = [answered(k, 10 * k, 10 * k, [(11 * k + 1, 1)]) for k in range(100)]
    cut = [failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 49.5, error=None) for k in range(100, 110)]
    picture, _ = latency_pictures(Comparison((Arm("cut", (make_report([*records, *cut]),)),), ()))
    (line,) = [mark for mark in picture.marks if isinstance(mark, Line)]
    assert (line.y[0], line.y[-1]) == (1.0, 49.0)
