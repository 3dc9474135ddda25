"""Numbers and reasons of a gate in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.criteria import Requirement, parse_slo
from reports.gates.words import amount, duration, number, percentage, rounded_up, several, significant, would_decide


def _required(text: str) -> Requirement:
    criterion = parse_slo(text)
    assert isinstance(criterion, Requirement)
    return criterion


@pytest.mark.parametrize(
    ("requirement", "value", "text"),
    [
        ("p99_ttft<=1s", 99.4, "99.4 ms"),
        ("p99_ttft<=1s", 99.5, "100 ms"),
        ("p99_ttft<=1s", 1_234.5, "1,234 ms"),
        ("p99_ttft<=1s", 0.123456, "0.123 ms"),
        ("goodput>=1", 12.34, "12.3 requests/s"),
        ("output_token_throughput>=1", 12_345.6, "12,346 tokens/s"),
        ("attainment>=99%", 0.93, "93.0 %"),
        ("failed_share<=1%", 0.0025, "0.25 %"),
    ],
)
def test_an_amount_has_three_digits_and_its_unit(requirement: str, value: float, text: str) -> None:
    assert amount(_required(requirement), value) == text
    assert text.startswith(number(_required(requirement), value))


@pytest.mark.parametrize(
    ("requirement", "value", "text"),
    [
        ("p99_ttft<=100ms", 100.0, "100"),
        ("p99_ttft<=100ms", 100.4, "100.4"),
        ("p99_ttft<=100ms", 99.96, "99.96"),
        ("p99_ttft<=1234ms", 1_234.04, "1,234.04"),
        ("p99_ttft<=1234ms", 1_233.4, "1,233"),
        ("p99_tpot<=12.3ms", 12.304, "12.304"),
        ("p99_tpot<=0.12345ms", 0.12345, "0.12345"),  # with three digits it would be below, with four above
        ("goodput>=20", 19.98, "19.98"),
        ("attainment>=99%", 0.98996, "98.996"),
        ("attainment>=99%", 0.99, "99.0"),
        ("failed_share<=0.07%", 0.0007, "0.07"),
        ("failed_share<=1%", 0.01004, "1.004"),
    ],
)
def test_a_number_that_misses_its_limit_is_not_shown_as_the_limit(requirement: str, value: float, text: str) -> None:
    assert number(_required(requirement), value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0.0"),
        (1e-5, "0.001"),
        (0.0001, "0.01"),
        (0.000523, "0.05"),
        (0.00254, "0.25"),
        (0.01, "1.0"),
        (0.123, "12.3"),
        (0.9, "90.0"),
        (0.99, "99.0"),
        (0.9925, "99.25"),
        (0.9996, "99.96"),
        (0.99999, "99.9990"),
        (1.0, "100.0"),
    ],
)
def test_a_percentage_has_the_digits_that_tell_it_from_none_and_all(share: float, text: str) -> None:
    assert percentage(share) == text


@given(st.floats(min_value=1e-7, max_value=1.0 - 1e-6))
def test_a_share_of_some_is_never_shown_as_none_or_all(share: float) -> None:
    assert 0.0 < float(percentage(share)) < 100.0
    assert float(percentage(share)) == pytest.approx(100.0 * share, rel=0.06)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.123, "0.12 s"),
        (6.67, "6.7 s"),
        (40, "40 s"),
        (99.4, "99 s"),
        (99.5, "100 s"),
        (100, "100 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_199, "120 min"),
        (7_200, "2 h"),
        (9_000, "2.5 h"),
        (5_000_000, "1,389 h"),
    ],
)
def test_a_duration_is_in_the_unit_that_it_has_two_of(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((3_000, 8_000), "3,000 to 8,000"),
        ((3_000, None), "3,000 or more"),
        ((3_000, 3_000), "about 3,000"),
        ((5, 2), "about 5"),
    ],
)
def test_how_many_requests_is_a_range(counts: tuple[int, int | None], text: str) -> None:
    assert several(counts) == text


@pytest.mark.parametrize(
    ("least", "most", "seen", "text"),
    [
        (2_700, 7_500, 2_000, "3,000 to 8,000 requests would decide it"),
        (2_000, 7_500, 2_000, "2,500 to 8,000 requests would decide it"),
        (1_200, 7_500, 2_000, "2,500 to 8,000 requests would decide it"),
        (2_000, 2_000, 2_000, "about 2,500 requests would decide it"),
        (2_000, None, 2_000, "2,500 or more requests would decide it"),
        (1, None, 2, "3 or more requests would decide it"),
    ],
)
def test_more_requests_would_decide_than_those_that_did_not(least: float, most: float | None, seen: int, text: str) -> None:
    assert would_decide(least, most, seen) == text


@given(st.integers(min_value=1, max_value=10_000_000), st.floats(min_value=0.1, max_value=3.0))
def test_as_many_as_were_seen_would_decide_nothing_of_any_number(seen: int, ratio: float) -> None:
    least = int(would_decide(ratio * seen, None, seen).split()[0].replace(",", ""))
    assert least > seen
    assert least >= ratio * seen


@pytest.mark.parametrize(
    ("count", "rounded"),
    [
        (0.2, 1),
        (1, 1),
        (1.2, 2),
        (7, 8),
        (9, 10),
        (35, 40),
        (45, 50),
        (55, 60),
        (101, 150),
        (299, 300),
        (2_001, 2_500),
        (6_100, 8_000),
        (8_001, 10_000),
    ],
)
def test_a_number_of_requests_is_rounded_up(count: float, rounded: int) -> None:
    assert rounded_up(count) == rounded


@given(st.floats(min_value=1.0, max_value=1e9))
def test_a_rounded_number_of_requests_is_enough_and_at_most_half_as_many_again(count: float) -> None:
    assert math.floor(count) <= rounded_up(count) <= 2.0 * count


@pytest.mark.parametrize(("value", "text"), [(0.0123, "0.0123"), (45.0, "45"), (99.6, "100"), (12_345.6, "12,346")])
def test_a_large_number_has_no_exponent(value: float, text: str) -> None:
    assert significant(value) == text
