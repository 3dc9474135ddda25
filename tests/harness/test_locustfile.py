"""The locustfile as Locust runs it, against the null server: what a user of Locust sees."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server

pytestmark = pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra [distributed] is not installed")

LOCUSTFILE = Path(__file__).parents[2] / "harness" / "locustfile.py"
_FIRST_TOKEN_MS, _GAP_MS = 20.0, 5.0
_SHORT = ("--op_tokens_per_word", "0.1")


@dataclass(frozen=True)
class Ended:
    """A run of Locust: its exit status, its text, and the lines of its statistics by type."""

    status: int
    text: str
    lines: dict[str, dict[str, str]]

    def number(self, kind: str, column: str) -> float:
        return float(self.lines[kind][column])


def run_locust(folder: Path, *arguments: str) -> Ended:
    """Run Locust without its web page, and read the statistics that it writes."""
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(LOCUSTFILE),
        "--headless",
        "--only-summary",
        "--csv",
        str(folder / "run"),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    table = folder / "run_stats.csv"
    rows = list(csv.DictReader(table.read_text().splitlines())) if table.is_file() else []
    return Ended(done.returncode, done.stdout + done.stderr, {row["Type"]: row for row in rows})


@pytest.fixture(scope="module")
def target() -> Iterator[NullServerAddresses]:
    with null_server(NullServerOptions(Pace(int(_FIRST_TOKEN_MS * 1e6), int(_GAP_MS * 1e6)))) as addresses:
        yield addresses


def test_times_are_those_of_the_server_and_each_request_has_its_tokens(target: NullServerAddresses, tmp_path: Path) -> None:
    ended = run_locust(tmp_path, "-u", "2", "-r", "2", "-t", "2s", *_SHORT, "--host", f"http://{target.http}")
    assert ended.status == 0, ended.text
    requests = ended.number("E2E", "Request Count")
    assert ended.number("", "Request Count") == ended.number("TTFT", "Request Count") == requests > 4
    assert ended.number("E2E", "Failure Count") == 0
    tokens = ended.number("tokens", "Average Response Time") * requests
    assert ended.number("ITL", "Request Count") == pytest.approx(tokens - requests)
    # the least of them is exact on a busy machine, too
    assert _FIRST_TOKEN_MS <= ended.number("TTFT", "Min Response Time") < _FIRST_TOKEN_MS + 2
    assert 0 < ended.number("TPOT", "Request Count") <= requests


def test_chat_users_follow_a_profile(target: NullServerAddresses, tmp_path: Path) -> None:
    profile = ("--rate_profile", "stages:10/s*2s,2/s*1s", "--arrival", "constant")
    ended = run_locust(tmp_path, "OpenAIUser", *profile, *_SHORT, "--host", f"http://{target.http}")
    assert ended.status == 0, ended.text
    assert "Shape test updating to 10 users" in ended.text
    assert "Shape test updating to 2 users" in ended.text
    assert 4 <= ended.number("E2E", "Request Count") <= 30  # 22 are due; users come and go within a second
    assert ended.number("E2E", "Failure Count") == 0


@pytest.mark.slow  # workers of Locust report every three seconds
def test_workers_send_what_the_masters_options_say(target: NullServerAddresses, tmp_path: Path) -> None:
    shape = ("--processes", "2", "-u", "4", "-r", "4", "-t", "8s")
    ended = run_locust(tmp_path, *shape, *_SHORT, "--host", f"http://{target.http}")
    assert ended.status == 0, ended.text
    requests = ended.number("E2E", "Request Count")
    assert ended.number("", "Request Count") == ended.number("TTFT", "Request Count") == requests > 0
    assert ended.number("tokens", "Average Response Time") < 60


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--host", "http://127.0.0.1:9"), 1, "--host http://127.0.0.1:9"),
        (("--host", "http://127.0.0.1:9", "--arrival", "constant"), 2, "--arrival"),
    ],
    ids=["no server", "no effect"],
)
def test_a_mistake_is_a_sentence_and_not_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], status: int, named: str
) -> None:
    ended = run_locust(tmp_path, "-t", "5s", *arguments)
    assert ended.status == status, ended.text
    assert named in ended.text
    assert "Traceback" not in ended.text
