"""What a process of Locust sends: which prompt at which number, and to whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench_records.record import Outcome, TokenSource
from harness.calibration.null_server.server import NullServerAddresses, null_server
from harness.errors import TargetError
from harness.locust_users.settings import Settings
from tests.harness.chat_server import CUT, WHOLE, chat_server
from workloads.elements.errors import DatasetError

pytest.importorskip("gevent", reason="the extra [distributed] is not installed")
from harness.locust_users.traffic import Connect, connect_openai, connect_triton, traffic_of

_SETTINGS = Settings(None, None, 0.1, 256, False, "/v1/chat/completions", 10.0, 0, None, None, None, None)


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with null_server() as addresses:
        yield _host(addresses)


def _host(addresses: NullServerAddresses) -> str:
    return f"http://{addresses.http}"


@pytest.mark.parametrize(("connect", "model"), [(connect_triton, "ensemble"), (connect_openai, "null")])
def test_a_request_is_recorded_as_bench_would(host: str, connect: Connect, model: str) -> None:
    traffic = traffic_of(connect, host, _SETTINGS, 0)
    connection = traffic.connection()
    for number in range(3):
        record, answer_bytes = traffic.send_next(connection)
        assert (record.index, record.outcome) == (number, Outcome.DONE)
        assert record.output_tokens == record.requested_output_tokens == traffic.requests[number].output_tokens
        assert record.output_tokens_source is TokenSource.SERVER
        assert answer_bytes > 0
    connection.close()
    assert traffic.model == model


def test_answers_that_a_server_cut_are_failures_as_in_bench() -> None:
    """The first answer shows that it sends a finish_reason."""
    with chat_server(lambda number: CUT if number in (1, 3) else WHOLE[:-1] if number == 4 else WHOLE) as chat:
        traffic = traffic_of(connect_openai, f"http://127.0.0.1:{chat.port}", _SETTINGS, 0)
        connection = traffic.connection()
        records = [traffic.send_next(connection)[0] for _ in range(5)]
        connection.close()
    assert [record.outcome.value for record in records] == ["done", "incomplete", "done", "incomplete", "done"]
    assert [record.end_marker_missing for record in records] == [False] * 4 + [True]


def test_workers_begin_apart_go_round_and_have_numbers_of_their_own(host: str, tmp_path: Path) -> None:
    dataset = tmp_path / "prompts.json"
    rows = [{"input": "", "instruction": f"prompt {row}", "output": " ".join(["word"] * (row + 1))} for row in range(3)]
    dataset.write_text(json.dumps(rows))
    settings = replace(_SETTINGS, dataset=str(dataset), op_tokens_per_word=1.0)
    sent = {}
    for worker in (0, 1):
        traffic = traffic_of(connect_triton, host, settings, worker)
        connection = traffic.connection()
        sent[worker] = [traffic.send_next(connection)[0] for _ in range(4)]
        connection.close()
    assert [record.requested_output_tokens for record in sent[0]] == [1, 2, 3, 1]
    assert [record.requested_output_tokens for record in sent[1]] == [2, 3, 1, 2]  # 97 prompts on, of 3
    assert len({record.index for records in sent.values() for record in records}) == 8
    assert {record.outcome for records in sent.values() for record in records} == {Outcome.DONE}


def test_a_process_has_its_traffic_once(host: str) -> None:
    assert traffic_of(connect_triton, host, _SETTINGS, 0) is traffic_of(connect_triton, host, _SETTINGS, 0)


@pytest.mark.parametrize(
    ("given", "named"), [(None, "--host"), ("ftp://127.0.0.1", "--host ftp://127.0.0.1"), ("a/b", "--host a/b")]
)
def test_a_host_that_is_none_is_refused_by_its_option(given: str | None, named: str) -> None:
    with pytest.raises(TargetError, match=named):
        traffic_of(connect_triton, given, _SETTINGS, 0)


def test_a_model_without_text_and_a_dataset_that_is_not_there_are_refused(host: str) -> None:
    with pytest.raises(TargetError, match="--model tensorrt_llm"):
        traffic_of(connect_triton, host, replace(_SETTINGS, model="tensorrt_llm"), 0)
    with pytest.raises(DatasetError, match="/no/such/file"):
        traffic_of(connect_triton, host, replace(_SETTINGS, dataset="/no/such/file"), 0)
