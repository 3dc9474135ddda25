"""Planning: randomised blocks, balanced for two arms, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_cli.experiments.plan import block_seed, plan_runs
from bench_records.experiment import Experiment, ExperimentFolder, PlannedArm, UntilDecided
from bench_records.run_folder import RunFolderError


def _plan(arms: int = 2, repeats: int = 5, seed: int = 0) -> Experiment:
    planned = [PlannedArm(f"arm {k}", ("--workers", str(k + 1))) for k in range(arms)]
    return plan_runs("experiment", ["dataset", "--request_rate", "10"], planned, repeats, seed)


@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 1000))
def test_a_block_has_every_arm_once_and_blocks_follow_each_other(arms: int, repeats: int, seed: int) -> None:
    experiment = _plan(arms, repeats, seed)
    for block in range(repeats):
        runs = experiment.runs[block * arms : (block + 1) * arms]
        assert sorted(run.arm for run in runs) == list(range(arms))
        assert {run.block for run in runs} == {block}
    assert len({run.folder for run in experiment.runs}) == arms * repeats


@given(st.integers(1, 20), st.integers(0, 1000))
def test_of_two_arms_either_goes_first_in_half_the_blocks(repeats: int, seed: int) -> None:
    first = Counter(run.arm for run in _plan(2, repeats, seed).runs[::2])
    assert abs(first[0] - first[1]) <= 1


def test_orders_that_may_end_after_any_block_do_not_depend_on_their_number_and_are_balanced_in_pairs() -> None:
    arms = [PlannedArm("a", ()), PlannedArm("b", ())]
    ten, six = (plan_runs("experiment", ["dataset"], arms, most, 3, UntilDecided(most)) for most in (10, 6))
    assert ten.runs[:12] == six.runs
    first = [run.arm for run in ten.runs[::2]]
    assert all(first[k] != first[k + 1] for k in range(0, 10, 2))
    assert first != [0, 1] * 5


def test_the_same_seed_gives_the_same_order_and_another_another() -> None:
    assert _plan(3, 8, 1) == _plan(3, 8, 1)
    assert [run.arm for run in _plan(3, 8, 1).runs] != [run.arm for run in _plan(3, 8, 2).runs]


def test_a_block_shares_its_traffic_and_blocks_do_not() -> None:
    experiment = _plan(2, 3, seed=7)
    assert [block_seed(experiment, run) for run in experiment.runs] == [7, 7, 8, 8, 9, 9]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    for plan in (_plan(), replace(_plan(), until=UntilDecided(5, "p50_ttft"))):
        ExperimentFolder(tmp_path).write(plan)
        assert ExperimentFolder(tmp_path).read() == plan


_DAMAGED_RUN = (
    '{"schema": 1, "kind": "experiment", "arguments": [], "arms": [{"name": "a", "options": []}], '
    '"runs": [{"arm": %d, "block": 0, "folder": "%s"}], "seed": 0}'
)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', _DAMAGED_RUN % (1, "x"), _DAMAGED_RUN % (0, "../x")])
def test_a_damaged_plan_is_named_and_never_leads_elsewhere(tmp_path: Path, text: str) -> None:
    ExperimentFolder(tmp_path).plan.write_text(text)
    with pytest.raises(RunFolderError, match=r"experiment\.json"):
        ExperimentFolder(tmp_path).read()
