"""The first line of a sweep: how much the target held, and how to narrow it."""

from __future__ import annotations

import dataclasses

import pytest

from reports.criteria import Requirement, parse_held, parse_slo
from reports.gates.gate import Evidence, Gate, Status
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.goodput import Objective
from reports.render.picture import Line
from reports.render.plain_text import escaped
from reports.render.tables import Quantity
from reports.statistics.estimate import UNKNOWN, Estimate
from reports.sweep.formats import SWEEP
from reports.sweep.held import gates_of
from reports.sweep.json_file import document
from reports.sweep.page import sweep_page
from reports.sweep.pictures import sweep_pictures
from reports.sweep.points import QUEUE_GROWING, Sweep, SweepPoint, SweepRun, pareto_front
from reports.sweep.tables import answer, points_table

HELD, FAILED, UNDECIDED = Status.PASSED, Status.FAILED, Status.UNDECIDED


def _point(setting: str, status: Status, axis: str = "request_rate") -> SweepPoint:
    requirement = parse_slo("p99_ttft<=300ms")
    assert isinstance(requirement, Requirement)
    return SweepPoint(
        name=f"{axis}={setting}",
        settings=((axis, setting),),
        runs=(SweepRun("p", has_page=False, valid=True, command="bench"),),
        offered_rate=1.0,
        request_throughput=UNKNOWN,
        output_token_throughput=Estimate(float(setting)),
        latency_p50_ms=UNKNOWN,
        latency_p99_ms=Estimate(1.0),
        e2e_p99_ms=UNKNOWN,
        goodput=UNKNOWN,
        attainment=None,
        gates=(Gate(requirement, status, Evidence(None), ""),),
        failed=0,
        findings=(),
    )


def _sweep(*points: SweepPoint) -> Sweep:
    return Sweep("dataset --num_requests 700", len(points), "TTFT", points, pareto_front(points))


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (
            {"25": HELD, "15": HELD, "35": FAILED, "45": FAILED},
            "Highest request_rate that held: 25; lowest that failed: 35; to narrow it: "
            "bench sweep --over request_rate=27,29,31,33 dataset --num_requests 700",
        ),
        (
            {"10": HELD, "20": UNDECIDED, "30": FAILED},
            "Highest request_rate that held: 10; lowest that failed: 30; undecided: 20; to narrow it, with a higher "
            "--num_requests: "
            "bench sweep --over request_rate=14,18,22,26 dataset --num_requests 700",
        ),
        (
            {"10": HELD, "20": HELD},
            "Highest request_rate that held: 20; to find the limit: "
            "bench sweep --over request_rate=24,28,32,36 dataset --num_requests 700",
        ),
        (
            {"10": FAILED, "20": FAILED},
            "No request_rate held; lowest that failed: 10; to narrow it: "
            "bench sweep --over request_rate=2,4,6,8 dataset --num_requests 700",
        ),
        (
            {"10": UNDECIDED, "20": UNDECIDED},
            "Undecided at every request_rate (10, 20): the runs are too short or not valid; raise --num_requests.",
        ),
        (  # one that held above one that failed is no limit that holds
            {"10": HELD, "20": FAILED, "30": HELD},
            "Highest request_rate that held: 10; lowest that failed: 20, though 30 held; to narrow it: "
            "bench sweep --over request_rate=12,14,16,18 dataset --num_requests 700",
        ),
        (
            {"10": FAILED, "20": HELD},
            "No request_rate below 10 held; lowest that failed: 10, though 20 held; to narrow it: "
            "bench sweep --over request_rate=2,4,6,8 dataset --num_requests 700",
        ),
        (  # loads above what is undecided would be undecided, too
            {"10": HELD, "20": UNDECIDED},
            "Highest request_rate that held: 10; undecided: 20; raise --num_requests to decide.",
        ),
        ({"4": HELD, "5": FAILED}, "Highest request_rate that held: 4; lowest that failed: 5."),
        (
            {"0.5": HELD, "1": FAILED},
            "Highest request_rate that held: 0.5; lowest that failed: 1; to narrow it: "
            "bench sweep --over request_rate=0.6,0.7,0.8,0.9 dataset --num_requests 700",
        ),
    ],
)
def test_the_answer_is_the_highest_that_held_and_the_lowest_that_failed(statuses: dict[str, Status], expected: str) -> None:
    assert answer(_sweep(*(_point(setting, status) for setting, status in statuses.items()))) == expected


