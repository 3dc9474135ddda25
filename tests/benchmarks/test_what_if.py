"""What-ifs of delays that are injected in every second window, beside what equal requests differ by."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.injection import what_if as what_if_module
from benchmarks.injection.what_if import Latencies, of_all, what_if

_CYCLES, _EACH = 40, 12


def _latencies(longer: float, seed: int, cycle_sd: float = 0.0) -> Latencies:
    """Latencies of 50 ms, those of the delayed ones ``longer`` times as long; ``cycle_sd`` is what cycles have in common."""
    rng = np.random.default_rng(seed)
    delayed = np.tile(np.repeat([False, True], _EACH), _CYCLES)
    cycle = np.repeat(np.arange(_CYCLES), 2 * _EACH)
    own = rng.normal(50.0, 2.0, delayed.size) + rng.normal(0.0, cycle_sd, _CYCLES)[cycle]
    return Latencies(np.where(delayed, longer * own, own), delayed, cycle)


@pytest.mark.parametrize("longer", [1.0, 1.05, 0.9])
def test_the_difference_is_within_its_interval(longer: float) -> None:
    found = what_if(_latencies(longer, seed=1), 0.5)
    assert found.half_width is not None
    assert found.equal is not None
    assert abs(found.difference - (longer - 1.0)) <= 1.5 * found.half_width
    assert found.half_width < 0.02  # 1.25 · 2 ms · √(2 / 480) / 50 ms · 1.96 = 0.6 %
    assert 0.3 < found.half_width / found.equal < 3.0


def test_intervals_hold_as_often_as_they_should_where_cycles_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if_module, "_DRAWS", 200)
    found = [what_if(_latencies(1.0, seed, cycle_sd=5.0), 0.5) for seed in range(40)]
    assert sum(abs(each.difference) <= (each.half_width or 0.0) for each in found) >= 34


def test_repeats_are_compared_together() -> None:
    runs = [_latencies(1.05, seed) for seed in (1, 2, 3, 4)]
    one, together = what_if(runs[0], 0.5), what_if(of_all(runs), 0.5)
    assert one.half_width is not None
    assert together.half_width is not None
    assert together.half_width < 1.1 * one.half_width
    assert together.difference == pytest.approx(0.05, abs=0.01)


def test_few_cycles_have_no_interval() -> None:
    latencies = Latencies(np.array([50.0, 55.0]), np.array([False, True]), np.array([3, 3]))
    assert what_if(latencies, 0.5) == what_if(latencies, 0.99)
    assert what_if(latencies, 0.5).difference == pytest.approx(0.1)
    assert (what_if(latencies, 0.5).half_width, what_if(latencies, 0.5).equal) == (None, None)
