"""The schedule: its digest covers the content and time of every request, and shards divide it for any number of workers."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.arrivals.processes import AllAtOnce, Constant, Exponential
from workloads.elements.request import CancelPoint, Message, Request, Variant
from workloads.schedule.schedule import (
    ClosedSchedule,
    HistorySource,
    Schedule,
    SessionPart,
    SessionSchedule,
    even_share,
    make_schedule,
    session_shard,
    turn_due_ns,
)

_HISTORY = (Message("system", "xy"),)
_REQUEST = Request(
    output_tokens=20,
    prompt="Grüße",
    input_ids=(3, 1, 2),
    input_tokens=3,
    ignore_eos=False,
    session="a",
    history=_HISTORY,
    traffic_class="chat",
    variant=Variant("llama", 7),
    cancel=CancelPoint(after_tokens=20),
)
_OTHER = Request(output_tokens=7, prompt="b", input_ids=(9,), input_tokens=1)

# Changes of each field that reaches the server.
_CHANGES = {
    "output_tokens": (19, 21, 0),
    "prompt": ("Grüsse", "Grüße ", "", None, "\ud800"),
    "input_ids": ((3, 1), (3, 2, 1), (3, 1, 2, 0), (), None),
    "ignore_eos": (True,),
    "session": ("b", "", None),
    "history": ((), (Message("system", "x"),), (Message("system", "xy"), Message("user", "")), (Message("user", "xy"),)),
    "traffic_class": ("code", "", None),
    "variant": (Variant("llama"), Variant(None, 7), Variant("", 7), Variant("llama", 8), None),
    "cancel": (CancelPoint(after_tokens=21), CancelPoint(after_ns=20), None),
}

# Not sent: what the client knows of the prompt's length follows from the prompt; that it was made for belongs to the law.
_NOT_SENT = {"input_tokens", "requested_input_tokens"}


def _digest(*requests: Request, offsets_ns: tuple[int, ...] | None = None, seed: int = 0) -> str:
    return Schedule(requests, offsets_ns or tuple(range(len(requests))), seed).digest


def test_every_field_of_a_request_is_accounted_for() -> None:
    assert {field.name for field in fields(Request)} == _CHANGES.keys() | _NOT_SENT


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in _CHANGES.items() for value in values])
def test_a_changed_field_changes_the_digest(field: str, value: object) -> None:
    assert _digest(replace(_REQUEST, **{field: value}), _OTHER) != _digest(_REQUEST, _OTHER)
    assert _digest(_OTHER, replace(_REQUEST, **{field: value})) != _digest(_OTHER, _REQUEST)


@pytest.mark.parametrize(("field", "empty"), [("prompt", ""), ("input_ids", ()), ("session", "")])
def test_an_absent_field_is_not_an_empty_one(field: str, empty: object) -> None:
    assert _digest(replace(_REQUEST, **{field: None})) != _digest(replace(_REQUEST, **{field: empty}))


def test_a_changed_arrival_changes_the_digest() -> None:
    assert _digest(_REQUEST, _OTHER, offsets_ns=(0, 5)) != _digest(_REQUEST, _OTHER, offsets_ns=(0, 6))


def test_a_changed_order_changes_the_digest() -> None:
    assert _digest(_REQUEST, _OTHER, offsets_ns=(0, 0)) != _digest(_OTHER, _REQUEST, offsets_ns=(0, 0))


def test_a_request_more_or_fewer_changes_the_digest() -> None:
    digests = {_digest(), _digest(_REQUEST), _digest(_REQUEST, _REQUEST), _digest(_REQUEST, _REQUEST, _REQUEST)}
    assert len(digests) == 4


def test_text_moved_between_fields_changes_the_digest() -> None:
    assert _digest(Request(1, prompt="ab", session="c")) != _digest(Request(1, prompt="a", session="bc"))


_REQUESTS = st.builds(
    Request,
    output_tokens=st.integers(1, 3),
    prompt=st.none() | st.text(max_size=2),
    input_ids=st.none() | st.lists(st.integers(0, 2), max_size=3).map(tuple),
    ignore_eos=st.booleans(),
    session=st.none() | st.text(max_size=1),
    traffic_class=st.none() | st.text(max_size=1),
    variant=st.sampled_from([None, Variant("a"), Variant(""), Variant(None, 0), Variant("a", 0)]),
    cancel=st.sampled_from([None, CancelPoint(after_ns=1), CancelPoint(after_ns=0), CancelPoint(after_tokens=1)]),
)
_SCHEDULES = st.lists(_REQUESTS, max_size=3).flatmap(
    lambda requests: st.builds(
        Schedule,
        st.just(tuple(requests)),
        st.tuples(*[st.integers(0, 2)] * len(requests)),
        st.integers(0, 3),
        st.none() | st.integers(1, 2),
    )
)


@settings(max_examples=60)
@given(_SCHEDULES, _SCHEDULES)
def test_digests_are_equal_when_and_only_when_the_same_is_sent_at_the_same_times(first: Schedule, other: Schedule) -> None:
    what = [(schedule.requests, schedule.offsets_ns, schedule.max_concurrency) for schedule in (first, other)]
    same = what[0] == what[1]
    assert (first.digest == other.digest) == same


def test_same_seed_gives_the_same_digest() -> None:
    requests = [_REQUEST, _OTHER] * 20
    assert make_schedule(requests, Exponential(10), 4).digest == make_schedule(requests, Exponential(10), 4).digest


def test_another_seed_gives_another_digest() -> None:
    requests = [_REQUEST, _OTHER] * 20
    assert make_schedule(requests, Exponential(10), 4).digest != make_schedule(requests, Exponential(10), 5).digest


def test_equal_runs_have_equal_digests_whatever_seed_they_were_drawn_from() -> None:
    assert _digest(_REQUEST, _OTHER, seed=1) == _digest(_REQUEST, _OTHER, seed=2)


def test_the_digest_does_not_hang_on_the_process() -> None:
    # Another process with another salt of hash(): the digest in a manifest must be the one that a repetition gets.
    program = (
        "from workloads.arrivals.processes import Exponential\n"
        "from workloads.elements.request import Request\n"
        "from workloads.schedule.schedule import make_schedule\n"
        "print(make_schedule([Request(k, prompt='ä', input_ids=(k,)) for k in range(1, 30)], Exponential(10), 4).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout
    here = make_schedule([Request(k, prompt="ä", input_ids=(k,)) for k in range(1, 30)], Exponential(10), 4)
    assert out.strip() == here.digest


@given(st.integers(min_value=0, max_value=60), st.integers(min_value=1, max_value=70))
def test_shards_part_the_schedule_for_any_number_of_workers(requests: int, workers: int) -> None:
    schedule = make_schedule([_OTHER] * requests, Constant(10), 0)
    shards = [schedule.shard(index, workers) for index in range(workers)]
    assert sorted(index for shard in shards for index in shard) == list(range(requests))
    assert all(list(shard) == sorted(shard) for shard in shards)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_the_number_of_workers_does_not_change_what_is_sent_and_when(workers: int) -> None:
    requests = [Request(output_tokens=k, input_ids=(k,)) for k in range(1, 42)]
    schedule = make_schedule(requests, Exponential(50), 11)
    dealt = [(schedule.offsets_ns[k], schedule.requests[k]) for w in range(workers) for k in schedule.shard(w, workers)]
    assert sorted(dealt, key=lambda pair: pair[1].output_tokens) == list(
        zip(schedule.offsets_ns, schedule.requests, strict=True)
    )


def test_requests_keep_their_order_and_get_the_offsets_of_the_arrivals() -> None:
    schedule = make_schedule([_REQUEST, _OTHER, _REQUEST], Constant(1000), 6)
    assert schedule.requests == (_REQUEST, _OTHER, _REQUEST)
    assert schedule.offsets_ns == (0, 1_000_000, 2_000_000)
    assert all(type(offset) is int for offset in schedule.offsets_ns)
    assert schedule.seed == 6
    assert len(schedule) == 3


def test_a_schedule_cannot_be_changed() -> None:
    schedule = make_schedule([_REQUEST], AllAtOnce(), 0)
    with pytest.raises(FrozenInstanceError):
        schedule.offsets_ns = (1,)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        schedule.requests[0].output_tokens = 5  # type: ignore[misc]


def test_the_digest_of_a_plain_schedule_is_what_it_always_was() -> None:
    requests = [Request(k, prompt="ä", input_ids=(k,)) for k in range(1, 30)]
    digest = make_schedule(requests, Exponential(10), 4).digest
    assert digest == "3781ec79eaf7e9a9ed254ff5f4336a36f67193fa4e193591cb301737454561ae"


def test_the_digest_of_a_history_and_a_mixture_is_that_of_their_bytes() -> None:
    """Every field has its length before it, -1 where it is absent, so that a repetition gets the digest of the manifest."""
    messages = (Message("user", "b"), Message("assistant", ""))
    of_all = {"history": messages, "traffic_class": "chat", "variant": Variant(None, 7), "cancel": CancelPoint(after_tokens=3)}
    fields = (
        struct.pack("<qq?", 5, 2, False),
        b"a",
        None,
        None,
        b"history".ljust(64) + struct.pack("<qq", 4, 1) + b"userb" + struct.pack("<qq", 9, 0) + b"assistant",
        b"mixture".ljust(64) + struct.pack("<qqq", 7, -1, 3) + struct.pack("<q", 4) + b"chat" + struct.pack("<q", -1),
    )
    expected = b"".join(struct.pack("<q", -1 if field is None else len(field)) + (field or b"") for field in fields)
    request = Request(2, prompt="a", **of_all)  # type: ignore[arg-type]
    assert _digest(request, offsets_ns=(5,)) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [
        Request(1, traffic_class="a"),
        Request(1, variant=Variant("a")),
        Request(1, cancel=CancelPoint(after_ns=1)),
        Request(1, history=(Message("user", ""),)),
    ],
)
def test_each_part_of_a_mixture_alone_changes_the_digest(changed: Request) -> None:
    assert _digest(changed) != _digest(Request(1))


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_shares_add_up_to_the_total_and_differ_by_at_most_one(total: int, count: int) -> None:
    dealt = [even_share(total, index, count) for index in range(count)]
    assert sum(dealt) == total
    assert max(dealt) - min(dealt) <= 1
    assert dealt == sorted(dealt, reverse=True)


def test_the_limit_in_flight_is_divided_among_the_workers() -> None:
    schedule = Schedule((_OTHER,) * 5, (0, 1, 2, 3, 4), 0, max_concurrency=7)
    parts = [schedule.part(worker, 3) for worker in range(3)]
    assert [part.max_concurrency for part in parts] == [3, 2, 2]
    assert [(part.indices, part.offsets_ns) for part in parts] == [((0, 3), (0, 3)), ((1, 4), (1, 4)), ((2,), (2,))]
    assert Schedule((_OTHER,), (0,), 0).part(0, 1).max_concurrency is None


def test_a_worker_sends_its_requests_in_the_order_of_their_offsets() -> None:
    part = Schedule((_OTHER,) * 5, (0, 9, 20, 30, 5), 0).part(0, 2)
    assert (part.indices, part.offsets_ns) == ((0, 4, 2), (0, 5, 20))


# ---- closed loops

_CLOSED = ClosedSchedule((_REQUEST, _OTHER), (0, 5), seed=3, end_ns=100)


@pytest.mark.parametrize(
    "other",
    [
        replace(_CLOSED, requests=(_OTHER, _REQUEST)),
        replace(_CLOSED, requests=(_REQUEST, _OTHER, _OTHER)),
        replace(_CLOSED, user_starts_ns=(0, 6)),
        replace(_CLOSED, user_starts_ns=(0,)),
        replace(_CLOSED, user_starts_ns=(0, 5, 100)),
        replace(_CLOSED, end_ns=None),
        replace(_CLOSED, end_ns=101),
        Schedule(_CLOSED.requests, _CLOSED.user_starts_ns, 3),
    ],
)
def test_whatever_decides_the_sends_changes_the_digest(other: ClosedSchedule | Schedule) -> None:
    assert other.digest != _CLOSED.digest


def test_the_seed_alone_changes_no_digest_of_a_closed_loop() -> None:
    assert replace(_CLOSED, seed=4).digest == _CLOSED.digest


@given(st.integers(0, 80), st.integers(1, 20), st.data())
def test_users_and_their_requests_are_parted_among_the_workers(requests: int, users: int, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, users))
    schedule = ClosedSchedule((_OTHER,) * requests, tuple(range(users)), 0)
    parts = [schedule.part(worker, workers) for worker in range(workers)]
    assert sorted(index for part in parts for index in part.indices) == list(range(requests))
    assert sorted(start for part in parts for start in part.user_starts_ns) == list(range(users))
    for worker, part in enumerate(parts):
        assert schedule.shard(worker, workers) == part.indices
        assert len(part.user_starts_ns) == even_share(users, worker, workers)
        assert list(part.indices) == sorted(part.indices)
        fair = requests * len(part.user_starts_ns) / users  # so that the users of no worker are done long before the others
        assert abs(len(part.indices) - fair) <= len(part.user_starts_ns)


@pytest.mark.parametrize("end_ns", [None, 100])
def test_every_worker_of_a_closed_loop_stops_at_its_end(end_ns: int | None) -> None:
    schedule = replace(_CLOSED, end_ns=end_ns)
    assert [schedule.part(worker, 2).end_ns for worker in range(2)] == [end_ns] * 2


# ---- sessions


def _sessions(**changes: Any) -> SessionSchedule:
    requests = tuple(Request(2, prompt=str(k)) for k in range(6))
    fields = {
        "requests": requests,
        "offsets_ns": (0, None, 7, 10, None, None),
        "parents": (None, 0, None, None, 3, 1),
        "think_times_ns": (0, 5, 0, 0, 0, 6),
        "seed": 0,
    }
    return SessionSchedule(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets_ns": (0, 0, 7, 10, None, None)},
        {"offsets_ns": (0, None, 8, 10, None, None)},
        {"parents": (None, 0, None, None, 3, 0)},
        {"parents": (None, 0, None, None, None, 1)},
        {"think_times_ns": (0, 5, 0, 0, 1, 6)},
        {"requests": tuple(Request(2, prompt=str(k), history=(Message("user", "a"),) if k else ()) for k in range(6))},
    ],
)
def test_what_makes_a_due_time_or_a_content_of_sessions_changes_their_digest(changes: dict[str, Any]) -> None:
    assert _sessions(**changes).digest != _sessions().digest
    assert _sessions().digest == _sessions().digest


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 5))
def test_a_session_belongs_to_one_worker_and_each_request_to_one_session(draws: list[float], workers: int) -> None:
    parents = [None if draw < 0.4 or not k else min(k - 1, int(draw * k)) for k, draw in enumerate(draws)]
    shards = [session_shard(parents, worker, workers) for worker in range(workers)]
    assert sorted(index for shard in shards for index in shard) == list(range(len(parents)))
    worker_of = {index: worker for worker, shard in enumerate(shards) for index in shard}
    assert all(worker_of[index] == worker_of[parent] for index, parent in enumerate(parents) if parent is not None)


def test_a_part_of_sessions_names_parents_by_their_place_in_it() -> None:
    assert _sessions().part(0, 2) == SessionPart(
        (0, 1, 3, 4, 5), (0, None, 10, None, None), (None, 0, None, 2, 1), (0, 5, 0, 0, 6)
    )
    assert _sessions().part(1, 2) == SessionPart((2,), (7,), (None,), (0,))
    assert _sessions(history=HistorySource.SERVER).part(1, 2).history is HistorySource.SERVER


def test_sessions_are_dealt_to_the_workers_in_turn() -> None:
    parents = (None, None, None, 1, None, 4)
    assert [session_shard(parents, worker, 3) for worker in range(3)] == [(0, 4, 5), (1, 3), (2,)]


@pytest.mark.parametrize(
    ("offset_ns", "think_ns", "due_ns"), [(None, 0, 50), (None, 7, 57), (60, 0, 60), (40, 0, 50), (56, 7, 57)]
)
def test_a_later_turn_is_due_at_the_later_of_both(offset_ns: int | None, think_ns: int, due_ns: int) -> None:
    assert turn_due_ns(offset_ns, think_ns, 50) == due_ns
    assert turn_due_ns(None, 0, 0) == 0
