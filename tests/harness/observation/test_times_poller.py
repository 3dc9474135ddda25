"""A server's times of requests, polled during a run and kept as one list."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from harness.clients.transport.http_get import GetError
from harness.clients.transport.url import HttpUrl
from harness.observation import times_poller
from harness.observation.times_poller import TimesPoller, join_polls
from tests.harness.metrics_server import MetricsServer, metrics_server


def _poller(server: MetricsServer, path: Path) -> TimesPoller:
    return TimesPoller(HttpUrl("http", "127.0.0.1", server.port, "/perf_metrics"), path, period_s=0.02)


def test_every_record_since_the_first_poll_is_kept_once(tmp_path: Path) -> None:
    """Each GET takes what came since the last one; what the first one takes was before the run."""

    def answer(number: int) -> tuple[int, bytes]:
        return 200, json.dumps([{"request_id": 10 * number + k} for k in range(number % 4 if number < 12 else 0)]).encode()

    with metrics_server(answer) as server:
        poller = _poller(server, tmp_path / "polls")
        poller.drain()
        poller.begin()
        while len(server.gets) < 14:
            time.sleep(0.01)
        polled = poller.stop()
    join_polls(tmp_path / "polls", tmp_path / "perf_metrics.json")
    kept = json.loads((tmp_path / "perf_metrics.json").read_text())
    assert [entry["request_id"] for entry in kept] == [10 * number + k for number in range(1, 12) for k in range(number % 4)]
    assert (polled.records, polled.failed, polled.polls) == (len(kept), 0, len(server.gets) - 1)


def test_records_that_come_after_the_last_answer_are_waited_for(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, b'[{"request_id": 1}]' if 0 < number < 4 else b"[]")) as server:
        poller = TimesPoller(HttpUrl("http", "127.0.0.1", server.port, "/p"), tmp_path / "polls", period_s=60.0)
        poller.drain()
        poller.begin()
        assert poller.stop().records == 3
        assert len(server.gets) == 5


@pytest.mark.parametrize("answer", [(404, b"[]"), (200, b"{}"), (200, b"<html>"), None])
def test_a_server_without_records_is_refused(tmp_path: Path, answer: tuple[int, bytes] | None) -> None:
    with metrics_server(lambda number: answer) as server, pytest.raises(GetError):
        _poller(server, tmp_path / "polls").drain()


def test_a_poll_that_fails_costs_its_own_records_alone(tmp_path: Path) -> None:
    answers = {1: (500, b""), 2: (200, b"{"), 3: (200, b"[1, 2]")}
    with metrics_server(lambda number: answers.get(number, (200, b"[]"))) as server:
        poller = _poller(server, tmp_path / "polls")
        poller.drain()
        poller.begin()
        while len(server.gets) < 5:
            time.sleep(0.01)
        polled = poller.stop()
    assert (polled.records, polled.failed) == (2, 2)
    assert polled.first_failure == "status 500 Internal Server Error"


def test_no_more_is_read_than_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times_poller, "_MOST_BYTES", 100)
    with metrics_server(lambda number: (200, b"[%b]" % b",".join([b"1"] * 40))) as server:
        poller = _poller(server, tmp_path / "polls")
        poller.drain()
        poller.begin()
        time.sleep(0.3)
        polled = poller.stop()
    assert (polled.records, polled.polls, polled.failed) == (80, 2, 1)
    assert "later ones were not read" in (polled.first_failure or "")
    join_polls(tmp_path / "polls", tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text()) == [1] * 80
