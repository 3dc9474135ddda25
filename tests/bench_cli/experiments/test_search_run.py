"""The loop of a search for capacity over probes that are computed: its answer, its ends, and going on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from bench_cli.experiments import search_run
from bench_cli.experiments.search_arguments import continued
from bench_cli.experiments.search_plan import Spent, announcement, closed_loop_timeout_s, first_users, next_step
from bench_cli.experiments.search_run import ChildProbes, TargetGoneError, search_capacity
from bench_records.manifest import Manifest
from bench_records.run_folder import RunFolder
from bench_records.search import PlannedProbe, PlannedTier, RecordedControl, Search, SearchFolder
from reports.capacity.answer import details
from reports.capacity.reading import MeasuredProbe, probe_command
from reports.capacity.result import Capacity, Ended, LoadUnit
from tests.bench_cli.experiments.searches import CAPACITY, LIMIT_S, SEARCH, SERVED_PER_S, FakeQueue, measured


@pytest.fixture
def folder(tmp_path: Path) -> SearchFolder:
    return SearchFolder(tmp_path)


@pytest.fixture
def _recorded_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search reads the probes that were made before it."""
    known: dict[str, MeasuredProbe] = {}
    probe = FakeQueue.probe

    def remembered(self: FakeQueue, search: Search, planned: PlannedProbe, *, is_warm: bool) -> MeasuredProbe:
        found = probe(self, search, planned, is_warm=is_warm)
        known[planned.folder] = found
        return found

    monkeypatch.setattr(FakeQueue, "probe", remembered)
    monkeypatch.setattr(
        search_run, "read_probes", lambda folder, search: [known[p.folder] for p in search.probes if folder.is_recorded(p)]
    )


def _search(queue: FakeQueue, search: Search = SEARCH, say: Callable[[str], None] = lambda line: None) -> Capacity:
    return search_capacity(queue.folder, search, queue.open, say, queue.clock)


def test_a_search_ends_with_a_bracket_around_the_capacity_as_narrow_as_asked(folder: SearchFolder) -> None:
    queue, said = FakeQueue(folder), list[str]()
    capacity = _search(queue, say=said.append)
    found = capacity.tiers[0].bracket
    assert capacity.ended is Ended.PRECISE
    assert found.certified is not None
    assert found.refused is not None
    assert found.certified <= CAPACITY <= found.refused
    assert found.refused <= SEARCH.ratio * found.certified
    assert [planned.seed for planned in queue.made] == [SEARCH.seed + 1 + k for k in range(len(queue.made))]
    assert queue.made[0].load == SERVED_PER_S / 2.0  # half of the closed loop's
    recorded = folder.read()
    assert (recorded.ended, recorded.first_per_s, recorded.spent_s) == (Ended.PRECISE.value, SERVED_PER_S, queue.now_s)
    assert recorded.probes == tuple(queue.made)
    assert "It had 100 requests/s. The search starts at 50 requests/s." in said[1]
    assert said[2].startswith("Probe 1: 50 requests/s, ")
    assert said[-1].startswith(f"{len(queue.made)} probes, {capacity.requests:,} requests, ")
    assert said[-1].endswith(" fails, within ±10 %")


class _Model:
    """A simulation that has the requests beyond the limit that were measured, and expects those of the long run."""

    def first_load(self) -> float | None:
        return 60.0

    def controls(self, search: Search, planned: PlannedProbe) -> tuple[RecordedControl, ...]:
        share = math.exp(-(SERVED_PER_S - planned.load) * LIMIT_S)
        blocks = (round(share * planned.requests), 0, 0, 0)
        return (RecordedControl(blocks, blocks, sum(blocks) / planned.requests, share),)


def test_a_model_shows_where_to_start_and_what_it_explains_is_recorded_and_said(folder: SearchFolder) -> None:
    queue, said = FakeQueue(folder), list[str]()
    search = replace(SEARCH, model="digest")
    found = search_capacity(folder, search, queue.open, said.append, queue.clock, _Model())
    assert queue.closed_loops == 0
    assert queue.made[0].load == 60.0
    assert said[0] == "The model is simulated, to know where to start."
    recorded = folder.read()
    below = [each for each in recorded.probes if each.load < SERVED_PER_S]
    assert set(recorded.controls) == {each.folder for each in below}  # others ended early
    assert all(len(run.probe.controls) == (run.folder in recorded.controls) for run in found.probes)
    assert any(text.startswith("The model explains ") for text in details(found, found.tiers[0]))
    bracket = found.tiers[0].bracket
    assert bracket.certified is not None
    assert bracket.certified <= CAPACITY
    rest = continued(recorded, replace(search, budget_s=3_600.0))
    assert rest is not None
    assert rest.controls == recorded.controls
    assert rest.forecasts == recorded.forecasts
    assert continued(recorded, replace(search, model="another")) is None


