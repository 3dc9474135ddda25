"""Control variates: what a simulation explains is taken off, and a wrong simulation changes no expectation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reports.capacity.control import controlled, explained
from reports.capacity.probe import Control, Probe, Violations
from reports.capacity.search import Goal, bracket

_ALLOWED, _N, _BLOCKS = 0.01, 4_000, 8


def _probe(measured: list[int], simulated: list[int], expected: float, load: float = 10.0) -> Probe:
    control = Control(_ALLOWED, tuple(measured), tuple(simulated), sum(simulated) / _N, expected)
    return Probe(load, _N, (Violations(_N, sum(measured), 20.0),), controls=(control,))


def _clustered(rng: np.random.Generator) -> list[int]:
    """About 40 requests beyond the limit, in few blocks."""
    return np.where(rng.random(_BLOCKS) < 0.2, 25, 0).tolist()


def _above(probe: Probe) -> int:
    return probe.violations[0].above


def test_probes_without_a_simulation_stay_as_they_are() -> None:
    probes = [replace(_probe([40] * 8, [40] * 8, 0.01), controls=())] * 3
    assert controlled(probes) == tuple(probes)
    assert explained(probes, 0) is None


def test_what_a_right_simulation_has_more_than_it_expects_is_taken_off() -> None:
    rng = np.random.default_rng(1)
    blocks = [_clustered(rng) for _ in range(8)]
    probes = [_probe(each, each, 0.01) for each in blocks]
    assert {_above(probe) for probe in probes} != {40}
    found = controlled(probes)
    assert [_above(probe) for probe in found] == pytest.approx([40] * 8, abs=1)
    assert all(probe.violations[0].remaining < 0.2 for probe in found)
    assert all((probe.violations[0].effect or 0.0) < 4.0 for probe in found)  # of 20
    share = explained(probes, 0)
    assert share is not None
    assert share > 0.8


def test_a_simulation_that_has_others_beyond_the_limit_counts_for_nothing() -> None:
    rng = np.random.default_rng(2)
    probes = [_probe(_clustered(rng), _clustered(rng), 0.01) for _ in range(30)]
    assert controlled(probes) == tuple(probes)
    assert explained(probes, 0) == 0.0


def test_a_wrong_simulation_changes_no_expectation() -> None:
    """It has a part of the clusters, and some of its own, twice as many in all: the mean over many probes stays the share."""
    rng, found = np.random.default_rng(3), []
    for _ in range(200):
        blocks = [_clustered(rng) for _ in range(6)]
        simulated = [(np.array(each) + np.array(_clustered(rng))).tolist() for each in blocks]
        probes = [_probe(each, other, 2 * 40 / _N) for each, other in zip(blocks, simulated, strict=True)]
        found += [_above(probe) for probe in controlled(probes)]
    error = float(np.std(found)) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(40.0, abs=4.0 * error + 1.5)  # none is below 0


def test_the_coefficient_of_a_probe_is_that_of_the_others() -> None:
    """Else a probe whose chance looks like the simulation's would be moved by it."""
    rng = np.random.default_rng(4)
    others = [_probe(_clustered(rng), _clustered(rng), 0.01) for _ in range(30)]
    like = _probe([200, 0, 0, 0, 0, 0, 0, 0], [200, 0, 0, 0, 0, 0, 0, 0], 0.01)
    assert _above(controlled([*others, like])[-1]) > 180  # of 200, of which 160 would go


def test_a_probe_that_ended_early_stays_as_it_is() -> None:
    probes = [_probe([25, 0, 0, 25, 0, 0, 0, 25], [25, 0, 0, 25, 0, 0, 0, 25], 0.01) for _ in range(5)]
    early = replace(probes[0], gave_up=True)
    assert controlled([*probes, early])[-1] == early


def test_too_few_requests_beyond_the_limit_do_not_show_how_much_a_simulation_explains() -> None:
    probes = [_probe([0] * 8, [0] * 8, 0.01), _probe([5, 0, 0, 0, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0], 0.01)]
    assert explained(probes, 0) is None
    for probe in controlled(probes):
        assert probe.violations[0].remaining == 1.0
        assert probe.violations[0].effect == 20.0


def test_the_first_probe_has_what_the_simulation_expects_where_neither_has_an_event() -> None:
    """Most short probes at capacity have no request beyond the limit: a search would start by going too high."""
    (found,) = controlled([_probe([0] * 8, [0] * 8, 0.01)])
    assert _above(found) == 40
    assert found.violations[0].explained == -40


def test_a_simulation_that_missed_no_event_leaves_little_after_some() -> None:
    rng = np.random.default_rng(6)
    blocks = [_clustered(rng) for _ in range(10)]
    events = sum(np.count_nonzero(each) for each in blocks)
    assert 10 <= events <= 25
    remaining = [probe.violations[0].remaining for probe in controlled([_probe(each, each, 0.01) for each in blocks])]
    assert max(remaining) < 0.03


def test_how_many_requests_were_taken_off_is_known() -> None:
    """The rule on the queue counts those that were measured."""
    rng = np.random.default_rng(1)
    probes = [_probe(each, each, 0.01) for each in [_clustered(rng) for _ in range(8)]]
    found = controlled(probes)
    assert any(probe.violations[0].explained for probe in found)
    assert [_above(probe) + probe.violations[0].explained for probe in found] == [_above(probe) for probe in probes]


def test_a_right_simulation_makes_the_bracket_narrower() -> None:
    rng, probes = np.random.default_rng(5), []
    for load in np.linspace(9.5, 10.5, 12):
        expected = 0.01 * (load / 10.0) ** 12
        blocks = np.where(rng.random(_BLOCKS) < expected / 0.01 * 0.2, 25, 0).tolist()
        probes.append(_probe(blocks, blocks, expected, float(load)))
    goal = Goal((0,), (_ALLOWED,))
    without, found = bracket(probes, goal), bracket(controlled(probes), goal)
    assert found.certified is not None
    assert found.refused is not None
    assert found.certified <= 10.0 <= found.refused
    assert found.refused < 1.06 * found.certified
    assert without.certified is None or without.certified < found.certified
