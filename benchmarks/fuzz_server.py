"""Fuzz test of the embedded server: ten thousand malformed requests, concurrent with valid ones.

    python -m benchmarks.fuzz_server [--requests 10000] [--seed 0] [--beside 4]

Half of them go to decoupled models, half to models that are not. Each must get a response or an error within a deadline; the
concurrent valid requests must get exactly their greedy output; at the end the same processes must serve the same outputs.
Failures are printed, with the requests in flight, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from benchmarks.malformed_requests import MODELS, Draft, malformed_bodies, malformed_requests, sound_request
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec

SERVICE = "/inference.GRPCInferenceService"
DEADLINE_S = 60.0
AT_ONCE = 8
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1))


@dataclass
class Findings:
    """Outcomes of the requests; ``broken`` has a message for every failed check."""

    outcomes: Counter[str] = field(default_factory=Counter)
    good_answers: int = 0
    broken: list[str] = field(default_factory=list)


class Caller:
    """Client that sends encoded requests over one channel, unary or on a stream per request."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._unary = self._channel.unary_unary(f"{SERVICE}/ModelInfer")
        self._stream = self._channel.stream_stream(f"{SERVICE}/ModelStreamInfer")

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.close()

    def start(self, body: bytes, streamed: bool) -> Any:
        if streamed:
            return self._stream(iter([body]), timeout=DEADLINE_S)
        return self._unary.future(body, timeout=DEADLINE_S)

    def outcome(self, call: Any, streamed: bool) -> tuple[str, list[Any]]:
        """Outcome (answer, error, traceback, silence: a stream without messages, hang or gone), and the responses."""
        try:
            if not streamed:
                return "answer", [service_pb2.ModelInferResponse.FromString(call.result())]
            messages = [service_pb2.ModelStreamInferResponse.FromString(body) for body in call]
        except grpc.RpcError as error:
            match error.code():
                case grpc.StatusCode.DEADLINE_EXCEEDED:
                    return "hang", []
                case grpc.StatusCode.UNAVAILABLE if "Socket closed" in str(error.details()) or "onnect" in str(error.details()):
                    return "gone", []
                case _:
                    return _kind_of_error(str(error.details())), []
        errors = "".join(message.error_message for message in messages)
        if errors:
            return _kind_of_error(errors), []
        return ("answer" if messages else "silence"), [message.infer_response for message in messages]


def fuzz(server: Server, decoupled: bool, count: int, seed_number: int, beside: int) -> Findings:
    """Send ``count`` malformed requests to one server, in batches; ``beside`` threads send valid ones concurrently."""
    findings = Findings()
    address = server.addresses.grpc
    before = {model: greedy_answer(address, model, decoupled) for model in MODELS}
    processes = stub_processes(server)
    stopping = threading.Event()
    threads = [
        threading.Thread(target=_good_requests, args=(address, decoupled, before, number, stopping, findings))
        for number in range(beside)
    ]
    for thread in threads:
        thread.start()
    try:
        _send_malformed(server, decoupled, count, seed_number, findings)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    if stub_processes(server) != processes:
        findings.broken.append("the model processes have changed")
    if server.is_running():
        after = {model: greedy_answer(address, model, decoupled) for model in MODELS}
        findings.broken.extend(f"the output of {model} has changed" for model in MODELS if after[model] != before[model])
    if beside and not findings.good_answers:
        findings.broken.append("no valid request was answered concurrently")
    return findings


