"""Text from outside is text in every format of a report and of a comparison, put in through real run folders."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bench_cli import run as bench
from bench_records.record import Record
from bench_records.run_folder import RunFolder
from reports.render.picture import Axis, Colour, Line, Picture
from reports.render.plain_text import json_text, spreadsheet_text
from reports.render.plots import write_plots
from reports.run.full import render
from reports.run.page import run_pictures
from reports.run.writing import write_reports
from reports.run_report import RunReport, read_run
from tests.reports.untrusted import TEXTS, run_named, shown, unprintable

SteadyRun = Callable[..., list[Record]]
MakeRun = Callable[..., RunFolder]
Make = Callable[..., Record]
EACH = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
_FORMULA = re.compile(r"[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_CODE = re.compile(r"[a-z_]+")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


@pytest.fixture
def hostile(make_run: MakeRun, steady_run: SteadyRun, failed: Make) -> Callable[[str], RunFolder]:
    return lambda text: run_named(make_run, failed, steady_run(60), text)


@pytest.fixture(scope="module", params=TEXTS.values(), ids=TEXTS.keys())
def named(request: pytest.FixtureRequest, make_run: MakeRun, steady_run: SteadyRun, failed: Make) -> tuple[str, RunReport]:
    """Each text, and a run with it in every place, whose files are written."""
    report = read_run(run_named(make_run, failed, steady_run(60), request.param))
    write_reports(report)
    return request.param, report


# ---- the report


def test_the_console_shows_it(named: tuple[str, RunReport]) -> None:
    text, report = named
    printed = render(report)
    assert unprintable(printed) == set()
    assert shown(text) in printed


def test_json_reads_back_as_it_was_and_steers_no_terminal(named: tuple[str, RunReport]) -> None:
    text, report = named
    written = report.folder.summary.read_text(encoding="utf-8")
    assert unprintable(written) == set()
    document = json.loads(written)
    assert [model["name"] for model in document["server"]["models"]] == [text]
    assert text in [finding["evidence"].get("first_error") for finding in document["findings"]]


def test_csv_holds_it_in_a_cell_that_is_no_formula(named: tuple[str, RunReport]) -> None:
    text, report = named
    _check_csv(report.folder.csv, 15)
    with report.folder.csv.open(newline="", encoding="utf-8") as file:
        (error,) = [row["error"] for row in csv.DictReader(file) if row["error"]]
    assert shown(error).removeprefix("'") == shown(text.replace("\t", "\ufffd"))


def test_markdown_holds_it_as_text(named: tuple[str, RunReport]) -> None:
    _, report = named
    _check_markdown(report.folder.markdown.read_text(encoding="utf-8"))


def test_the_page_s_source_has_no_markup_of_it(named: tuple[str, RunReport]) -> None:
    text, report = named
    page = report.folder.html.read_text(encoding="utf-8")
    without_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert unprintable(without_scripts) == set()
    assert text not in page or not {*text} & {*"<>&"}


@pytest.mark.parametrize("texts", [[*TEXTS.values()][k::4] for k in range(4)], ids=[" ".join([*TEXTS][k::4]) for k in range(4)])
def test_plots_draw_it(texts: list[str], tmp_path: Path) -> None:
    x = np.arange(3.0)
    joined = " ".join(texts)
    axes = Axis(joined, joined), Axis("y", ticks=((0.0, "none"), *((float(k), text) for k, text in enumerate(texts, start=1))))
    lines = [Line(text, x, x + k, Colour.BLUE) for k, text in enumerate(texts)]
    drawn = Picture("drawn", joined, joined, *axes, (*lines, Line("other", x, -x, Colour.RED)))
    write_plots([drawn], tmp_path)
    svg = ElementTree.parse(tmp_path / "drawn.svg").getroot()  # XML has no place for NUL or escape
    assert not [element for element in svg.iter() if element.tag.endswith(("script", "image"))]
    drawn = " ".join("".join(element.itertext()) for element in svg.iter() if element.tag.endswith("}text"))
    for text in texts:
        assert drawn.count(shown(text).strip()) >= 4, text  # both of the x axis, a tick, and the legend
    assert "other" in drawn
    assert (tmp_path / "drawn.png").stat().st_size > 1_000


def test_plots_of_a_run_draw_it(hostile: Callable[[str], RunFolder], tmp_path: Path) -> None:
    """A formula, as matplotlib reads it, with what XML has no place for."""
    report = read_run(hostile(TEXTS["template"] + TEXTS["nul"] + TEXTS["escape"]))
    (named,) = [picture for picture in run_pictures(report).server if picture.name.startswith("server-queue")]
    write_plots([named], tmp_path)
    drawn = (tmp_path / f"{named.name}.svg").read_text(encoding="utf-8")
    assert "other" in drawn
    assert ElementTree.fromstring(drawn) is not None


# ---- comparisons


@pytest.fixture
def compared(
    hostile: Callable[[str], RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[str, dict[str, Path]]]:
    """The console and the files of ``bench compare`` of two runs, whose folders have names of ``text``, too."""

    def make(text: str) -> tuple[str, dict[str, Path]]:
        folders = []
        for side in ("a", "b"):
            run = hostile(text if side == "a" else f"{text}{side}")
            name = text.replace("/", "\u2215").replace("\x00", "\x01") + side  # what no file name can hold
            folders.append(run.path.rename(tmp_path / name))
        files = {form: tmp_path / f"c.{form}" for form in ("json", "csv", "md", "html")}
        outputs = [argument for path in files.values() for argument in ("--output", str(path))]
        assert bench(["compare", "--allow_different", *outputs, "--", *map(str, folders)]) == 0
        return capsys.readouterr().out, files

    return make


@EACH
def test_a_comparison_shows_it_in_every_format(compared: Callable[[str], tuple[str, dict[str, Path]]], text: str) -> None:
    console, files = compared(text)
    assert unprintable(console) == set()
    assert " ".join(f"target.model: {shown(text)} | {shown(text)}b".split()) in " ".join(console.split())  # long lines wrap
    written = files["json"].read_text(encoding="utf-8")
    assert unprintable(written) == set()
    (one,) = json.loads(written)["comparisons"]
    assert {"what": "target.model", "values": [text, f"{text}b"]}.items() <= _named(one, "target.model").items()
    _check_csv(files["csv"], 14)
    _check_markdown(files["md"].read_text(encoding="utf-8"))
    page = files["html"].read_text(encoding="utf-8")
    assert unprintable(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)) == set()


def test_a_refusal_shows_it(
    named: tuple[str, RunReport], hostile: Callable[[str], RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    text, report = named
    assert bench(["compare", str(report.folder.path), str(hostile(f"{text}b").path)]) == 3
    printed = capsys.readouterr().err
    assert unprintable(printed, "\n\t") == set()
    assert "workload.description" in printed


def test_a_path_that_is_no_text_is_printed_all_the_same(
    hostile: Callable[[str], RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(hostile("x").path.rename(tmp_path / f"{side}\udcff\x1b[2J")) for side in ("a", "b")]
    for arguments in (["compare", *paths], ["report", paths[0]], ["report", str(tmp_path / "not\x1b[2Jthere")]):
        assert bench(arguments) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith("Error: ")
        assert "\ufffd" in printed.err
        assert unprintable(printed.out) | unprintable(printed.err) == set()


# ---- laws


_DOCUMENTS = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(_DOCUMENTS)
def test_json_of_any_text_is_printable_and_reads_back(document: Any) -> None:
    written = json_text(document)
    assert unprintable(written) == set()
    assert json.loads(written) == document


@given(st.text())
def test_no_cell_is_a_formula_nor_ends_its_row(text: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerow((spreadsheet_text(text), "next"))
    ((cell, following),) = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert following == "next"
    assert not _FORMULA.match(cell)


# ---- what a reader of each format would obey


def _named(comparison: dict[str, Any], what: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in comparison["disagreements"] if entry["what"] == what)
    return found


def _check_csv(path: Path, columns: int) -> None:
    text = path.read_bytes().decode("utf-8")
    assert unprintable(text, "\n\t\r") == set()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(row) for row in rows} == {columns}
    cells = [cell for row in rows for cell in row]
    assert [cell for cell in cells if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)] == []


def _check_markdown(text: str) -> None:
    """Rendered, it has headings, lists, bold words and tables of ours, and the codes of findings."""
    assert unprintable(text, "\n\u2060") == set()
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inline = [inner for token in tokens for inner in token.children or ()]
    assert [inner.content for inner in inline if inner.type == "code_inline" and not _CODE.fullmatch(inner.content)] == []
    kinds = {token.type for token in (*tokens, *inline) if token.type != "code_inline"}
    ours = {
        "heading", "paragraph", "bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td", "strong",
    }  # fmt: skip
    assert {kind.removesuffix("_open").removesuffix("_close") for kind in kinds} <= ours | {"inline", "text", "text_special"}
    assert sum(token.type == "heading_open" for token in tokens) == 1
    widths, width = [], 0
    for token in tokens:
        width += token.type in ("th_open", "td_open")
        if token.type == "tr_close":
            widths.append(width)
            width = 0
        if token.type == "table_close":
            assert len(set(widths)) == 1
            widths = []
