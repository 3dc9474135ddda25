"""The search for a deployment's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench_cli.tokenizers import local_tokenizer_dir


def test_the_first_folder_on_this_machine_is_taken_and_no_further_model_is_inspected(tmp_path: Path) -> None:
    def parameter_sets() -> Iterator[dict[str, str]]:
        yield {}
        yield {"tokenizer_dir": str(tmp_path / "elsewhere")}
        yield {"tokenizer_dir": str(tmp_path)}
        raise AssertionError("one model too many")

    assert local_tokenizer_dir(parameter_sets()) == tmp_path


def test_a_deployment_without_a_tokenizer_on_this_machine_has_none(tmp_path: Path) -> None:
    assert local_tokenizer_dir([{"tokenizer_dir": ""}, {"tokenizer_dir": str(tmp_path / "elsewhere")}]) is None
