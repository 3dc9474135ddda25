"""Classes of traffic: their spelling, and the draw that deals them to requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals.processes import Exponential
from workloads.elements.errors import WorkloadError
from workloads.elements.request import Request, Variant
from workloads.schedule.schedule import ClosedSchedule, Schedule, SessionSchedule, make_schedule
from workloads.schedule.traffic_classes import TrafficClass, parse_class, with_classes

CHAT = TrafficClass("chat", 3.0, Variant(model="llama-8b"))
CODE = TrafficClass("code", 1.0, Variant(lora_task_id=7), ("ttft<=500ms",))

_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(lambda name: name != "probe")
_TEXTS = st.from_regex(r"[A-Za-z0-9][\w./:=<>-]{0,20}", fullmatch=True)
_VARIANTS = st.builds(Variant, st.none() | _TEXTS, st.none() | st.integers(1, 2**63 - 1)).filter(lambda v: v != Variant())
_CLASSES = st.builds(
    TrafficClass,
    _NAMES,
    st.floats(1e-6, 1e6) | st.integers(1, 100).map(float),
    st.none() | _VARIANTS,
    st.lists(_TEXTS, max_size=2).map(tuple),
)


def _requests(count: int) -> list[Request]:
    return [Request(5, prompt=f"p{number}") for number in range(count)]


def _schedule(count: int) -> Schedule:
    return make_schedule(_requests(count), Exponential(10.0), 3)


@given(_CLASSES)
def test_a_class_reads_what_it_prints(text: TrafficClass) -> None:
    assert parse_class(str(text)) == text
    assert str(parse_class(str(text))) == str(text)


@given(st.text(max_size=30))
def test_any_other_text_is_an_error_that_names_the_option(text: str) -> None:
    problem = ""
    try:
        parse_class(text)
    except WorkloadError as error:
        problem = str(error)
    assert problem == "" or problem.startswith("class ")


def test_what_is_left_out_has_a_weight_of_1_and_is_the_target() -> None:
    assert parse_class("chat") == TrafficClass("chat")
    assert parse_class("a" * 40 + ":weight=1e9") == TrafficClass("a" * 40, 1e9)
    assert parse_class(f"a:lora={2**63 - 1}").variant == Variant(lora_task_id=2**63 - 1)
    assert parse_class("chat:lora=1") == TrafficClass("chat", 1.0, Variant(lora_task_id=1))
    assert parse_class(" chat : model = Llama-8B , weight = 0.5 ") == TrafficClass("chat", 0.5, Variant("Llama-8B"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, "a name has up to 40 letters, digits, and . _ - after the first")
          for text in ("", ":weight=3", "a b", "-a", "a" * 41)),
        ("probe:weight=1", "'probe' is the class of probe_rate"),
        *((f"a:weight={weight}", f"the weight must be a number above 0, at most 1,000,000,000, not {weight}")
          for weight in ("0", "-1", "3s", "nan", "1000000001")),
        ("a:weight=1,weight=2", "'weight' is given twice"), ("a:modell=x", "there is no 'modell'"),
        *((f"a:lora={task}", f"lora is the task id of an adapter, a whole number above 0, not {task}")
          for task in ("x", "-1", "0", "²", str(2**63))),
        ("a:model=", "'model=' is not a name and a value"), ("a:", "'' is not a name and a value"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        parse_class(text)
    forms = "NAME:weight=3,model=MODEL,lora=TASK_ID,slo=ttft<=500ms"
    assert str(refused.value) == f"class {text}: {problem}; write {forms}"


@given(st.integers(0, 2**32), st.lists(st.floats(0.1, 10.0), min_size=2, max_size=4))
def test_the_shares_are_those_of_independent_draws(seed: int, weights: list[float]) -> None:
    classes = [TrafficClass(f"c{number}", weight) for number, weight in enumerate(weights)]
    drawn = [request.traffic_class for request in with_classes(_schedule(2_000), classes, seed).requests]
    for traffic_class in classes:
        share = traffic_class.weight / sum(weights)
        assert abs(drawn.count(traffic_class.name) - 2_000 * share) <= 6 * np.sqrt(2_000 * share * (1 - share)) + 1


def test_neighbours_are_independent() -> None:
    drawn = [request.traffic_class == "chat" for request in with_classes(_schedule(20_000), [CHAT, CODE], 1).requests]
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 4 / np.sqrt(20_000)


def test_a_request_gets_the_variant_of_its_class_and_nothing_else_changes() -> None:
    plain = _schedule(100)
    mixed = with_classes(plain, [CHAT, CODE], 1)
    assert {request.traffic_class: request.variant for request in mixed.requests} == {
        "chat": CHAT.variant, "code": CODE.variant,
    }  # fmt: skip
    stripped = [replace(request, traffic_class=None, variant=None) for request in mixed.requests]
    assert replace(mixed, requests=tuple(stripped)) == plain


def test_a_longer_run_begins_with_the_classes_of_a_shorter_one() -> None:
    long, short = (with_classes(_schedule(count), [CHAT, CODE], 4) for count in (300, 100))
    assert long.requests[:100] == short.requests


def test_a_schedule_without_requests_stays_one() -> None:
    assert with_classes(_schedule(0), [CHAT, CODE], 4) == _schedule(0)


def test_another_seed_deals_otherwise() -> None:
    assert with_classes(_schedule(100), [CHAT, CODE], 4) != with_classes(_schedule(100), [CHAT, CODE], 5)


def test_users_of_a_closed_loop_have_classes_too() -> None:
    closed = ClosedSchedule(tuple(_requests(200)), (0, 0), 3)
    assert {request.traffic_class for request in with_classes(closed, [CHAT, CODE], 1).requests} == {"chat", "code"}


def test_the_turns_of_a_conversation_are_of_one_class_though_a_user_holds_several() -> None:
    requests, parents = [], list[int | None]()
    for number in range(60):  # three turns each, all of one user
        for _ in range(3):
            parents.append(len(requests) - 1 if requests else None)
            requests.append(Request(5, prompt="p", session=f"s{number}"))
    schedule = SessionSchedule(tuple(requests), (0, *[None] * 179), tuple(parents), (0,) * 180, 3)
    drawn = [request.traffic_class for request in with_classes(schedule, [CHAT, CODE], 1).requests]
    assert all(len(set(drawn[at : at + 3])) == 1 for at in range(0, 180, 3))
    assert {"chat", "code"} == set(drawn)


def test_requests_of_an_open_loop_have_classes_of_their_own_though_their_conversation_is_known() -> None:
    plain = _schedule(200)
    of_one = replace(plain, requests=tuple(replace(request, session="s") for request in plain.requests))
    drawn = [[request.traffic_class for request in with_classes(sent, [CHAT, CODE], 1).requests] for sent in (plain, of_one)]
    assert drawn[0] == drawn[1]
    assert set(drawn[1]) == {"chat", "code"}


def test_turns_of_a_conversation_that_wait_for_no_other_are_of_its_class_too() -> None:
    """Two turns of an agent that ran at the same time, as in Dynamo's traces."""
    requests = tuple(Request(5, prompt="p", session=f"s{number // 2}") for number in range(120))
    schedule = SessionSchedule(requests, tuple(range(120)), (None,) * 120, (0,) * 120, 3)
    drawn = [request.traffic_class for request in with_classes(schedule, [CHAT, CODE], 1).requests]
    assert drawn[::2] == drawn[1::2]
    assert {"chat", "code"} == set(drawn)
