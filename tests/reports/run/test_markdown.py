"""``report.md``: short, whole tables, and nothing from outside is markup."""

from __future__ import annotations

from collections.abc import Callable

from bench_records.record import Outcome, Record
from reports.render.plain_text import escaped
from reports.run.markdown import render_markdown, write_markdown
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def test_it_shows_what_was_run_the_verdict_and_the_percentiles(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(10))
    text = render_markdown(report)
    assert text.startswith(
        "### 7 prompts of test.json; constant arrivals at 100 requests/s; tensorrt\\_llm over grpc, streamed\n"
    )
    assert "**This run is valid.**" in text
    cells = [cell.strip() for cell in next(line for line in text.splitlines() if "TTFT, from schedule" in line).split("|")]
    assert cells[1:4] == ["TTFT, from schedule", "100.00", "100.00"]
    assert text.endswith("\n")
    write_markdown(report, report.folder.markdown)
    assert report.folder.markdown.read_text(encoding="utf-8") == text


def test_every_row_of_a_table_has_the_cells_of_its_head(make_report: MakeReport, failed: Make, answered: Make) -> None:
    records = [answered(k, k, k, [(k + 5, 1)]) for k in range(200)]
    records += [failed(200, 200, Outcome.SERVER_ERROR, 200, 210, error="a | b\n| c | <!-- `x` @team")]
    width = 0
    for line in render_markdown(make_report(records)).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        width = width or cells
        assert cells == width, line


def test_text_from_outside_is_text(make_report: MakeReport, failed: Make) -> None:
    hostile = "<script>alert(1)</script> [x](javascript:y) ![i](z) **b** `c` @org/team \u202e\x00\r\n# head"
    records = [failed(0, 0, Outcome.SERVER_ERROR, 0, 1, error=hostile)]
    text = render_markdown(make_report(records, target={"model": hostile, "protocol": hostile, "streaming": True}))
    assert "<script" not in text.replace("\\<", "")
    assert "](" not in text.replace("\\]", "")
    assert "@org" not in text
    assert "\u202e" not in text
    assert "\n# head" not in text
    assert "`c`" not in text


def test_escaped_marks_whatever_markdown_would_read() -> None:
    assert escaped("a_b*c|d<e>") == "a\\_b\\*c\\|d\\<e\\>"
