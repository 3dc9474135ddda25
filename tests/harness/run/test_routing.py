"""The choice of a target when a request is sent."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import Any

from harness.run.routing import Payload, Router, encoder
from harness.run.shared_state import Control
from workloads.elements.request import Balance, Request


def _router(control: Control, worker: int, targets: int) -> Router:
    connections: list[Any] = list(range(targets))
    return Router(connections, control.of_worker(worker).in_flight)


def test_the_target_with_the_fewest_in_flight_of_all_workers_is_chosen() -> None:
    control = Control(multiprocessing.get_context("spawn"), 2, 3)
    one, other = (_router(control, worker, 3) for worker in (0, 1))
    assigned_to_1 = Payload(1, (b"x",))
    assert [one.choose(assigned_to_1) for _ in range(3)] == [1, 2, 0]
    assert other.choose(assigned_to_1) == 1  # all have as many: the assigned one
    assert list(control.of_worker(0).in_flight.at_targets()) == [1, 2, 1]
    one.has_ended(2)
    assert other.choose(assigned_to_1) == 2


def test_a_request_that_ended_makes_room_at_its_target_alone() -> None:
    control = Control(multiprocessing.get_context("spawn"), 1, 2)
    router = _router(control, 0, 2)
    first = Payload(0, (b"x",))
    assert [router.choose(first) for _ in range(4)] == [0, 1, 0, 1]
    router.has_ended(1)
    router.has_ended(1)
    assert [router.choose(first), router.choose(first)] == [1, 1]


def test_without_a_count_of_those_in_flight_the_assigned_target_is_chosen() -> None:
    connections: list[Any] = ["a", "b"]
    router = Router(connections)
    assert [router.choose(Payload(target, (b"",))) for target in (1, 1, 0)] == [1, 1, 0]
    router.has_ended(1)
    assert router.connection(1) == "b"


@dataclass(frozen=True)
class _Client:
    host: str

    def encode(self, index: int, request: Request) -> bytes:
        return f"{self.host} {index}".encode()


def test_a_request_that_may_go_to_any_target_is_encoded_for_each_and_equal_bytes_once() -> None:
    request = Request(1, "x")
    unlike: Any = [_Client("a"), _Client("b")]
    alike: Any = [_Client("a"), _Client("a")]
    assert encoder(unlike, Balance.ROUND_ROBIN)(7, request, 1) == Payload(1, (b"b 7",))
    both = encoder(unlike, Balance.LEAST_IN_FLIGHT)(7, request, 1)
    assert (both, both.for_target(0), both.for_target(1)) == (Payload(1, (b"a 7", b"b 7")), b"a 7", b"b 7")
    once = encoder(alike, Balance.LEAST_IN_FLIGHT)(7, request, 1)
    assert (once.encoded, once.for_target(1)) == ((b"a 7",), b"a 7")
