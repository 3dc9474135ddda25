"""Streams of chat completions of every shape, from a scripted server to the report.

ITL and TPOT are right, or absent with their finding.

What is right follows from the script, which knows the tokens of each chunk, and from the arrivals that were recorded.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bench_records.record import Outcome, Record
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.protocol import Connection
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from reports.run_report import RunReport
from tests.harness.clients.scripted_http import EVENTS_HEAD, Peer, serving
from tests.reports.findings.lookup import finding_of
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

MakeReport = Callable[..., RunReport]

_ANSWERS = 12
_PACE_S = 0.003
_REQUEST = Request(output_tokens=6, prompt="a b c d", input_tokens=4)


@dataclass(frozen=True)
class Chunk:
    """One event: its delta, and the tokens that it carries."""

    delta: dict[str, Any]
    tokens: int


def _text(text: str, tokens: int) -> Chunk:
    return Chunk({"content": text}, tokens)


_ROLE = Chunk({"role": "assistant", "content": ""}, 0)
_SINGLE = tuple(_text(f" w{k}", 1) for k in range(6))
_JOINED = (_text(" w0", 1), _text(" w1 w2", 2), _text(" w3 w4 w5", 3))
_WITHOUT_TEXT = (_text("", 1), _text(" w1", 1), _text("", 1), _text("", 1), _text(" w4", 1), _text("", 1))
_REASONING = tuple(Chunk({"reasoning_content": f" r{k}"}, 1) for k in range(3)) + _SINGLE[3:]


@dataclass(frozen=True)
class Stream:
    """The chunks of even and odd answers, and where tokens are counted (``running``: in each chunk; ``total``: at the end)."""

    even: tuple[Chunk, ...]
    odd: tuple[Chunk, ...]
    running: bool = False
    total: bool = True

    def chunks(self, answer: int) -> tuple[Chunk, ...]:
        return self.odd if answer % 2 else self.even

    def events(self, answer: int) -> list[bytes]:
        """The events of an answer, the last with [DONE]."""
        tokens, events = 0, []
        for chunk in self.chunks(answer):
            tokens += chunk.tokens
            usage = {"usage": _usage(tokens)} if self.running else {}
            events.append({"choices": [{"index": 0, "delta": chunk.delta}]} | usage)
        if self.total:
            events.append({"choices": [], "usage": _usage(tokens)})
        return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 4, "completion_tokens": tokens}


def _both(*chunks: Chunk, **counts: bool) -> Stream:
    return Stream(chunks, chunks, **counts)


@dataclass(frozen=True)
class Run:
    """Records of a run, and when the server sent the chunks of each answer (ns of the monotonic clock)."""

    records: tuple[Record, ...]
    chunks_sent_ns: tuple[tuple[int, ...], ...]


def _run(stream: Stream) -> Run:
    sent_ns: list[tuple[int, ...]] = []

    async def script(peer: Peer) -> None:
        for answer in range(_ANSWERS):
            await peer.read_request()
            peer.writer.write(EVENTS_HEAD)
            times_ns = []
            for event in stream.events(answer):
                await asyncio.sleep(_PACE_S)
                times_ns.append(time.monotonic_ns())
                peer.writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            peer.writer.write(b"0\r\n\r\n")
            sent_ns.append(tuple(times_ns))

    async def records() -> tuple[Record, ...]:
        async with serving(script) as origin:
            client = OpenAIChatClient(origin, "m", continuous_usage=stream.running)
            connection = await client.connect(10.0)
            exchanges = [await _exchange(connection, client.encode(k, _REQUEST), k) for k in range(_ANSWERS)]
            await connection.close()
        schedule = Schedule((_REQUEST,) * _ANSWERS, tuple(exchange.due_ns for exchange in exchanges), seed=0)
        recorder = Recorder(summarise_schedule(schedule), client, lambda text: len(text.split()))
        return tuple(recorder.record(exchange, 0) for exchange in exchanges)

    return Run(asyncio.run(records()), tuple(sent_ns))


async def _exchange(connection: Connection, payload: bytes, index: int) -> Exchange:
    times_ns: list[int] = []
    bodies: list[bytes] = []

    def arrived(times: Sequence[int], new: Sequence[bytes]) -> None:
        times_ns.extend(times)
        bodies.extend(new)

    begun_ns = time.monotonic_ns()
    await connection.exchange(payload, arrived, 10.0)
    return Exchange(index, begun_ns, begun_ns, begun_ns, time.monotonic_ns(), times_ns, bodies, None, None)


def _report(make_report: MakeReport, run: Run) -> RunReport:
    return make_report(run.records, target={"model": "m", "protocol": "openai", "streaming": True})


def _expected(stream: Stream, run: Run) -> tuple[float, float]:
    """Mean ITL (each gap shared by the tokens of its later chunk) and mean TPOT in ms, from the script's token counts."""
    spans_ms, tokens = [], []
    for answer, record in enumerate(run.records):
        times_ns = record.token_times_ns
        spans_ms.append((times_ns[-1] - times_ns[0]) / 1e6)
        tokens.append([chunk.tokens for chunk in stream.chunks(answer) if chunk.tokens])
    itl_ms = sum(spans_ms) / sum(sum(counts[1:]) for counts in tokens)
    tpot_ms = [span / (sum(counts) - 1) for span, counts in zip(spans_ms, tokens, strict=True)]
    return itl_ms, sum(tpot_ms) / len(tpot_ms)


