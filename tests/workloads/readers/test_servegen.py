"""ServeGen's client profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.arrivals.client_profiles import GapFamily, RateWindow
from workloads.elements.errors import DatasetError
from workloads.readers.detect import read_workload_file
from workloads.readers.servegen import read_client_profiles

_TRACE = "0,0.5,1.2,Gamma,0.7,2.9\n600,0,0,,,\n1200,2.0,1.5,Weibull,0.6,9\n"
_LENGTHS = {
    "21600": {"input_tokens": "{10: 1, 20: 3}", "output_tokens": "{5: 0.5}", "reason_ratio": "{}"},
    "0": {"input_tokens": "{0: 0.5, 100: 0.5}", "output_tokens": "{7.0: 0.25, 8: 0.75}"},
}


def _write(folder: Path, trace: str = _TRACE, number: int = 0) -> Path:
    path = folder / f"chunk-{number}-trace.csv"
    path.write_text(trace)
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(_LENGTHS))
    return path


def test_rates_and_lengths_are_read(tmp_path: Path) -> None:
    (profile,) = read_client_profiles(_write(tmp_path))
    assert profile.name == "chunk-0"
    assert profile.rates == (
        RateWindow(0, 600, 0.5, GapFamily.GAMMA, 0.7),
        RateWindow(600, 1200, 0.0, GapFamily.GAMMA, 1.0),
        RateWindow(1200, 1800, 2.0, GapFamily.WEIBULL, 0.6),
    )
    assert [window.start_s for window in profile.lengths] == [0, 21600]
    first, second = profile.lengths
    assert (first.inputs.tokens.tolist(), first.inputs.probabilities.tolist()) == ([100], [1.0])
    assert (first.outputs.tokens.tolist(), first.outputs.probabilities.tolist()) == ([7, 8], [0.25, 0.75])
    assert second.inputs.probabilities.tolist() == [0.25, 0.75]


def test_a_folder_has_its_clients_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2):
        _write(tmp_path, number=number)
    assert [profile.name for profile in read_client_profiles(tmp_path)] == ["chunk-2", "chunk-10"]


def test_a_window_without_requests_has_no_lengths(tmp_path: Path) -> None:
    """Half of the windows of ServeGen's own data are empty, and its Weibull gaps have shapes from 0.152 on."""
    path = _write(tmp_path, "0,0.5,44,Weibull,0.152,0.001\n")
    empty = {"input_tokens": "{}", "output_tokens": "{}", "reason_ratio": "{}"}
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps({**_LENGTHS, "43200": empty, "64800": empty}))
    (profile,) = read_client_profiles(path)
    assert [window.start_s for window in profile.lengths] == [0, 21600]
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps({"0": empty}))
    with pytest.raises(DatasetError, match=r"chunk-0-dataset.json: holds no windows with lengths"):
        read_client_profiles(path)


def test_it_is_no_dataset_and_the_verb_that_draws_from_it_is_named(tmp_path: Path) -> None:
    trace = _write(tmp_path)
    for path in (trace, tmp_path):
        with pytest.raises(DatasetError, match="bench workload synthesize"):
            read_workload_file(path)


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        ("", "holds no windows"),
        ("0,0.5,1.2,Gamma,0.7\n", "line 1: has 5 columns, not 6"),
        ("0,0.5,1.2,Pareto,0.7,1\n", "line 1: the family 'Pareto' is none of"),
        ("0,-1,1.2,Gamma,0.7,1\n", "line 1: the rate must be a number from 0"),
        ("0,nan,1.2,Gamma,0.7,1\n", "line 1: the rate must be a number from 0"),
        ("x,1,1.2,Gamma,0.7,1\n", "line 1: the start must be a number"),
        ("0,1,1.2,Gamma,0,1\n", "line 1: the shape must be a number from 0.001"),
        ("0,1,1.2,Weibull,0.01,1\n", "line 1: the shape must be a number from 0.1"),
        ("600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", "line 2: the window 0 does not begin after"),
    ],
)
def test_a_malformed_rate_is_named_with_its_line(tmp_path: Path, trace: str, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"chunk-0-trace.csv.*{problem}"):
        read_client_profiles(_write(tmp_path, trace))


def _with(inputs: Any) -> dict[str, Any]:
    return {"0": {"input_tokens": inputs, "output_tokens": "{1: 1}"}}


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ("", "is not JSON"),
        ("{}", "holds no windows"),
        ("[]", "expected an object, found list"),
        ({"0": 5}, "window '0': expected an object"),
        ({"a": _with("{1: 1}")["0"]}, "window 'a': the start must be a number"),
        (_with({"1": 1}), '"input_tokens" must be a string'),
        (_with("__import__('os').system('true')"), "must be the text of a dict"),
        (_with("{1: 1"), "must be the text of a dict"),
        (_with("[1]"), "must be the text of a dict"),
        (_with("{" * 10_000), "must be the text of a dict"),
        (_with("{[]: 1}"), "must be the text of a dict"),
        (_with("{}"), "has no length with a probability above 0"),
        (_with("{0: 1, 5: 0}"), "has no length with a probability above 0"),
        (_with("{5: -1}"), "has the probability -1"),
        (_with("{5: 1e999}"), "has the probability inf"),
        (_with("{-5: 1}"), "must be a whole number from 0"),
        (_with("{5.5: 1}"), "must be a whole number from 0"),
        (_with("{'5': 1}"), "must be a whole number from 0"),
    ],
)
def test_malformed_lengths_are_named(tmp_path: Path, lengths: Any, problem: str) -> None:
    path = _write(tmp_path)
    (tmp_path / "chunk-0-dataset.json").write_text(lengths if isinstance(lengths, str) else json.dumps(lengths))
    with pytest.raises(DatasetError, match=f"chunk-0-dataset.json.*{problem}"):
        read_client_profiles(path)


def test_missing_lengths_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no client of ServeGen"):
        read_client_profiles(tmp_path)
    path = _write(tmp_path)
    (tmp_path / "chunk-0-dataset.json").unlink()
    with pytest.raises(DatasetError, match="No such file"):
        read_client_profiles(path)


@settings(max_examples=150)
@given(place=st.integers(0, 600), inserted=st.binary(max_size=3), removed=st.integers(0, 3), is_trace=st.booleans())
def test_a_damaged_profile_is_read_or_refused_with_a_dataset_error(
    place: int, inserted: bytes, removed: int, is_trace: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = _write(tmp_path_factory.mktemp("profile"))
    damaged = path if is_trace else path.with_name("chunk-0-dataset.json")
    content = bytearray(damaged.read_bytes())
    content[place % len(content) : place % len(content) + removed] = inserted
    damaged.write_bytes(content)
    try:
        (profile,) = read_client_profiles(path)
    except DatasetError:
        return
    assert all(rate.start_s < rate.end_s and rate.rate_per_s >= 0 for rate in profile.rates)
    assert all(lengths.inputs.probabilities.sum() == pytest.approx(1) for lengths in profile.lengths)
