"""The errors of workloads name fields; only the command line knows its options."""

from __future__ import annotations

import re
from pathlib import Path

import workloads
from workloads.elements.errors import DatasetError, Field, WorkloadError


def test_a_field_of_a_sentence_is_written_by_its_name_or_as_the_caller_spells_it() -> None:
    error = WorkloadError(Field("start"), " 9: too late; raise ", Field("duration"))
    assert str(error) == "start 9: too late; raise duration"
    assert error.spelt(lambda field: f"--{field}") == "--start 9: too late; raise --duration"


def test_a_text_that_names_no_field_stays_as_it_is() -> None:
    error = DatasetError(Path("start.csv"), "holds no rows", "line 7")
    assert error.spelt(str.upper) == str(error) == "start.csv, line 7: holds no rows"


def test_no_module_of_workloads_knows_an_option() -> None:
    named = {
        f"{path.name}: {option}"
        for path in Path(workloads.__file__).parent.rglob("*.py")
        for option in re.findall(r"(?<![-\w])--[a-z]\w*", path.read_text(encoding="utf-8"))
    }
    assert not named
