"""An example for people who work with Locust: users that stream from a language model. Copy it and change it.

    locust -f deploy/locust/locustfile.py --headless -u 4 -t 20s --host http://127.0.0.1:8000
    locust -f deploy/locust/locustfile.py --headless -u 4 -t 20s --host http://127.0.0.1:8000 --protocol openai

Requests are encoded, and answers parsed, decoded and timed, by the code of ``bench``, so E2E, TTFT and TPOT are those of its
report, from the time of sending. Load, connections and statistics are Locust's:

- A user waits for its answer (a closed loop), so a server that stalls gets fewer requests (coordinated omission).
- Users share one thread, so they delay each other's time stamps. Nothing measures by how much.
- Percentiles have no interval and include the ramp. "Aggregated" mixes requests with times of tokens: read the other lines.
"""

from __future__ import annotations

from functools import lru_cache
from http.client import parse_headers
from io import BytesIO
from itertools import count
from pathlib import Path

import gevent
import requests
from locust import User, events, task
from locust.exception import StopTest

from bench_errors import BenchError
from bench_records.record import Outcome
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_server import choose_model, served_models
from harness.clients.transport.http1_pool import server_message
from harness.clients.transport.sse import EventStream
from harness.clients.transport.url import parse_origin
from harness.clients.triton.http import TritonHttpClient, inspect_model
from harness.host.clock import now_ns
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import ScheduleSummary, summarise_schedule
from workloads.elements.request import Request
from workloads.readers.detect import read_workload_file
from workloads.schedule.schedule import Schedule

PROMPTS = Path(__file__).parents[2] / "datasets" / "prompts.json"


gevent.get_hub().NOT_ERROR += (StopTest,)  # Locust prints its text; a traceback would hide it


@events.init_command_line_parser.add_listener
def add_options(parser):
    parser.add_argument("--protocol", env_var="BENCH_PROTOCOL", choices=["http", "openai"], default="http")
    parser.add_argument("--model", env_var="BENCH_MODEL", default="", help="Default: ensemble, or an OpenAI server's only one.")
    parser.add_argument("--dataset", env_var="BENCH_DATASET", default=str(PROMPTS), help="Any file that bench dataset reads.")
    parser.add_argument("--output_tokens", env_var="BENCH_OUTPUT_TOKENS", type=int, default=128, help="Tokens of an answer.")


def connect(origin, protocol, model):
    """A client for a server of chat completions, or for a Triton model that takes text. Raises TargetError."""
    if protocol == "openai":
        path = "/v1/chat/completions"
        return OpenAIChatClient(origin, choose_model(model or None, served_models(origin, path, {})), path=path)
    return TritonHttpClient(origin, inspect_model(origin, model or "ensemble", {}), streaming=True)


class LanguageModelUser(User):
    """Sends one prompt after another, and waits for each answer."""

    def __init__(self, environment):
        super().__init__(environment)
        options = environment.parsed_options
        try:
            origin = parse_origin(self.host or "", {"http": 8000, "https": 443})
            self.client = connect(origin, options.protocol, options.model)
            self.requests, summary = traffic(options.dataset, options.output_tokens)
        except (BenchError, ValueError) as error:
            environment.process_exit_code = 1
            raise StopTest(str(error).replace("--url", "--host", 1)) from None
        self.recorder = Recorder(summary, self.client)
        self.numbers = numbers(max(0, environment.runner.worker_index))
        self.session = requests.Session()

    @task
    def ask(self):
        number = next(self.numbers)
        head, _, body = self.client.encode(number, self.requests[number]).partition(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        url = f"{self.client.origin}{line.split()[1].decode()}"
        times_ns, bodies = [], []

        def on_event(data):
            if data != b"[DONE]":
                times_ns.append(now_ns())
                bodies.append(data)

        failure, error, sent_ns = None, None, now_ns()
        try:
            headers = dict(parse_headers(BytesIO(fields + b"\r\n\r\n")))
            with self.session.post(url, body, headers=headers, stream=True, timeout=600) as answer:
                if answer.status_code >= 300:
                    failure, error = Outcome.SERVER_ERROR, server_message(answer.content)
                else:
                    stream = EventStream(on_event, on_event)
                    for part in answer.iter_content(None):
                        stream.feed(part)
        except requests.RequestException as broken:
            failure, error = Outcome.STREAM_CUT, str(broken)
        exchange = Exchange(number, sent_ns, sent_ns, sent_ns, now_ns(), times_ns, bodies, failure, error)
        self.report(self.recorder.record(exchange, worker=0))

    def report(self, record):
        def fire(kind, milliseconds, exception=None):
            shown = {"name": "answers", "response_length": 0, "context": {}}
            events.request.fire(request_type=kind, response_time=milliseconds, exception=exception, **shown)

        times_ns, tokens = record.token_times_ns, record.output_tokens
        if record.outcome is not Outcome.DONE or not times_ns:
            fire("E2E", None, RuntimeError(f"{record.outcome}: {record.error or 'an answer without tokens'}"))
            return
        fire("E2E", (times_ns[-1] - record.sent_ns) / 1e6)
        fire("TTFT", (times_ns[0] - record.sent_ns) / 1e6)
        if tokens is not None and tokens > 1:
            fire("TPOT", (times_ns[-1] - times_ns[0]) / 1e6 / (tokens - 1))


class Repeated(tuple):
    """Requests without end: number n is that at n modulo their number. Numbers are ids on the wire, so none comes twice."""

    def __getitem__(self, number):
        return super().__getitem__(number % len(self))


@lru_cache
def traffic(dataset, output_tokens):
    """The requests of a dataset, and what the recorder needs of them."""
    prompts = read_workload_file(Path(dataset), None, False).workload.table["prompt"].to_pylist()
    made = tuple(Request(output_tokens, prompt) for prompt in prompts if prompt)
    summary = summarise_schedule(Schedule(made, (0,) * len(made), seed=0))
    return Repeated(made), ScheduleSummary(summary.digest, summary.times, Repeated(summary.requests))


@lru_cache
def numbers(worker):
    return count(worker << 32)
