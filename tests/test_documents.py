"""Tests and commands that the documents name exist."""

import re
import shlex
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
