"""Whole trends of run folders: the baseline, verdicts, runs that stay apart, and every format."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace as replace_trend
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from bench_cli import run as bench
from bench_records.manifest import RunState
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from reports.compare.comparison import compare, read_arm
from reports.errors import NotComparableError
from reports.page.page import Tone, render_page
from reports.render.picture import Dots, Line, Shape, Trail, Whiskers
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import Cause
from reports.trend.formats import TREND
from reports.trend.history import Standing, Trend, estimates_of, read_trend
from reports.trend.json_file import document
from reports.trend.page import trend_page
from reports.trend.pictures import trend_pictures
from reports.trend.tables import headline, newer_text
from tests.reports.markup import checked

Nights = Callable[..., list[Path]]
HOSTILE = "<script>window.broken = 1<|script>\u202e|`"  # a folder's name holds no slash and no NUL
SEED_7 = {"schedule": {"digest": "1e" * 32, "seed": 7}}
OTHER = {"workload": {"description": "</script><script>window.broken = 1</script>\u202e\x00|`", "dropped_too_long": 0}}


@pytest.fixture(scope="module")
def nights(
    make_nights: Nights, make_report: Callable[..., RunReport], failed: Callable[..., Record], tmp_path_factory: Any
) -> Path:
    """Six nights: equal, equal, other work, slower, one of failures alone, and one that was cut."""
    folder: Path = tmp_path_factory.mktemp("nights")
    equal = [("n1", 20.0, {}), ("n2", 20.0, SEED_7), (HOSTILE, 20.0, OTHER), ("n4", 30.0, SEED_7), ("n6", 20.0, {})]
    *_, cut = map(RunFolder, make_nights(folder, equal))
    cut.write_manifest(replace(cut.read_manifest(), state=RunState.RUNNING))
    broken = [failed(k, 50 * k, Outcome.SERVER_ERROR, 50 * k, 50 * k + 9) for k in range(50)]
    make_report(broken, started_at="2026-11-05T02:00:00+00:00").folder.path.rename(folder / "n5")
    return folder


@pytest.fixture(scope="module")
def trend(nights: Path) -> Trend:
    return read_trend([nights])


def test_runs_are_in_the_order_of_time_with_their_verdicts(trend: Trend) -> None:
    assert [(run.name, run.verdict) for run in trend.runs] == [
        ("n1", "baseline"),
        ("n2", "no difference shown"),
        (HOSTILE, "not comparable"),
        ("n4", "worse between these starts"),
        ("n5", "not valid"),
    ]
    assert trend.baseline == "n1"
    assert [(run.name, "was cut" in run.why) for run in trend.left_out] == [("n6", True)]
    assert trend.newest_compared is trend.runs[3]


def test_a_copy_of_the_baseline_among_the_runs_is_the_baseline(make_nights: Nights, tmp_path: Path) -> None:
    equal = [("n1", 20.0, {"run_id": "1"}), ("n2", 20.0, {"run_id": "2"})]
    original, _ = make_nights(tmp_path / "nights", equal)
    shutil.copytree(original, tmp_path / "release")
    trend = read_trend([tmp_path / "nights"], tmp_path / "release")
    assert [(run.name, run.standing) for run in trend.runs] == [("n1", Standing.BASELINE), ("n2", Standing.COMPARED)]


def test_the_verdict_is_that_of_a_comparison(nights: Path, trend: Trend) -> None:
    (one,) = compare([read_arm(nights / "n1"), read_arm(nights / "n4")]).comparisons
    assert trend.runs[3].differences == one.differences
    assert trend.runs[3].verdict == one.verdict


def test_a_value_of_a_run_is_the_one_that_is_compared(nights: Path, trend: Trend) -> None:
    for run in trend.runs:
        measured = read_arm(run.folder).measured[0]
        for name, estimate in run.estimates.items():
            assert estimate.value == pytest.approx(measured[name].value), name
    estimates = estimates_of(read_run(RunFolder(nights / "n1")))
    assert estimates["failed_share"].reason is Cause.CLUSTERED_FAILURES
    for name in ("p50_ttft", "request_throughput"):
        interval, value = estimates[name].interval, estimates[name].value
        assert interval is not None
        assert value is not None
        assert interval[0] <= value <= interval[1]


def test_runs_of_different_work_show_their_differences(trend: Trend) -> None:
    other = trend.runs[2]
    assert other.standing is Standing.DIFFERENT
    assert [(d.what, d.weight.value) for d in other.disagreements] == [("workload.description", "refuse")]
    assert other.differences == ()
    assert [(d.what, d.weight.value) for d in trend.runs[1].disagreements] == [
        ("schedule.digest", "warn"),
        ("schedule.seed", "warn"),
    ]


def test_a_baseline_may_lie_elsewhere_and_be_of_several_runs(nights: Path, make_nights: Nights, tmp_path: Path) -> None:
    make_nights(tmp_path / "release", [(f"r{k}", 29.0 + 0.1 * k, SEED_7) for k in range(4)])
    trend = read_trend([nights / "n2", nights / "n4"], tmp_path / "release")
    assert trend.baseline == "release"
    assert len(trend.baseline_runs) == 4
    assert [run.verdict for run in trend.runs] == ["better", "no difference shown"]
    assert {d.evidence.value for d in trend.runs[0].differences if d.evidence} == {"repeated runs"}
    inside = read_trend([tmp_path / "release"], tmp_path / "release")
    assert {run.standing for run in inside.runs} == {Standing.BASELINE}


def test_a_baseline_that_repeats_another_schedule_is_no_evidence_of_the_spread_between_schedules(
    nights: Path, make_nights: Nights, tmp_path: Path
) -> None:
    make_nights(tmp_path / "release", [(f"r{k}", 20.0 + 0.01 * k, {}) for k in range(4)])
    (run,) = read_trend([nights / "n2"], tmp_path / "release").runs
    assert {d.evidence.value for d in run.differences if d.evidence} == {"repeated runs, each side of schedules of its own"}
    assert run.verdict == "no difference shown"


def test_an_invalid_baseline_is_refused(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotComparableError, match="n5 cannot be a baseline"):
        read_trend([nights], nights / "n5")
    assert bench(["trend", str(nights), "--baseline", str(nights / "n5")]) == 3
    assert "n5 cannot be a baseline" in capsys.readouterr().err


def test_invalid_runs_alone_are_shown_without_a_baseline(nights: Path) -> None:
    trend = read_trend([nights / "n5"])
    assert trend.baseline is None
    assert "no baseline and no comparison" in TREND.terminal_text(trend)
    assert "no baseline and no comparison" in checked(render_page(trend_page(trend, lambda path: path)))
    assert json.loads(json.dumps(document(trend), allow_nan=False))["baseline"] is None


def test_a_picture_marks_runs_by_their_standing(trend: Trend) -> None:
    picture = next(p for p in trend_pictures(trend) if p.name == "trend-p50_ttft")
    dots = {mark.name: mark for mark in picture.marks if isinstance(mark, Dots)}
    assert {name: mark.x.tolist() for name, mark in dots.items()} == {
        "baseline": [1.0],
        "cannot be told": [2.0],
        "not comparable": [3.0],
        "worse between these starts": [4.0],
    }
    assert dots["not comparable"].shape is Shape.RING
    assert "differs in workload.description" in dots["not comparable"].notes[0]
    assert dots["worse between these starts"].notes[0].startswith("n4, 2026-11-04 02:00:00: +")
    (line,) = [mark for mark in picture.marks if isinstance(mark, Line)]
    assert line.x[~np.isnan(line.y)].tolist() == [1.0, 2.0, 4.0]  # the third has a dot of its own
    joined, baseline = (mark for mark in picture.marks if isinstance(mark, Trail))
    assert joined.x.tolist() == [1.0, 2.0, 4.0]
    assert baseline.y.tolist() == pytest.approx([trend.runs[0].estimates["p50_ttft"].value] * 2)
    whiskers = [mark for mark in picture.marks if isinstance(mark, Whiskers)]
    assert [mark.x.tolist() for mark in whiskers] == [[1.0, 2.0, 4.0], [3.0]]


def test_failures_are_drawn_in_per_cent_where_there_are_any(trend: Trend, nights: Path) -> None:
    picture = next(p for p in trend_pictures(trend) if p.name == "trend-failed_share")
    assert picture.y.unit == "%"
    (cross,) = [mark for mark in picture.marks if isinstance(mark, Dots) and mark.shape is Shape.CROSS]
    assert (cross.x.tolist(), cross.y.tolist()) == ([5.0], [100.0])
    assert "errors" in cross.notes[0]
    sound = read_trend([nights / "n1", nights / "n2"])
    assert "failed_share" not in {measure.name for measure in sound.measures}


def test_every_format_has_the_same_content(nights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nights / "n2" / "report.html").write_text("a report")
    outputs = [tmp_path / "out" / f"t.{suffix}" for suffix in ("json", "md", "csv", "html")]
    outputs[0].parent.mkdir()
    assert bench(["trend", str(nights), *(f"--output={path}" for path in outputs)]) == 0
    printed = capsys.readouterr().out
    assert "The newest comparable run: Between these starts, n4 is worse than n1: TTFT p50 +" in printed
    assert "Newer, and not judged: n5 (not valid), n6 (left out)." in printed
    assert f"Written: {outputs[3]}" in printed
    content = json.loads(outputs[0].read_text(encoding="utf-8"))
    assert [run["verdict"] for run in content["runs"]] == [
        "baseline",
        "no difference shown",
        "not comparable",
        "worse between these starts",
        "not valid",
    ]
    assert "n4 is worse than n1" in outputs[1].read_text(encoding="utf-8")
    html = outputs[3].read_text(encoding="utf-8")
    assert "n4 is worse than n1" in html
    (address,) = [part.split('"')[0] for part in html.split('href="./')[1:]]
    assert (outputs[3].parent / address).read_text() == "a report"
    rows = list(csv.DictReader(outputs[2].open(newline="", encoding="utf-8")))
    of_n4 = {d["measure"]: d for d in content["runs"][3]["differences"]}
    assert {row["measure"]: row["verdict"] for row in rows if row["run"] == "n4"} == {
        name: d["verdict"] for name, d in of_n4.items()
    }


def test_text_from_outside_is_shown_as_text(trend: Trend, tmp_path: Path) -> None:
    TREND.write(trend, ".csv", tmp_path / "t.csv")
    html = checked(render_page(trend_page(trend, lambda path: path)))
    markdown = TREND.markdown_text(trend)
    assert "<script>window" not in html
    assert "<script>" not in markdown
    for text in (html, markdown, TREND.terminal_text(trend), (tmp_path / "t.csv").read_text(encoding="utf-8")):
        assert not {"\u202e", "\x00"} & {*text}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["trend"], 2, "Missing argument"),
        (["trend", "x", "--output", "t.pdf"], 2, ".html"),
        (["trend", "x", "--baseline", "absent"], 2, "absent"),
        (["trend", "absent"], 2, "absent is not a folder"),
    ],
)
def test_usage_errors_are_reported(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(arguments) == status
    assert message in capsys.readouterr().err


def test_compare_takes_a_baseline(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["compare", str(nights / "n4"), "--baseline", str(nights / "n1")]) == 0
    assert "n4 is worse than n1" in capsys.readouterr().out


@pytest.mark.parametrize(("limit", "status", "result"), [("10000ms", 0, "passed"), ("1ms", 1, "FAILED")])
def test_a_limit_is_judged_of_the_newest_comparable_run(
    nights: Path, tmp_path: Path, limit: str, status: int, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [tmp_path / f"t.{suffix}" for suffix in ("json", "md", "html")]
    condition = f"p50_ttft>{limit}"
    assert bench(["trend", str(nights), "--fail_if", condition, *(f"--output={path}" for path in outputs)]) == status
    out, err = capsys.readouterr()
    assert f"{result}: {condition}: " in out
    assert "--fail_if judges n4. Newer, and not judged: n5 (not valid), n6 (left out).\n" in err
    runs = json.loads(outputs[0].read_text())["runs"]
    assert [r["conditions"][0]["status"] for r in runs if r["standing"] == "compared"][-1] == result.lower()
    assert all(limit in path.read_text() for path in outputs[1:])


def test_the_newest_run_is_so_called_where_no_other_is_newer(nights: Path) -> None:
    trend = read_trend([nights / "n1", nights / "n2"])
    assert trend.newer == ()
    assert headline(trend).startswith("The newest run: ")
    behind = read_trend([nights])
    assert [run.name for run in behind.newer] == ["n5"]
    quiet = replace_trend(behind, runs=(*behind.runs[:2], behind.runs[4]))
    assert trend_page(quiet, lambda path: path).tone is Tone.CAUTION
    assert newer_text(replace_trend(behind, runs=(*behind.runs, *[behind.runs[4]] * 3))).endswith(
        "n5 (not valid), n6 (left out) and others."
    )


def test_a_run_older_than_the_baseline_is_not_called_the_newest(nights: Path) -> None:
    trend = read_trend([nights / "n1", nights / "n2"], nights / "n2")
    assert [run.standing for run in trend.runs] == [Standing.COMPARED, Standing.BASELINE]
    assert headline(trend).startswith("The newest comparable run: ")


def test_a_newer_run_that_was_cut_is_said_beside_the_verdict(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A build would pass by a run of days ago, while the nightly run of today crashed."""
    trend = read_trend([nights / "n1", nights / "n2", nights / "n6"])
    assert headline(trend).startswith("The newest comparable run: ")
    assert headline(trend).endswith("Newer, and not judged: n6 (left out).")
    gate = ["--fail_if", "p50_ttft>10s"]
    assert bench(["trend", *(str(nights / name) for name in ("n1", "n2", "n6")), *gate]) == 0
    assert "(left out)" in capsys.readouterr().err
    gate += ["--undecided", "fail"]
    assert bench(["trend", *(str(nights / name) for name in ("n1", "n2", "n6")), *gate]) == 1
    assert capsys.readouterr().err.endswith("n6 (left out). With --undecided fail, a run that is not judged fails the build.\n")
    assert bench(["trend", *(str(nights / name) for name in ("n1", "n2")), *gate]) == 0


