"""The documents: links, paths, modules, tests and commands that they name exist, and so do the functions of the numbers."""

import ast
import importlib
import inspect
import json
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import reports.run.rows as rows_of_run
from harness.cli.bench import bench
from reports.run import watched_tables
from tools.reference.numbers import NUMBERS, PATHS, Number

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def _pages() -> list[Path]:
    folders = ("docs", "datasets")
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(p for f in folders for p in sorted((ROOT / f).rglob("*.md")))]


def _tokens(page: Path) -> list[Token]:
    """All Markdown tokens of a page, the inline ones included."""
    blocks = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
    return [token for block in blocks for token in (block, *(block.children or ()))]


def _code(page: Path) -> list[str]:
    """The code spans and code blocks of a page."""
    return [token.content for token in _tokens(page) if token.type in ("code_inline", "fence")]


def test_every_test_named_as_a_proof_exists() -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", (REFERENCE / "upstream-features.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for file, name in named:
        assert re.search(rf"^(async )?def {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file}::{name}"


# ---- links and paths


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page; Sphinx writes a dash where GitHub drops a dot."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {_slug(heading) for heading in headings} | {_slug(heading.replace(".", "-")) for heading in headings}


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_resolves(page: Path) -> None:
    targets = [str(token.attrs[name]) for token in _tokens(page) for name in ("href", "src") if name in token.attrs]
    for target in targets:
        file, _, anchor = target.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        linked = page if not file else (page.parent / file).resolve()
        assert linked.is_file(), f"{target}: no such file"
        assert not anchor or anchor in _anchors(linked), f"{target}: no such heading"


_FOLDERS = "workloads|harness|serving|reports|benchmarks|tests|tools|datasets|docs"
_PATH = re.compile(rf"(?<![\w./-])(?:{_FOLDERS})/[\w./-]*\w/?")
_BARE_FILE = re.compile(r"(?<![\w./<>*-])\w+\.(?:py|pyx|js|css|j2)(?![\w.])")
_MODULE = re.compile(rf"(?:python3? -m |[`\s])((?:{_FOLDERS})(?:\.\w+)+)")
_BUILT = {"docs/_build/html", "docs/_build/html/index.html"}
_UPSTREAM = {
    "benchmark_core_model.py", "convert_checkpoint.py", "end_to_end_grpc_client.py", "end_to_end_test.py", "fill_template.py",
    "inflight_batcher_llm_client.py", "launch_triton_server.py", "quantize.py", "tools/fill_template.py",
    "scripts/launch_triton_server.py",
}  # fmt: skip
_OF_REPOSITORY = {"model.py"}  # every model of a model repository has one


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_named_exists(page: Path) -> None:
    tracked = {path.name for folder in _FOLDERS.split("|") for path in (ROOT / folder).rglob("*")}
    for text in _code(page):
        for path in set(_PATH.findall(text)) - _UPSTREAM - _BUILT:
            assert (ROOT / path).exists(), path
        for name in set(_BARE_FILE.findall(text)) - _UPSTREAM - _OF_REPOSITORY:
            assert name in tracked, name
        for module in _MODULE.findall(f" {text}"):
            _open(module)


def test_every_benchmark_is_listed() -> None:
    listed = set(re.findall(r"python -m benchmarks\.(\w+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    programs = (path for path in (ROOT / "benchmarks").glob("*.py") if '"__main__"' in path.read_text(encoding="utf-8"))
    assert listed == {path.stem for path in programs}


# ---- numbers


def _open(name: str) -> str:
    """The source of a module or, behind a colon, of one of its functions, classes or methods."""
    module, _, attributes = name.partition(":")
    value: Any = importlib.import_module(module)
    for attribute in attributes.split(".") if attributes else ():
        value = getattr(value, attribute)
    if isinstance(value, property | cached_property):
        value = value.fget if isinstance(value, property) else value.func
    return inspect.getsource(value)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number.table}: {number.label}")
def test_the_function_of_every_number_opens(number: Number) -> None:
    assert _open(number.function)


def test_every_key_of_the_summary_has_a_number() -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / "summary.schema.json").read_text(encoding="utf-8"))
    keys = {number.key for number in NUMBERS}
    assert {f"metrics.{name}" for name in schema["properties"]["metrics"]["properties"]} <= keys
    assert set(schema["properties"]) - {"schema", "validity", "metrics"} <= {key.split(".")[0] for key in keys}


