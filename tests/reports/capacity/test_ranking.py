"""Several settings ranked by the load that they hold: the order, what is shown, and every format."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from reports.capacity.ranking import Ranking, Setting, confidence_of_each, places, rank_text, ranking_answer, ranking_cost
from reports.capacity.ranking_formats import ranking_document
from reports.capacity.ranking_page import RANKING, ranking_page, ranking_pictures, write_ranking
from reports.capacity.result import Ended
from reports.capacity.search import Shape
from reports.page.page import Tone, render_page
from reports.render.picture import Spans, Trail
from tests.reports.capacity.searches import BRACKET, LIMITS, capacity, cliff, not_monotone, tiers, unknown
from tests.reports.markup import checked

HOSTILE = "</script><script>window.broken = 1</script>\u202e\x00|`=1"
ALONE = replace(BRACKET, curves=BRACKET.curves[:1])
WITH = "with p99 TTFT of at most 500 ms (95 %)"
COST = "2 settings, 10 probes, 52,000 requests, 6.2 min"
Ends = tuple[float | None, float | None]


def _ranking(*brackets: Ends, confidence: float = 0.95, ended: Ended | None = Ended.BUDGET) -> Ranking:
    """Settings "n=1", "n=2", … with these brackets."""
    found = [
        capacity(replace(ALONE, certified=certified, refused=refused), limits=LIMITS[:1], ended=ended)
        for certified, refused in brackets
    ]
    settings = (Setting(f"n={k}", each, f"{k}-n={k}") for k, each in enumerate(found, start=1))
    return Ranking(tuple(settings), confidence, 900.0)


@pytest.mark.parametrize(
    ("brackets", "ranks", "answer", "tone"),
    [
        (
            [(98.0, 110.0), (142.0, 160.0)],
            ["n=2 1", "n=1 2"],
            f"n=2 holds more than n=1 {WITH}: 142 to 160 against 98 to 110 requests/s, a change of "
            "+29 % to +64 %.",
            Tone.GOOD,
        ),
        (
            [(98.0, 110.0), (142.0, 160.0), (139.0, 171.0)],
            ["n=2 1 to 2", "n=3 1 to 2", "n=1 3"],
            f"n=2 holds more than n=1 {WITH}: 142 to 160 against 98 to 110 requests/s; n=3 is not "
            "shown to differ: 139 to 171.",
            Tone.CAUTION,
        ),
        (
            [(98.0, 110.0), (142.0, 160.0), (80.0, 98.0)],
            ["n=2 1", "n=1 2", "n=3 3"],
            f"n=2 holds more than n=1 and n=3 {WITH}: 142 to 160 against 98 to 110 and 80 to 98 "
            "requests/s.",
            Tone.GOOD,
        ),
        (
            [(142.0, 160.0), (150.0, 170.0)],
            ["n=2 1 to 2", "n=1 1 to 2"],
            f"No setting is shown to hold more than another {WITH}, in requests/s: n=2 150 to 170 "
            "and n=1 142 to 160.",
            Tone.CAUTION,
        ),
        (
            [(None, None), (None, 90.0), (100.0, None)],
            ["n=3 1 to 2", "n=1 1 to 3", "n=2 2 to 3"],
            f"n=3 holds more than n=2 {WITH}: 100 or more against less than 90 requests/s; n=1 is "
            "not shown to differ: unknown.",
            Tone.CAUTION,
        ),
        (
            [(None, 90.0), (None, None)],
            ["n=2 1 to 2", "n=1 1 to 2"],
            f"No setting is shown to hold more than another {WITH}, in requests/s: n=2 unknown "
            "and n=1 less than 90.",
            Tone.BAD,
        ),
        (
            [(10.0 * k, 10.0 * k + 9.0) for k in range(1, 8)],
            ["n=7 1", "n=6 2", "n=5 3", "n=4 4", "n=3 5", "n=2 6", "n=1 7"],
            f"n=7 holds more than 6 others {WITH}: 70 to 79 against at best 60 to 69 requests/s.",
            Tone.GOOD,
        ),
    ],
)  # fmt: skip
def test_the_best_setting_is_first_with_what_it_is_shown_to_hold_more_than(
    brackets: list[Ends], ranks: list[str], answer: str, tone: Tone
) -> None:
    ranking = _ranking(*brackets)
    assert [f"{place.setting.name} {rank_text(place)}" for place in places(ranking, 0)] == ranks
    assert ranking_answer(ranking) == answer
    assert ranking_page(ranking).verdict == answer
    assert ranking_page(ranking).tone is tone
    assert " ".join(RANKING.terminal_text(ranking).split()).startswith(answer)
    assert max(map(len, RANKING.terminal_text(ranking).splitlines())) <= 100


def test_what_is_shown_is_true_wherever_every_bracket_is_right() -> None:
    drawn = random.Random(3)
    for _ in range(500):
        truths = [drawn.choice([100.0, 104.0, 130.0]) * drawn.uniform(0.98, 1.02) for _ in range(drawn.randint(2, 5))]
        brackets: list[Ends] = [
            (
                None if drawn.random() < 0.1 else truth * drawn.uniform(0.8, 1.0),
                None if drawn.random() < 0.1 else truth * drawn.uniform(1.0, 1.2),
            )
            for truth in truths
        ]
        ranking = _ranking(*brackets)
        truth_of = dict(zip((setting.name for setting in ranking.settings), truths, strict=True))
        ranked = places(ranking, 0)
        for place in ranked:
            truth = truth_of[place.setting.name]
            assert all(truth_of[other.name] <= truth for other in place.above)
            better = sum(other > truth for other in truths)
            assert place.rank[0] <= 1 + better <= place.rank[1]
        for k, place in enumerate(ranked):  # whatever is shown agrees with the order
            assert {other.name for other in place.above} <= {other.setting.name for other in ranked[k + 1 :]}
        shown_less = {place.setting.name for place in ranked if place.below}
        assert {other.name for other in ranked[0].above} == shown_less  # so one sentence on the best one leaves nothing out


def test_the_error_is_divided_among_the_searches() -> None:
    assert confidence_of_each(0.95, 2) == pytest.approx(0.975)
    assert confidence_of_each(0.95, 5) == pytest.approx(0.99)
    ranking = _ranking((98.0, 110.0), (142.0, 160.0))
    assert "so that all brackets are right together at 95 %" in " ".join(RANKING.terminal_text(ranking).split())


def test_each_tier_has_a_sentence_and_a_table() -> None:
    ranking = Ranking(tuple(Setting(f"n={k}", tiers(), f"{k}") for k in (1, 2)), 0.9, None)
    assert ranking_answer(ranking).startswith("chat: No setting is shown to hold more than another with p99 TTFT ")
    assert " batch: No setting is shown to hold more than another with p99 TPOT " in ranking_answer(ranking)
    text = RANKING.terminal_text(ranking)
    assert text.index("\nchat:\n") < text.index("\nbatch:\n")
    assert [tier["name"] for tier in json.loads(json.dumps(ranking_document(ranking)))["tiers"]] == ["chat", "batch"]
    assert [picture.name for picture in ranking_pictures(ranking)] == ["brackets-1", "brackets-2", "share-1-1", "share-2-2"]


def test_a_search_that_ended_early_or_has_a_shape_of_its_own_is_named() -> None:
    gone = capacity(replace(ALONE, certified=None, refused=None), limits=LIMITS[:1], ended=Ended.TARGET_FAILED)
    found = {"a": gone, "b": cliff(), "c": not_monotone()}
    ranking = Ranking(tuple(Setting(name, each, name) for name, each in found.items()), 0.95, 900.0)
    assert ranking_answer(ranking).endswith(" a: The target stopped answering after 5 probes.")
    text = " ".join(RANKING.terminal_text(ranking).split())
    assert "b: Holds 142 requests/s with p99 TTFT of at most 500 ms (95 %); the queue grows at 165 requests/s" in text
    assert "c: Undecided: the share of requests beyond p99 TTFT" in text


@pytest.mark.parametrize(
    ("ended", "cost"),
    [
        (Ended.BUDGET, f"{COST}: the budget of 15 min is spent; a longer one goes on in the same folder."),
        (Ended.PRECISE, f"{COST}: every bracket is as narrow as requested."),
        (Ended.NO_LIMIT, f"{COST}: no further probe decides more."),
        (Ended.NOT_VALID, f"{COST}: the last probes of a setting cannot be believed."),
        (
            Ended.TARGET_FAILED,
            f"{COST}: the target of a setting stopped answering; bench capacity --experiment_dir with this "
            "folder goes on.",
        ),
        (
            Ended.INTERRUPTED,
            f"{COST}: the search was stopped; bench capacity --experiment_dir with this "
            "folder continues it.",
        ),
        (
            None,
            f"{COST}: the search has not ended; bench capacity --experiment_dir with this "
            "folder continues it.",
        ),
    ],
)  # fmt: skip
def test_what_it_took_and_why_it_ended(ended: Ended | None, cost: str) -> None:
    assert ranking_cost(_ranking((98.0, 110.0), (142.0, 160.0), ended=ended)) == cost


def test_the_picture_has_each_bracket_up_to_the_edge_where_an_end_is_unknown() -> None:
    picture = ranking_pictures(_ranking((None, 110.0), (142.0, 160.0), (100.0, None), (None, None)))[0]
    spans = {mark.name: mark for mark in picture.marks if isinstance(mark, Spans)}
    assert [spans["may hold the most"].low.tolist(), spans["may hold the most"].high.tolist()] == [
        [142.0, 100.0],
        pytest.approx([160.0, 176.0]),
    ]
    assert spans["holds less than the best"].low.tolist() == pytest.approx([100.0 / 1.1])
    assert spans["holds less than the best"].high.tolist() == [110.0]
    assert [text for _, text in picture.y.ticks] == ["n=1", "n=4", "n=3", "n=2"]
    assert [mark.x.tolist() for mark in picture.marks if isinstance(mark, Trail)] == [[142.0, 142.0]]
    assert "dashed line" in picture.caption
    without = ranking_pictures(_ranking((None, 110.0), (None, 90.0)))[0]
    assert not [mark for mark in without.marks if isinstance(mark, Trail)]
    assert "dashed line" not in without.caption


def test_the_table_names_the_settings_by_their_rows() -> None:
    text = RANKING.markdown_text(_ranking((10.0, 19.0), (20.0, 29.0), (30.0, 39.0), (28.0, 33.0)))
    first = next(line for line in text.splitlines() if line.startswith("|  1 |"))
    assert [cell.strip() for cell in first.split("|")[2:7]] == ["n=3", "30 to 39", "151", "1 to 2", "3 to 4"]


def test_every_file_is_written_and_names_are_inert(tmp_path: Path) -> None:
    settings = (
        Setting("=1", capacity(ALONE, limits=LIMITS[:1]), "1"),
        Setting(HOSTILE, replace(unknown(), measured=f"dataset {HOSTILE}"), "2"),
    )
    for setting in settings:
        (tmp_path / setting.folder).mkdir()
    page = write_ranking(Ranking(settings, 0.95, 900.0), tmp_path)
    assert (tmp_path / "2" / "capacity.html").exists()
    assert [path.name for path in sorted(tmp_path.glob("ranking.*"))] == [
        f"ranking.{end}" for end in ("csv", "html", "json", "md")
    ]
    html = page.read_text(encoding="utf-8")
    assert "<script>window.broken" not in html
    assert "./1/capacity.html" in html
    rows = list(csv.DictReader(page.with_suffix(".csv").open(newline="", encoding="utf-8")))
    assert [row["setting"][:2] for row in rows] == ["'=", "</"]
    assert [row["certified"] for row in rows] == ["142.3", ""]
    assert [(row["rank_best"], row["rank_worst"]) for row in rows] == [("1", "2"), ("1", "2")]
    assert "\u202e" not in page.with_suffix(".md").read_text(encoding="utf-8")
    pairs = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["tiers"][0]["pairs"]
    assert pairs == [{"higher": "=1", "lower": HOSTILE, "shown": False, "least_change": None, "most_change": None}]


def test_a_setting_without_a_probe_can_be_shown() -> None:
    bracket = replace(ALONE, curves=(), certified=None, refused=None, estimate=None, binding=None, shape=Shape.UNKNOWN)
    nothing = replace(capacity(bracket, {}, limits=LIMITS[:1]), ended=Ended.TARGET_FAILED)
    ranking = Ranking(tuple(Setting(name, nothing, name) for name in "ab"), 0.95, 900.0)
    assert ranking_answer(ranking).endswith("b: The target did not answer.")
    assert ranking_page(ranking).tone is Tone.BAD
    assert checked(render_page(ranking_page(ranking)))
