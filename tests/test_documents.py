"""What the documents name is there, and what the code can say is in the documents."""

import ast
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from harness.cli.bench import bench

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def test_every_test_named_as_a_proof_exists() -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", (REFERENCE / "upstream-features.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for file, name in named:
        assert re.search(rf"^(async )?def {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file}::{name}"


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
