"""Values of parameters: accepted, canonical and rejected text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import RepositoryError
from serving.repository.ngc_parameters import PARAMETERS
from serving.repository.values import Kind, Parameter

_INTEGER = Parameter("count", Kind.INTEGER, "", low=1, high=100)
_FRACTION = Parameter("part", Kind.NUMBER, "", high=1)
_GROUPS = Parameter("gpus", Kind.GROUPS, "")


@given(st.sampled_from(sorted(PARAMETERS)), st.text())
def test_any_text_is_read_or_rejected_with_the_option_name(option: str, text: str) -> None:
    try:
        PARAMETERS[option].parse(text)
    except RepositoryError as error:
        assert str(error).startswith(f"--{option} must be ")  # noqa: PT017


@given(st.integers())
def test_integer_is_accepted_exactly_in_its_range(value: int) -> None:
    if 1 <= value <= 100:
        assert _INTEGER.parse(str(value)) == value
    else:
        with pytest.raises(RepositoryError, match="--count must be a whole number"):
            _INTEGER.parse(str(value))


@given(st.floats())
def test_fraction_is_accepted_exactly_in_its_range(value: float) -> None:
    if 0 <= value <= 1:
        assert _FRACTION.parse(str(value)) == value
    else:
        with pytest.raises(RepositoryError, match=r"--part must be a number in \[0, 1\]"):
            _FRACTION.parse(str(value))


@given(st.lists(st.lists(st.integers(0, 99), min_size=1), min_size=1))
def test_groups_round_trip(groups: list[list[int]]) -> None:
    text = ";".join(",".join(map(str, group)) for group in groups)
    assert _GROUPS.parse(text.replace(",", " , ")) == text


@pytest.mark.parametrize("text", ["", ";", "0,", "0;;1", "a", "-1", "0.5"])
def test_groups_with_a_gap_are_rejected(text: str) -> None:
    with pytest.raises(RepositoryError, match="--gpus must be"):
        _GROUPS.parse(text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("1", True), ("no", False)])
def test_booleans_in_upstreams_spellings(text: str, value: bool) -> None:
    assert PARAMETERS["multi_block_mode"].parse(text) is value


@pytest.mark.parametrize(("text", "choice"), [("v1", "V1"), ("Inflight_Fused_Batching", "inflight_fused_batching")])
def test_choice_is_written_in_its_canonical_spelling(text: str, choice: str) -> None:
    assert PARAMETERS["batching_strategy"].parse(text) == choice


@pytest.mark.parametrize("text", ["{}", "{0", "{0},", "0,1", "{a}", "{0}{1}"])
def test_invalid_tree_is_rejected(text: str) -> None:
    with pytest.raises(RepositoryError, match="--medusa_choices must be paths of a tree"):
        PARAMETERS["medusa_choices"].parse(text)