@pytest.mark.usefixtures("_recorded_probes")
def test_a_probe_that_was_not_simulated_before_a_kill_is_simulated_later(folder: SearchFolder) -> None:
    queue, search = FakeQueue(folder), replace(SEARCH, model="digest")
    search_capacity(folder, search, queue.open, lambda line: None, queue.clock, _Model())
    recorded = folder.read()
    last = [each.folder for each in recorded.probes if each.folder in recorded.controls][-1]
    left = {name: controls for name, controls in recorded.controls.items() if name != last}
    again = FakeQueue(folder)
    search_capacity(folder, replace(recorded, controls=left), again.open, lambda line: None, again.clock, _Model())
    assert folder.read().controls[last] == recorded.controls[last]


def test_a_budget_is_kept_and_said(folder: SearchFolder) -> None:
    queue = FakeQueue(folder)
    capacity = _search(queue, replace(SEARCH, budget_s=60.0))
    assert capacity.ended is Ended.BUDGET
    assert queue.now_s <= 60.0
    assert len(queue.made) >= 2


@pytest.mark.parametrize("budget_s", [45.0, 52.0, 60.0, 200.0])
@pytest.mark.parametrize("first_load", [20.0, 90.0, 300.0])
def test_a_budget_is_kept_though_probes_overload_the_target_and_take_unevenly_long(
    folder: SearchFolder, budget_s: float, first_load: float
) -> None:
    queue = FakeQueue(folder, uneven_s=4.0)
    _search(queue, replace(SEARCH, budget_s=budget_s, first_load=first_load))
    assert queue.now_s <= 1.03 * budget_s


@pytest.mark.parametrize(
    ("reach", "most", "budget_s", "expected"),
    [
        (None, None, None, 16.0),
        (0.5, None, None, 32.0),
        (4.0, None, None, 4.0),
        (100.0, None, None, 1.0),
        (1e-4, None, None, 128.0),
        (1e-4, 40.0, None, 40.0),
        (0.5, 3.0, None, 3.0),
        (1e-4, None, 100.0, 62.0),  # four requests of each user take a quarter of the budget, at 10 requests/s
        (1e-4, None, 1.0, 16.0),
    ],
)
def test_users_start_where_latencies_in_proportion_to_them_meet_the_limits(
    reach: float | None, most: float | None, budget_s: float | None, expected: float
) -> None:
    search = replace(SEARCH, unit=LoadUnit.USERS.value, most_load=most, budget_s=budget_s)
    assert first_users(search, 10.0, reach) == expected


@pytest.mark.parametrize(
    ("left_s", "e2e_ms", "limits", "given", "expected"),
    [
        (12.0, 900.0, ("p99_ttft<=150ms",), (), 5.0),
        (60.0, 900.0, ("p99_ttft<=150ms",), (), 49.0),  # what the sending leaves of it
        (12.0, 9_000.0, ("p99_ttft<=150ms",), (), 36.0),
        (12.0, 900.0, ("p99_e2e<=30s",), (), 33.0),  # a request that is cut off earlier would not count
        (12.0, 900.0, ("p99_ttft<=150ms", "failed_share<=1%"), (), 60.0),  # it would be a failure
        (12.0, None, ("p99_ttft<=150ms",), (), 9.0),
        (2_000.0, 900.0, ("p99_ttft<=150ms",), (), None),  # the usual limit is shorter
        (None, 900.0, ("p99_ttft<=150ms",), (), None),
        (20.0, 900.0, ("p99_ttft<=150ms",), ("--request-timeout=30",), None),
        (20.0, 900.0, ("p99_ttft<=150ms",), ("-t", "30"), None),
        (20.0, 900.0, ("p99_ttft<=150ms",), ("--first-token-timeout=30",), None),  # which a shorter limit would contradict
        (20.0, 900.0, ("p99_ttft<=150ms",), ("--cancel", "5%:after=30s"), None),
    ],
)
def test_a_target_that_hangs_costs_no_more_than_the_time_left(
    left_s: float | None, e2e_ms: float | None, limits: tuple[str, ...], given: tuple[str, ...], expected: float | None
) -> None:
    one = measured(PlannedProbe(50.0, 600, 1, "001-50"), 0)
    probe = replace(one.run.probe, violations=one.run.probe.violations * len(limits))
    one = replace(one, run=replace(one.run, e2e_mean_ms=e2e_ms, probe=probe))
    search = replace(
        SEARCH,
        arguments=(*SEARCH.arguments, *given),
        tiers=(PlannedTier(None, limits),),
        first_load=50.0,
        probes=(PlannedProbe(50.0, 600, 1, "001-50"),),
    )
    step = next_step(search, [one], Spent(left_s, 2.0, 2.0))
    assert isinstance(step, PlannedProbe)
    assert step.timeout_s == expected


