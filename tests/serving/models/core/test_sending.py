"""The threads that send replies."""

from __future__ import annotations

import os
import threading

import pytest

from serving.models.core.sending import SendingThreads, sending_threads


@pytest.mark.parametrize(("cores", "instances", "threads"), [(2, 1, 1), (4, 1, 2), (16, 1, 4), (16, 4, 2), (16, 16, 1)])
def test_threads_by_cores_and_instances(monkeypatch: pytest.MonkeyPatch, cores: int, instances: int, threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    assert sending_threads(instances) == threads


def test_lanes_send_side_by_side_and_each_in_order() -> None:
    both = threading.Barrier(2, timeout=120)
    sent: list[tuple[int, int]] = []

    def send(reply: tuple[int, int]) -> None:
        both.wait()  # a thread that sent for both lanes would wait for itself
        sent.append(reply)

    threads = SendingThreads(2, 1, send)
    for number in range(20):
        for request_id in (7, 8):
            threads.lane(request_id).put((request_id, number))
    threads.close()
    for request_id in (7, 8):
        assert [number for other, number in sent if other == request_id] == list(range(20))


def test_a_reply_that_waits_again_is_sent_before_the_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sending, closing = threading.Event(), threading.Event()
    sent: list[int] = []

    def send(left: int) -> None:
        sending.set()
        closing.wait(120)
        sent.append(left)
        if left:
            lane.put(left - 1)  # as a reply whose pieces are not joined

    threads = SendingThreads(1, 1, send)
    lane = threads.lane(1)
    put = lane.waiting.put

    def put_and_tell(reply: int | None) -> None:
        put(reply)
        if reply is None:
            closing.set()

    monkeypatch.setattr(lane, "put", put_and_tell)
    lane.put(3)
    assert sending.wait(120)
    threads.close()
    assert sent == [3, 2, 1, 0]
