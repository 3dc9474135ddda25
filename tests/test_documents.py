"""The documents: links, paths, modules, tests and commands that they name exist, and so do the functions of the numbers."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bench_cli.bench import bench
from tools.reference.functions import NUMBERS
from tools.reference.numbers import COMPUTED, PRINTED

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


# ---- generated parts

_GENERATED = {
    "reference/command-line.md": ["tools.reference.command_line:command_line_markdown"],
    "reference/json.md": ["tools.reference.json_documents:json_documents_markdown"],
    "reference/repository-parameters.md": ["tools.reference.repository_parameters:repository_parameters_markdown"],
}


def test_the_pages_that_are_made_of_code_include_it() -> None:
    """The documentation's build replaces each fence by what its function returns."""
    fence = re.compile(r"^```\{generated\} (\S+)\n```$", re.MULTILINE)
    texts = {
        page.relative_to(ROOT / "docs").as_posix(): page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")
    }
    assert {page: fences for page, text in texts.items() if (fences := fence.findall(text))} == _GENERATED


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


_FOLDERS = "workloads|harness|serving|reports|simulator|benchmarks|tests|tools|datasets|deploy|docs"
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
            assert importlib.util.find_spec(module), module


def test_every_benchmark_is_listed() -> None:
    listed = set(re.findall(r"python -m benchmarks\.(\w+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    programs = (path for path in (ROOT / "benchmarks").glob("*.py") if '"__main__"' in path.read_text(encoding="utf-8"))
    packages = (path.parent for path in (ROOT / "benchmarks").glob("*/__main__.py"))
    assert listed == {path.stem for path in (*programs, *packages)}


# ---- numbers


def test_every_key_of_the_summary_has_a_number() -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / "summary.schema.json").read_text(encoding="utf-8"))
    keys = {key for number in NUMBERS for key in number.key.split(", ")}
    assert {f"metrics.{name}" for name in schema["properties"]["metrics"]["properties"]} <= keys
    assert set(schema["properties"]) - {"schema", "validity", "metrics", "schedule"} <= {key.split(".")[0] for key in keys}


@pytest.mark.parametrize("files", COMPUTED.values(), ids=COMPUTED.keys())
def test_a_number_s_path_through_the_code(files: tuple[str, ...]) -> None:
    """Each file is imported by one before it."""
    before = ""
    for file in files:
        module = file.removesuffix(".py").replace("/", ".")
        assert not before or f"from {module} import" in before, file
        before += (ROOT / file).read_text(encoding="utf-8")


def test_each_output_is_printed_by_a_file_that_the_writer_or_the_command_line_imports() -> None:
    importers = "".join(
        (ROOT / file).read_text(encoding="utf-8") for file in ("reports/run/writing.py", COMPUTED["goodput"][1])
    )
    for first, *others in PRINTED.values():
        stem = Path(first).stem
        assert f"from reports.run.{stem} import" in importers or f"from reports.run import {stem}" in importers
        text = (ROOT / first).read_text(encoding="utf-8")
        assert all(f"from {file.removesuffix('.py').replace('/', '.')} import" in text for file in others)


# ---- commands


def _blocks(document: str, language: str = r"\w*") -> list[str]:
    """The code blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _commands(blocks: list[str]) -> list[list[str]]:
    """The words of each ``bench …`` line within code blocks, lines that end with a backslash joined."""
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
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
    commands = _commands(_blocks("docs/tutorial/first-experiment.md"))
    assert {words[0] for words in commands} >= {"experiment", "compare", "report"}
    for words in commands:
        _parse(words)


def test_the_commands_of_the_gate_and_of_its_workflow_are_commands() -> None:
    page = "docs/how-to/gate-a-build.md"
    (workflow,) = _blocks(page, "yaml")
    job = yaml.safe_load(workflow)["jobs"]["gate"]
    steps = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    for name, value in (job["env"] | {"seed": "1"}).items():
        steps = steps.replace(f"${name}", value)
    by_hand, of_steps = _commands(_blocks(page, "")), _commands([steps])
    assert {words[0] for words in by_hand} == {"token_norm_dist", "report"}
    assert {words[0] for words in of_steps} == {"token_norm_dist", "compare"}
    for words in [*by_hand, *of_steps]:
        _parse(words)


def test_a_command_with_a_wrong_option_does_not_parse() -> None:
    wrong = ["experiment", "--arm", "a=", "--arm", "b=--batch_scheduler_policy whatever", "dataset"]
    with pytest.raises(click.UsageError, match="whatever"):
        _parse(wrong)
