"""What an error says to the user: the options of the command line."""

from __future__ import annotations

from bench_cli.suggestions import user_text
from workloads.elements.errors import Field, WorkloadError


def test_an_error_of_a_workload_names_options_for_its_fields() -> None:
    error = WorkloadError("no answer; with ", Field("protocol"), " openai, ", Field("history"), " server takes the server's")
    assert user_text(error) == "no answer; with -i openai, --history server takes the server's"
    assert user_text(OSError("no space")) == "no space"
