"""Options declared as fields: the decorator, the dataclass, and what is known of where a value came from."""

from __future__ import annotations

from dataclasses import dataclass

import click
import cloup
import pytest
from click.testing import CliRunner

from bench_cli import run as bench
from bench_cli.declared import Concern, option, part, required, same, switch, takes


@dataclass(frozen=True)
class _Load(Concern, title="Load"):
    rate: float = option(-1.0, "-r", common=True, help="Rate. It is per second.")
    words: tuple[str, ...] = option((), help="Words.")
    cache: bool | None = switch(None, help="Cache.")
    dry_run: bool = option(False, help="Dry.")


@dataclass(frozen=True)
class _Options(Concern):
    load: _Load = part(_Load)  # noqa: RUF009
    more: tuple[str, ...] = same(_Load, "words", default=["b"])
    name: str = required("--name", help="Name.")


def _called(*arguments: str) -> _Options:
    seen: list[_Options] = []

    @cloup.command()
    @cloup.argument("path")
    @takes(_Options)
    def command(options: _Options, path: str) -> None:
        seen.append(options)
        assert path == "here"

    result = CliRunner().invoke(command, ["here", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_a_command_is_called_with_the_values_of_its_options() -> None:
    options = _called("-r", "3", "--words", "a", "--words", "b", "--no_cache", "--dry_run", "--name", "n")
    assert options.load.values() == {"rate": 3.0, "words": ("a", "b"), "cache": False, "dry_run": True}
    assert _called("--name", "n") == _Options(name="n", more=("b",))


def test_an_option_is_given_even_with_its_default_and_known_to_each_part() -> None:
    options = _called("--rate", "-1", "--name", "n")
    assert options.load.given("words", "name", "rate") == ["name", "rate"]
    assert options.given("more") == []


@pytest.mark.parametrize("verb", ["dataset", "trace", "token_norm_dist", "token_from_histogram", "generate", "serve"])
def test_the_short_help_has_the_common_options_and_the_long_one_all(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert bench([verb, "-h"]) == 0
    short = capsys.readouterr().out
    assert bench([verb, "--help"]) == 0
    whole = capsys.readouterr().out
    assert len(short.splitlines()) <= 60 < len(whole.splitlines())
    assert f"bench {verb} --help shows all" in short
    assert "--url" in short or "--model_repo" in short


@pytest.mark.parametrize("verb", ["compare", "trend", "sweep", "experiment", "report"])
def test_the_short_help_of_few_options_is_the_long_one(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench([verb, "-h"]) == 0
    short = capsys.readouterr().out
    assert bench([verb, "--help"]) == 0
    assert short == capsys.readouterr().out
    assert "--fail_if" in short


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["sweep", "--ovr", "request_rate=1,2", "dataset"], "--ovr is no option of bench sweep"),
        (["experiment", "--ar", "a=", "dataset"], "--ar is no option of bench experiment"),
        (
            ["sweep", "--over", "request_rate=1,2", "dataset", "--run_dir", "r"],
            "the sweep sets it for every run; --experiment_dir",
        ),
    ],
)
def test_a_series_names_an_unknown_option_and_the_one_to_use(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(arguments) == click.UsageError.exit_code
    assert named in " ".join(capsys.readouterr().err.split())
