"""A document on a terminal and as Markdown."""

from __future__ import annotations

from markdown_it import MarkdownIt

from reports.render.console import console_text
from reports.render.document import Code, Document, Heading, Notes, Paragraph
from reports.render.markdown import markdown_text
from reports.render.tables import Quantity, Table

LONG = "a sentence of many words " * 8
DOCUMENT: Document = (
    Heading(("Of ", Code("bench *x*"))),
    Paragraph("It holds <b>.", is_answer=True, aside="Not *all*."),
    Paragraph(""),
    Table("empty", "Empty", ("a",), ()),
    Notes(("one_two", ("see ", Code("a`b"), "\u202e"))),
    Table(
        "t", "Title", ("name", "share of all"), (("long enough to wrap", Quantity(1.0, "1 %")),), sides="rl", widths=(11, None)
    ),
    Paragraph(LONG),
)


def test_a_terminal_shows_words_without_markup_and_leaves_out_what_is_empty() -> None:
    heading, answer, notes, table, paragraph = console_text(DOCUMENT, width=60).split("\n\n")
    assert heading == "Of bench *x*"
    assert answer == "It holds <b>. Not *all*."
    assert notes == "one_two\nsee a`b\ufffd"
    assert [line.rstrip() for line in table.splitlines()] == [
        "       name  share of all",
        "-----------  --------------",
        "long enough  1 %",
        "    to wrap",
    ]
    assert max(map(len, paragraph.splitlines())) <= 60
    assert console_text(DOCUMENT[-1:], width=None) == LONG.strip()


def test_markdown_shows_all_text_as_it_is() -> None:
    text = markdown_text(DOCUMENT)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<h3>Of <code>bench *x*</code></h3>" in html
    assert "<p><strong>It holds &lt;b&gt;.</strong> Not *all*.</p>" in html
    assert "<li>one_two</li>\n<li>see <code>a`b</code>\ufffd</li>" in html
    assert "<strong>Title</strong>" in html
    assert "Empty" not in html
    assert text.endswith("words\n")
