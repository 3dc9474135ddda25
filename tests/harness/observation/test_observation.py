"""All that is watched beside the exchanges of a run."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs, to_builtins

from bench_records.manifest import ModelStatistics, Telemetry
from bench_records.run_folder import RunFolder
from harness.clients.secret_values import HIDDEN, spellings
from harness.clients.transport.url import HttpUrl
from harness.clients.triton.statistics import StatisticsError
from harness.host.clock import now_ns
from harness.host.processes import began_at
from harness.observation.machine_use import targets_at
from harness.observation.metrics_pages import MetricsSource
from harness.observation.observation import Observation, Observed, hidden_in, tabulate_observations
from tests.harness.metrics_server import MetricsServer, metrics_server


def _source(server: MetricsServer, model: str | None = None) -> MetricsSource:
    return MetricsSource(HttpUrl("http", "127.0.0.1", server.port, "/metrics"), 0.05, model)


def _observe(folder: Path, read_statistics: Any, source: MetricsSource | None, for_s: float = 0.3) -> tuple[Any, list[str]]:
    notes: list[str] = []
    reads = () if read_statistics is None else (read_statistics,)
    observation = Observation(RunFolder(folder), reads, () if source is None else (source,), notes.append)
    with observation as begin:
        begin(now_ns())
        time.sleep(for_s)
    tabulate_observations(RunFolder(folder))
    return to_builtins(observation.observed), notes


def _counted(requests: int) -> dict[str, ModelStatistics]:
    return {"core": ModelStatistics(inference_count=requests)}


def test_facts_and_tables_of_a_run(tmp_path: Path) -> None:
    counts = iter([3, 3, 9, 9])
    with metrics_server(lambda number: (200, b'nv_requests{model="core"} 5\n')) as server:
        facts, notes = _observe(tmp_path, lambda: _counted(next(counts)), _source(server, "core"))
    assert notes == []
    assert facts["server_statistics"] == {"before": to_builtins(_counted(3)), "after": to_builtins(_counted(9))}
    assert set(facts["clock"]) == {"before", "after"}
    telemetry = facts["telemetry"]
    assert (telemetry["url"], telemetry["period_s"]) == (f"http://127.0.0.1:{server.port}/metrics", 0.05)
    assert (telemetry["failed"], telemetry["first_failure"]) == (0, None)
    table = RunFolder(tmp_path).read_server()
    assert table is not None
    assert len(table) == telemetry["scrapes"]
    client = RunFolder(tmp_path).read_client()
    assert client is not None
    assert client["worker"].null_count == len(client) >= 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["client.parquet", "server.parquet"]  # the spools are given up


def test_nothing_to_watch_but_the_machine(tmp_path: Path) -> None:
    facts, notes = _observe(tmp_path, None, None, for_s=0)
    assert (facts["server_statistics"], facts["telemetry"], notes) == (None, None, [])
    assert [path.name for path in tmp_path.iterdir()] == ["client.parquet"]


def test_what_cannot_be_had_is_noted_and_fails_nothing(tmp_path: Path) -> None:
    def refuse() -> Any:
        raise StatisticsError("none here")

    with metrics_server(lambda number: (404, b"")) as server:
        facts, notes = _observe(tmp_path, refuse, _source(server))
    assert (facts["server_statistics"], facts["telemetry"]) == (None, None)
    assert "none here" in notes[0]
    assert "404" in notes[1]
    assert "--metrics_url" in notes[1]


@pytest.mark.parametrize("first", [(404, b""), (200, b"[]"), (200, b'[{"iter": 1, "gpuMemUsage": 2}]')])
def test_where_the_first_place_has_no_metrics_the_next_is_read(tmp_path: Path, first: tuple[int, bytes]) -> None:
    with metrics_server(lambda number: (200, b"trtllm_requests 5\n") if number else first) as server:
        place = _source(server)
        other = replace(place, url=HttpUrl("http", "127.0.0.1", server.port, "/prometheus/metrics"))
        facts, notes = _observe(tmp_path, None, replace(place, otherwise=other))
    assert notes == []
    assert server.gets[:2] == ["/metrics", "/prometheus/metrics"]
    assert set(server.gets[1:]) == {"/prometheus/metrics"}
    assert facts["telemetry"]["url"] == f"http://127.0.0.1:{server.port}/prometheus/metrics"


def test_where_no_place_has_metrics_all_are_named_in_one_sentence(tmp_path: Path) -> None:
    with metrics_server(lambda number: (404, b"")) as server:
        place = _source(server)
        facts, notes = _observe(tmp_path, None, replace(place, otherwise=replace(place, url=replace(place.url, path="/other"))))
    assert facts["telemetry"] is None
    (note,) = notes
    assert f":{server.port}/metrics (status 404 Not Found) or http://127.0.0.1:{server.port}/other (status 404" in note
    with metrics_server(lambda number: None) as server:  # it closes the connection, and would at the other place, too
        _, notes = _observe(tmp_path, None, replace(_source(server), otherwise=place))
    assert len(notes) == 1
    assert "/other" not in notes[0]


def test_statistics_that_are_lost_during_the_run_are_known_to_be_lost(tmp_path: Path) -> None:
    answers = iter([_counted(3), _counted(3)])

    def read() -> Any:
        try:
            return next(answers)
        except StopIteration:
            raise StatisticsError("the server is gone") from None

    facts, notes = _observe(tmp_path, read, None)
    assert facts["server_statistics"] == {"before": to_builtins(_counted(3)), "after": None}
    assert len(notes) == 1


def test_metrics_of_another_server_are_not_taken_for_the_targets(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, b'nv_requests{model="other"} 5\n')) as server:
        facts, notes = _observe(tmp_path, None, _source(server, "core"))
    assert facts["telemetry"] is None
    assert "has no model core" in notes[0]


def test_a_run_that_never_began_leaves_what_was_seen(tmp_path: Path) -> None:
    observation = Observation(RunFolder(tmp_path), (), (), lambda note: None)
    with pytest.raises(KeyboardInterrupt), observation:
        raise KeyboardInterrupt
    assert observation.observed.clock is not None
    tabulate_observations(RunFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_secret_that_a_server_repeats_is_hidden() -> None:
    telemetry = Telemetry(url="http://h/?key=secret-value", failed=1, first_failure="no secret-value")
    observed = Observed(clock=None, server_statistics=None, telemetry=telemetry, machine_use=None)
    shown = hidden_in(observed, spellings(["secret-value"])).telemetry
    assert shown == Telemetry(url=f"http://h/?key={HIDDEN}", failed=1, first_failure=f"no {HIDDEN}")
    assert hidden_in(structs.replace(observed, telemetry=None), ("x",)).telemetry is None


_PAGE = b"vllm:x 5\nprocess_start_time_seconds 1.79e9\n"


@pytest.mark.parametrize(("of_target", "expected"), [(True, 1.79e9), (False, None)], ids=["its own page", "another's"])
def test_a_server_elsewhere_says_on_its_own_page_when_it_began(tmp_path: Path, of_target: bool, expected: float | None) -> None:
    with metrics_server(lambda number: (200, _PAGE)) as server:
        facts, _ = _observe(tmp_path, None, replace(_source(server), of_target=of_target))
    assert facts["server_began_at"] == expected


def test_a_server_of_this_machine_began_with_its_process(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, _PAGE)) as server:
        source, target = replace(_source(server), of_target=True), targets_at([("127.0.0.1", server.port)])
        observation = Observation(RunFolder(tmp_path), (), (source,), lambda note: None, find_target=target)
        with observation as begin:
            begin(now_ns())
    assert observation.observed.server_began_at == began_at([os.getpid()])
