"""Conversations from the command line: what is sent after what, and which options contradict each other."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer
from tests.harness.threaded_http import threaded_http


def _sharegpt(path: Path, conversations: int, turns: int) -> Path:
    said = [
        {
            "id": f"c{number}",
            "conversations": [
                message
                for turn in range(turns)
                for message in ({"from": "human", "value": f"ask {number} {turn}"}, {"from": "gpt", "value": "well " * 3})
            ],
        }
        for number in range(conversations)
    ]
    path.write_text(json.dumps(said))
    return path


def _measure(server: ScriptedServer, folder: Path, dataset: Path, *options: str) -> int:
    line = ["dataset", "--url", server.address, "--model", "text", "--dataset", str(dataset), "--run_dir", str(folder)]
    return run([*line, "--warmup_requests", "0", *options])


def _rows(folder: Path) -> list[dict[str, Any]]:
    return sorted(RunFolder(folder).read_requests().to_pylist(), key=lambda row: int(row["index"]))


def _sent_behind_their_answers(rows: list[dict[str, Any]]) -> int:
    """The number of turns that waited for an answer; each was sent after it."""
    later = [row for row in rows if row["parent"] is not None]
    assert all(row["sent_ns"] >= rows[row["parent"]]["done_ns"] for row in later)
    assert all(row["session"] == rows[row["parent"]]["session"] for row in later)
    return len(later)


def test_conversations_by_1_and_4_workers_are_one_schedule_and_no_turn_goes_before_its_answer(
    server: ScriptedServer, tmp_path: Path
) -> None:
    dataset = _sharegpt(tmp_path / "s.json", 12, 3)
    digests = set()
    for workers in ("1", "4"):
        folder = tmp_path / workers
        _measure(
            server, folder, dataset, "--sessions", "think_time", "--think_time", "0.01", "--request_rate", "60",
            "--workers", workers,
        )  # fmt: skip
        rows = _rows(folder)
        assert [row["outcome"] for row in rows] == ["done"] * 36
        assert _sent_behind_their_answers(rows) == 24
        assert [row["requested_output_tokens"] for row in rows] == [5] * 36
        manifest = RunFolder(folder).read_document()[0]
        digests.add(manifest["schedule"]["digest"])
        assert manifest["load"]["mode"] == "sessions"
        assert {name: manifest["workload"][name] for name in ("sessions", "think_time", "users", "conversations")} == {
            "sessions": "think_time", "think_time": 0.01, "users": None, "conversations": 12,
        }  # fmt: skip
        assert manifest["arrivals"].startswith("12 sessions, exponential arrivals at 60 sessions/s, a later turn due its think")
    assert len(digests) == 1


def test_a_profile_that_a_duration_cuts_asks_for_its_rate_until_then(server: ScriptedServer, tmp_path: Path) -> None:
    options = ("--rate_profile", "stages:40/s*250ms,400/s*10s", "--arrival", "constant", "--duration", "0.25")
    _measure(server, tmp_path / "r", _sharegpt(tmp_path / "s.json", 20, 2), "--sessions", "think_time", *options)
    (whole,) = json.loads((tmp_path / "r" / "summary.json").read_text())["arrival_laws"]
    assert (whole["unit"], whole["scheduled"]["gaps"]) == ("sessions", 9)
    assert whole["asked"]["rate_per_s"] == pytest.approx(40)


@pytest.mark.parametrize(
    ("conversations", "more", "ran_out"), [(10, (), True), (40, (), False), (10, ("--num_requests", "6"), False)]
)
def test_conversations_that_are_too_few_for_the_duration_have_a_finding(
    server: ScriptedServer, tmp_path: Path, conversations: int, more: tuple[str, ...], ran_out: bool
) -> None:
    dataset = _sharegpt(tmp_path / "s.json", conversations, 2)
    options = ("--sessions", "think_time", "--request_rate", "100", "--arrival", "constant", "--duration", "0.2")
    _measure(server, tmp_path / "r", dataset, *options, *more)
    assert len(_rows(tmp_path / "r")) == (6 if more else min(20, conversations) * 2)
    found = {finding["code"] for finding in json.loads((tmp_path / "r" / "summary.json").read_text())["findings"]}
    assert ("requests_ran_out" in found) is ran_out


def test_conversations_that_are_too_few_for_the_stages_of_a_rate_have_a_finding(server: ScriptedServer, tmp_path: Path) -> None:
    options = ("--sessions", "think_time", "--rate_profile", "stages:100/s*0.1s,50/s*0.2s", "--arrival", "constant")
    _measure(server, tmp_path / "r", _sharegpt(tmp_path / "s.json", 15, 2), *options)
    load = RunFolder(tmp_path / "r").read_document()[0]["load"]
    assert (load["duration_s"], load["ran_out"]) == (pytest.approx(0.3), True)


def test_conversations_that_are_too_few_cannot_be_repeated_and_no_line_says_so(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--sessions", "think_time", "--request_rate", "100", "--num_requests", "9")
    _measure(server, tmp_path / "r", _sharegpt(tmp_path / "s.json", 2, 2), *options)
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("--num_requests 9"))
    assert line == "--num_requests 9: there are only 4 prompts, which are all sent."


def test_the_real_conversations_wait_for_their_answers(server: ScriptedServer, tmp_path: Path, shared_data: Path) -> None:
    dataset = shared_data / "fastchat_dummy_conversation.json"
    _measure(server, tmp_path / "r", dataset, "--sessions", "think_time", "--request_rate", "200", "--num_requests", "300")
    rows = _rows(tmp_path / "r")
    assert len(rows) == 300
    assert _sent_behind_their_answers(rows) == 150


@pytest.mark.parametrize(
    ("turns", "options", "said"),
    [
        (3, (), "4 later turns of these conversations are not sent; --sessions think_time sends them."),
        (2, ("--num_requests", "1"), "1 later turn of these conversations is not sent; --sessions think_time sends them."),
        (1, (), ""),
        (3, ("--sessions", "think_time"), ""),
    ],
)
def test_turns_that_are_not_sent_are_counted(
    server: ScriptedServer,
    tmp_path: Path,
    turns: int,
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _measure(server, tmp_path / "r", _sharegpt(tmp_path / "s.json", 2, turns), *options)
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) is ("sends them" in err)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sessions", "think_time", "--users", "3"), "--users 3: with only 2 conversations, 1 user holds none."),
        (("--sessions", "think_time", "--users", "2"), ""),
        (("--concurrency", "5"), "--concurrency 5: with only 2 requests, 3 users send none."),
        (("--concurrency", "2"), ""),
    ],
)
def test_users_without_anything_to_send_are_announced(
    server: ScriptedServer, tmp_path: Path, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _measure(server, tmp_path / "r", _sharegpt(tmp_path / "s.json", 2, 1), *options)
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) is ("with only" in err)


def test_users_hold_one_conversation_after_another_at_their_rate(server: ScriptedServer, tmp_path: Path) -> None:
    dataset = _sharegpt(tmp_path / "s.json", 6, 2)
    _measure(server, tmp_path / "r", dataset, "--sessions", "think_time", "--users", "2", "--user_rate", "40")
    rows = _rows(tmp_path / "r")
    assert [row["parent"] for row in rows] == [None, 0, None, 2, 1, 4, 3, 6, 5, 8, 7, 10]
    assert all(row["sent_ns"] >= rows[row["parent"]]["done_ns"] for row in rows if row["parent"] is not None)
    planned_ms = [None if row["planned_ns"] is None else row["planned_ns"] / 1e6 for row in rows]
    assert planned_ms == [None, 25, None, 37.5, 50, 75, 62.5, 87.5, 100, 125, 112.5, 137.5]
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["metrics"]["causal_delay_ms"]["n"] == 10
    assert summary["metrics"]["offered_rate"] is None


class _Chat(BaseHTTPRequestHandler):
    """Answers the number of messages that it got, after some reasoning; ``asked`` has the messages of every request."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[list[tuple[str, str]]]] = []

    def do_GET(self) -> None:
        status = 200 if self.path.endswith("/models") else 404
        self._answer(status, "application/json", json.dumps({"data": [{"id": "m"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append([(message["role"], message["content"]) for message in body["messages"]])
        said = [{"reasoning_content": "hm "}, {"content": f"I answer {len(body['messages'])}"}, {"content": "!"}]
        chunks: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in said]
        chunks.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
        events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        self._answer(200, "text/event-stream", events + "data: [DONE]\n\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(("history", "answers"), [("recorded", ["well " * 3] * 2), ("server", ["I answer 1!", "I answer 3!"])])
def test_a_chat_gets_the_file_s_answers_or_those_that_the_server_gave(tmp_path: Path, history: str, answers: list[str]) -> None:
    _Chat.asked.clear()
    dataset = _sharegpt(tmp_path / "s.json", 2, 3)
    with threaded_http(_Chat) as port:
        line = ["dataset", "-i", "openai", "--url", f"http://127.0.0.1:{port}", "--dataset", str(dataset), "--workers", "1"]
        line += ["--sessions", "think_time", "--users", "1", "--history", history, "--warmup_requests", "0"]
        run([*line, "--run_dir", str(tmp_path / "r")])
    expected: list[list[tuple[str, str]]] = []
    for conversation in range(2):
        said: list[tuple[str, str]] = []
        for turn in range(3):
            said.append(("user", f"ask {conversation} {turn}"))
            expected.append(list(said))
            said.append(("assistant", answers[min(turn, 1)]))
    assert _Chat.asked == expected
    assert [row["outcome"] for row in _rows(tmp_path / "r")] == ["done"] * 6
    assert RunFolder(tmp_path / "r").read_document()[0]["workload"]["history"] == history


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--users", "3"], "--users applies to conversations; it needs --sessions think_time"),
        (["--think_time", "3"], "--think_time applies to conversations; it needs --sessions think_time"),
        (
            ["--sessions", "think_time", "--concurrency", "3"],
            "--concurrency cannot be combined with --sessions: --users N carry out",
        ),
        (["--sessions", "think_time", "--max_concurrency", "3"], "--max_concurrency cannot be combined with --sessions"),
        (
            ["--sessions", "think_time", "--repeat_dataset", "--num_requests", "3"],
            "--repeat_dataset cannot be combined with --sessions",
        ),
        (["--sessions", "recorded", "--think_time", "3"], "--think_time and --users go with --sessions think_time"),
        (["--sessions", "think_time", "--user_rate", "3"], "--user_rate is the rate of each of --users"),
        (
            ["--sessions", "think_time", "--users", "2", "--user_rate", "3", "--think_time", "1"],
            "--think_time cannot be combined with --user_rate",
        ),
        (["--sessions", "think_time", "--users", "3", "--request_rate", "3"], "--request_rate cannot be combined with --users"),
        (["--sessions", "think_time", "--history", "server"], "--history server needs -i openai: only a chat takes"),
        (["--history", "server"], "--history applies to conversations; it needs --sessions think_time"),
        (["--sessions", "recorded", "--request_rate", "9"], "s.json has no arrival times; use --sessions think_time"),
    ],
)
def test_options_that_contradict_each_other_are_one_sentence(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _measure(server, tmp_path / "r", _sharegpt(tmp_path / "s.json", 2, 2), *options) == ExitStatus.USAGE
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert not (tmp_path / "r").exists()
