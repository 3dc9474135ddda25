"""The sentences of a search for capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.capacity.answer import answer, cost, details
from reports.capacity.control import controlled, explained
from reports.capacity.probe import Control, Violations
from reports.capacity.result import Capacity, Ended, LoadUnit, ProbeRun
from reports.capacity.search import Curve, Shape
from reports.capacity.words import confidence_text, limit_text, width_text
from tests.reports.capacity.searches import (
    BRACKET,
    SHARES,
    N,
    always_held,
    capacity,
    cliff,
    flat,
    forecasts,
    limit,
    never_held,
    not_monotone,
    tiers,
    unknown,
)

TTFT = "p99 TTFT of at most 500 ms"


def _with(found: Capacity, **changes: object) -> Capacity:
    """The same with another bracket."""
    return replace(found, tiers=tuple(replace(tier, bracket=replace(tier.bracket, **changes)) for tier in found.tiers))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (capacity(), f"Holds 142 requests/s with {TTFT} and p99 TPOT of at most 50 ms (95 %); fails at 165 requests/s."),
        (
            _with(capacity(), refused=None),
            f"Holds 142 requests/s with {TTFT} and p99 TPOT of at most 50 ms (95 %); more is undecided.",
        ),
        (
            _with(capacity(), certified=None),
            f"Does not hold 165 requests/s with {TTFT} and p99 TPOT of at most 50 ms (95 %); no lower load is certified.",
        ),
        (
            flat(),
            "Holds 120 requests/s with p99 TPOT of at most 30 ms (95 %), but above it the limit does not decide: from 120 to "
            "170 requests/s the share of requests beyond it goes from 0.70 % to 1.3 %, with 1 % allowed; read the curve.",
        ),
        (
            flat(refused=160.0),
            "Holds 120 requests/s with p99 TPOT of at most 30 ms (95 %); fails at 160 requests/s, but between them the limit "
            "does not decide: from 120 to 160 requests/s the share of requests beyond it goes from 0.70 % to 1.3 %, with 1 % "
            "allowed; read the curve.",
        ),
        (
            flat(certified=None),
            "p99 TPOT of at most 30 ms does not decide: from 110 to 170 requests/s the share of requests beyond it goes from "
            "0.70 % to 1.3 %, with 1 % allowed; read the curve.",
        ),
        (
            cliff(),
            f"Holds 142 requests/s with {TTFT} (95 %); the queue grows at 165 requests/s, and capacity is where it begins to "
            "grow, whatever the limit.",
        ),
        (
            replace(cliff(), unit=LoadUnit.USERS),
            f"Holds 142 users with {TTFT} (95 %); fails at 165 users.",
        ),
        (
            cliff(certified=None),
            "The queue grows at 165 requests/s, and no lower load is certified; capacity is where it begins to grow, "
            "whatever the limit.",
        ),
        (
            not_monotone(),
            f"Undecided: the share of requests beyond {TTFT} falls at a higher load: 2.1 % at 120 requests/s, 0.40 % at 140 "
            "requests/s; something other than the load changed between the probes.",
        ),
        (always_held(), f"Holds 400 requests/s with {TTFT} (95 %); no load was high enough to fail."),
        (
            replace(never_held(), unit=LoadUnit.USERS),
            "No load that was tried holds p99 TTFT of at most 5 ms: even 2 users fail (95 %).",
        ),
        (
            never_held(refused=None),
            "Undecided: 10,400 requests in 2 probes at 2 to 4 requests/s are too few to show whether p99 TTFT of at most 5 ms "
            "holds.",
        ),
        (never_held(), "No load that was tried holds p99 TTFT of at most 5 ms: even 2 requests/s fails (95 %)."),
        (
            unknown(),
            f"Undecided: 10,400 requests in 2 probes at 100 to 160 requests/s are too few to show whether {TTFT} holds.",
        ),
        (replace(unknown(), probes=()), "Undecided: the budget of 30 s leaves no time for a probe."),
        (replace(unknown(ended=None), probes=()), "Undecided: no load was measured."),
        (
            tiers(),
            f"chat: Holds 142 requests/s with {TTFT} (95 %); fails at 165 requests/s. batch: Holds 165 requests/s with p99 "
            "TPOT of at most 50 ms (95 %); no load was high enough to fail.",
        ),
        (
            capacity(limits=(replace(limit("p99_ttft<=500ms"), q=0.999),), unit=LoadUnit.USERS),
            "Holds 142 users with p99.9 TTFT of at most 500 ms (95 %); fails at 165 users.",
        ),
        (
            capacity(limits=(limit("failed_share<=1%"),), unit=LoadUnit.USERS),
            "Holds 142 users with at most 1 % of the requests failed (95 %); fails at 165 users.",
        ),
    ],
)
def test_each_shape_has_one_sentence(found: Capacity, expected: str) -> None:
    assert answer(found) == expected


def test_a_target_that_died_is_in_the_answer() -> None:
    assert answer(capacity(ended=Ended.TARGET_FAILED)).endswith(" The target stopped answering after 5 probes.")
    nothing = answer(unknown(ended=Ended.TARGET_FAILED))
    assert nothing.startswith("Undecided: ")
    assert nothing.endswith(" The target stopped answering after 2 probes.")


def test_probes_that_are_not_valid_say_nothing() -> None:
    found = unknown(ended=Ended.NOT_VALID)
    late = "Client delayed by other processes: give it cores of its own"
    invalid = replace(found, probes=tuple(replace(run, valid=False, problem=late) for run in found.probes))
    assert answer(invalid) == f"Undecided: no probe is valid. {late}."
    nameless = tuple(replace(run, problem=None) for run in invalid.probes)
    assert answer(replace(invalid, probes=nameless)) == "Undecided: no probe is valid. Their findings say why."
    gone = answer(replace(invalid, ended=Ended.TARGET_FAILED))
    assert gone == f"Undecided: no probe is valid. {late}. The target stopped answering after 2 probes."
    for search, says_so in ((found, True), (invalid, False)):
        ended = _with(replace(search, ended=Ended.BUDGET), more_requests=None, certified=None)
        assert ("A longer --budget would show more." in details(ended, ended.tiers[0])) is says_so
    half = replace(found, probes=(invalid.probes[0], found.probes[1]))
    assert answer(half).startswith("Undecided: 5,200 requests in 1 probe at 160 requests/s are too few")
    assert answer(half).endswith(f" The last probes are not valid, so the search ended. {late}.")


def test_what_was_shown_is_rounded_to_the_safe_side() -> None:
    found = _with(capacity(), certified=84.59, refused=99.91)
    assert answer(found).startswith("Holds 84.5 requests/s with ")
    assert answer(found).endswith("; fails at 100 requests/s.")
    whole = _with(capacity(unit=LoadUnit.USERS), certified=1.0, refused=2.0)
    assert answer(whole).startswith("Holds 1 user with ")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (capacity(), "The best estimate is 151 requests/s; the bracket is ±7.8 %."),
        (capacity(), f"The limit that decides is {TTFT}."),
        (
            capacity(),
            "At 142 requests/s: about 38 users at once (Little's law), goodput 141 requests/s, 2,840 output tokens/s.",
        ),
        (capacity(unit=LoadUnit.USERS), "At 142 users: goodput 141 requests/s, 2,840 output tokens/s."),
        (capacity(), "What happens less often than once in 21 s would not show."),
        (
            _with(capacity(), certified=179.0, refused=200.0),
            "No whole probe ran at this load or above, so what is rare there is unknown.",
        ),
        (
            _with(capacity(), refused=200.0),
            "The best estimate is 151 requests/s; the bracket is ±20 %; ±10 % needs about 5.7 min more (54,000 requests).",
        ),
        (
            _with(capacity(), refused=200.0, more_requests=None),
            "The best estimate is 151 requests/s; the bracket is ±20 %; no number of requests is known that reaches ±10 %.",
        ),
        (unknown(), "±10 % needs about 8.1 min more (81,000 requests)."),
        (forecasts(), "Before the last probe a bracket of ±9 % was expected."),
        (
            _with(capacity(), curves=(replace(BRACKET.curves[0], clusters=4.2), BRACKET.curves[1])),
            "The probes near the limit met only 4 independent times beyond it; 10 would be sure, and what happens less often "
            "than once in 21 s would not show.",
        ),
        (
            _with(capacity(), curves=(replace(BRACKET.curves[0], clusters=9.7), BRACKET.curves[1])),
            "The probes near the limit met only 9 independent times beyond it; 10 would be sure, and what happens less often "
            "than once in 21 s would not show.",
        ),
    ],
)
def test_the_sentences_after_it(found: Capacity, sentence: str) -> None:
    assert sentence in details(found, found.tiers[0])


def test_the_time_that_more_needs_includes_what_is_between_the_probes() -> None:
    found = replace(_with(capacity(), refused=200.0), spent_s=capacity().seconds + 5 * 30.0)
    assert any("±10 % needs about 11 min more (54,000 requests)." in text for text in details(found, found.tiers[0]))


def _answered(found: Capacity, per_s: dict[float, float | None]) -> Capacity:
    """The search whose target answered this many requests a second at these loads."""
    runs = (replace(run, request_throughput=per_s.get(run.probe.load, run.request_throughput)) for run in found.probes)
    return replace(found, probes=tuple(runs))


def test_a_target_that_was_slower_while_its_queue_grew_than_in_a_probe_that_held_may_have_changed() -> None:
    held = {100.0: 0.0, 150.0: 0.3, 170.0: 0.002}
    found = _answered(capacity(shares=held, overloaded=[150.0]), {150.0: 130.0})
    sentence = (
        "The target answered 130 requests/s while its queue grew at 150 requests/s, and 170 requests/s in a probe at 170 "
        "requests/s that met the limits: either its speed changed between the probes, and another search may answer "
        "otherwise, or a growing queue makes it slower."
    )
    assert sentence in details(found, found.tiers[0])


@pytest.mark.parametrize(
    ("shares", "overloaded", "per_s"),
    [
        ({100.0: 0.0, 150.0: 0.3, 170.0: 0.02}, [150.0], 130.0),  # the higher load did not hold
        ({100.0: 0.0, 150.0: 0.3, 170.0: 0.002}, [170.0], 130.0),  # the queue grew at the higher load
        ({100.0: 0.0, 150.0: 0.3, 170.0: 0.002}, [150.0], 140.0),  # by less than chance explains
        ({100.0: 0.0, 150.0: 0.3, 170.0: 0.002}, [150.0], None),
    ],
)
def test_a_target_as_fast_while_its_queue_grew_is_steady(
    shares: dict[float, float], overloaded: list[float], per_s: float | None
) -> None:
    found = _answered(capacity(shares=shares, overloaded=overloaded), {150.0: per_s})
    assert not any("queue grew" in text for text in details(found, found.tiers[0]))


def test_users_that_were_too_many_are_named_where_clearly_more_were_not() -> None:
    sentence = "130 users were too many, but 170 users were not: something other than the load changed between the probes."
    for fewer, is_said in ((130.0, True), (140.0, False)):
        shares = {100.0: 0.0, fewer: 0.3, 170.0: 0.002}
        found = _answered(capacity(shares=shares, overloaded=[fewer], unit=LoadUnit.USERS), {fewer: 1.0})
        assert (sentence in details(found, found.tiers[0])) is is_said
        assert any("too many" in text for text in details(found, found.tiers[0])) is is_said


def test_a_probe_far_beyond_the_limit_is_named_where_a_clearly_higher_load_held() -> None:
    sentence = (
        "13.0 % of the requests of a probe at 100 requests/s were beyond p99 TTFT of at most 500 ms, and 0.20 % of one at "
        "130 requests/s: look at what the target did in the first."
    )
    for shares, is_said in (
        ({100.0: 0.13, 130.0: 0.002}, True),
        ({100.0: 0.04, 130.0: 0.002}, False),
        ({100.0: 0.13, 130.0: 0.02}, False),
        ({100.0: 0.13, 120.0: 0.002}, False),
    ):
        found = capacity(shares=shares)
        assert (sentence in details(found, found.tiers[0])) is is_said
        assert is_said or not any("look at" in text for text in details(found, found.tiers[0]))
    falls = _with(capacity(shares={100.0: 0.13, 130.0: 0.002}), shape=Shape.NOT_MONOTONE)  # the answer has both figures
    assert sentence not in details(falls, falls.tiers[0])


def _stalled(found: Capacity, *loads: float) -> Capacity:
    """The same, where the target stalled in the probes at these loads."""

    def with_stall(run: ProbeRun) -> ProbeRun:
        first, *others = run.probe.violations
        return replace(run, probe=replace(run.probe, violations=(replace(first, stalled=run.probe.load in loads), *others)))

    return replace(found, probes=tuple(with_stall(run) for run in found.probes))


def test_few_probes_with_stalls_that_have_most_requests_beyond_the_limit_are_named() -> None:
    sentence = (
        "1,500 of the 1,510 requests beyond p99 TTFT of at most 500 ms came in 1 probe in which the target answered nothing "
        "for longer than the limit. 10 such stalls would show how often they come"
    )
    shares = {100.0: 0.0, 130.0: 0.3, 170.0: 0.002}
    found = _stalled(capacity(shares=shares, overloaded=[130.0]), 130.0)
    assert f"{sentence}, so 142 requests/s may be too high." in details(found, found.tiers[0])
    assert not any("queue grew" in text for text in details(found, found.tiers[0]))
    nothing = _with(found, certified=None)
    assert f"{sentence}." in details(nothing, nothing.tiers[0])
    for other in (
        _stalled(capacity(shares={100.0: 0.0, 130.0: 0.02, 170.0: 0.002}), 170.0),  # most are beyond it for another reason
        _stalled(capacity(shares={100.0: 0.0, 170.0: 0.3}, overloaded=[170.0])),
        _stalled(never_held(), 2.0, 4.0),  # a target that takes longer than the limit for each request
    ):
        assert not any("stalls" in text for text in details(other, other.tiers[0]))


def test_shares_of_a_flat_curve_are_said_to_be_fitted() -> None:
    """The probe at 130 requests/s of a real search had 8.1 %, and the curve 4.5 %."""
    curve = Curve(Shape.FLAT, -11.52, 1.73, None, None, None, 30.0)
    fitted = _with(flat(certified=None), curves=(curve,))
    assert "the share of requests beyond it goes, as fitted, from 3.4 % to 7.2 %, with 1 % allowed" in answer(fitted)


def test_limit_of_which_no_request_has_a_value_needs_no_longer_budget() -> None:
    """Answers of one token have no TPOT, however many are sent."""

    def without_tpot(run: ProbeRun) -> ProbeRun:
        return replace(run, probe=replace(run.probe, violations=(run.probe.violations[0], Violations(0, 0, None))))

    found = _with(capacity(), certified=None, refused=None, more_requests=None, estimate=None, shape=Shape.UNKNOWN)
    sentence = "the 26,000 requests in 5 probes have no TPOT, so no number of them shows whether p99 TPOT of at most"
    assert sentence not in answer(found)
    assert any("a longer --budget would show more" in text.lower() for text in details(found, found.tiers[0]))
    found = replace(found, probes=tuple(map(without_tpot, found.probes)))
    assert answer(found) == f"Undecided: {sentence} 50 ms holds."
    assert not any("budget" in text for text in details(found, found.tiers[0]))


def _modelled(found: Capacity, simulated: dict[float, tuple[int, ...]], measured: dict[float, tuple[int, ...]]) -> Capacity:
    """The same, with simulations that have these requests beyond the first limit in blocks, beside those that were measured."""

    def with_model(run: ProbeRun) -> ProbeRun:
        load, n = run.probe.load, run.probe.violations[0].n
        own = Control(0.01, measured[load], simulated[load], sum(simulated[load]) / n, 0.01)
        none = Control(0.01, (0,) * 8, (0,) * 8, 0.0, 0.0)
        return replace(run, probe=replace(run.probe, controls=(own, none)))

    return replace(found, probes=tuple(with_model(run) for run in found.probes))


def _blocks(beyond: dict[float, float]) -> dict[float, tuple[int, ...]]:
    """The requests beyond the limit of each load in two of eight blocks, other ones at each load."""
    found = {}
    for number, (load, share) in enumerate(beyond.items()):
        blocks = [0] * 8
        blocks[number % 8] = blocks[(number + 3) % 8] = round(share * N) // 2
        found[load] = tuple(blocks)
    return found


def test_what_a_model_is_worth_is_no_more_than_the_search_reckons_with() -> None:
    """Its requests beyond the limit have a design effect of 4: with a model that explains all of them they count as independent
    ones. Beforehand the effect is 30, which counts as 100 requests. 154 of the probes count.
    """
    blocks = _blocks(SHARES)
    found = _modelled(capacity(), blocks, blocks)
    (sentence,) = (text for text in details(found, found.tiers[0]) if "model" in text)
    weights = 5 + 20 + 30 + 50 + 50
    times = (4.0 * weights + 30.0 * 100.0) / (weights + 100.0)
    share = explained([run.probe for run in found.probes], 0)
    assert share is not None
    assert times < 15 < 1.0 / (1.0 - share)
    assert sentence.endswith(f"as far as the probes show: without it the search would need {times:.0f} times as many.")


def test_model_that_explains_hardly_anything_is_too_little_to_save_requests() -> None:
    measured = dict.fromkeys(SHARES, (20, 0, 0, 0, 0, 0, 30, 0))
    simulated = dict.fromkeys(SHARES, (25, 0, 0, 30, 0, 0, 0, 0))
    found = _modelled(capacity(), simulated, measured)
    share = explained([run.probe for run in found.probes], 0)
    assert share is not None
    assert 0.0 < share < 0.05
    assert (
        f"The model explains {share:.0%} of the variance of the requests beyond the limit, as far as the probes show: too "
        "little to save requests." in details(found, found.tiers[0])
    )


def test_model_whose_worth_is_not_known_is_not_said_to_count_for_nothing() -> None:
    """Until events show what it explains, all of it is taken off each probe, and no error is smaller for it."""
    none = dict.fromkeys(SHARES, (0,) * 8)
    found = _modelled(capacity(shares=dict.fromkeys(SHARES, 0.0)), none, none)
    assert {probe.violations[0].above for probe in controlled([run.probe for run in found.probes])} == {50}
    assert (
        "Too few requests were beyond the limit to know what the model explains of them, so it makes the answer no surer."
        in details(found, found.tiers[0])
    )


def test_load_that_is_refused_for_a_stall_is_no_load_at_which_the_queue_grows() -> None:
    found = _with(capacity(shares={100.0: 0.0, 165.0: 0.3}, overloaded=[165.0]), shape=Shape.CLIFF, refused=165.0)

    assert "the queue grows at 165 requests/s" in answer(found)
    assert "queue grows" not in answer(_stalled(found, 165.0))
    assert "fails at 165 requests/s" in answer(_stalled(found, 165.0))


def test_a_precise_bracket_asks_for_no_more() -> None:
    precise = _with(capacity(), more_requests=54_000)
    assert not any("needs" in text for text in details(precise, precise.tiers[0]))
    assert not any("needs" in text for text in details(flat(), flat().tiers[0]))


@pytest.mark.parametrize("ended", [*Ended, None])
def test_why_no_more_was_spent(ended: Ended | None) -> None:
    text = cost(capacity(ended=ended))
    assert text.startswith("5 probes, 26,000 requests, 3.1 min: ")
    assert ("--experiment_dir with this folder continues it" in text) is (
        ended in (Ended.INTERRUPTED, Ended.TARGET_FAILED, None)
    )


def test_an_estimate_of_users_is_whole() -> None:
    found = capacity(unit=LoadUnit.USERS)
    bracket = replace(found.tiers[0].bracket, estimate=55.3)
    assert details(found, replace(found.tiers[0], bracket=bracket))[0].startswith("The best estimate is 55 users; ")


def test_a_budget_of_which_some_is_left_is_not_said_to_be_spent() -> None:
    left, none = (replace(capacity(), spent_s=spent_s) for spent_s in (851.0, 900.0))
    assert cost(left) == "5 probes, 26,000 requests, 14 min: what is left of the budget of 15 min is too short for a probe."
    assert cost(none) == "5 probes, 26,000 requests, 15 min: the budget of 15 min is spent."


def test_a_fall_of_the_share_beside_a_bracket_is_a_reservation() -> None:
    found = _with(not_monotone(), certified=100.0, refused=120.0, shape=Shape.NOT_MONOTONE)
    assert answer(found).startswith(f"Holds 100 requests/s with {TTFT} (95 %); fails at 120 requests/s, but the share of ")


def test_shares_and_widths_are_neither_rounded_to_all_nor_written_with_an_exponent() -> None:
    assert limit_text(limit("attainment>=99.999%")) == "at least 99.999 % of the requests within their objectives"
    assert [width_text(ratio) for ratio in (1.2, 3.5)] == ["±10 %", "±125 %"]
    assert confidence_text(0.99995) == "99.995 %"
