"""Curves of a sweep, and its output formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench_cli import run as bench
from bench_records.experiment import ExperimentFolder, PlannedArm
from bench_records.table import read_table
from bench_records.whole_file import write_json
from reports.page.page import render_page
from reports.render.picture import Dots, Shape, Spans, Trail, Whiskers
from reports.render.plain_text import escaped, spreadsheet_text
from reports.sweep.curves import curve_axis, curves
from reports.sweep.formats import SWEEP
from reports.sweep.json_file import document
from reports.sweep.page import sweep_page
from reports.sweep.pictures import sweep_pictures
from reports.sweep.points import Sweep, read_sweep, settings_of
from tests.reports.markup import checked

MakeSweep = Callable[..., ExperimentFolder]
HOSTILE = "</script><script>window.broken = 1</script>\u202e\x00|`=1"


@pytest.fixture(scope="module")
def sweep_folder(make_sweep: MakeSweep, tmp_path_factory: pytest.TempPathFactory) -> ExperimentFolder:
    return make_sweep(tmp_path_factory.mktemp("sweep"), (10, 20, 30), {"wait": 20.0, HOSTILE: 22.0})


@pytest.fixture(scope="module")
def sweep(sweep_folder: ExperimentFolder) -> Sweep:
    return read_sweep(sweep_folder)


def test_a_curve_goes_along_the_load_and_there_is_one_for_each_other_setting(sweep: Sweep) -> None:
    assert curve_axis(sweep) == "request_rate"
    found = curves(sweep)
    assert [curve.name for curve in found] == ["policy=wait", f"policy={HOSTILE}"]
    rates = [[dict(sweep.points[k].settings)["request_rate"] for k in curve.positions] for curve in found]
    assert rates == [["10", "20", "30"]] * 2


def test_everything_at_once_is_the_most_load(make_sweep: MakeSweep, tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, (30, 5), {"wait": 20.0})
    plan = folder.read()
    renamed = [PlannedArm("burst", ("--request_rate", "-1", "--policy", "wait")), plan.arms[1]]
    folder.write(type(plan)(plan.kind, plan.arguments, tuple(renamed), plan.runs, plan.seed))
    burst = read_sweep(folder)
    (curve,) = curves(burst)
    assert [burst.points[k].name for k in curve.positions][-1] == "burst"
    assert [picture.name for picture in sweep_pictures(burst)] == ["throughput-latency-p99", "throughput-latency-p50"]


def test_options_of_another_shape_are_one_setting() -> None:
    assert settings_of(PlannedArm("a", ("--workers", "2"))) == (("workers", "2"),)
    assert settings_of(PlannedArm("a", ("--pin_workers",))) == (("options", "--pin_workers"),)


def test_the_pictures_draw_every_point_with_its_intervals_and_ring_the_front(sweep: Sweep) -> None:
    p99, _, latency, throughput = sweep_pictures(sweep)
    drawn = {type(mark).__name__ for mark in p99.marks}
    assert {"Trail", "Dots", "Spans"} <= drawn
    points = [mark for mark in p99.marks if isinstance(mark, Dots) and mark.shape is Shape.POINT]
    of_wait = [point for point in sweep.points if dict(point.settings)["policy"] == "wait"]
    assert points[0].x.tolist() == [point.output_token_throughput.value for point in of_wait]
    assert points[0].y.tolist() == [point.latency_p99_ms.value for point in of_wait]
    assert "request_rate=10 policy=wait" in points[0].notes[0]
    (ring,) = [mark for mark in p99.marks if isinstance(mark, Dots) and mark.shape is Shape.RING]
    assert ring.y.tolist() == [sweep.points[k].latency_p99_ms.value for k in sweep.front]
    spans = [mark for mark in p99.marks if isinstance(mark, Spans)]
    assert (spans[0].low < spans[0].high).all()
    assert any(isinstance(mark, Whiskers) for mark in throughput.marks)
    assert latency.x.label == "request_rate"


def test_an_invalid_point_is_a_cross_that_no_curve_goes_through(make_sweep: MakeSweep, tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, (10, 20), {"wait": 20.0})
    number = next(run for run in folder.read().runs if run.arm == 0)
    path = folder.run_folder(number).requests
    records = read_table(path)
    late = pc.add(records["sent_ns"], 500_000_000)  # every request left half a second late
    pq.write_table(records.set_column(records.schema.get_field_index("sent_ns"), records.schema.field("sent_ns"), late), path)
    sweep = read_sweep(folder)
    assert [point.valid for point in sweep.points] == [False, True]
    picture = sweep_pictures(sweep)[0]
    (cross,) = [mark for mark in picture.marks if isinstance(mark, Dots) and mark.shape is Shape.CROSS]
    assert cross.y.tolist() == [sweep.points[0].latency_p99_ms.value]
    trails = [mark for mark in picture.marks if isinstance(mark, Trail) and mark.name != "Pareto front"]
    assert [mark.x.size for mark in trails] == [1]
    assert "INVALID" in SWEEP.terminal_text(sweep)
    assert "1 of 2 points not valid" in SWEEP.terminal_text(sweep)


def test_a_mixture_of_streamed_and_unstreamed_points_is_compared_by_e2e_latency(make_sweep: MakeSweep, tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, (10, 20), {"wait": 20.0})
    run = folder.run_folder(folder.read().runs[0])
    target = {"model": "tensorrt_llm", "protocol": "grpc", "streaming": False}
    write_json({**run.read_document()[0], "target": target}, run.manifest)
    sweep = read_sweep(folder)
    assert sweep.latency == "E2E latency"
    for point in sweep.points:  # also of the one that was streamed
        assert point.latency_p99_ms.value == point.e2e_p99_ms.value


def test_repeats_of_a_point_have_an_interval_between_runs(make_sweep: MakeSweep, tmp_path: Path) -> None:
    (point,) = read_sweep(make_sweep(tmp_path, (20,), {"wait": 20.0}, repeats=3)).points
    assert len(point.runs) == 3
    assert point.latency_p99_ms.interval is not None
    assert [run.command.rsplit(" ", 1)[0] for run in point.runs] == [
        "bench dataset --num_requests 700 --request_rate 20 --policy wait --seed"
    ] * 3


def test_every_format_is_written_beside_the_runs_with_the_same_content(sweep_folder: ExperimentFolder, sweep: Sweep) -> None:
    first = sweep_folder.run_folder(sweep_folder.read().runs[0])
    first.html.write_text("a report")
    page = SWEEP.write_all(read_sweep(sweep_folder), sweep_folder.path)
    content = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert content == json.loads(json.dumps(document(sweep), allow_nan=False))
    rows = list(csv.DictReader(page.with_suffix(".csv").open(newline="", encoding="utf-8")))
    assert [row["request_rate"] for row in rows] == [point["settings"]["request_rate"] for point in content["points"]]
    assert [float(row["latency_p99_ms"]) for row in rows] == [point["latency_p99_ms"] for point in content["points"]]
    assert [row["pareto"] == "1" for row in rows] == [point["pareto"] for point in content["points"]]
    assert all(point["output_token_throughput_interval"] for point in content["points"])
    html = page.read_text(encoding="utf-8")
    assert f'href="./{quote(first.path.name)}/report.html"' in html
    assert html.count('/report.html"') == 2  # of the table of points, and of that of runs
    assert "On the Pareto front: 3 of 6 points" in page.with_suffix(".md").read_text(encoding="utf-8")


def test_text_from_outside_is_shown_as_text(sweep: Sweep, tmp_path: Path) -> None:
    html = checked(render_page(sweep_page(sweep)))
    markdown, console = SWEEP.markdown_text(sweep), SWEEP.terminal_text(sweep)
    SWEEP.write(sweep, ".csv", tmp_path / "s.csv")
    assert "<script>window" not in html
    assert "<script>" not in markdown
    assert escaped("<script>") in markdown
    for text in (html, markdown, console, (tmp_path / "s.csv").read_text(encoding="utf-8")):
        assert not {"\u202e", "\x00"} & {*text}


@pytest.mark.parametrize(
    ("text", "shown"), [("=1+1", "'=1+1"), ("-2", "'-2"), ("@x", "'@x"), ("a=1", "a=1"), ("\x00", "\ufffd")]
)
def test_a_text_of_a_csv_file_is_no_formula(text: str, shown: str) -> None:
    assert spreadsheet_text(text) == shown


def test_a_recorded_sweep_prints_the_path_of_its_page(
    make_sweep: MakeSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_sweep(tmp_path, (10, 20), {"wait": 20.0})
    axes = ["--over", "request_rate=10,20", "--over", "policy=wait"]
    assert bench(["sweep", *axes, "--experiment_dir", str(tmp_path), "dataset", "--num_requests", "700"]) == 0
    assert f"Sweep: {tmp_path / 'sweep.html'}" in capsys.readouterr().out
    assert {path.suffix for path in tmp_path.glob("sweep.*")} == {".html", ".json", ".csv", ".md"}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--fail_if", "held<20"], 0),
        (["--fail_if", "held<25"], 0),  # undecided
        (["--fail_if", "held<25", "--undecided", "fail"], 1),
    ],
)
def test_a_gate_of_a_sweep_decides_the_exit_status(
    make_sweep: MakeSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], status: int
) -> None:
    folder = make_sweep(tmp_path, (10, 20), {"wait": 20.0})
    plan = folder.read()
    arms = tuple(PlannedArm(f"request_rate={rate}", ("--request_rate", str(rate))) for rate in (10, 20))
    folder.write(type(plan)(plan.kind, plan.arguments, arms, plan.runs, plan.seed))
    line = [
        "sweep",
        "--over",
        "request_rate=10,20",
        *options,
        "--experiment_dir",
        str(tmp_path),
        "dataset",
        "--num_requests",
        "700",
    ]
    assert bench(line) == status
    assert ("Undecided: held>=25" in capsys.readouterr().err) is ("held<25" in options)


@pytest.mark.parametrize(
    ("axes", "criterion", "message"),
    [
        (["policy=wait"], "held<20", "--fail_if judges the highest load"),
        (["request_rate=-1,4"], "held<20", "--fail_if judges the highest load"),
        (["request_rate=1,4", "isl=8,9"], "held<20", "--fail_if judges the highest load"),
        (["request_rate=1,4"], "p99_ttft>3ms", "criteria of a run go after its verb"),
    ],
)
def test_a_gate_that_a_sweep_cannot_judge_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], axes: list[str], criterion: str, message: str
) -> None:
    line = [
        "sweep",
        *(f"--over={axis}" for axis in axes),
        "--fail_if",
        criterion,
        "--experiment_dir",
        str(tmp_path / "s"),
        "dataset",
    ]
    assert bench(line) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "s").exists()
