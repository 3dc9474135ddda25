"""Damaged and hostile run folders through every verb that reads one: a short part of ``benchmarks.hostile_folders``."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from benchmarks.folder_mutations import bomb, mutate
from benchmarks.hostile_folders import load_libraries, make_runs, outcomes_of, try_folder

_FOLDERS = 24


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run and one that was killed."""
    whole, cut = make_runs(tmp_path_factory.mktemp("runs"))
    load_libraries(whole)
    return whole, cut


@pytest.mark.parametrize("number", range(_FOLDERS))
def test_no_verb_fails_on_a_mutated_folder(runs: tuple[Path, Path], tmp_path: Path, number: int) -> None:
    mutations, outcomes = try_folder(number, *runs, tmp_path / "mutant")
    assert len(outcomes) >= 4
    assert [outcome for outcome in outcomes if outcome.fault is not None] == [], mutations


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_a_small_file_that_stands_for_gigabytes_is_refused(runs: tuple[Path, Path], tmp_path: Path, seed: int) -> None:
    for name in ("sound", "bad"):
        shutil.copytree(runs[0], tmp_path / "runs" / name)
    bomb(tmp_path / "runs" / "bad", random.Random(seed))
    outcomes = {outcome.verb: outcome for outcome in outcomes_of(tmp_path / "runs", is_whole=True)}
    assert all(outcome.fault is None for outcome in outcomes.values()), outcomes
    assert outcomes["report"].status == 2
    assert outcomes["trend"].status == 0


def test_the_same_number_gives_the_same_mutations(runs: tuple[Path, Path], tmp_path: Path) -> None:
    words = []
    for name in ("a", "b"):
        folder = shutil.copytree(runs[0], tmp_path / name)
        rng = random.Random(3)
        words.append([mutate(folder, rng) for _ in range(3)])
    assert words[0] == words[1]
