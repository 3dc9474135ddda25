"""The engine's stamps of a request as the ``metrics`` of vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from serving.front_end.choices import Choice
from serving.front_end.core_response import CoreResponse
from serving.front_end.generation import Generation
from serving.front_end.request_times import Metrics, Stamps, metrics_of
from serving.front_end.service import _has_metrics

_MS = 1_000_000


def test_vllms_example_from_its_stamps() -> None:
    """docs.vllm.ai/en/latest/features/per_request_metrics: 128 tokens; its rates are rounded, and not of one request."""
    scheduled_ns = 10 * _MS + 12_300_000
    first_ns = scheduled_ns + 85_200_000
    metrics = metrics_of(Stamps(10 * _MS, scheduled_ns, first_ns, first_ns + 1_240_500_000), 128)
    assert (metrics.queue_time_ms, metrics.time_to_first_token_ms, metrics.generation_time_ms) == (12.3, 85.2, 1240.5)
    assert metrics.mean_itl_ms == pytest.approx(1240.5 / 127)
    assert metrics.tokens_per_second == pytest.approx(128 / 1.3257)


def test_answer_of_one_token_has_no_latency_between_tokens() -> None:
    assert metrics_of(Stamps(_MS, 2 * _MS, 4 * _MS, 4 * _MS), 1) == Metrics(2.0, 0.0, 1.0, None, 500.0)


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (Stamps(0, 0, 0, 0), Metrics(None, None, None, None, None)),
        (Stamps(_MS, 0, 0, 0), Metrics(None, None, None, None, None)),
        (Stamps(_MS, 3 * _MS, 0, 0), Metrics(None, None, 2.0, None, None)),
        (Stamps(_MS, _MS, _MS, _MS), Metrics(0.0, 0.0, 0.0, 0.0, None)),
        (Stamps(3 * _MS, 2 * _MS, 4 * _MS, 5 * _MS), Metrics(2.0, 1.0, None, 1.0, 2 / 0.003)),
    ],
    ids=["nothing", "arrived", "scheduled", "no time between", "out of order"],
)
def test_time_of_an_event_that_did_not_take_place_is_unknown(stamps: Stamps, expected: Metrics) -> None:
    assert metrics_of(stamps, 2) == expected


def test_a_choice_has_the_times_of_its_last_response() -> None:
    choice = Choice(0, Generation(max_tokens=2, include_metrics=True), SimpleNamespace(decode=lambda *_, **__: ""), (), ())
    assert choice.metrics is None
    for last_ns in (4 * _MS, 6 * _MS):
        choice.note_times(CoreResponse(0, [5], [], None, False, Stamps(_MS, 2 * _MS, 4 * _MS, last_ns)))
    choice.note_times(CoreResponse(0, [], [], None, True))  # Triton's mark of the end has no tensors
    choice.tokens = 2
    assert choice.metrics == Metrics(2.0, 2.0, 1.0, 2.0, 500.0)


@pytest.mark.parametrize(
    ("fields", "prompts", "has_metrics"),
    [
        ({}, 1, True),
        ({"stream": True, "include_usage": True}, 1, True),
        ({"stream": True}, 1, False),
        ({"n": 2}, 1, False),
        ({}, 2, False),
    ],
)
def test_vllm_sends_times_of_one_sequence_with_its_usage(fields: dict[str, Any], prompts: int, has_metrics: bool) -> None:
    assert _has_metrics(Generation(**fields), cast("Any", [None] * prompts)) is has_metrics
