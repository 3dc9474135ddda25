"""The step log of the real engine: the tokens of its rows are those of its requests."""

from __future__ import annotations

import csv
import queue
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from serving.engines.openvino.engine import OpenVinoEngine
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions, Increment, Returns, Sampling, SchedulerPolicy
from serving.errors import EngineError

_COUNTS = ("prefill_tokens", "decode_tokens", "first_tokens")
_random = random.Random(11)
_PROMPTS = [[_random.randrange(100, 1_900) for _ in range(_random.randrange(1, 200))] for _ in range(24)]
_OUTPUTS = [_random.randrange(1, 24) for _ in _PROMPTS]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _answers(
    engine: OpenVinoEngine, samplings: Sequence[Sampling], prompts: Sequence[list[int]] = _PROMPTS
) -> list[list[Increment]]:
    """The increments of each request; every second one is streamed, and some come while others run."""
    delivered: queue.Queue[tuple[int, Increment]] = queue.Queue()
    for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):

        def deliver(increment: Increment, number: int = number) -> None:
            delivered.put((number, increment))

        returns = Returns(perf_metrics=True)
        engine.submit(number, prompt, sampling, deliver, streaming=number % 2 == 0, returns=returns)
        if number % 5 == 0:
            time.sleep(0.01)
    answers: list[list[Increment]] = [[] for _ in prompts]
    while not all(answer and answer[-1].is_last for answer in answers):
        number, increment = delivered.get(timeout=120)
        answers[number].append(increment)
    return answers


def _sum(rows: Sequence[dict[str, str]], column: str) -> int:
    return sum(int(row[column] or 0) for row in rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_tokens": 64, "max_num_sequences": 8},
        {"enable_chunked_context": False},
        {"max_tokens_in_paged_kv_cache": 1_024},
    ],
    ids=str,
)
def test_the_tokens_of_the_steps_are_those_of_the_requests(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "steps.csv"
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path), **options))
    answers = _answers(engine, [Sampling(tokens) for tokens in _OUTPUTS])
    engine.close()
    rows = _rows(path)
    assert all(row[column] for row in rows for column in _COUNTS)
    assert _sum(rows, "prefill_tokens") == sum(map(len, _PROMPTS))
    assert _sum(rows, "first_tokens") == len(_PROMPTS)
    assert _sum(rows, "decode_tokens") == sum(_OUTPUTS) - len(_PROMPTS)
    ends = {int(row["start_ns"]) + int(row["duration_ns"]) for row in rows}
    for answer in answers:
        perf = None if answer[-1].details is None else answer[-1].details.perf
        assert perf is not None
        assert perf.first_token_time_ns in ends
        assert perf.last_token_time_ns in ends


def test_steps_follow_each_other_within_the_limits_of_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path), max_num_tokens=64, max_num_sequences=8))
    _answers(engine, [Sampling(tokens) for tokens in _OUTPUTS])
    engine.close()
    rows = _rows(path)
    starts, ends = [[int(row["start_ns"]) + k * int(row["duration_ns"]) for row in rows] for k in (0, 1)]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert max(int(row["prefill_tokens"]) + int(row["decode_tokens"]) for row in rows) == 64
    assert max(int(row["sequences"]) for row in rows) == 8
    assert max(int(row["waiting"]) for row in rows) > 0
    for row in rows:  # a block has 32 tokens, and a sequence at least one block
        assert int(row["kv_blocks"]) * 32 >= int(row["context_tokens"])
        assert int(row["kv_blocks"]) >= int(row["sequences"])


