from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_cli.measurement.run_folder import open_run_folder
from bench_cli.measurement.secrets import (
    WrittenIn,
    hide_fields,
    hide_in_url,
    is_secret_name,
    literal,
    reveal_fields,
    reveal_query,
    revealed,
)
from bench_cli.measurement.target_options import Header, _read_headers, read_address
from bench_records.manifest import Manifest
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.secret_values import HIDDEN
from harness.clients.transport.url import Origin
from harness.protocols.triton_http import TritonHttp


def test_a_value_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_text("hush\n")
    monkeypatch.setenv("KEY", "hush")
    assert [revealed(WrittenIn("--header"), "X-Key", value) for value in (f"@{file}", "$KEY")] == ["hush", "hush"]
    assert reveal_fields(WrittenIn("--extra_body"), {"a": [{"api_key": "$KEY", "stop": "$KEY"}]}) == {
        "a": [{"api_key": "hush", "stop": "$KEY"}]
    }
    assert capsys.readouterr().err == ""


def test_a_literal_secret_draws_a_warning_that_does_not_contain_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert revealed(WrittenIn("--header"), "X-Signature", "hush") == "hush"
    error = capsys.readouterr().err
    assert "X-Signature" in error
    assert "hush" not in error


@pytest.mark.parametrize("value", [HIDDEN, "$NOT_SET_ANYWHERE", "@/no/such/file"])
def test_a_value_that_is_missing_is_asked_for(value: str) -> None:
    with pytest.raises(click.BadParameter, match="X-Key"):
        revealed(WrittenIn("--header"), "X-Key", value)


def test_secret_like_names_are_hidden_and_sampling_fields_are_not() -> None:
    assert hide_fields({"a": [{"api_key": "hush"}], "stop_token_ids": [2], "min_tokens": 3}) == {
        "a": [{"api_key": HIDDEN}], "stop_token_ids": [2], "min_tokens": 3,
    }  # fmt: skip
    assert hide_in_url("http://me:hush@h:1/v1?api-key=hush&v=2") == f"http://h:1/v1?api-key={HIDDEN}&v=2"
    assert str(Header("X-Route", "hush", is_secret=True)) == f"X-Route: {HIDDEN}"
    assert is_secret_name("X-Signature")


def test_a_refused_url_does_not_contain_its_password() -> None:
    with pytest.raises(click.BadParameter) as refused:
        read_address(TritonHttp(), "http://me:hush@host:1")
    assert "hush" not in str(refused.value)


def test_the_schedule_file_has_no_query() -> None:
    client = OpenAIChatClient(Origin("http", "h", 1), "m", path="/v1?api-key=hush", extra=json.loads('{"key": "hush"}'))
    assert "hush" not in repr(client.for_decoding())


@pytest.mark.parametrize(("shared", "others"), [(False, 0), (True, 0o055)])
def test_files_of_a_run_are_its_owners_alone_unless_shared(tmp_path: Path, shared: bool, others: int) -> None:
    import os

    before = os.umask(0o022)
    try:
        with open_run_folder("dataset", tmp_path / "run", shared) as folder:
            folder.write_manifest(Manifest())
        assert stat.S_IMODE(folder.path.stat().st_mode) & 0o077 == others
        assert stat.S_IMODE(folder.manifest.stat().st_mode) & 0o077 == (0o044 if shared else 0)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


@given(st.text(max_size=12))
def test_any_value_can_be_written_literally(value: str) -> None:
    assert revealed(WrittenIn("--header"), "X-Route", literal(value)) == value


def test_a_literal_that_begins_as_a_reference_is_recorded_as_it_was_written() -> None:
    context = click.Context(click.Command("dataset"))
    parameter = click.Option(["--header"], multiple=True)
    (header,) = _read_headers(context, parameter, ("X-Route: @@home",))
    assert (header.value, str(header)) == ("@home", "X-Route: @@home")
    (again,) = _read_headers(context, parameter, (str(header),))
    assert again == header
    path = reveal_query(WrittenIn("--endpoint"), "/v1?route=$$HOME&v=$5")
    assert (path, path.shown, path.secrets) == ("/v1?route=$HOME&v=$5", "/v1?route=$$HOME&v=$5", ())