def test_a_probe_lasts_for_eight_answers_at_least() -> None:
    """1,500 requests of a fast server last for 6 s, in which answers of 2 s do not show whether the queue grows."""
    one = measured(PlannedProbe(250.0, 1_500, 1, "001-250"), 0, served_per_s=300.0)
    one = replace(one, run=replace(one.run, e2e_mean_ms=2_000.0))
    search = replace(SEARCH, first_load=130.0, first_per_s=260.0, budget_s=180.0, probes=(PlannedProbe(250.0, 1_500, 1, "1"),))
    step = next_step(search, [one], Spent(140.0, 5.0, 5.0))
    assert isinstance(step, PlannedProbe)
    assert step.load > 250.0
    assert step.requests == pytest.approx(16.0 * step.load, rel=0.01)


@pytest.mark.parametrize(("budget_s", "expected"), [(180.0, 86.0), (None, None), (8.0, 5.0)])
def test_a_target_that_hangs_from_the_beginning_costs_no_more_than_the_budget(
    budget_s: float | None, expected: float | None
) -> None:
    assert closed_loop_timeout_s(replace(SEARCH, budget_s=budget_s)) == expected


@pytest.mark.parametrize(
    ("before_each", "is_warm", "given", "sent"),
    [
        (None, True, (), ["0"]),
        (None, False, (), []),
        ("true", True, (), []),  # which may restart the target
        (None, True, ("--warmup_requests", "3"), ["0", "3"]),  # the last one counts
    ],
)
def test_a_target_that_a_run_has_warmed_up_is_not_warmed_up_again(
    folder: SearchFolder,
    monkeypatch: pytest.MonkeyPatch,
    before_each: str | None,
    is_warm: bool,
    given: tuple[str, ...],
    sent: list[str],
) -> None:
    made = list[str]()

    def make_quiet_run(arguments: Sequence[str], *others: object) -> tuple[int, str]:
        made.extend(arguments)
        return 1, "enough"

    monkeypatch.setattr(search_run, "make_quiet_run", make_quiet_run)
    probes = ChildProbes(folder, ("token_norm_dist", *given), before_each)
    with pytest.raises(TargetGoneError, match="enough"):
        probes.probe(SEARCH, PlannedProbe(50.0, 600, 1, "001-50"), is_warm=is_warm)
    assert made[0] == "token_norm_dist"
    assert [made[k + 1] for k, word in enumerate(made) if word == "--warmup_requests"] == sent
    if not given and before_each is None:  # what the result shows is what was run
        search = replace(SEARCH, arguments=("token_norm_dist",))
        shown = probe_command(search, PlannedProbe(50.0, 600, 1, "001-50"), 0 if is_warm else 10)
        assert shlex.split(shown)[1:] == made


