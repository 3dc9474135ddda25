"""model.json: written, read, and refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.errors import SimulatorError
from simulator.model import (
    MODEL_SCHEMA,
    Draw,
    Extent,
    Model,
    Parameter,
    Source,
    copy_model,
    model_digest,
    read_model,
    write_model,
)
from tests.simulator.known import SERVER

_MODEL = Model(
    schema=MODEL_SCHEMA,
    server=SERVER,
    parameters=(Parameter("step", 6e-3, 5.9e-3, 6.1e-3, True),),
    draws=(Draw(SERVER.law, SERVER.front_end),),
    hull=(Extent("requests in flight", 40.0),),
    sources=(Source("run", 700, None, 4_000),),
    structure=("mixed",),
    findings=(),
)


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    write_model(_MODEL, path)
    assert read_model(path) == _MODEL


def test_what_is_said_of_each_of_many_runs_is_read_again(tmp_path: Path) -> None:
    said = tuple(f"run {number}: 40 requests failed, and are left out" for number in range(300))
    path = tmp_path / "model.json"
    write_model(replace(_MODEL, findings=said, doubts=said), path)
    assert read_model(path).findings == said
    assert read_model(path).doubts == said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no model of 'bench simulate fit'"),
        ("[]", "is no model of 'bench simulate fit'"),
        ("{}", "missing required field `schema`"),
        ('{"schema": 99}', "is a model of schema 99, and this bench reads 2: fit it again"),
        ('{"schema": 2}', "missing required field"),
        ("[" * 100_000, "is no model"),
    ],
    ids=["empty", "a list", "no schema", "another schema", "nothing else", "deep"],
)
def test_another_file_is_refused_in_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(SimulatorError) as caught:
        read_model(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("server", "law", "step"), -1.0),
        (("server", "law", "step"), 1e3),
        (("server", "law", "sequence"), 11.0),
        (("server", "admission", "max_sequences"), 10**9),
        (("server", "admission", "token_budget"), 10**9),
        (("server", "noise"), []),
        (("server", "admission", "order"), "other"),
        (("server", "front_end", "intake_rounds"), 0),
        (("server", "front_end", "intake"), None),
        (("held_out",), {"ttft": 1e3}),
    ],
)
def test_constants_out_of_bounds_are_refused(tmp_path: Path, keys: tuple[str, ...], value: object) -> None:
    path = tmp_path / "model.json"
    write_model(_MODEL, path)
    document = json.loads(path.read_text())
    within = document
    for key in keys[:-1]:
        within = within[key]
    within[keys[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(SimulatorError, match="is no model of 'bench simulate fit'") as caught:
        read_model(path)
    assert f"`$.{'.'.join(keys)}" in str(caught.value) or keys == ("held_out",)


def test_a_copy_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search would go on with half a model."""
    path, to = tmp_path / "model.json", tmp_path / "copy.json"
    write_model(_MODEL, path)
    copy_model(path, to)
    assert model_digest(to) == model_digest(path)
    to.unlink()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        copy_model(path, to)
    assert [each.name for each in tmp_path.iterdir()] == ["model.json"]


def test_an_absent_model_names_the_verb_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(SimulatorError, match=r"does not exist: 'bench simulate fit RUN -o .*model.json' makes it"):
        read_model(tmp_path / "model.json")