def _send_malformed(server: Server, decoupled: bool, count: int, seed_number: int, findings: Findings) -> None:
    routed = st.tuples(malformed_requests(), st.sampled_from([decoupled, decoupled, decoupled, not decoupled]))
    batches = st.tuples(st.lists(routed, min_size=AT_ONCE - 1, max_size=AT_ONCE - 1), malformed_bodies())
    progress = _Progress(count)

    @seed(seed_number)
    @settings(
        max_examples=-(-count // AT_ONCE), deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(batches)
    def send(drawn: tuple[Sequence[tuple[Draft, bool]], tuple[str, bytes]]) -> None:
        if findings.broken:
            return
        batch, (path, body) = drawn
        with Caller(server.addresses.grpc) as caller:
            calls = [(draft, streamed, caller.start(draft.encode(), streamed)) for draft, streamed in batch]
            posted = post(server.addresses.http, path, body)
            ended = [(draft, streamed, caller.outcome(call, streamed)[0]) for draft, streamed, call in calls]
        for draft, streamed, outcome in ended:
            findings.outcomes[outcome] += 1
            # gRPC silently ends a stream with a message that it cannot parse, before Triton receives it
            if outcome in ("hang", "gone", "traceback") or (outcome == "silence" and draft.cut is None):
                findings.broken.append(f"{outcome}: {'stream' if streamed else 'unary'} {draft}")
        findings.outcomes[f"HTTP {posted}"] += 1
        if posted in ("hang", "gone", "traceback"):
            findings.broken.append(f"{posted}: POST {path} {body!r}")
        if findings.broken or not server.is_running():
            findings.broken.append("in flight: " + "\n".join(repr(draft) for draft, _, _ in ended) + f"\nPOST {path} {body!r}")
        progress.add(len(ended) + 1, findings)

    send()


def _kind_of_error(message: str) -> str:
    return "traceback" if "Traceback" in message or ".py(" in message else "error"


def complaints_of(log: Path) -> list[str]:
    """Lines in the log of a stopped server about failed batches, or about requests that never ended."""
    marks = ("Failed to process the request(s)", "in-flight inferences", "failed to stop server", "Non-graceful termination")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    matches = [line[:600] for line in lines if any(mark in line for mark in marks) and "Found 0 model versions" not in line]
    return [*matches[:3], *matches[-1:]] if len(matches) > 4 else matches


def post(address: str, path: str, body: bytes) -> str:
    """POST a body; returns the outcome: answer, error, traceback, hang or gone."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE_S)
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        answered = response.read()
        failed = response.status != 200 or b'{"error":' in answered
        return _kind_of_error(answered.decode("utf-8", "replace")) if failed else "answer"
    except TimeoutError:
        return "hang"
    except (OSError, http.client.HTTPException):
        return "gone"
    finally:
        connection.close()


class _Progress:
    def __init__(self, count: int) -> None:
        self._count, self._sent, self._started = count, 0, time.monotonic()

    def add(self, sent: int, findings: Findings) -> None:
        before, self._sent = self._sent, self._sent + sent
        if self._sent // 1000 != before // 1000:
            elapsed_s = time.monotonic() - self._started
            state = f"{self._sent}/{self._count} {elapsed_s:.0f} s {dict(findings.outcomes)} good {findings.good_answers}"
            print(state, file=sys.stderr)


def _good_requests(
    address: str,
    decoupled: bool,
    expected: dict[str, list[tuple[str, bytes]]],
    number: int,
    stopping: threading.Event,
    findings: Findings,
) -> None:
    model = MODELS[number % len(MODELS)]
    while not stopping.is_set() and not findings.broken:
        try:
            answer = greedy_answer(address, model, decoupled)
        except AssertionError as error:
            findings.broken.append(f"a concurrent valid request failed: {error}")
            return
        if answer != expected[model]:
            findings.broken.append(f"a valid request to {model} got {answer}, not {expected[model]}")
        findings.good_answers += 1
        stopping.wait(0.02)


def greedy_answer(address: str, model: str, decoupled: bool) -> list[tuple[str, bytes]]:
    """Outputs of a fixed, valid request. Raises AssertionError when there are none."""
    with Caller(address) as caller:
        outcome, responses = caller.outcome(caller.start(sound_request(model).encode(), decoupled), decoupled)
    assert outcome == "answer", f"{model}: {outcome}"
    return [
        (output.name, raw)
        for response in responses
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    ]


def stub_processes(server: Server) -> list[int]:
    """Process ids of Triton and of the Python models' stubs below it."""
    port = f"--grpc-port={server.addresses.grpc_port}"
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if process.name() == "tritonserver" and port in process.cmdline():
                return sorted([process.pid, *(child.pid for child in process.children(recursive=True))])
        except psutil.NoSuchProcess:
            continue
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=int, default=4)
    parser.add_argument("--log_dir", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    failed = False
    for decoupled in (True, False):
        mode = "decoupled" if decoupled else "plain"
        spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, decoupled_mode=decoupled)
        log = arguments.log_dir / f"fuzz_{mode}.log"
        log.unlink(missing_ok=True)
        with deploy(spec, choose_addresses(), log) as server:
            findings = fuzz(server, decoupled, arguments.requests // 2, arguments.seed, arguments.beside)
        findings.broken.extend(f"in the log: {line}" for line in complaints_of(log))
        print(f"{mode}: {dict(findings.outcomes)}; {findings.good_answers} concurrent valid requests answered")
        for message in findings.broken:
            print(f"BROKEN: {message}")
        failed = failed or bool(findings.broken)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
