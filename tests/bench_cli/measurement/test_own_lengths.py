"""Output lengths for prompts of a file without one: what has no effect is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from tests.free_port import closed_port

_OWN = {"prompt": "a", "output_tokens": 5}
_ANSWERED = {"input": "a", "instruction": "b", "output": "c d e"}
_NEITHER = {"prompt": "b"}


@pytest.mark.parametrize(
    ("rows", "option", "said"),
    [
        ([_OWN], "--output_tokens", "--output_tokens 4 has no effect: each prompt has an output length, or an answer"),
        ([_ANSWERED], "--output_tokens", "--output_tokens 4 has no effect: each prompt has an output length, or an answer"),
        ([_OWN, _NEITHER], "--output_tokens", None),
        ([_OWN, _NEITHER], "--op_tokens_per_word", "--op_tokens_per_word 4 has no effect: no prompt has an answer"),
        ([_ANSWERED], "--op_tokens_per_word", None),
    ],
)
def test_an_output_length_that_no_prompt_needs_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows: list[dict[str, object]],
    option: str,
    said: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.json").write_text(json.dumps(rows))
    where = ["--dataset", "prompts.json", "--url", f"127.0.0.1:{closed_port()}"]
    assert run(["dataset", *where, option, "4"]) == ExitStatus.FAILED  # no server answers there
    error = capsys.readouterr().err
    assert ("has no effect" in error) is (said is not None)
    assert (said or "") in error