def test_a_growing_queue_fails_a_point_without_objectives_and_leaves_the_front() -> None:
    calm = dataclasses.replace(_point("10", HELD), gates=())
    growing = dataclasses.replace(_point("20", HELD), gates=(), findings=(QUEUE_GROWING,))
    assert (calm.held, growing.held) == (True, False)
    sweep = _sweep(calm, growing)
    assert sweep.front == (0,)
    assert answer(sweep).startswith("Highest request_rate that held: 10; lowest that failed: 20; ")


def test_users_without_a_limit_show_nothing_that_held() -> None:
    points = [dataclasses.replace(_point(users, HELD, "concurrency"), gates=(), can_fail=False) for users in ("2", "40")]
    sweep = dataclasses.replace(_sweep(*points), required=(parse_held("held<40"),))
    assert [point.held for point in points] == [None, None]
    assert answer(sweep).startswith("On the Pareto front: ")
    (gate,) = gates_of(sweep)
    assert gate.status is Status.UNDECIDED
    assert "no gate of the measuring verb, such as --slo 'p99_ttft<=300ms', says what has to hold" in gate.why


def test_a_point_with_an_invalid_run_is_undecided() -> None:
    invalid = dataclasses.replace(_point("10", HELD), runs=(SweepRun("p", has_page=False, valid=False, command="bench"),))
    assert invalid.held is None


@pytest.mark.parametrize(
    "settings",
    [(("policy", "a"),), (("max_num_sequences", "64"),), (("request_rate", "-1"),), (("request_rate", "1"), ("isl", "2"))],
)
def test_a_sweep_over_no_single_load_has_the_front_as_its_answer(settings: tuple[tuple[str, str], ...]) -> None:
    point = dataclasses.replace(_point("10", HELD), settings=settings)
    assert answer(_sweep(point)).startswith("On the Pareto front: ")


@pytest.mark.parametrize(
    ("statuses", "limit", "status"),
    [
        ({"10": HELD, "20": HELD, "40": FAILED}, "held<20", Status.PASSED),
        ({"10": HELD, "20": HELD, "40": FAILED}, "held<21", Status.UNDECIDED),  # nothing was measured between
        ({"10": HELD, "20": HELD, "40": FAILED}, "Held < 40", Status.FAILED),
        ({"10": HELD, "20": HELD, "40": FAILED}, "held<41", Status.FAILED),
        ({"10": HELD, "20": HELD}, "held<40", Status.UNDECIDED),
        ({"10": HELD, "20": UNDECIDED}, "held<20", Status.UNDECIDED),
        ({"10": FAILED, "20": HELD}, "held<20", Status.FAILED),  # one that held above one that failed is no limit that holds
        ({"10": UNDECIDED}, "held<1", Status.UNDECIDED),
    ],
)
def test_a_build_fails_by_the_highest_load_that_held(statuses: dict[str, Status], limit: str, status: Status) -> None:
    points = _sweep(*(_point(setting, status) for setting, status in statuses.items()))
    sweep = dataclasses.replace(points, required=(parse_held(limit),))
    (gate,) = gates_of(sweep)
    assert gate.status is status
    requirement = str(parse_held(limit))
    assert f"{status.value:>9}  {requirement}: {gate.why}" in SWEEP.terminal_text(sweep)
    assert escaped(requirement) in SWEEP.markdown_text(sweep)
    assert document(sweep)["gates"][0]["status"] == status.value.lower()
    assert sweep_page(sweep).sections[0].id == "gates"