def test_a_step_with_prompts_and_one_of_a_single_request_last_at_least_as_long_as_the_options_say(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    step_time = "10ms,prompt_token=100us,sequence=1ms"
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path), min_step_time=step_time))
    answers = _answers(engine, [Sampling(4)] * 6, _PROMPTS[:6])
    _answers(engine, [Sampling(4, bad_words=((5,),))], [_PROMPTS[0][:20]])
    engine.close()
    rows = _rows(path)
    assert max(int(row["prefill_tokens"] or 0) for row in rows) > 100
    for row in rows:
        least_ms = 10 + 0.1 * int(row["prefill_tokens"] or 0) + int(row["sequences"])
        assert int(row["duration_ns"]) / 1e6 >= least_ms, row
    plain = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions())
    expected = _answers(plain, [Sampling(4)] * 6, _PROMPTS[:6])
    plain.close()
    tokens = [[[token for each in answer for token in each.token_ids] for answer in side] for side in (answers, expected)]
    assert tokens[0] == tokens[1]


def test_a_prefix_in_the_cache_is_no_prefill(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path)))
    prompt = list(range(100, 200))
    for tail in ([300], [301]):
        _answers(engine, [Sampling(2)], [[*prompt, *tail]])
    engine.close()
    prefilled = [int(row["prefill_tokens"]) for row in _rows(path) if row["first_tokens"] == "1"]
    assert prefilled == [101, 101 - 3 * 32]


def test_what_the_rules_do_not_say_is_an_empty_cell(tmp_path: Path) -> None:
    """A beam search has as many sequences as it has found, and a full cache makes the scheduler pause requests."""
    beams, full = tmp_path / "beams.csv", tmp_path / "full.csv"
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(beams)))
    _answers(engine, [Sampling(8, beam_width=2)], [_PROMPTS[0]])
    _answers(engine, [Sampling(8)], [_PROMPTS[1]])
    engine.close()
    rows = _rows(beams)
    assert [row["prefill_tokens"] for row in rows[:8]] == [""] * 8
    assert _sum(rows, "decode_tokens") == 7
    policy = SchedulerPolicy.MAX_UTILIZATION
    options = EngineOptions(step_log=str(full), batch_scheduler_policy=policy, max_tokens_in_paged_kv_cache=256)
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, options)
    _answers(engine, [Sampling(tokens) for tokens in _OUTPUTS])
    engine.close()
    rows = _rows(full)
    assert any(row["decode_tokens"] == "" for row in rows)
    assert all(row["sequences"] and row["kv_blocks"] for row in rows)


@pytest.mark.parametrize("step_time", ["", "20ms"])
def test_a_request_that_the_pipeline_cannot_serve_has_steps_of_its_own(step_time: str, tmp_path: Path) -> None:
    """Its tokens come with the ends of these: by that ``bench simulate fit`` finds a request in the log."""
    path = tmp_path / "steps.csv"
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path), min_step_time=step_time))
    [answer] = _answers(engine, [Sampling(4, bad_words=((5,),))], [_PROMPTS[0][:20]])
    engine.close()
    rows = _rows(path)
    assert [row["kind"] for row in rows] == ["single"] * 4
    assert {row["decode_tokens"] for row in rows} == {""}
    ends = [int(row["start_ns"]) + int(row["duration_ns"]) for row in rows]
    details = answer[-1].details
    assert details is not None
    assert details.perf is not None
    assert (details.perf.first_token_time_ns, details.perf.last_token_time_ns) == (ends[0], ends[-1])


def test_an_idle_engine_that_is_killed_has_written_all_of_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    before = {child.pid for child in psutil.Process().children()}
    engine = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path)))
    [process] = [child for child in psutil.Process().children() if child.pid not in before]
    _answers(engine, [Sampling(5)], [_PROMPTS[0]])
    deadline = time.monotonic() + 60.0
    while _sum(_rows(path), "first_tokens") + _sum(_rows(path), "decode_tokens") < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    engine.close()
    assert len(_rows(path)) == 5
    again = OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(path)))
    again.close()
    assert [line[:2] for line in path.read_text().splitlines() if not line[0].isdigit()] == ["#{", "st"] * 2


def test_an_engine_does_not_start_without_its_log(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="--step_log"):
        OpenVinoEngine(DEMO_ENGINE_DIR, EngineOptions(step_log=str(tmp_path / "missing" / "steps.csv")))