def test_a_probe_whose_client_failed_ends_the_search_and_is_made_again(
    folder: SearchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has records, but says nothing of the target."""
    planned = PlannedProbe(50.0, 600, 1, "001-50")

    def make_quiet_run(arguments: Sequence[str], path: Path, *others: object) -> tuple[int, str]:
        path.mkdir()
        RunFolder(path).requests.touch()
        RunFolder(path).write_manifest(Manifest(problem="No space left on device"))
        return 1, "Report: report.html"

    monkeypatch.setattr(search_run, "make_quiet_run", make_quiet_run)
    with pytest.raises(click.ClickException, match=r"its journal in .*001-50: No space left on device; make room"):
        ChildProbes(folder, ("token_norm_dist",)).probe(SEARCH, planned, is_warm=False)
    assert not folder.is_recorded(planned)


def test_a_closed_loop_says_what_it_is_for(folder: SearchFolder) -> None:
    users, said = replace(SEARCH, unit=LoadUnit.USERS.value, most_load=40.0, budget_s=120.0), list[str]()
    _search(FakeQueue(folder), users, said.append)
    assert said[:2] == [
        "A closed loop of 16 users, to know where to start.",
        "It had 100 requests/s. The search starts at 16 users, of at most 40.",
    ]
    given = list[str]()
    _search(FakeQueue(folder), replace(users, first_load=20.0), given.append)
    assert given[0] == "A closed loop of 20 users, to know how many requests a second they send."


def test_what_the_start_took_of_the_budget_is_said_before_the_first_probe() -> None:
    search = replace(SEARCH, first_load=50.0, first_per_s=100.0, budget_s=600.0)
    needs = "The search starts at 50 requests/s. ±10 % usually needs 2.3 min to 9.7 min at 100 requests/s; "
    assert announcement(replace(search, spent_s=15.0)) == f"{needs}the budget of 10 min is enough."
    assert (
        announcement(replace(search, spent_s=90.0)) == f"{needs}what is left of the budget of 10 min, 8.5 min, may be enough."
    )
    assert announcement(replace(search, spent_s=590.0)) == f"{needs}what is left of the budget of 10 min, 10 s, is too short."


def test_a_first_load_that_is_given_needs_no_closed_loop(folder: SearchFolder) -> None:
    queue = FakeQueue(folder)
    _search(queue, replace(SEARCH, first_load=80.0, budget_s=60.0))
    assert queue.closed_loops == 0
    assert queue.made[0].load == 80.0


def test_users_to_start_from_are_no_rate_before_a_closed_loop_shows_theirs(folder: SearchFolder) -> None:
    """At a request a second for one user, the budget would hold no probe of 100."""
    queue = FakeQueue(folder)
    _search(queue, replace(SEARCH, unit=LoadUnit.USERS.value, most_load=8.0, first_load=1.0, budget_s=60.0))
    assert queue.closed_loops == 1
    assert queue.made[0].load == 1.0


def test_a_target_that_fails_ends_the_search_with_what_was_measured(folder: SearchFolder) -> None:
    queue, said = FakeQueue(folder, ends_after=3), list[str]()
    capacity = _search(queue, say=said.append)
    assert capacity.ended is Ended.TARGET_FAILED
    assert len(capacity.probes) == 3
    assert said[-1] == "The target stopped answering: it is gone."
    assert not folder.is_recorded(folder.read().probes[3])  # it is made again by the next call


def test_a_target_that_fails_before_the_first_probe_is_an_error(folder: SearchFolder) -> None:
    with pytest.raises(TargetGoneError, match="it is gone"):
        _search(FakeQueue(folder, ends_after=0))


@pytest.mark.parametrize(
    ("text", "said"), [("is it up?", "is it up?"), ("it is gone.", "it is gone."), ("it is gone", "it is gone.")]
)
def test_what_a_target_that_failed_said_ends_with_one_mark(folder: SearchFolder, text: str, said: str) -> None:
    lines = list[str]()
    _search(FakeQueue(folder, ends_after=1, end=TargetGoneError(text)), say=lines.append)
    assert lines[-1] == f"The target stopped answering: {said}"


def test_a_command_before_a_probe_that_fails_stops_the_search_with_what_was_measured(folder: SearchFolder) -> None:
    queue = FakeQueue(folder, ends_after=2, end=click.ClickException("--before_each: 'flush' ended with status 5"))
    with pytest.raises(click.ClickException, match="status 5"):
        _search(queue)
    recorded = folder.read()
    assert (recorded.ended, recorded.spent_s) == (Ended.INTERRUPTED.value, queue.now_s)


@pytest.mark.parametrize("saved", [True, False], ids=["Ctrl-C", "kill -9"])
@pytest.mark.usefixtures("_recorded_probes")
def test_a_search_that_was_cut_goes_on_with_the_probe_that_was_cut(folder: SearchFolder, saved: bool) -> None:
    cut = FakeQueue(folder, ends_after=4, end=KeyboardInterrupt() if saved else SystemExit())
    with pytest.raises(type(cut.end)):
        _search(cut)
    recorded = folder.read()
    assert recorded.ended == (Ended.INTERRUPTED.value if saved else None)
    assert len(recorded.probes) == 5

    rest = FakeQueue(folder)
    capacity = _search(rest, recorded)
    assert rest.closed_loops == 0
    assert rest.made[0] == recorded.probes[4]
    assert rest.warm == [False] + [True] * (len(rest.warm) - 1)  # it may have been restarted
    assert cut.warm == [True] * len(cut.warm)  # by the closed loop
    assert capacity.ended is Ended.PRECISE
    assert [run.folder for run in capacity.probes] == [planned.folder for planned in (*cut.made, *rest.made)]
    assert folder.read().spent_s == pytest.approx(cut.now_s + rest.now_s)

    again = FakeQueue(folder)  # nothing is left to do, so nothing is deployed
    assert _search(again, folder.read()).ended is Ended.PRECISE
    assert again.opened == 0


def test_probes_that_cannot_be_believed_end_the_search_and_decide_nothing(folder: SearchFolder) -> None:
    queue, said = FakeQueue(folder, believed=False), list[str]()
    capacity = _search(queue, say=said.append)
    assert capacity.ended is Ended.NOT_VALID
    assert len(queue.made) == 3
    assert capacity.tiers[0].bracket.certified is None
    assert sum(line.startswith("It is not valid, and decides nothing. See ") for line in said) == 3
    again = FakeQueue(folder, believed=False)  # which may be on a calmer machine
    search_capacity(folder, replace(folder.read(), probes=()), again.open, said.append, again.clock)
    assert len(again.made) == 3


def test_users_are_whole_and_no_more_than_may_be_tried(folder: SearchFolder) -> None:
    users = replace(SEARCH, unit=LoadUnit.USERS.value, most_load=40.0, first_load=8.0, budget_s=600.0)
    queue = FakeQueue(folder)
    capacity = _search(queue, users)
    assert capacity.ended is Ended.NO_LIMIT
    assert queue.closed_loops == 1
    assert all(planned.load == round(planned.load) <= 40 for planned in queue.made)
    assert all(planned.requests >= 4 * planned.load for planned in queue.made)
    assert queue.made[0].ramp_up_s == 8.0 / SERVED_PER_S
    assert queue.made[-1].ramp_up_s > 0.0
    assert capacity.tiers[0].bracket.certified == 40.0


def test_a_rate_of_conversations_starts_from_that_of_a_closed_loop(folder: SearchFolder) -> None:
    conversations = replace(SEARCH, unit=LoadUnit.CONVERSATIONS_PER_S.value, conversations=True, budget_s=120.0)
    queue, said = FakeQueue(folder, turns=4.0), list[str]()
    _search(queue, conversations, said.append)
    assert queue.made[0].load == SERVED_PER_S / 4.0 / 2.0
    assert said[2].startswith("Probe 1: 12.5 conversations/s, ")


def test_several_sets_are_answered_by_the_same_probes(folder: SearchFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def both(planned: PlannedProbe, above: int, **known: Any) -> MeasuredProbe:
        one = measured(planned, above, **known)
        strict = replace(one.run.probe.violations[0], above=min(planned.requests, 3 * above))
        probe = replace(one.run.probe, violations=(one.run.probe.violations[0], strict))
        return replace(one, run=replace(one.run, probe=probe), goodputs=(None, None))

    monkeypatch.setattr("tests.bench_cli.experiments.searches.measured", both)
    sets = (PlannedTier("slow", ("p99_ttft<=150ms",)), PlannedTier("fast", ("p99_ttft<=76.8ms",)))
    capacity = _search(FakeQueue(folder), replace(SEARCH, tiers=sets))
    slow, fast = (tier.bracket for tier in capacity.tiers)
    assert capacity.ended is Ended.PRECISE
    assert slow.certified is not None
    assert fast.certified is not None
    assert fast.certified < slow.certified
