"""The least time of a step: how it is written, and how long a step then takes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.openvino import step_time
from serving.engines.openvino.step_time import Pace, StepTime, read_step_time
from serving.errors import ServingError

_DURATIONS = st.tuples(st.integers(0, 60_000), st.sampled_from(["us", "µs", "ms"]))
_NS = {"us": 1e3, "µs": 1e3, "ms": 1e6}


@given(_DURATIONS, st.dictionaries(st.sampled_from(["prompt_token", "sequence"]), _DURATIONS))
def test_parts_are_read_in_any_order_and_unit(base: tuple[int, str], parts: dict[str, tuple[int, str]]) -> None:
    text = ",".join(["".join(map(str, base)), *(f"{name}={value}{unit}" for name, (value, unit) in parts.items())])
    expected_ns = {f"{name}_ns": value * _NS[unit] for name, (value, unit) in parts.items()}
    assert read_step_time(text) == StepTime(base_ns=base[0] * _NS[base[1]], **expected_ns)


def test_fractions_and_seconds_are_read_and_no_text_is_no_least_time() -> None:
    assert read_step_time("0.5s,sequence=.5ms") == StepTime(5e8, 0.0, 5e5)
    assert read_step_time("") == StepTime()


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "8 ms",
        "-1ms",
        "1e3ms",
        "8min",
        "sequence=1ms",
        "8ms,",
        "8ms,token=1us",
        "8ms,sequence=1",
        "8ms,sequence=1us,sequence=1us",
    ],
)
def test_any_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(
        ServingError, match=r"^min_step_time '.*': write the least time of a step, such as 8ms, and after commas"
    ):
        read_step_time(text)


def test_more_than_a_minute_is_refused() -> None:
    with pytest.raises(ServingError, match="61s is more than a minute"):
        read_step_time("8ms,sequence=61s")


@pytest.mark.parametrize(("prompt_tokens", "least_ns"), [(2, 50e6), (None, 30e6)])
def test_a_step_lasts_its_least_time_from_its_start_and_not_from_its_end(prompt_tokens: int | None, least_ns: float) -> None:
    started_ns = time.monotonic_ns()
    time.sleep(0.02)
    StepTime(10e6, 10e6, 5e6).sleep(started_ns, prompt_tokens, sequences=4)
    assert least_ns <= time.monotonic_ns() - started_ns


def test_a_step_that_took_longer_goes_on_at_once() -> None:
    before_ns = time.process_time_ns()
    StepTime(3600e9).sleep(time.monotonic_ns() - 3_600_000_000_000, 0, sequences=1)
    assert time.process_time_ns() - before_ns < 1e9


class _Clock:
    """Stands still except while something sleeps. In the real one a busy machine makes a step longer than the test says."""

    def __init__(self) -> None:
        self._now_ns = 10**12

    def monotonic_ns(self) -> int:
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(step_time, "time", clock)
    return clock


def test_steps_of_another_length_are_logged_once_a_minute_and_at_the_end(
    clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    pace = Pace("1ms,prompt_token=1us")
    pace.keep(clock.monotonic_ns(), 10, 1)
    pace.say(at_end=True)
    assert not caplog.messages
    pace.keep(clock.monotonic_ns() - 21_000_000, 0, 1)
    pace.keep(clock.monotonic_ns(), None, 1)
    pace.say()
    [line] = caplog.messages
    assert line.startswith("--min_step_time 1ms,prompt_token=1us: 1 of 3 steps took longer, by 20.0 ms")
    assert line.endswith("; 1 of 3 steps had an unknown number of prompt tokens, so prompt_token was not added to them")
    pace.keep(clock.monotonic_ns() - 21_000_000, 0, 1)
    clock.sleep(59.0)
    pace.say()
    assert len(caplog.messages) == 1
    pace.say(at_end=True)
    pace.say(at_end=True)
    assert len(caplog.messages) == 2
    assert ": 2 of 4 steps took longer, by 20.0 ms" in caplog.messages[1]
    pace.keep(clock.monotonic_ns() - 21_000_000, 0, 1)
    clock.sleep(61.0)
    pace.say()
    assert ": 3 of 5 steps took longer, by 20.0 ms" in caplog.messages[2]


def test_without_a_least_time_and_with_unknown_prompts_that_cost_nothing_nothing_is_logged(
    clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("", "1ms,sequence=1us"):
        pace = Pace(text)
        pace.keep(clock.monotonic_ns() - (0 if text else 10**9), None, 1)
        pace.say(at_end=True)
    assert not caplog.messages
