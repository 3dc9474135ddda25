"""What a manifest configures: the target, the load, and the law of the arrivals, of every version of manifests."""

from __future__ import annotations

from typing import Any

import pytest

from reports.metrics.configuration import (
    OPEN_LOOP,
    ConfiguredLoad,
    ConfiguredTarget,
    Law,
    configured_law,
    configured_load,
    configured_target,
)


def test_a_target_is_read_whole() -> None:
    target = {
        "model": "ensemble", "protocol": "grpc", "streaming": True, "embedded": {"pid": 1}, "address": "localhost:8001",
        "template_tokens": 7, "retokenised_ratio": 1.5,
    }  # fmt: skip
    assert configured_target({"target": target}) == ConfiguredTarget("ensemble", "grpc", True, True, "localhost:8001", 7, 1.5)


@pytest.mark.parametrize("manifest", [{}, {"target": None}, {"target": {}}, {"target": {"model": None, "protocol": None}}])
def test_a_target_that_is_not_recorded_is_unknown(manifest: dict[str, Any]) -> None:
    found = configured_target(manifest)
    assert found == ConfiguredTarget("", "", False, False, None, None, None)
    assert str(found) == "unknown model over ?, unstreamed"
    assert str(ConfiguredTarget("m", "http", True, False, None)) == "m over http, streamed"


def test_a_load_is_read_whole() -> None:
    load = {
        "mode": "closed", "max_concurrency": 4, "concurrency": 8, "duration_s": 20.0, "ramp_up_s": 2, "prepared": 500,
        "ran_out": True,
    }  # fmt: skip
    closed = configured_load({"load": load, "options": {"request_rate": 5.0}})
    assert closed == ConfiguredLoad(True, 4, 8, 20.0, 2.0, 500, True, None, False)
    assert closed.waits_for_answers


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"mode": "open"}, ConfiguredLoad(rate_per_s=5.0)),
        ({"mode": "open", "own_arrivals": True}, ConfiguredLoad()),
        ({"mode": "sessions"}, ConfiguredLoad(sessions=True)),
        ({"mode": "closed"}, ConfiguredLoad(closed=True)),
        ({}, ConfiguredLoad(rate_per_s=5.0)),
        (None, ConfiguredLoad(rate_per_s=5.0)),
    ],
)
def test_a_rate_is_of_an_open_loop_that_sets_one(load: dict[str, Any] | None, expected: ConfiguredLoad) -> None:
    found = configured_load({"load": load, "options": {"request_rate": 5}})
    assert found == expected
    assert found.waits_for_answers is (expected.closed or expected.sessions)


@pytest.mark.parametrize(
    ("options", "rate_per_s"),
    [({"request_rate": 0.5}, 0.5), ({"request_rate": -1.0}, None), ({"request_rate": 0}, None), ({"request_rate": "5"}, None),
     ({}, None), (None, None)],
)  # fmt: skip
def test_a_rate_is_a_number_above_zero(options: dict[str, Any] | None, rate_per_s: float | None) -> None:
    for load in ({"mode": "open"}, None):
        found = configured_load({"load": load, "options": options})
        assert found == ConfiguredLoad(rate_per_s=rate_per_s)
        assert (found == OPEN_LOOP) is (rate_per_s is None)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ({"name": "gamma", "parameter": 2}, Law("gamma", 5.0, 2.0, 3.0)),
        ({"name": "weibull", "parameter": 0.7}, Law("weibull", 5.0, 0.7, 3.0)),
        ({"name": "exponential", "parameter": None}, Law("exponential", 5.0, 1.0, 3.0)),
        ({"name": "constant"}, Law("constant", 5.0, 1.0, 3.0)),
        ({"name": "bursts", "parameter": 8}, None),
        ({}, None),
    ],
)
def test_a_law_of_arrivals_has_its_parameter_and_ramp(law: dict[str, Any], expected: Law | None) -> None:
    manifest = {"load": {"mode": "open", "law": law, "ramp_up_s": 3.0}, "options": {"request_rate": 5.0}}
    assert configured_law(manifest) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"time_delay_dist": "exponential_dist"}, Law("exponential", 5.0)),
        ({"time_delay_dist": "constant"}, Law("constant", 5.0)),
        ({"time_delay_dist": "gamma_dist", "burstiness": 4}, Law("gamma", 5.0, 4.0)),
        ({"time_delay_dist": "gamma_dist", "burstiness": None}, Law("gamma", 5.0, 1.0)),
        ({"time_delay_dist": "other"}, None),
        ({}, None),
    ],
)
def test_a_manifest_without_a_spelt_law_has_that_of_its_options(options: dict[str, Any], expected: Law | None) -> None:
    manifest = {"options": options | {"request_rate": 5.0}}
    assert configured_law(manifest) == expected
    assert configured_law(manifest | {"load": None}) == expected
    ramp = {"mode": "open", "ramp_up_s": 2.0, "law": None}
    assert configured_law(manifest | {"load": ramp}) == (
        None if expected is None else Law(expected.name, 5.0, expected.shape, 2.0)
    )


def test_without_a_rate_there_is_no_law() -> None:
    law = {"name": "exponential"}
    assert configured_law({"load": {"mode": "closed", "law": law}, "options": {"request_rate": 5.0}}) is None
    assert configured_law({"load": {"mode": "open", "law": law}, "options": {"request_rate": -1.0}}) is None
