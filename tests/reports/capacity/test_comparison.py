"""Two searches for capacity compared."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from reports.capacity.comparison import (
    CapacityComparison,
    NamedSearch,
    Order,
    TierComparison,
    change_text,
    compare_searches,
    verdict,
)
from reports.capacity.comparison_formats import comparison_document
from reports.capacity.comparison_page import CAPACITY_COMPARISON, comparison_page
from reports.capacity.result import Capacity, LoadUnit
from reports.errors import NotComparableError
from reports.page.page import Tone, render_page
from tests.reports.capacity.searches import BRACKET, LIMITS, capacity, tiers, unknown
from tests.reports.markup import checked

HOSTILE = "</script><script>window.broken = 1</script>\u202e\x00|`=1"


def _search(certified: float | None, refused: float | None) -> Capacity:
    return capacity(replace(BRACKET, certified=certified, refused=refused), limits=LIMITS[:1])


def _compared(b: Capacity, a: Capacity | None = None) -> CapacityComparison:
    return compare_searches(NamedSearch("before", a or _search(142.0, 165.0)), NamedSearch("after", b))


@pytest.mark.parametrize(
    ("certified", "refused", "order", "tone", "end"),
    [
        (170.0, 195.0, Order.MORE, Tone.GOOD, "against 142 to 165 requests/s, a change of +3.0 % to +38 % (90 %)."),
        (165.0, None, Order.MORE, Tone.GOOD, "against 142 to 165 requests/s, a change of at least +0.0 % (90 %)."),
        (100.0, 142.0, Order.LESS, Tone.BAD, "against 142 to 165 requests/s, a change of -40 % to +0.0 % (90 %)."),
        (164.0, 190.0, Order.UNDECIDED, Tone.CAUTION, "change is -0.7 % to +34 % (90 %); a smaller --precision may decide."),
        (None, None, Order.UNDECIDED, Tone.CAUTION, "(– to – requests/s against 142 to 165 requests/s)."),
    ],
)  # fmt: skip
def test_brackets_decide_where_they_do_not_overlap(
    certified: float | None, refused: float | None, order: Order, tone: Tone, end: str
) -> None:
    comparison = _compared(_search(certified, refused))
    assert comparison.tiers[0].order is order
    text = verdict(comparison)
    assert text.endswith(end)
    starts = {
        Order.MORE: "after holds more than before with p99 TTFT",
        Order.LESS: "after holds less than before with p99 TTFT",
    }
    assert text.startswith(starts.get(order, "Undecided: "))
    assert comparison_page(comparison).tone is tone
    assert " ".join(CAPACITY_COMPARISON.terminal_text(comparison).split()).startswith(text)
    assert max(map(len, CAPACITY_COMPARISON.terminal_text(comparison).splitlines())) <= 100
    assert json.loads(json.dumps(comparison_document(comparison)))["tiers"][0]["order"] == order.value


def test_each_tier_is_compared_by_its_name() -> None:
    comparison = _compared(tiers(), tiers())
    assert checked(render_page(comparison_page(comparison)))
    assert [tier.name for tier in comparison.tiers] == ["chat", "batch"]
    assert verdict(comparison).startswith("chat: Undecided: ")
    assert " batch: " in verdict(comparison)


def test_searches_for_other_limits_or_by_another_load_are_refused() -> None:
    with pytest.raises(NotComparableError, match=r"different limits \(p99_ttft<=500ms and p99_ttft<=500ms, p99_tpot<=50ms\)"):
        _compared(capacity())
    with pytest.raises(NotComparableError, match="before was searched in requests/s, after in users"):
        _compared(replace(_search(10.0, 12.0), unit=LoadUnit.USERS))


def test_every_file_is_written_and_names_are_inert(tmp_path: Path) -> None:
    other = replace(unknown(), measured=f"dataset {HOSTILE}")
    comparison = compare_searches(NamedSearch("=1", _search(142.0, 165.0)), NamedSearch(HOSTILE, other))
    for suffix in (".json", ".csv", ".md", ".html"):
        CAPACITY_COMPARISON.write(comparison, suffix, tmp_path / f"c{suffix}")
    assert "<script>window.broken" not in (tmp_path / "c.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "c.csv").open(newline="", encoding="utf-8")))
    assert [row["search"][:2] for row in rows] == ["'=", "</"]
    assert [row["certified"] for row in rows] == ["142.0", ""]
    assert "B measured" in CAPACITY_COMPARISON.markdown_text(comparison)
    assert "\u202e" not in CAPACITY_COMPARISON.terminal_text(comparison) + (tmp_path / "c.md").read_text(encoding="utf-8")


def test_a_change_is_never_shown_larger_than_it_was_shown_to_be() -> None:
    """49.79 over 36.91 is +34.9 %."""
    a, b = (
        replace(tiers().tiers[0], bracket=replace(BRACKET, certified=low, refused=high))
        for low, high in ((None, 36.91), (49.79, None))
    )
    assert change_text(TierComparison(a, b)) == "at least +34 %"
    assert change_text(TierComparison(b, a)) == "at most -25 %"


def test_two_searches_at_half_the_certainty_are_not_sure_to_0_percent() -> None:
    def halved(found: Capacity) -> Capacity:
        return replace(found, tiers=tuple(replace(tier, goal=replace(tier.goal, confidence=0.5)) for tier in found.tiers))

    comparison = _compared(halved(_search(170.0, 195.0)), halved(_search(142.0, 165.0)))
    assert verdict(comparison).endswith("a change of +3.0 % to +38 % (50 % and 50 % each: too little for both).")
    assert comparison_page(comparison).cards[0].interval == "50 % and 50 % each: too little for both; B holds more"
