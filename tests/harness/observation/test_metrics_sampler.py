"""Asking a server for its metrics through a run."""

from __future__ import annotations

import resource
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench_records.server_table import MetricSample
from harness.clients.transport.http_get import GetError
from harness.clients.transport.url import HttpUrl
from harness.host.clock import now_ns
from harness.observation.metrics_file import read_metrics, read_scrapes
from harness.observation.metrics_sampler import MetricsSampler, Sampled
from tests.harness.metrics_server import MetricsServer, metrics_server


def _sampler(server: MetricsServer, path: Path, period_s: float = 0.05) -> MetricsSampler:
    return MetricsSampler(HttpUrl("http", "127.0.0.1", server.port, "/metrics"), path, period_s)


def _wait(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def _metrics(path: Path) -> list[MetricSample]:
    return list(read_metrics(path))


def test_the_run_has_a_reading_before_its_start_many_through_it_and_one_at_its_end(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, b"nv_requests 5\n")) as server:
        sampler = _sampler(server, tmp_path / "spool")
        assert sampler.settle() == {("nv_requests", "{}"): 5.0}
        start_ns = now_ns()
        sampler.begin(start_ns)
        _wait(lambda: len(server.gets) >= 8)
        end_ns = now_ns() - start_ns
        sampled = sampler.stop()
        stopped_ns = now_ns() - start_ns
    samples = _metrics(tmp_path / "spool")
    times_ns = [sample.time_ns for sample in samples]
    assert times_ns == sorted(times_ns)
    assert times_ns[0] < 0 < times_ns[1]
    assert end_ns < times_ns[-1] < stopped_ns
    assert sampled == Sampled(len(samples), 0, None)
    assert all(sample.scrape_ns > 0 for sample in samples)


def test_counters_are_waited_for_until_they_stand_still(tmp_path: Path) -> None:
    requests = {0: 1, 1: 2, 2: 2}  # then 3; an update that is late once looks like a stable counter
    with metrics_server(
        lambda number: (200, f"nv_requests {requests.get(number, 3)}\nnv_cpu_utilization 0.{number}\n".encode())
    ) as server:
        sampler = _sampler(server, tmp_path / "spool", period_s=60)
        assert sampler.settle()["nv_requests", "{}"] == 3.0
        sampler.begin(now_ns())
        sampler.stop()
    assert [sample.value for sample in _metrics(tmp_path / "spool") if sample.name == "nv_requests"] == [3.0, 3.0]


def test_a_server_that_is_never_at_rest_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, f"nv_requests {number}\n".encode())) as server:
        assert 3 < _sampler(server, tmp_path / "spool").settle()["nv_requests", "{}"] < 20


def test_what_fails_is_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    def answer(number: int) -> tuple[int, bytes] | None:
        good = (200, b"nv_requests 5\n")
        return {3: (503, b"busy"), 4: None, 5: (200, b"<html>"), 6: (200, b"\xff\xfe")}.get(number, good)

    with metrics_server(answer) as server:
        sampler = _sampler(server, tmp_path / "spool")
        sampler.settle()
        sampler.begin(now_ns())
        _wait(lambda: len(server.gets) >= 10)
        sampled = sampler.stop()
    samples = _metrics(tmp_path / "spool")
    assert sampled.failed == 4
    assert sampled.first_failure is not None
    assert "503" in sampled.first_failure
    assert sampled.scrapes == len(samples) + 4
    assert {sample.value for sample in samples} == {5.0}


def test_a_server_that_dies_meanwhile_is_a_failure_of_readings_alone(tmp_path: Path) -> None:
    dead = threading.Event()
    with metrics_server(lambda number: None if dead.is_set() else (200, b"nv_requests 5\n")) as server:
        sampler = _sampler(server, tmp_path / "spool")
        sampler.settle()
        sampler.begin(now_ns())
        _wait(lambda: len(server.gets) >= 4)
        dead.set()
        sampled = sampler.stop()
    assert sampled.failed >= 1
    assert sampled.scrapes - sampled.failed == len(_metrics(tmp_path / "spool")) > 0


_LARGE_PAGE = "".join(f'nv_requests{{id="{secrets.token_hex(32)}"}} 5\n' for _ in range(50)).encode()


@contextmanager
def _full_disk() -> Iterator[None]:
    """A limit of this process on the size of a file, which a few of the large pages exceed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_for_a_time_costs_the_readings_of_that_time_alone(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, _LARGE_PAGE)) as server:
        sampler = _sampler(server, tmp_path / "spool")
        sampler.settle()
        sampler.begin(now_ns())
        with _full_disk():
            until = len(server.gets) + 10
            _wait(lambda: len(server.gets) >= until)
        until = len(server.gets) + 3
        _wait(lambda: len(server.gets) >= until)
        sampled = sampler.stop()
    assert sampled.failed > 0
    assert sampled.first_failure == "[Errno 27] File too large"
    assert len(list(read_scrapes(tmp_path / "spool"))) == sampled.scrapes - sampled.failed > 3


def test_a_disk_that_stays_full_fails_readings_and_not_the_run(tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, _LARGE_PAGE)) as server:
        sampler = _sampler(server, tmp_path / "spool")
        sampler.settle()
        sampler.begin(now_ns())
        with _full_disk():
            _wait(lambda: len(server.gets) >= 20)
            sampled = sampler.stop()
    assert len(list(read_scrapes(tmp_path / "spool"))) == sampled.scrapes - sampled.failed > 0


def test_no_metrics_is_an_error_before_the_run(tmp_path: Path) -> None:
    with metrics_server(lambda number: (404, b"")) as server, pytest.raises(GetError):
        _sampler(server, tmp_path / "spool").settle()
    assert not (tmp_path / "spool").exists()


def test_a_torn_last_reading_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with metrics_server(lambda number: (200, b"nv_requests 5\n")) as server:
        sampler = _sampler(server, path)
        sampler.settle()
        sampler.begin(now_ns())
        _wait(lambda: len(server.gets) >= 5)
        sampler.stop()
    whole = list(read_scrapes(path))
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read_scrapes(path)) == whole[:-1]