def test_every_row_of_the_page_s_tables_has_a_number() -> None:
    """A row is a tuple of a label and a value in the source of the tables."""
    labels = tuple(number.label.partition(":")[0] for number in NUMBERS)
    source = inspect.getsource(rows_of_run) + inspect.getsource(watched_tables)
    rows = re.findall(r'^ +\(f?"([A-Z][^"{]+)[^"]*", (?!")', source, re.MULTILINE)
    assert len(rows) > 25
    assert [row for row in rows if not row.startswith(labels)] == []


@pytest.mark.parametrize("files", PATHS.values(), ids=PATHS.keys())
def test_a_number_s_path_through_the_code(files: tuple[str, ...]) -> None:
    """At most 8 files; each is imported by one before it."""
    assert len(files) <= 8
    before = ""
    for file in files:
        module = file.removesuffix(".py").replace("/", ".")
        assert not before or f"from {module} import" in before, file
        before += (ROOT / file).read_text(encoding="utf-8")


# ---- findings


@dataclass(frozen=True)
class _Said:
    """A ``Finding(code, severity, …)`` in the source."""

    code: str
    severities: frozenset[str]  # those written there; none where a variable holds it


def _said_in_code() -> list[_Said]:
    found = []
    for path in sorted((ROOT / "reports").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                code, severity = node.args[0], node.args[1]
                assert isinstance(code, ast.Constant), f"{path}:{node.lineno}: a finding's code is written out where it is made"
                named = (part for part in ast.walk(severity) if isinstance(part, ast.Attribute))
                found.append(_Said(code.value, frozenset(part.attr.lower() for part in named)))
    return found


def _rows_of_findings() -> dict[str, str]:
    """The severity cell of each code in docs/reference/findings.md."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (REFERENCE / "findings.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_every_finding_has_a_row_and_every_row_a_finding() -> None:
    codes = {said.code for said in _said_in_code()}
    assert len(codes) > 15
    assert _rows_of_findings().keys() == codes


def test_rows_of_findings_name_their_severities() -> None:
    rows = _rows_of_findings()
    for said in _said_in_code():
        for severity in said.severities:
            assert severity in rows[said.code], said.code


def test_every_finding_has_a_sentence() -> None:
    source = ast.parse((ROOT / "reports" / "run" / "headline.py").read_text(encoding="utf-8"))
    values = (case.value for case in ast.walk(source) if isinstance(case, ast.MatchValue))
    sentences = {value.value for value in values if isinstance(value, ast.Constant)}
    assert {said.code for said in _said_in_code()} <= sentences


def test_every_finding_is_named_by_a_test_of_its_own_or_in_cases() -> None:
    """That it is provoked and stays quiet there, a reader must see; that nobody tests it, this test does."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "reports").rglob("test_*.py"))
    asserted = set(re.findall(r"(?:_finding|_severity|_found|_one)\([^\n]*\"(\w+)\"\)", tests))
    assert {said.code for said in _said_in_code()} <= asserted


# ---- commands


def _commands(document: str) -> list[list[str]]:
    """The words of each ``bench …`` line within a document's code blocks, lines that end with a backslash joined."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ").splitlines()
    written = (re.fullmatch(r"\s*(?:\.venv/bin/)?bench (.*)", line) for line in lines)
    return [shlex.split(found[1], comments=True) for found in written if found]


def _parse(words: list[str]) -> None:
    """Parse as ``bench`` would, what an experiment runs included; nothing is run. Raises click.ClickException."""
    group = click.Context(bench, info_name="bench", **bench.context_settings)
    command = bench.get_command(group, words[0])
    assert command is not None, words[0]
    with command.make_context(words[0], words[1:], parent=group) as context:
        inner = context.params.get("arguments", ())
        arms = context.params.get("arms", ()) or ("",)
    for arm in arms if inner else ():
        _parse([*inner, *shlex.split(arm.partition("=")[2])])


def test_the_walk_s_commands_are_commands() -> None:
    commands = _commands("docs/tutorial/first-experiment.md")
    assert {words[0] for words in commands} >= {"experiment", "compare", "report"}
    for words in commands:
        _parse(words)


def test_a_command_with_a_wrong_option_does_not_parse() -> None:
    wrong = ["experiment", "--arm", "a=", "--arm", "b=--batch_scheduler_policy whatever", "dataset"]
    with pytest.raises(click.UsageError, match="whatever"):
        _parse(wrong)
