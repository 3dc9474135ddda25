"""Delays for a server that runs: when something stops, what a request waits for that, and longer prompts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.injection.longer_prompts import longer
from benchmarks.injection.stopped import decoding_ns, waited_ns
from benchmarks.injection.windows import injects, until_stop_s

_STOPS = [(1_000, 1_500), (2_200, 2_700)]


@pytest.mark.parametrize(
    ("now_s", "until_s"), [(0.0, 5.0), (4.9, 0.1), (5.0, 1.2), (6.3, 6.7), (8.0, 5.0), (8.0 * 1_000 + 7.9, 5.1)]
)
def test_something_stops_twice_in_each_window_with_delays(now_s: float, until_s: float) -> None:
    assert until_stop_s(now_s) == pytest.approx(until_s)
    assert injects(now_s + until_stop_s(now_s))
    assert injects(now_s + until_stop_s(now_s) + 0.6)


def test_what_is_due_in_a_stop_waits_for_its_end() -> None:
    due_ns = np.array([999.0, 1_000.0, 1_400.0, 1_500.0, 2_690.0])
    assert waited_ns(due_ns, _STOPS).tolist() == [0.0, 500.0, 100.0, 0.0, 10.0]


def test_an_answer_is_stopped_between_its_first_token_and_its_last() -> None:
    first_ns = np.array([900.0, 900.0, 1_200.0, 900.0])
    last_ns = np.array([1_600.0, 3_000.0, 3_000.0, 1_400.0])
    assert decoding_ns(first_ns, last_ns, _STOPS).tolist() == [500.0, 1_000.0, 500.0, 0.0]


def test_a_prompt_of_ids_gets_more_of_them_and_a_right_length() -> None:
    body = json.dumps({"prompt": [7, 8], "max_tokens": 3}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    new_head, new_body = longer(head, body, 5).split(b"\r\n\r\n")
    asked = json.loads(new_body)
    assert asked["prompt"][:2] == [7, 8]
    assert len(asked["prompt"]) == 7
    assert asked["max_tokens"] == 3
    assert new_head.lower().count(b"content-length") == 1
    assert new_head.endswith(b"content-length: %d" % len(new_body))


@pytest.mark.parametrize("body", [b"", b'{"messages": []}', b'{"prompt": "text"}'])
def test_a_request_without_ids_stays_as_it_is(body: bytes) -> None:
    head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert longer(head, body, 5) == head + body