_KNOWN = {
    "a token a chunk, total": _both(_ROLE, *_SINGLE),
    "a token a chunk, running": _both(_ROLE, *_SINGLE, running=True),
    "no role chunk": _both(*_SINGLE),
    "role in the first chunk": _both(Chunk({"role": "assistant", "content": " w0"}, 1), *_SINGLE[1:]),
    "several tokens a chunk, running": _both(_ROLE, *_JOINED, running=True),
    "chunks without text, total": _both(_ROLE, *_WITHOUT_TEXT),
    "chunks without text, running": _both(_ROLE, *_WITHOUT_TEXT, running=True),
    "an end without a token, running": _both(_ROLE, *_SINGLE, _text("", 0), running=True),
    "reasoning": _both(_ROLE, *_REASONING),
    "reasoning, running": _both(_ROLE, *_REASONING, running=True),
    "a coalescing front end, running": Stream((_ROLE, *_SINGLE), (_ROLE, *_JOINED), running=True),
}


@pytest.mark.parametrize("stream", _KNOWN.values(), ids=_KNOWN)
def test_every_token_of_known_counts_is_in_itl_and_tpot(make_report: MakeReport, stream: Stream) -> None:
    run = _run(stream)
    for answer, record in enumerate(run.records):
        chunks = stream.chunks(answer)
        carriers = [number for number, chunk in enumerate(chunks) if chunk.tokens]
        assert record.outcome is Outcome.DONE
        assert record.token_counts == tuple(chunks[number].tokens for number in carriers)
        sent_ns = [run.chunks_sent_ns[answer][number] for number in carriers]
        assert all(arrival >= sent for arrival, sent in zip(record.token_times_ns, sent_ns, strict=True))
    report = _report(make_report, run)
    metrics = report.metrics
    itl_ms, tpot_ms = _expected(stream, run)
    assert metrics.itl_ms is not None
    assert metrics.tpot_ms is not None
    assert metrics.itl_ms.mean.value == pytest.approx(itl_ms)
    assert metrics.tpot_ms.mean.value == pytest.approx(tpot_ms)
    codes = {finding.code for finding in report.findings}
    assert not codes & {"token_counts_unknown", "token_counts_disagree", "answers_left_out"}


_UNKNOWN = {
    "several tokens a chunk, total": (_both(_ROLE, *_JOINED), 0.0),
    "a coalescing front end, total": (Stream((_ROLE, *_SINGLE), (_ROLE, *_JOINED)), 5 / 7),
    "no count at all": (_both(_ROLE, *_SINGLE, total=False), 0.0),
}


@pytest.mark.parametrize(("stream", "share"), _UNKNOWN.values(), ids=_UNKNOWN)
def test_itl_of_unknown_counts_is_absent_with_its_finding(make_report: MakeReport, stream: Stream, share: float) -> None:
    run = _run(stream)
    report = _report(make_report, run)
    _, tpot_ms = _expected(stream, run)
    assert report.metrics.itl_ms is None
    assert report.metrics.icl_ms is not None
    assert report.metrics.tpot_ms is not None
    assert report.metrics.tpot_ms.mean.value == pytest.approx(tpot_ms)
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.evidence["share"] == pytest.approx(share)


def test_answers_that_a_front_end_sends_at_once_are_named(make_report: MakeReport) -> None:
    report = _report(make_report, _run(Stream((_ROLE, *_SINGLE), (_ROLE, _text(" w0 w1 w2 w3 w4 w5", 6)))))
    finding = finding_of(report, "answers_left_out")
    assert finding is not None
    assert finding.evidence["shares"] == {"tpot_ms": 0.5}


def test_a_server_that_counts_chunks_as_tokens_is_caught(make_report: MakeReport) -> None:
    words = " ".join(f"w{k}" for k in range(40))
    report = _report(make_report, _run(_both(*(_text(f" {words}", 1) for _ in range(6)))))
    finding = finding_of(report, "text_tokens_disagree")
    assert finding is not None
    assert (finding.evidence["reported"], finding.evidence["in_text"]) == (6, 240)
