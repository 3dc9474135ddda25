"""``bench trace``: a file's own prompts, its conversations, and lengths that are scaled."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer
from workloads.readers.detect import read_workload_file
from workloads.table.workload import Workload, WorkloadFacts

_TOKENIZER = Path(__file__).parents[3] / "serving" / "demo_engine"
_MS = 1_000_000


def _trace(server: ScriptedServer, folder: Path, file: Path, *options: str, model: str = "text") -> int:
    line = ["trace", str(file), "--url", server.address, "--model", model, "--run_dir", str(folder)]
    return run([*line, "--warmup_requests", "0", *options])


def _lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def _rows(folder: Path) -> list[dict[str, Any]]:
    return sorted(RunFolder(folder).read_requests().to_pylist(), key=lambda row: int(row["index"]))


def _prompts(path: Path) -> Path:
    rows = [{"timestamp": 100 * number, "prompt": f"say {number}", "output_tokens": number + 1} for number in range(4)]
    return _lines(path, *reversed(rows))


def test_prompts_with_times_are_sent_at_them(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _trace(server, tmp_path / "r", _prompts(tmp_path / "p.jsonl"), "--speed", "2", "--start", "0.1")
    rows = _rows(tmp_path / "r")
    assert [row["scheduled_ns"] for row in rows] == [0, 50 * _MS, 100 * _MS]
    assert [row["requested_output_tokens"] for row in rows] == [2, 3, 4]
    assert "3 prompts of p.jsonl; the trace's own arrivals" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(("rate", "duration", "requests"), [("100", "0.1", 10), ("30", "0.25", 8)])
def test_a_trace_that_is_stretched_sends_the_requests_of_its_duration_at_its_rate(
    server: ScriptedServer, tmp_path: Path, rate: str, duration: str, requests: int
) -> None:
    rows = [{"timestamp": k * k, "prompt": f"say {k}", "output_tokens": 2} for k in range(40)]
    file = _lines(tmp_path / "p.jsonl", *rows)
    _trace(server, tmp_path / "r", file, "--request_rate", rate, "--duration", duration)
    assert len(_rows(tmp_path / "r")) == requests
    manifest = RunFolder(tmp_path / "r").read_document()[0]
    assert manifest["workload"]["description"] == f"{requests} prompts of p.jsonl"
    (whole,) = json.loads((tmp_path / "r" / "summary.json").read_text())["arrival_laws"]
    assert whole["asked"]["rate_per_s"] == pytest.approx(whole["scheduled"]["rate_per_s"])
    assert whole["scheduled"]["rate_per_s"] == pytest.approx(float(rate), rel=1e-6)


@pytest.mark.parametrize(("duration", "more", "ran_out"), [("0.2", (), False), ("0.3", (), True), ("0.3", ("5",), False)])
def test_a_trace_with_too_few_requests_for_its_duration_at_a_rate_has_a_finding(
    server: ScriptedServer, tmp_path: Path, duration: str, more: tuple[str, ...], ran_out: bool
) -> None:
    rows = [{"timestamp": k * k, "prompt": f"say {k}", "output_tokens": 2} for k in range(20)]
    options = ("--request_rate", "100", "--duration", duration, *(("--num_requests", *more) if more else ()))
    _trace(server, tmp_path / "r", _lines(tmp_path / "p.jsonl", *rows), *options)
    found = {finding["code"] for finding in json.loads((tmp_path / "r" / "summary.json").read_text())["findings"]}
    assert ("requests_ran_out" in found) is ran_out


def test_an_imported_workload_is_replayed_as_its_origin(server: ScriptedServer, tmp_path: Path) -> None:
    origin, imported = _prompts(tmp_path / "p.jsonl"), tmp_path / "w.parquet"
    run(["workload", "import", str(origin), "-o", str(imported)])
    for name, file in (("origin", origin), ("imported", imported)):
        _trace(server, tmp_path / name, file, "--speed", "10")
    digests = {RunFolder(tmp_path / name).read_document()[0]["schedule"]["digest"] for name in ("origin", "imported")}
    assert len(digests) == 1


def test_prompts_among_rows_of_lengths_are_counted_and_named(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mixed.parquet"
    columns = {"arrival_ns": [0, 1, 2, 3], "prompt": [None, "a", None, "b"], "output_tokens": [2] * 4, "input_tokens": [5] * 4}
    Workload.of_columns(WorkloadFacts("own", "mixed"), 4, columns).write(file)
    _trace(server, tmp_path / "r", file)
    assert "2 rows of" in (shown := capsys.readouterr().err)
    assert "have no text, and are not sent: rows 1, 3." in shown
    assert RunFolder(tmp_path / "r").read_document()[0]["workload"]["without_text"] == 2


def _tree(path: Path, *, apart_s: float = 0.05) -> Path:
    """Three conversations of two turns, whose second ones arrive at once."""
    rows = []
    for number in range(6):
        turn = {"chat_id": number, "parent_chat_id": number - 3 if number > 2 else -1, "turn": number // 3 + 1, "type": "text"}
        lengths = {"input_length": 20, "output_length": 2, "hash_ids": [number % 3, 10 + number]}
        rows.append(turn | lengths | {"timestamp": apart_s * number})
    return _lines(path, *rows)


@pytest.mark.parametrize("clock", ["recorded", "think_time"])
def test_turns_of_a_trace_wait_for_their_answers(server: ScriptedServer, tmp_path: Path, clock: str) -> None:
    digests = set()
    for workers in ("1", "4"):
        folder = tmp_path / workers
        _trace(
            server, folder, _tree(tmp_path / "t.jsonl"), "--sessions", clock, "--workers", workers, "--tokenizer_dir",
            str(_TOKENIZER), model="scripted",
        )  # fmt: skip
        rows = _rows(folder)
        assert [row["parent"] for row in rows] == [None, None, None, 0, 1, 2]
        assert [row["session"] for row in rows] == ["0", "1", "2"] * 2
        assert [row["requested_input_tokens"] for row in rows] == [20] * 6
        assert all(row["sent_ns"] >= rows[row["parent"]]["done_ns"] for row in rows[3:])
        assert [row["scheduled_ns"] for row in rows[:3]] == [0, 50 * _MS, 100 * _MS]
        planned_ms = [None if row["planned_ns"] is None else row["planned_ns"] / _MS for row in rows[3:]]
        assert planned_ms == ([150, 200, 250] if clock == "recorded" else [None] * 3)
        manifest = RunFolder(folder).read_document()[0]
        assert manifest["arrivals"].startswith("3 sessions at the trace's own times, a later turn due")
        assert manifest["workload"]["shared_prefix_limit"] == pytest.approx(48 / 120)
        digests.add(manifest["schedule"]["digest"])
    assert len(digests) == 1


def test_the_window_of_conversations_lasts_as_long_as_its_part_of_the_run(server: ScriptedServer, tmp_path: Path) -> None:
    options = ("--sessions", "recorded", "--speed", "2", "--duration", "0.12", "--tokenizer_dir", str(_TOKENIZER))
    _trace(server, tmp_path / "r", _tree(tmp_path / "t.jsonl"), *options, model="scripted")
    manifest = RunFolder(tmp_path / "r").read_document()[0]
    assert manifest["load"]["duration_s"] == 0.06
    assert manifest["load"]["asked_arrivals"]["law"] == "the trace's own arrivals, 40 sessions/s"


_SAMPLES = Path(__file__).parents[3] / "datasets"


@pytest.mark.parametrize(("name", "speed", "joined"), [("dynamo_request_trace", "10", 8), ("agent_sessions", "10", 6)])
def test_tool_waits_and_parallel_sub_turns_of_agents_are_kept_by_any_number_of_workers(
    server: ScriptedServer, tmp_path: Path, name: str, speed: str, joined: int
) -> None:
    imported = read_workload_file(_SAMPLES / f"{name}.jsonl").workload.table.to_pylist()
    assert sum(row["joins"] is not None for row in imported) == joined
    digests = set()
    for workers in ("1", "4"):
        options = ("--sessions", "think_time", "--speed", speed, "--workers", workers, "--tokenizer_dir", str(_TOKENIZER))
        _trace(server, tmp_path / workers, _SAMPLES / f"{name}.jsonl", *options, model="scripted")
        rows = _rows(tmp_path / workers)
        assert len(rows) == len(imported)
        for row, origin in zip(rows, imported, strict=True):
            waited_for = [] if origin["parent"] is None else [origin["parent"], *(origin["joins"] or ())]
            assert row["parent"] == origin["parent"]
            if waited_for:
                think_ns = round(origin["think_time_ns"] / float(speed))
                assert row["scheduled_ns"] == max(rows[other]["done_ns"] for other in waited_for) + think_ns
                assert row["sent_ns"] >= row["scheduled_ns"]
            else:
                assert row["scheduled_ns"] == round(origin["arrival_ns"] / float(speed))
        digests.add(RunFolder(tmp_path / workers).read_document()[0]["schedule"]["digest"])
    assert len(digests) == 1


def test_turns_that_join_one_that_is_too_long_are_not_sent(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = {"output_length": 2, "hash_ids": [0]}
    rows = [
        lengths | {"request_id": "a", "timestamp": 0, "input_length": 8},
        lengths | {"request_id": "b", "wait_for": ["a"], "input_length": 400},
        lengths | {"request_id": "c", "wait_for": ["a"], "input_length": 9},
        lengths | {"request_id": "d", "wait_for": ["a", "b", "c"], "input_length": 8},
    ]
    options = ("--sessions", "think_time", "--max_input_len", "30", "--tokenizer_dir", str(_TOKENIZER))
    _trace(server, tmp_path / "r", _lines(tmp_path / "t.jsonl", *rows), *options, model="scripted")
    assert [row["requested_input_tokens"] for row in _rows(tmp_path / "r")] == [8, 9]
    assert "1 turn is left out, since it waits for one that is not sent." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "48 of 54 requests have no time of their own, but wait for answers: give --sessions think_time"),
        (("--sessions", "recorded"), "give --sessions think_time"),
        (("--sessions", "think_time", "--request_rate", "5"), "the trace has no rate that --request_rate could scale"),
        (("--sessions", "think_time", "--start", "1"), "what comes after --start is unknown; --duration cuts the end"),
        (("--concurrency", "2", "--start", "1"), "what comes after --start is unknown"),
    ],
)
def test_times_that_a_trace_of_agents_lacks_are_not_made_up(
    server: ScriptedServer, tmp_path: Path, options: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _trace(server, tmp_path / "r", _SAMPLES / "agent_sessions.jsonl", *options) == ExitStatus.USAGE
    assert problem in capsys.readouterr().err.replace("\n", " ")


def test_a_duration_cuts_the_end_of_a_trace_of_agents(server: ScriptedServer, tmp_path: Path) -> None:
    lengths = {"input_length": 8, "output_length": 2, "hash_ids": [0]}
    rows = [
        lengths | {"request_id": "a", "timestamp": 0},
        lengths | {"request_id": "b", "wait_for": ["a"], "delay": 20},
        lengths | {"request_id": "c", "wait_for": ["b"], "delay": 30_000},
    ]
    options = ("--sessions", "think_time", "--duration", "20", "--speed", "10", "--tokenizer_dir", str(_TOKENIZER))
    _trace(server, tmp_path / "r", _lines(tmp_path / "t.jsonl", *rows), *options, model="scripted")
    assert [row["parent"] for row in _rows(tmp_path / "r")] == [None, 0]
    assert RunFolder(tmp_path / "r").read_document()[0]["load"]["duration_s"] == 2.0


def test_a_duration_of_a_trace_whose_requests_arrive_at_once_is_accepted(server: ScriptedServer, tmp_path: Path) -> None:
    rows = [{"timestamp": 5, "prompt": f"say {number}", "output_tokens": 2} for number in range(3)]
    _trace(server, tmp_path / "r", _lines(tmp_path / "p.jsonl", *rows), "--duration", "1")
    assert [row["scheduled_ns"] for row in _rows(tmp_path / "r")] == [0, 0, 0]


_TURN = {"turn": 1, "type": "text", "output_length": 2}
_BEHIND_TOO_LONG = (
    _TURN | {"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 40, "hash_ids": [0, 1, 2]},
    _TURN | {"chat_id": 1, "parent_chat_id": 0, "timestamp": 0.01, "input_length": 8, "hash_ids": [5]},
)


def test_turns_behind_one_that_is_too_long_are_not_sent(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    another = _TURN | {"chat_id": 2, "parent_chat_id": -1, "timestamp": 0.02, "input_length": 8, "hash_ids": [6]}
    rows = [*_BEHIND_TOO_LONG, another]
    options = ("--sessions", "recorded", "--max_input_len", "30", "--tokenizer_dir", str(_TOKENIZER))
    _trace(server, tmp_path / "r", _lines(tmp_path / "t.jsonl", *rows), *options, model="scripted")
    assert [row["session"] for row in _rows(tmp_path / "r")] == ["2"]
    assert "1 turn is left out, since it waits for one that is not sent." in capsys.readouterr().err
    assert RunFolder(tmp_path / "r").read_document()[0]["workload"]["dropped_behind"] == 1


def test_a_trace_of_which_every_turn_waits_for_one_that_is_too_long_is_refused(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--sessions", "recorded", "--max_input_len", "30", "--tokenizer_dir", str(_TOKENIZER))
    file = _lines(tmp_path / "t.jsonl", *_BEHIND_TOO_LONG)
    assert _trace(server, tmp_path / "r", file, *options, model="scripted") == ExitStatus.USAGE
    assert "each turn is longer than --max_input_len 30 allows, or waits for one that is" in capsys.readouterr().err


def test_turns_that_are_left_out_are_none_of_the_number_of_requests(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = {"turn": 1, "type": "text", "output_length": 2, "hash_ids": [5]}
    rows = [
        turn | {"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 40, "hash_ids": [0, 1, 2]},
        turn | {"chat_id": 1, "parent_chat_id": 0, "timestamp": 0.01, "input_length": 8},
        *(turn | {"chat_id": k, "parent_chat_id": -1, "timestamp": 0.01 * k, "input_length": 8} for k in (2, 3, 4)),
    ]
    options = ("--sessions", "recorded", "--max_input_len", "30", "--num_requests", "2", "--tokenizer_dir", str(_TOKENIZER))
    _trace(server, tmp_path / "r", _lines(tmp_path / "t.jsonl", *rows), *options, model="scripted")
    assert [row["session"] for row in _rows(tmp_path / "r")] == ["2", "3"]
    assert "there are only" not in capsys.readouterr().err


def _blocks(path: Path) -> Path:
    rows = [{"timestamp": 10 * k, "input_length": 1100, "output_length": 4, "hash_ids": [0, 1, 100 + k]} for k in range(4)]
    return _lines(path, *rows)


def test_scaled_prefixes_are_sent_and_their_effect_on_reuse_is_reported(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--prefix_factor", "2", "--output_factor", "0.5", "--tokenizer_dir", str(_TOKENIZER))
    _trace(server, tmp_path / "r", _blocks(tmp_path / "m.jsonl"), *options, model="scripted")
    rows = _rows(tmp_path / "r")
    assert [row["requested_input_tokens"] for row in rows] == [1100 + 1024] * 4
    assert [row["requested_output_tokens"] for row in rows] == [2] * 4
    workload = RunFolder(tmp_path / "r").read_document()[0]["workload"]
    after, before = 3 * 2048 / (4 * 2124), 3 * 1024 / (4 * 1100)
    assert workload["shared_prefix_limit"] == pytest.approx(after)
    assert workload["shared_prefix_limit_unscaled"] == pytest.approx(before)
    assert (workload["prefix_factor"], workload["output_factor"]) == (2.0, 0.5)
    assert (
        f"an infinite prefix cache would have {after:.1%} of the prompt tokens; without --prefix_factor, --output_factor "
        f"{before:.1%}." in capsys.readouterr().err
    )
    cache = json.loads((tmp_path / "r" / "summary.json").read_text())["prefix_cache"]
    assert (cache["limit_share"], cache["unscaled_limit_share"]) == (pytest.approx(after), pytest.approx(before))


@pytest.mark.parametrize("verb", ["trace", "dataset"])
def test_the_reuse_that_a_cache_can_have_is_of_the_requests_that_were_sent(
    server: ScriptedServer, tmp_path: Path, verb: str
) -> None:
    """A closed loop that ends by the clock sends some of the requests that are prepared."""
    rows = [{"timestamp": k, "input_length": 600, "output_length": 2, "hash_ids": [0, 1 + k]} for k in range(1_000)]
    file = str(_lines(tmp_path / "m.jsonl", *rows))
    line = [verb, *(["--dataset"] if verb == "dataset" else []), file, "--url", server.address, "--model", "scripted"]
    line += ["--tokenizer_dir", str(_TOKENIZER), "--input_factor", "2", "--warmup_requests", "0"]
    run([*line, "--concurrency", "1", "--duration", "0.1", "--run_dir", str(tmp_path / "r")])
    sent = len(_rows(tmp_path / "r"))
    assert 0 < sent < 1_000
    workload = RunFolder(tmp_path / "r").read_document()[0]["workload"]
    assert workload["shared_prefix_limit"] == pytest.approx((sent - 1) * 1024 / (sent * 1200))
    assert workload["shared_prefix_limit_unscaled"] == pytest.approx((sent - 1) * 512 / (sent * 600))


def test_a_dataset_of_a_trace_is_scaled_too(server: ScriptedServer, tmp_path: Path) -> None:
    line = ["dataset", "--dataset", str(_blocks(tmp_path / "m.jsonl")), "--url", server.address, "--model", "scripted"]
    line += ["--tokenizer_dir", str(_TOKENIZER), "--input_factor", "0.5", "--warmup_requests", "0"]
    run([*line, "--run_dir", str(tmp_path / "r")])
    assert [row["requested_input_tokens"] for row in _rows(tmp_path / "r")] == [550] * 4
    assert RunFolder(tmp_path / "r").read_document()[0]["workload"]["input_factor"] == 0.5


def test_the_options_of_a_trace_are_given_back(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _tree(tmp_path / "t.jsonl")
    options = ("--speed", "2", "--start", "0.05", "--sessions", "recorded", "--input_factor", "2", "--tokenizer_dir")
    _trace(server, tmp_path / "r", file, *options, str(_TOKENIZER), model="scripted")
    capsys.readouterr()
    run(["config", str(tmp_path / "r")])
    text = capsys.readouterr().out
    given = tomllib.loads(text)
    assert {"speed": 2.0, "start": 0.05, "sessions": "recorded", "input_factor": 2.0}.items() <= given.items()
    assert "request_rate" not in given
    (tmp_path / "again.toml").write_text(text)
    run(["trace", str(file), "--config", str(tmp_path / "again.toml"), "--run_dir", str(tmp_path / "again")])
    digests = {RunFolder(tmp_path / name).read_document()[0]["schedule"]["digest"] for name in ("r", "again")}
    assert len(digests) == 1


def test_a_conversation_that_began_before_the_start_is_left_out_where_its_text_would_be_missing(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"timestamp": 100 * k, "session_id": k % 2, "prompt": f"p{k}"} for k in range(3)]
    _trace(server, tmp_path / "r", _lines(tmp_path / "p.jsonl", *rows), "--start", "0.1")
    assert [row["session"] for row in _rows(tmp_path / "r")] == ["1"]
    assert "1 turn is left out, since its conversation began before --start." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--prefix_factor", "2"), "p.jsonl has prompts of its own, of which the length is that of their text"),
        (("--think_time", "2"), "--think_time applies to conversations; it needs --sessions"),
        (("--sessions", "recorded", "--concurrency", "2"), "--concurrency cannot be combined with --sessions"),
        (("--sessions", "recorded", "--history", "server"), "--history server needs -i openai"),
        (("--input_factor", "0"), "--input_factor"),
        (
            ("--sessions", "recorded", "--duration", "5", "--request_rate", "3"),
            "--duration and --request_rate cannot be combined with --sessions",
        ),
    ],
)
def test_options_that_contradict_a_trace_with_prompts_are_refused(
    server: ScriptedServer, tmp_path: Path, options: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _trace(server, tmp_path / "r", _prompts(tmp_path / "p.jsonl"), *options) == ExitStatus.USAGE
    assert problem in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "r").exists()


def test_lengths_of_a_trace_are_not_set_by_options_of_prompts(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _trace(server, tmp_path / "r", _tree(tmp_path / "t.jsonl"), "--output_tokens", "4") == ExitStatus.USAGE
    assert "--output_tokens applies to prompts; the trace has its own lengths" in capsys.readouterr().err


def _bursts(path: Path) -> Path:
    """Prompts in the first 100 ms and from 2 s to 2.1 s of a trace, with silence between them."""
    times_ms = [0, 50, 99, *range(2_000, 2_100, 20)]
    return _lines(path, *({"timestamp": ms, "prompt": f"say {ms}", "output_tokens": 2} for ms in times_ms))


def test_windows_of_a_trace_follow_each_other_with_their_silence(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, seen = _bursts(tmp_path / "p.jsonl"), []
    for number, start in enumerate(("0", "0.9", "1.8")):
        _trace(server, tmp_path / str(number), file, "--start", start, "--duration", "0.9", "--speed", "2")
        folder = RunFolder(tmp_path / str(number))
        if number == 1:
            assert not folder.path.exists()
            assert "--start 0.9 --duration 0.9: p.jsonl has no request in that time" in capsys.readouterr().err
            continue
        assert folder.read_document()[0]["load"]["duration_s"] == 0.45
        seen += [(number, row["scheduled_ns"] / _MS) for row in _rows(folder.path)]
    assert seen == [(0, 0.0), (0, 25.0), (0, 49.5), *((2, at_ms) for at_ms in (100.0, 110.0, 120.0, 130.0, 140.0))]


def test_windows_of_a_trace_have_no_prompt_in_common(server: ScriptedServer, tmp_path: Path) -> None:
    """Else a prefix cache that one window filled would have the prompts of the next."""
    rows = [f"2023-11-16 18:00:{second:02d}.{tenth},40,2" for second in (0, 10) for tenth in (0, 1)]
    (tmp_path / "t.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    digests = []
    for start in ("0", "10"):
        window = ("--start", start, "--duration", "0.2", "--tokenizer_dir", str(_TOKENIZER))
        _trace(server, tmp_path / start, tmp_path / "t.csv", *window, model="scripted")
        assert [row["scheduled_ns"] for row in _rows(tmp_path / start)] == [0, 100 * _MS]
        digests.append(RunFolder(tmp_path / start).read_document()[0]["schedule"]["digest"])
    assert digests[0] != digests[1]


def test_a_run_that_begins_with_silence_says_so_and_waits(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _trace(server, tmp_path / "r", _bursts(tmp_path / "p.jsonl"), "--start", "1")
    assert [row["scheduled_ns"] for row in _rows(tmp_path / "r")] == [(1_000 + 20 * k) * _MS for k in range(5)]
    assert "The window begins with 1.0 s without a request." in capsys.readouterr().err
    metrics = json.loads((tmp_path / "r" / "summary.json").read_text())["metrics"]
    assert metrics["offered_rate"]["value"] == pytest.approx(50.0)


def test_a_window_with_one_request_is_one(server: ScriptedServer, tmp_path: Path) -> None:
    _trace(server, tmp_path / "r", _bursts(tmp_path / "p.jsonl"), "--start", "0.04", "--duration", "0.02")
    assert [row["scheduled_ns"] for row in _rows(tmp_path / "r")] == [10 * _MS]


def test_a_window_of_turns_whose_conversations_began_before_is_refused(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"timestamp": 100 * k, "session_id": 1, "prompt": f"p{k}"} for k in range(3)]
    _trace(server, tmp_path / "r", _lines(tmp_path / "p.jsonl", *rows), "--start", "0.1")
    assert "--start 0.1: every turn in it belongs to a conversation that began before" in capsys.readouterr().err