def test_a_sweep_over_no_single_load_decides_nothing() -> None:
    point = dataclasses.replace(_point("10", HELD), settings=(("policy", "a"),))
    (gate,) = gates_of(dataclasses.replace(_sweep(point), required=(parse_held("held<1"),)))
    assert gate.status is Status.UNDECIDED


@pytest.mark.parametrize(
    "text", ["held>20", "held<=20", "held<0", "p99_held<3", "held<20ms", "goodput<20", "held", "held<1e999"]
)
def test_a_criterion_of_a_sweep_names_what_was_held(text: str) -> None:
    with pytest.raises(ValueError, match=r"held<20|ttft<=200ms|above 0"):
        parse_held(text)


def test_the_limits_of_objectives_and_gates_are_lines_in_the_pictures_of_their_number() -> None:
    objectives = (Objective(TTFT, 200.0), Objective(E2E, 900.0))
    points = [
        dataclasses.replace(_point(rate, HELD), objectives=objectives, latency_p50_ms=Estimate(5.0)) for rate in ("10", "20")
    ]
    drawn = {
        picture.name: {mark.name: set(mark.y.tolist()) for mark in picture.marks if isinstance(mark, Line)}
        for picture in sweep_pictures(_sweep(*points))
    }
    each, gate = {"limit of each request: ttft<=200ms": {200.0}}, {"limit: p99_ttft<=300ms": {300.0}}
    assert drawn == {
        "throughput-latency-p99": each | gate,
        "throughput-latency-p50": each,
        "latency-by-setting": each | gate,
        "throughput-by-setting": {},
    }


def test_goodput_has_columns_where_there_are_objectives() -> None:
    plain = _point("10", HELD)
    with_objectives = dataclasses.replace(plain, attainment=0.97, goodput=Estimate(9.7))
    assert "attainment %" not in points_table(_sweep(plain)).columns
    table = points_table(_sweep(with_objectives))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["attainment %"] == Quantity(97.0, "97.00")
    assert row["goodput/s"] == 9.7
    assert row["held"] == "yes"


def test_objectives_that_decide_nothing_are_said_to_decide_nothing() -> None:
    """A point held whose requests all missed their objectives."""
    missed = dataclasses.replace(_point("10", HELD), gates=(), attainment=0.0, goodput=Estimate(0.0))
    assert missed.held
    attained = parse_slo("attainment>=99%")
    assert isinstance(attained, Requirement)
    required = dataclasses.replace(missed, gates=(Gate(attained, FAILED, Evidence(None), ""),))
    note = "Objectives alone do not decide whether a point held"
    for point, expected in ((missed, True), (required, False), (_point("10", HELD), False)):
        sweep = _sweep(point)
        for text in (SWEEP.terminal_text(sweep), points_table(sweep).note):
            assert (note in " ".join(text.split())) == expected


def test_small_numbers_of_a_point_are_no_zeros() -> None:
    point = dataclasses.replace(_point("0.005", HELD), offered_rate=0.0042, request_throughput=Estimate(0.0039))
    assert {"0.0042", "0.0039"} <= set(SWEEP.terminal_text(_sweep(point)).split())


def test_loads_are_named_as_they_were_given_and_those_between_lie_between() -> None:
    text = answer(_sweep(_point("12.35", HELD), _point("12.36", FAILED)))
    assert text.startswith("Highest request_rate that held: 12.35; lowest that failed: 12.36; to narrow it: ")
    assert "--over request_rate=12.352,12.354,12.356,12.358 " in text
    assert "held: 999.6;" in answer(_sweep(_point("999.6", HELD), _point("1200.5", FAILED)))


def test_one_point_of_an_unfinished_sweep_is_one_point() -> None:
    lone = dataclasses.replace(_point("10", HELD), runs=(SweepRun("p", has_page=False, valid=False, command="bench"),))
    text = SWEEP.terminal_text(dataclasses.replace(_sweep(lone), planned=4))
    assert "1 of 1 point not valid, 3 of 4 runs not measured yet." in text
