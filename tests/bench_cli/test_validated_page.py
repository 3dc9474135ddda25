"""The page of ``bench simulate validate``: its order, its colour and its pictures, of predictions that are given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench_cli.simulate.validated import (
    Simulations,
    Validated,
    coverage_table,
    number_text,
    predictions_table,
    validation_document,
)
from bench_cli.simulate.validated_json import document
from bench_cli.simulate.validated_page import validated_page
from bench_cli.simulate.validated_pictures import error_picture, latency_pictures
from reports.page.page import Note, Tone, render_page
from reports.render.picture import Dots, Spans
from reports.render.plain_text import json_text
from reports.render.tables import Table, cell_text
from simulator.model import UNFIT, read_model
from simulator.validation import GOOD, Prediction, Validation
from tests.bench_cli.test_simulate_run import model_file
from tests.bench_cli.validated_runs import BEYOND, validated_run
from tests.reports.markup import checked

_FAR = validated_run("far", 0.5, BEYOND)


@pytest.fixture
def validated(tmp_path: Path) -> Validated:
    model = read_model(model_file(tmp_path / "model.json", doubts=("half has the finding errors: some are left out",)))
    return Validated(
        "model.json",
        model,
        Simulations(2),
        (validated_run("near"), validated_run("off", 0.1)),
        ("near has the finding errors: it is so.",),
    )


def test_runs_beyond_are_named_before_the_verdict_and_any_number(validated: Validated) -> None:
    page = validated_page(replace(validated, validations=(*validated.validations, _FAR)))
    assert page.verdict.startswith(
        "far lies beyond what was fitted, is extrapolated, and counts apart. By the median error over 2"
    )
    assert page.sections[0].blocks[0] == Note(
        "far lies beyond what was fitted: 81 requests a second, fitted up to 67. Its predictions are extrapolated."
    )
    hull = page.sections[0].blocks[1]
    assert isinstance(hull, Table)
    assert [cell_text(cell) for cell in hull.rows[1]] == ["requests a second", "60"]
    assert "SIMULATED" in page.lead
    two = validated_page(replace(validated, validations=(_FAR, replace(_FAR, name="farther"))))
    assert two.verdict.startswith("far and farther lie beyond what was fitted")
    assert "nothing is shown of what the model is good for" in two.verdict
    assert two.cards == ()


def test_the_colour_is_that_of_what_was_shown(validated: Validated) -> None:
    def tone(*runs: Validation, findings: tuple[str, ...] = ()) -> Tone:
        model = replace(validated.model, findings=findings)
        return validated_page(replace(validated, model=model, validations=runs)).tone

    assert tone(validated_run("near")) is Tone.GOOD
    assert tone(validated_run("near"), _FAR) is Tone.CAUTION
    assert tone(validated_run("near", 0.04)) is Tone.CAUTION  # throughput may be off by 3 %
    assert tone(validated_run("near", 0.02, half_width=0.01)) is Tone.CAUTION  # good, with ranges that hold nothing
    assert tone(validated_run("near", 0.5)) is Tone.BAD
    assert tone(_FAR) is Tone.BAD
    assert tone(validated_run("near"), findings=(f"{UNFIT}: it changed",)) is Tone.BAD


def test_the_doubts_of_the_model_and_of_all_runs_have_a_line_each(validated: Validated) -> None:
    model = replace(validated.model, findings=("delay is not identified",))
    page = validated_page(replace(validated, model=model, validations=(validated_run("half"),)))
    (doubts,) = (section for section in page.sections if section.id == "doubts")
    assert doubts.blocks == (
        Note("The model: delay is not identified."),
        Note("The fitted runs: half has the finding errors: some are left out."),
        Note("The predicted runs: near has the finding errors: it is so."),
        Note("half has the name of a run that was fitted: if it is that run, it does not show what the model is good for."),
    )


def test_the_tables_of_page_and_terminal_have_the_same_rows(validated: Validated) -> None:
    shown = [
        table.rows for section in validated_page(validated).sections for table in section.blocks if isinstance(table, Table)
    ]
    printed = [b.rows for b in validation_document(validated.model, validated.validations) if isinstance(b, Table)]
    assert len(printed) == 3
    assert all(rows in shown for rows in printed)


def test_json_has_the_numbers_and_facts_of_the_page(validated: Validated) -> None:
    found = json.loads(json_text(document(replace(validated, validations=(*validated.validations, _FAR)))))
    near, off, far = found["runs"]
    assert [near["beyond"], off["beyond"], far["beyond"]] == [[], [], list(BEYOND)]
    p99 = next(each for each in off["figures"] if (each["metric"], each["figure"]) == ("ttft", "p99"))
    assert p99 == pytest.approx(
        {"metric": "ttft", "figure": "p99", "unit": "ms", "measured": 100.0, "predicted": 110.0, "low": 105.0, "high": 115.0}
        | {"error": 0.1, "within_range": False}
    )
    assert [each["figure"] for each in off["figures"] if each["metric"] == "e2e"] == ["mean", "p50", "p90", "p99"]
    assert found["coverage"] == {
        "all": {"figures": 39, "within": 13, "share": pytest.approx(1 / 3)},
        "inside": {"figures": 26, "within": 13, "share": 0.5},
        "beyond": {"figures": 13, "within": 0, "share": 0.0},
        "too_narrow": True,
    }
    judged = {(each["metric"], each["figure"]): each for each in found["errors"]}
    assert list(judged) == list(GOOD)
    assert judged["throughput", "mean"] == pytest.approx(
        {"metric": "throughput", "figure": "mean", "limit": 0.03, "inside": 0.05, "beyond": 0.5, "good": False}
    )
    page = validated_page(validated)
    (doubts,) = (section for section in page.sections if section.id == "doubts")
    assert [Note(text) for text in found["sentences"]["doubts"]] == [*doubts.blocks]
    assert found["sentences"]["beyond"][0].startswith("far lies beyond what was fitted: 81 requests a second")


def test_coverage_is_counted_by_metric_and_apart_beyond(validated: Validated) -> None:
    rows = {str(row[0]): [cell_text(cell) for cell in row[1:]] for row in coverage_table((*validated.validations, _FAR)).rows}
    assert rows["TTFT"] == ["4 of 8", "0 of 4"]  # a run that is off by twice its half width holds none
    assert rows["throughput"] == ["1 of 2", "0 of 1"]
    assert rows["all figures"] == ["13 of 26", "0 of 13"]


def test_each_figure_of_a_run_is_a_row_with_its_range_and_what_was_measured() -> None:
    pictures = latency_pictures((validated_run("near"), validated_run("off", 0.1), _FAR))
    assert [picture.name for picture in pictures] == ["ttft", "tpot", "e2e"]
    picture = pictures[0]
    assert [text for _, text in reversed(picture.y.ticks)][:5] == [
        "near, mean",
        "near, p50",
        "near, p90",
        "near, p99",
        "off, mean",
    ]
    assert picture.y.ticks[0][1] == "far*, p99"
    assert "*: beyond what was fitted" in picture.caption
    dots = {mark.name: mark for mark in picture.marks if isinstance(mark, Dots)}
    spans = {mark.name: mark for mark in picture.marks if isinstance(mark, Spans)}
    assert dots["predicted (simulated), 5 to 95 %"].y.tolist() == [12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0]
    assert spans["predicted (simulated) beyond what was fitted, 5 to 95 %"].low == pytest.approx(np.full(4, 145.0))
    assert dots["measured, within the range"].y.tolist() == [12.0, 11.0, 10.0, 9.0]
    assert dots["measured, outside the range"].y.tolist() == [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert dots["measured, outside the range"].notes[4] == (
        "far, beyond what was fitted, mean TTFT: measured 100.0 ms, predicted (simulated) 150.0 ms, range 145.0 – 155.0 ms, "
        "error +50.0%"
    )


def test_errors_are_drawn_beside_their_limits() -> None:
    picture = error_picture((validated_run("off", 0.1), _FAR))
    limits = next(mark for mark in picture.marks if isinstance(mark, Spans))
    assert limits.high == pytest.approx([100 * limit for limit in GOOD.values()])
    dots = {mark.name: mark.x for mark in picture.marks if isinstance(mark, Dots)}
    assert dots["run within what was fitted"] == pytest.approx(np.full(len(GOOD), 10.0))
    assert dots["run beyond what was fitted"] == pytest.approx(np.full(len(GOOD), 50.0))


def test_names_from_outside_are_text(validated: Validated) -> None:
    hostile = "</script><script>window.broken = 1</script>\u202e"
    html = checked(render_page(validated_page(replace(validated, name=hostile, validations=(validated_run(hostile, 0.1),)))))
    assert "<script>window.broken" not in html
    assert "\u202e" not in html


def test_a_throughput_of_less_than_one_request_a_second_keeps_its_digits() -> None:
    """Rounded to a tenth, 0.042 requests a second were "0.0", measured, predicted and in their range."""
    slow = Prediction(("throughput", "mean"), 0.0421, 0.0433, 0.0399, 0.0466)
    (row,) = predictions_table(Validation("slow", 400, None, (), (slow,)), 1).rows
    assert [cell_text(cell) for cell in row] == ["throughput, 1/s", "0.0421", "0.0433", "0.0399 – 0.0466", "+2.9%"]
    assert number_text(1234.56) == "1,234.6"
