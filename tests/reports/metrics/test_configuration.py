"""What a manifest configures: the target, the load, and the law of the arrivals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench_records.manifest import Manifest, Simulation, TargetFacts, manifest_of
from reports.metrics.configuration import (
    OPEN_LOOP,
    ConfiguredLoad,
    ConfiguredTarget,
    Law,
    configured_law,
    configured_load,
    configured_target,
)
from tests.reports.manifests import asked_load


def test_a_target_is_read_whole() -> None:
    target = TargetFacts(
        model="ensemble", protocol="grpc", streaming=True, embedded=True, address="localhost:8001", template_tokens=7,
        retokenised_ratio=1.5, sends_finish_reason=True,
    )  # fmt: skip
    expected = ConfiguredTarget("ensemble", "grpc", True, True, "localhost:8001", 7, 1.5, True, None)
    assert configured_target(Manifest(target=target)) == expected
    simulated = configured_target(Manifest(target=target, simulation=Simulation(model="h100.json", digest="d")))
    assert simulated == replace(expected, simulation="simulated by h100.json")
    assert str(simulated) == "ensemble over grpc, streamed, simulated by h100.json"


def test_a_target_that_is_not_recorded_is_unknown() -> None:
    found = configured_target(Manifest())
    assert found == ConfiguredTarget("", "", False, False, None, None, None)
    assert str(found) == "unknown model over ?, unstreamed"
    assert str(ConfiguredTarget("m", "http", True, False, None)) == "m over http, streamed"


def test_a_load_is_read_whole() -> None:
    load = {
        "mode": "closed", "max_concurrency": 4, "concurrency": 8, "duration_s": 20.0, "ramp_up_s": 2, "prepared": 500,
        "ran_out": True,
    }  # fmt: skip
    closed = configured_load(manifest_of({"load": load}))
    assert closed == ConfiguredLoad(True, 4, 8, 20.0, 2.0, 500, True, None, False)
    assert closed.waits_for_answers


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mode": "open"}, ConfiguredLoad(rate_per_s=5.0)),
        ({"own_arrivals": True}, OPEN_LOOP),
        ({"asked_arrivals": None}, OPEN_LOOP),
        ({"mode": "sessions"}, ConfiguredLoad(sessions=True)),
        ({"mode": "closed"}, ConfiguredLoad(closed=True)),
    ],
)
def test_a_rate_is_of_an_open_loop_that_sets_one(changes: dict[str, Any], expected: ConfiguredLoad) -> None:
    manifest = manifest_of({"load": asked_load(5.0, **changes)})
    found = configured_load(manifest)
    assert found == expected
    assert found.waits_for_answers is (expected.closed or expected.sessions)
    assert (configured_law(manifest) is None) is (expected.rate_per_s is None)


def test_without_a_load_nothing_is_known_of_it() -> None:
    assert configured_load(Manifest()) == OPEN_LOOP
    assert configured_law(Manifest()) is None


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ({"name": "gamma", "parameter": 2}, Law("gamma", 5.0, 2.0, 3.0)),
        ({"name": "weibull", "parameter": 0.7}, Law("weibull", 5.0, 0.7, 3.0)),
        ({"name": "exponential", "parameter": None}, Law("exponential", 5.0, 1.0, 3.0)),
        ({"name": "constant"}, Law("constant", 5.0, 1.0, 3.0)),
        ({"name": "bursts", "parameter": 8}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_law_of_arrivals_has_its_parameter_and_ramp(law: dict[str, Any] | None, expected: Law | None) -> None:
    assert configured_law(manifest_of({"load": asked_load(5.0, ramp_up_s=3.0) | {"law": law}})) == expected
