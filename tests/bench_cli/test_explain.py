"""``bench explain`` and ``bench completion``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from reports.findings.checks import KINDS
from reports.metrics.catalogue import METRICS

_BENCH = Path(sys.executable).parent / "bench"


@pytest.mark.parametrize("name", [*(metric.name for metric in METRICS), *(kind.code for kind in KINDS)])
def test_every_metric_and_finding_is_explained(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["explain", name]) == ExitStatus.VALID
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2
    assert not any("](" in line or "`" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_metric_is_found_by_its_key_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "TTFT_ms"]) == ExitStatus.VALID
    assert capsys.readouterr().out.startswith("TTFT (ms)\n")


def test_a_metric_is_found_by_its_name_in_a_criterion(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("p99_ttft", "p99_9_ttft", "mean_ttft", "P50_TTFT_ms"):
        assert run(["explain", name]) == ExitStatus.VALID
        assert capsys.readouterr().out.startswith("TTFT (ms)\n")


@pytest.mark.parametrize("words", ["Little's law", "check what  follows", "mean in flight ≠ rate"])
def test_a_finding_is_found_by_words_of_its_line_or_its_condition(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert run(["explain", words]) == ExitStatus.VALID
    assert capsys.readouterr().out.startswith("littles_law (warning)\n  When: ")


def test_all_findings_that_have_the_words_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "for p99"]) == ExitStatus.VALID
    titles = [text.splitlines()[0] for text in capsys.readouterr().out.split("\n\n")]
    assert titles == ["rare_queues (warning or note)", "sample_too_small (note)"]


def test_an_unknown_name_is_refused_with_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "slp"]) == ExitStatus.USAGE
    assert "'slp' is no metric and no finding; did you mean 'slip'?" in capsys.readouterr().err


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert "ttft" in text
    assert "queue_growing" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert run(["completion", shell]) == ExitStatus.VALID
    assert f"_BENCH_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"), [("bench token_n", "plain,token_norm_dist"), ("bench dataset --request_r", "plain,--request_rate")]
)
def test_verbs_and_options_are_completed(words: str, expected: str) -> None:
    count = str(len(words.split()) - 1)
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": count, "_BENCH_COMPLETE": "bash_complete"}
    done = subprocess.run([_BENCH], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [expected]
