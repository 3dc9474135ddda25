"""Finds phrases that a reader of English has to decode, by the list in CONTRIBUTING.md: ``python -m tools.plain_english``.

Read are the docstrings, comments and strings of the code, the docstrings and comments of the tests, and the pages of the
documentation, without what is code in them. A line for each phrase goes to stdout; the exit status is 1 if there is any.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LONGEST_LINE = 160  # of a page, in characters; tables and code may be longer
_HIDES, _SHOWS = ("<!-- generated", "<!-- examples"), "<!-- end of"  # what is made from the code; examples of what not to write
_HOLE = "…"  # for code in a text and for the values of a message


@dataclass(frozen=True)
class Phrase:
    """What not to write. ``found`` matches it in a text, ``instead`` is what to write."""

    found: re.Pattern[str]
    instead: str


@dataclass(frozen=True)
class Prose:
    """A piece of text, whose first line is ``line`` of its file, counted from 1."""

    line: int
    text: str


def _phrase(pattern: str, instead: str) -> Phrase:
    return Phrase(re.compile(pattern), instead)


_OPENS = r"(?:^\W*|(?<=[.:;!?] ))"  # a sentence or a clause

PHRASES = (
    _phrase(_OPENS + r"Of\b", "begin the sentence with its subject"),
    _phrase(_OPENS + r"(?:Those|That) of\b", "name the thing again"),
    _phrase(r"\b(?:is|are|was|were|be|been) of\b", "belongs to, covers, applies to, has, counts"),
    _phrase(
        r"(?<!queue )(?<!fell )(?<!falls )(?<!fall )(?<!further )\bbehind\b(?= \w)(?! (?:or|yet|and)\b)"
        r"(?! (?:a |an |the |its |another )?(?:proxy|front end|load balancer|forwarder|pipe|Triton|schedule))",
        "after",
    ),
    _phrase(r"\b(?:go|goes|went|gone) without\b", "cannot be combined with"),
    _phrase(r"\b(?:stand|stands|stood)\b(?!-| still| for)", "is, appears, is written, comes"),
    _phrase(r"\b(?:tell|tells|told)\b(?<!cannot be told)", "says, shows, distinguishes"),
    _phrase(r"\bcannot be told (?:from|apart)\b", "cannot be distinguished"),
    _phrase(r"\b(?:that|which) (?:is|are) none\b", "not a ..."),
    _phrase(r"\basked for\b|\b(?:as|than) asked\b", "requested"),
    _phrase(r"\bas good as\b", "worth, equivalent to"),
    _phrase(r"(?<!why )(?<!although )\bso many\b(?! that)", "this many, that many"),
    _phrase(r", as ['\"]", "for example"),
    _phrase(r"\b(?:evidence allows|in runs like it|lies too low)\b", "is on one side of the limit; upper bound; is unreliable"),
    _phrase(r"\bbut for\b", "except"),
    _phrase(r"\bheld against\b", "compared with"),
    _phrase(r"\bparted (?:by|from)\b", "separated"),
    _phrase(r"\b(?:thereof|therein|whereof|wherein|hereby|whence|nought)\b", "plain words"),
    _phrase(r"\bgoes? by the\b", "follows, uses"),
    _phrase(r"\b[Rr]easoning alone\b", "only reasoning"),
)


def findings(path: Path) -> Iterator[str]:
    """What is to be written anew in one file, a line for each."""
    source = path.read_text(encoding="utf-8")
    for prose in sorted(_prose_of(path, source), key=lambda prose: prose.line):
        text = re.sub(r"\s+", " ", prose.text)
        for phrase in PHRASES:
            for match in phrase.found.finditer(text):
                around = text[max(0, match.start() - 30) : match.end() + 30]
                yield f"{path}:{prose.line}: {match[0].strip()!r} in {around!r}: {phrase.instead}"
    if path.suffix == ".py":
        for line in _loops_over_one(ast.parse(source)):
            yield f"{path}:{line}: a loop variable 'one': name what it holds"
    if path.suffix == ".md":
        for number, line in enumerate(_without_code(source).splitlines(), start=1):
            if len(line) > _LONGEST_LINE and not line.startswith("|"):
                yield f"{path}:{number}: a line of {len(line)} characters; the limit is {_LONGEST_LINE}"


def _prose_of(path: Path, source: str) -> Iterator[Prose]:
    match path.suffix:
        case ".py":
            tree = ast.parse(source)
            docstrings = set(_docstrings(tree))
            yield from (Prose(node.lineno, _plain(node.value)) for node in docstrings if isinstance(node.value, str))
            yield from _comments(source)
            if not path.is_relative_to("tests"):
                yield from _strings(tree, docstrings)
        case ".pyx":
            for number, line in enumerate(source.splitlines(), start=1):
                if "#" in line:
                    yield Prose(number, line.partition("#")[2])
        case ".md":
            yield from _paragraphs(source)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Those of modules, classes and functions, and the strings below a name, which document it."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value


def _comments(source: str) -> Iterator[Prose]:
    """Comments, those on neighbouring lines as one text."""
    start, parts, last = 0, [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone = token.line.lstrip().startswith("#")
        if parts and (token.start[0] != last + 1 or not alone):
            yield Prose(start, _plain(" ".join(parts)))
            parts = []
        if not parts:
            start = token.start[0]
        last = token.start[0]
        parts.append(token.string.lstrip("# "))
    if parts:
        yield Prose(start, _plain(" ".join(parts)))


def _strings(tree: ast.Module, docstrings: set[ast.Constant]) -> Iterator[Prose]:
    """Messages and help texts: strings of several words."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings and id(node) not in inside:
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else _HOLE for part in node.values)
        if text.count(" ") >= 2:
            yield Prose(node.lineno, _plain(text))


def _paragraphs(source: str) -> Iterator[Prose]:
    """Paragraphs, items of lists and cells of tables, without what is hidden from the check."""
    start, parts = 0, []
    hidden = False
    for number, line in enumerate([*_without_code(source).splitlines(), ""], start=1):
        hidden = (hidden or line.startswith(_HIDES)) and not line.startswith(_SHOWS)
        begins = not line.strip() or hidden or bool(re.match(r"\s*(?:[-*|#>]|\d+\.) ?", line))
        if begins and parts:
            yield Prose(start, _plain(" ".join(parts)))
            parts = []
        if hidden or not line.strip():
            continue
        if line.startswith("|"):
            yield from (Prose(number, _plain(cell.strip())) for cell in line.split("|"))
            continue
        if not parts:
            start = number
        parts.append(re.sub(r"^\s*(?:[-*>]|#+|\d+\.) ", "", line).strip())


def _without_code(source: str) -> str:
    """A page with its blocks of code emptied; its lines keep their numbers."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), source, flags=re.MULTILINE | re.DOTALL)


def _plain(text: str) -> str:
    """The text without the code in it, which is between backticks."""
    return re.sub(r"``.+?``|`[^`]+`", _HOLE, text, flags=re.DOTALL)


def _loops_over_one(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            names = (part for part in ast.walk(node.target) if isinstance(part, ast.Name))
            yield from (name.lineno for name in names if name.id == "one")
        elif isinstance(node, ast.Lambda):
            yield from (argument.lineno for argument in node.args.args if argument.arg == "one")


def main() -> int:
    """Read all files that git tracks, or those named on the command line. Returns the exit status."""
    listed = (
        sys.argv[1:]
        or subprocess.run(
            ["git", "ls-files", "*.py", "*.pyx", "*.md"], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    own = Path(__file__).resolve()
    found = [line for name in listed if Path(name).resolve() != own for line in findings(Path(name))]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