def test_a_change_from_one_baseline_run_is_judged_only_on_request(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["trend", str(nights), "--fail_if", "p50_ttft>+5%"]) == 2
    assert "--allow_single" in capsys.readouterr().err
    assert bench(["trend", str(nights), "--fail_if", "p50_ttft>+900%", "--allow_single"]) == 0


def test_a_trend_without_a_comparable_run_fails_a_gate(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["trend", str(nights / "n1"), "--fail_if", "p50_ttft>1ms"]) == 1
    assert "no run of the trend is comparable" in capsys.readouterr().err


def test_a_bad_folder_is_left_out_and_the_others_are_shown(
    make_nights: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = make_nights(tmp_path / "runs", [(f"n{k}", 20.0, {}) for k in range(4)])
    os.mkfifo(tmp_path / "runs" / "n1" / "client.parquet")
    manifest = folders[2] / "run.json"
    manifest.write_text(manifest.read_text().replace('"dropped_too_long": 0', '"dropped_too_long": "many"'))
    table = pq.ParquetFile(folders[3] / "requests.parquet").read()
    zeros = pa.array([0] * table.num_rows)
    pq.write_table(table.set_column(0, "index", zeros), folders[3] / "requests.parquet")
    assert bench(["trend", str(tmp_path / "runs")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for reason in ("not a regular file", "workload.dropped_too_long", "700 records of 1 requests"):
        assert reason in shown
