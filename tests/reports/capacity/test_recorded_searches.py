"""Recorded searches for capacity on the command line: ``bench report`` and ``bench compare``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench_cli import run as bench
from bench_records.search import SearchFolder
from bench_records.settings import PlannedRanking, PlannedSetting, RankingFolder

MakeSearch = Callable[..., SearchFolder]


@pytest.fixture(scope="module")
def searches(make_search: MakeSearch, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two searches of one server, which takes 20 ms a request: one found out too little."""
    parent = tmp_path_factory.mktemp("searches")
    return make_search(parent / "before", (20.0, 60.0)).path, make_search(parent / "after", (20.0,)).path


def test_a_report_of_a_search_writes_its_documents_anew(
    searches: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(["report", str(searches[0])]) == 0
    shown = capsys.readouterr().out
    assert "60 requests/s" in shown
    assert shown.endswith(f"Capacity: {searches[0] / 'capacity.html'}\n")
    assert bench(["report", str(searches[0]), "--format", "json", "--plots", str(searches[0] / "plots")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [probe["load"] for probe in document["probes"]] == [20.0, 60.0]
    assert [probe["overloaded"] for probe in document["probes"]] == [False, True]
    assert document["tiers"][0]["refused"] == 60.0
    assert " ".join(shown.split()).startswith(document["answer"])
    assert [path.name for path in sorted((searches[0] / "plots").iterdir())] == ["share-1.png", "share-1.svg"]


def test_a_report_of_settings_writes_their_documents_anew(
    make_search: MakeSearch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tuple(PlannedSetting(f"n={n}", ("--n", str(n)), f"0{n}-n={n}") for n in (1, 2))
    folder = RankingFolder(tmp_path)
    for setting, rates in zip(settings, ((20.0, 60.0), (20.0,)), strict=True):
        make_search(folder.search_folder(setting).path, rates, confidence=0.975)
    folder.write(PlannedRanking(settings, 0.95, 120.0))
    assert bench(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("No setting is shown to hold more than another")
    assert shown.endswith(f"Ranking: {tmp_path / 'ranking.html'}\n")
    assert (tmp_path / "02-n=2" / "capacity.html").exists()
    assert bench(["report", str(tmp_path), "--format", "json", "--plots", str(tmp_path / "plots")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [setting["probes"] for setting in document["settings"]] == [2, 1]
    assert document["tiers"][0]["confidence_of_each"] == 0.975
    assert "share-1-1.png" in {path.name for path in (tmp_path / "plots").iterdir()}
    assert bench(["report", str(tmp_path), "--slo", "p99_ttft<=1s"]) == 2


def test_two_searches_have_a_verdict(searches: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"c{suffix}" for suffix in (".html", ".json", ".md", ".csv")]
    assert bench(["compare", *map(str, searches), *(f"--output={file}" for file in files)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Undecided: ")
    assert json.loads(files[1].read_text(encoding="utf-8"))["b"]["name"] == "after"
    assert all(file.stat().st_size for file in files)


@pytest.mark.parametrize(
    ("verb", "options", "message"),
    [
        ("compare", ["--allow_different"], "--allow_different is for runs; two searches for capacity are compared by"),
        ("compare", ["--fail_if", "p99_ttft>300ms"], "two searches for capacity are compared by what they hold"),
        ("compare", ["--baseline", "{other}"], "give the folders of two searches"),
        ("compare", ["{same}"], "is given twice"),
        ("report", ["--slo", "p99_ttft<=1s"], "this is a search for capacity"),
    ],
)
def test_what_belongs_to_runs_is_refused(
    searches: tuple[Path, Path], verb: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"{other}": str(searches[1] / "001-probe"), "{same}": str(searches[0])}
    paths = [str(searches[0])] if "{same}" in options or verb == "report" else list(map(str, searches))
    assert bench([verb, *paths, *(known.get(option, option) for option in options)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_searches_for_other_limits_are_not_compared(
    searches: tuple[Path, Path], make_search: MakeSearch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_search(tmp_path / "other", (20.0,), "p99_e2e<=300ms")
    assert bench(["compare", str(searches[0]), str(other.path)]) == 3
    assert "have different limits (p99_ttft<=300ms and p99_e2e<=300ms)" in capsys.readouterr().err
