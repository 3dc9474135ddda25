"""What two runs sent that differs, by records and manifests that are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

from bench_records.manifest import LoadFacts
from bench_records.record import Record
from bench_records.run_folder import RunFolder
from reports.compare.sent import SentDifferences, sent_differences, why_other_requests
from reports.run_report import RunReport

MakeRun = Callable[..., RunFolder]
_OPEN, _CLOSED, _SESSIONS = (LoadFacts(mode=mode) for mode in ("open", "closed", "sessions"))
_DUE, _INPUT = "were due at another time", "have a prompt of another length"
_OUTPUT, _OWNER = "have another output length", "belong to another conversation or class"
_CANCELLED = "are cancelled differently"


def _requests(answered: Callable[..., Record], count: int = 6) -> list[Record]:
    return [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], requested_input_tokens=9) for k in range(count)]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"scheduled_ns": 7}, _DUE),
        ({"requested_input_tokens": 8}, _INPUT),
        ({"requested_output_tokens": 8}, _OUTPUT),
        ({"ignore_eos": True}, _OUTPUT),
        ({"session": "b"}, _OWNER),
        ({"traffic_class": "chat"}, _OWNER),
        ({"cancel_after_ns": 5}, _CANCELLED),
        ({"cancel_after_tokens": 5}, _CANCELLED),
        ({"sent_ns": 1, "output_tokens": 3, "worker": 2}, None),  # what befell it
    ],
)
@pytest.mark.parametrize("load", [_OPEN, _CLOSED], ids=["open", "closed"])
def test_requests_are_compared_by_all_that_was_planned_of_them(
    make_run: MakeRun, answered: Callable[..., Record], changes: dict[str, Any], what: str | None, load: LoadFacts
) -> None:
    """The fourth and the fifth of six differ; in a closed loop answers decide when they are due."""
    records = _requests(answered)
    changed = [structs.replace(record, **changes) if record.index in (3, 4) else record for record in records]
    aspects = (_INPUT, _OUTPUT, _OWNER, _CANCELLED) if load is _CLOSED else (_DUE, _INPUT, _OUTPUT, _OWNER, _CANCELLED)
    found = sent_differences(make_run(records), make_run(changed), (load, load))
    differs = what in aspects
    assert found == SentDifferences(
        6,
        {aspect: 2 if aspect == what else 0 for aspect in aspects},
        3 if differs else None,
        0,
        0,
        "lengths" if load is _CLOSED else "times and lengths",
        "so their prompts differ",
    )


def test_requests_of_one_run_alone_are_counted(make_run: MakeRun, answered: Callable[..., Record]) -> None:
    records = _requests(answered, 7)
    found = sent_differences(make_run(records[:6]), make_run(records[3:]), (_OPEN, _SESSIONS))
    assert (found.common, found.missing, found.new) == (3, 3, 1)
    assert str(found) == ("3 requests are in both runs, with the same times and lengths; 3 are not sent any more and 1 is new.")
    assert str(sent_differences(make_run(records), make_run(records[:6]), (_OPEN, _CLOSED))) == (
        "6 requests are in both runs, with the same lengths; 1 is not sent any more."
    )


def test_a_later_turn_is_due_after_an_answer_unless_it_has_a_time_of_its_own(
    make_run: MakeRun, answered: Callable[..., Record]
) -> None:
    first, later = answered(0, 0, 0, [(5, 1)]), answered(1, 20, 20, [(25, 1)], parent=0)
    slower = structs.replace(later, scheduled_ns=30_000_000)
    planned, replanned = (structs.replace(slower, planned_ns=at) for at in (15_000_000, 16_000_000))

    def due(before: Record, now: Record) -> int:
        return sent_differences(make_run([first, before]), make_run([first, now]), (_SESSIONS, _SESSIONS)).differing[_DUE]

    assert (due(later, slower), due(later, planned), due(planned, replanned)) == (0, 1, 1)
    assert due(later, structs.replace(later, parent=None)) == 1


@pytest.mark.parametrize(
    ("a", "b", "rest"),
    [
        (_OPEN, _OPEN, "so their prompts differ"),
        (_SESSIONS, _SESSIONS, "so their prompts differ, or when later turns are due"),
        (_OPEN, _SESSIONS, "and the load is another one"),
        *(
            (structs.replace(_OPEN, **{fact: 1}), structs.replace(_OPEN, **{fact: 2}), "and the load is another one")
            for fact in ("max_concurrency", "concurrency", "duration_s", "ramp_up_s")
        ),
        (structs.replace(_OPEN, prepared=1), structs.replace(_OPEN, prepared=2), "so their prompts differ"),
    ],
)
def test_where_no_request_differs_the_prompts_or_the_load_do(
    make_run: MakeRun, answered: Callable[..., Record], a: LoadFacts, b: LoadFacts, rest: str
) -> None:
    folder = make_run(_requests(answered, 1))
    found = sent_differences(folder, folder, (a, b))
    assert str(found) == f"1 request is in both runs, with the same times and lengths, {rest}."


_TARGET = {"model": "m", "protocol": "openai", "streaming": True, "token_ids": False}


@pytest.mark.parametrize(
    ("seed", "other", "said"),
    [
        (7, {"target": {**_TARGET, "token_ids": True}}, "One side sends text, the other token ids. "),
        (7, {"target": {**_TARGET, "protocol": "grpc"}}, "A prompt of openai has other bytes than one of grpc. "),
        (7, {"bench_version": "2"}, "Another release may draw other requests from a seed: measure both sides with one. "),
        (7, {}, ""),
        (None, {}, ""),
    ],
    ids=["token ids", "protocol", "release", "unknown", "no seed"],
)
def test_other_requests_of_equal_seeds_are_explained(
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., Sequence[Record]],
    seed: int | None,
    other: dict[str, Any],
    said: str,
) -> None:
    """The first runs of one seed whose schedules differ are compared."""

    def run(count: int, seed: int | None, digest: int, **manifest: Any) -> RunReport:
        return make_report(steady_run(count), schedule={"digest": f"{digest:064x}", "seed": seed}, **manifest)

    a = [run(9, 5, 1), run(4, seed, 2, target=_TARGET)]
    b = [run(8, 5, 1), run(4, seed, 3, **{"target": _TARGET, **other}), run(7, seed, 4)]
    drawn = "Neither side has a seed:" if seed is None else "Both sides have the same seeds. With seed 7,"
    assert why_other_requests(a, b) == (
        f"{drawn} 4 requests are in both runs, with the same times and lengths, so their prompts differ. {said}Part of the "
        "difference may come from here."
    )


def test_single_requests_that_differ_are_in_the_singular() -> None:
    differing = {_OUTPUT: 1, _CANCELLED: 2}
    said = str(SentDifferences(1, differing, 0, missing=1, new=1, same="lengths", rest=""))
    assert said == (
        "1 request is in both runs, and 1 has another output length, 2 are cancelled differently; the first is request 0; "
        "1 is not sent any more and 1 is new."
    )
    said = str(SentDifferences(1_000, {_DUE: 1, _INPUT: 1, _OWNER: 1}, 7, missing=0, new=2, same="lengths", rest=""))
    assert said == (
        "1,000 requests are in both runs, and 1 was due at another time, 1 has a prompt of another length, 1 belongs to "
        "another conversation or class; the first is request 7; 2 are new."
    )
