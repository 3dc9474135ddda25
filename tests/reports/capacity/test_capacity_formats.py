"""A search for capacity in every format: the same answer first, whatever its shape."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from reports.capacity.answer import answer
from reports.capacity.formats import CAPACITY
from reports.capacity.json_file import document
from reports.capacity.page import capacity_page
from reports.capacity.pictures import capacity_pictures
from reports.capacity.probe import Violations
from reports.capacity.result import Capacity
from reports.capacity.shares import share_interval
from reports.capacity.tables import probes_table
from reports.page.page import Tone, render_page
from reports.render.picture import Band, Dots, Line, Shape, Whiskers
from reports.render.plots import figure_of
from tests.reports.capacity.searches import ALL, BRACKET, LIMITS, SHARES, capacity, cliff, limit, never_held, tiers, unknown
from tests.reports.markup import checked

HOSTILE = "</script><script>window.broken = 1</script>\u202e\x00|`=1"
EACH = pytest.mark.parametrize("found", ALL.values(), ids=ALL.keys())


@EACH
def test_the_terminal_has_the_answer_first_in_a_hundred_columns(found: Capacity) -> None:
    text = CAPACITY.terminal_text(found)
    assert " ".join(text.split()).startswith(answer(found))
    assert max(map(len, text.splitlines())) <= 100


@EACH
def test_markdown_and_page_have_the_answer_first(found: Capacity) -> None:
    heading, opening, *_ = MarkdownIt().parse(CAPACITY.markdown_text(found))[1::3]
    assert heading.content == "Capacity: `bench dataset --num_requests 5000`"
    assert opening.children is not None
    assert "".join(part.content for part in opening.children) == answer(found)
    assert capacity_page(found).verdict == answer(found)
    checked(render_page(capacity_page(found)))


@EACH
def test_every_picture_can_be_drawn(found: Capacity) -> None:
    pictures = capacity_pictures(found)
    assert len(pictures) == (len(found.limits) if found.probes else 0)
    for picture in pictures[:1]:
        figure_of(picture).draw_without_rendering()


def test_the_curve_has_each_probe_with_its_interval_the_allowed_share_and_the_bracket() -> None:
    picture = capacity_pictures(capacity())[0]
    bands = {mark.name: (mark.low, mark.high) for mark in picture.marks if isinstance(mark, Band)}
    assert bands["holds: up to 142 requests/s (all limits)"][1] == 142.3
    assert bands["fails: from 165 requests/s (all limits)"][0] == 164.6
    lines = {mark.name: mark for mark in picture.marks if isinstance(mark, Line)}
    assert set(lines["allowed: 1 %"].y) == {1.0}
    curve = lines["curve through all probes"]
    assert np.interp(151.0, curve.x, curve.y) == pytest.approx(1.0, rel=0.5)
    dots = {x: y for mark in picture.marks if isinstance(mark, Dots) for x, y in zip(mark.x, mark.y, strict=True)}
    assert dots == pytest.approx({load: 100.0 * share for load, share in SHARES.items()})
    whiskers = [mark for mark in picture.marks if isinstance(mark, Whiskers)]
    assert sum(mark.x.size for mark in whiskers) == len(SHARES)
    assert all((mark.low < mark.high).all() for mark in whiskers)


def test_a_probe_without_a_request_beyond_is_a_ring_and_an_overloaded_one_a_cross() -> None:
    (picture,) = capacity_pictures(cliff())
    shapes = {mark.shape: mark for mark in picture.marks if isinstance(mark, Dots)}
    assert set(shapes) == {Shape.RING, Shape.CROSS}
    assert (shapes[Shape.RING].y > 0).all()  # at the bottom of a logarithmic axis
    assert "0 of 5,000 beyond" in shapes[Shape.RING].notes[0]
    assert shapes[Shape.CROSS].x.tolist() == [165.0]


def test_a_load_that_is_certified_below_all_probes_is_in_the_picture() -> None:
    (picture,) = capacity_pictures(capacity(replace(BRACKET, certified=80.0, curves=BRACKET.curves[:1]), limits=LIMITS[:1]))
    bands = {mark.name: (mark.low, mark.high) for mark in picture.marks if isinstance(mark, Band)}
    assert bands["holds: up to 80 requests/s"] == (80.0 / 1.05, 80.0)


def test_the_picture_of_a_set_of_limits_has_the_verdicts_of_that_set() -> None:
    """At 165 requests/s the limit of "chat" fails, and that of "batch" holds."""
    found = [
        {mark.name for mark in picture.marks if isinstance(mark, Dots) and 165.0 in mark.x}
        for picture in capacity_pictures(tiers())
    ]
    assert found == [{"probe: fails"}, {"probe: holds"}]


def test_with_several_sets_of_limits_the_tables_say_on_which_one_their_verdicts_are() -> None:
    assert " Verdicts are those on the limits of chat." in " ".join(CAPACITY.terminal_text(tiers()).split())
    assert "A verdict is that of all probes together on the limits of chat. A load" in probes_table(tiers()).note
    assert "A verdict is that of all probes together. A load" in probes_table(capacity()).note


def test_a_probe_that_is_not_valid_is_a_cross() -> None:
    found = capacity()
    (picture, _) = capacity_pictures(replace(found, probes=(replace(found.probes[0], valid=False), *found.probes[1:])))
    (cross,) = [mark for mark in picture.marks if isinstance(mark, Dots) and mark.shape is Shape.CROSS]
    assert (cross.name, cross.x.tolist()) == ("probe: not valid", [100.0])


def test_the_interval_of_a_share_widens_with_its_clusters_and_is_unknown_without_them() -> None:
    alone, clustered = (share_interval(Violations(5_000, 50, effect)) for effect in (1.0, 20.0))
    assert alone is not None
    assert clustered is not None
    assert alone == pytest.approx((0.00743, 0.01316), abs=1e-4)  # Clopper and Pearson
    assert clustered[0] < alone[0] < alone[1] < clustered[1]
    assert share_interval(Violations(5_000, 50, None)) is None
    assert share_interval(Violations(0, 0, 1.0)) is None


def test_the_tone_says_how_good_the_answer_is() -> None:
    assert capacity_page(capacity()).tone is Tone.GOOD
    assert capacity_page(unknown()).tone is Tone.CAUTION
    assert capacity_page(never_held()).tone is Tone.BAD


def test_the_files_have_a_row_a_probe_and_text_from_outside_is_inert(tmp_path: Path) -> None:
    found = capacity()
    first = replace(found.probes[0], folder="=1", command=f"bench {HOSTILE}", valid=False, findings=("errors",))
    found = replace(found, measured=HOSTILE, probes=(first, *found.probes[1:]))
    page = CAPACITY.write_all(found, tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"capacity.{end}" for end in ("csv", "html", "json", "md")]
    content = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert content == json.loads(json.dumps(document(found)))
    rows = list(csv.DictReader(page.with_suffix(".csv").open(newline="", encoding="utf-8")))
    assert [float(row["load"]) for row in rows] == [probe["load"] for probe in content["probes"]] == list(SHARES)
    assert [float(row["p99_ttft_share_beyond"]) for row in rows] == list(SHARES.values())
    assert rows[0]["folder"] == "'=1"
    html = page.read_text(encoding="utf-8")
    assert "<script>window.broken" not in html
    assert "./probe-130/report.html" in html
    assert "INVALID, errors" in html
    assert "\u202e" not in CAPACITY.terminal_text(found) + page.with_suffix(".md").read_text(encoding="utf-8")


def test_limits_of_one_name_have_columns_of_their_own(tmp_path: Path) -> None:
    """A reader by names would take the shares beyond one for those beyond the other."""
    found = capacity(limits=(limit("p99_ttft<=500ms"), limit("p99_ttft<=2s")))
    page = CAPACITY.write_all(found, tmp_path)
    with page.with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        columns = next(csv.reader(file))
    assert len(set(columns)) == len(columns)
    assert {"p99_ttft<=500ms_share_beyond", "p99_ttft<=2000ms_share_beyond"} < set(columns)
    table = probes_table(found)
    assert {"p99_ttft<=500ms beyond, %", "p99_ttft<=2000ms beyond, %"} < set(table.columns)


def test_a_limit_on_single_tokens_counts_tokens_in_its_words() -> None:
    found = capacity(limits=(limit("p99_itl<=50ms"),))
    assert "%: tokens with ITL over 50 ms (1 % allowed)." in " ".join(CAPACITY.terminal_text(found).split())
    [picture] = capacity_pictures(found)
    assert picture.title == "Tokens with ITL over 50 ms, against load"
    assert picture.y.label == "tokens beyond the limit"


def test_two_limits_of_one_name_have_columns_of_their_own_on_a_terminal() -> None:
    limits = (limit("p99_ttft<=500ms"), limit("p99_ttft<=900ms"))
    text = CAPACITY.terminal_text(capacity(limits=limits))
    assert [text.count(name) for name in ("p99_ttft", "<=500ms", "<=900ms")] == [2, 1, 1]
    assert max(map(len, text.splitlines())) <= 100


def test_less_than_a_user_at_once_is_not_none() -> None:
    found = tiers()
    few = replace(found, tiers=tuple(replace(tier, users=0.042, output_token_throughput=0.31) for tier in found.tiers))
    text = CAPACITY.terminal_text(few)
    assert "0.042" in text
    assert "0.31" in text
    (card,) = (card for card in capacity_page(few).cards if card.title == "Users at once")
    assert card.value == "0.042"
