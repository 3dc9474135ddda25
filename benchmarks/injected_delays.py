"""Known times put into each phase of a request, and what ``bench why`` finds of them, on the embedded pipeline and over OpenAI.

    python -m benchmarks.injected_delays [--requests 700] [--rate 5] [--delay_ms 100] [--output_tokens 16]
                                         [--only NAME …] [--repeats 1] [--awake]

Each case is a run of constant gaps, with a delay in every second window of 4 s: the requests of the others are compared with
these, since other work on the machine slows both alike. The embedded pipeline runs on Triton with its tokenizer or its engine
slowed down; over OpenAI a scripted server returns its times as vLLM does. A proxy delays what passes or the handshake of each
connection, or a client is stopped by SIGSTOP for half a second. In "prompts of others" each step of the embedded engine with a
prompt takes longer, and what is injected is by how much that delayed the decode of the other requests in the step; the step log
finds it. In the last two cases the other requests have the delay, too,
and the delayed ones have it twice, at half the rate, so that all of them follow a wait. The case "nothing" has no delay: its
row has what two equal kinds of windows differ by, as shares of the delay of the others. In the cases "busy" four times as many
requests come, so that no process sleeps until an answer needs it; in "rare" so few that no delayed request meets the next one.

``--port`` measures a server of OpenAI's protocol that runs on loopback, such as vLLM with ``--enable-per-request-metrics``,
with the delays that need no change of it. In the case "held batch" other users, as many as its batch may have places
(vLLM: ``--max-num-seqs``, here ``--places``), hold it for 0.6 s: a request waits until they break off. In "longer prompts" each
prompt has ``--more_tokens`` more, and what is injected is how much longer its first token takes when it is alone. In "stopped
API server" and "stopped engine" those processes of a vLLM on this host are stopped, for 0.5 and for 0.3 s.

The table has how much of the injected time the right phase has more, what is unattributed, how far "the percentile without
the phase" of the delayed requests lies from that of the others, with the half width of its 95 % interval, and what another
phase has more at most. "equal" is what two equal halves of the other requests differ by at most in 95 % of the ways to divide
them. With ``--repeats`` the cases are measured in turns, and all requests of a case are compared together at the end. The
environment's ``INJECTION_WINDOW_S`` is the length of a window (``injection/windows.py``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.injection.awake import awake_cores
from benchmarks.injection.delays import DELAYED, NONE, Delays
from benchmarks.injection.held_batch import held_batch
from benchmarks.injection.longer_prompts import takes_longer_s
from benchmarks.injection.measured import QUANTILES, Found, MeasuredPhases, divided, found, measure, measure_stopped
from benchmarks.injection.proxies import NO_DELAY, ProxyDelays, delaying_proxy, self_signed
from benchmarks.injection.scripted_openai import scripted_openai
from benchmarks.injection.slow_models import STEPS, slow_pipeline
from benchmarks.injection.stopped import Stops, api_server_stopped, decoding_ns, engine_stopped, waited_ns
from benchmarks.injection.what_if import WhatIf, of_all, what_if
from reports.metrics.request_phases import Phase

_INPUT = ["--input_mean", "64", "--input_stdev", "8"]
_OUTPUT, _LONG_OUTPUT = 16, 96  # tokens
_BUSY = 4.0  # some requests are always in flight: no process sleeps for long
_RARE = 0.4  # a request and its delay have ended before the next one comes
_STEPS = 15  # of an answer, about: a decode step has this part of the delay


@dataclass(frozen=True, slots=True)
class Traffic:
    """``delay_s`` is what is injected for each request."""

    requests: int
    rate: float
    delay_s: float
    output_tokens: int = _OUTPUT
    arrival: str = "constant"

    def of(self, case: Case) -> Traffic:
        """The traffic of a case: of the same duration, or at a slower pace of the same number of requests."""
        return replace(
            self,
            requests=round(self.requests * max(1.0, case.pace)),
            rate=self.rate * case.pace,
            output_tokens=max(self.output_tokens, case.output_tokens),
        )

    @property
    def options(self) -> list[str]:
        load = ["--num_requests", str(self.requests), "--request_rate", str(self.rate), "--arrival", self.arrival]
        lengths = [*_INPUT, "--output_mean", str(self.output_tokens), "--output_stdev", "0"]
        return ["token_norm_dist", *lengths, *load, "--warmup_requests", "4", "--seed", "5", "--server_timings"]


class Stopped(Enum):
    """What is stopped twice in each window with delays."""

    CLIENT = "client"
    API_SERVER = "API server"
    ENGINE = "engine"


@dataclass(frozen=True)
class Case:
    """``server`` are the delays of the server, ``proxy`` those of the way to it. With ``tls`` each request needs a connection
    of its own, over HTTP. ``pace`` multiplies the requests, and how many there are a second. ``users`` hold the batch of the
    server for a while, and an answer has at least ``output_tokens``.
    """

    name: str
    phase: Phase
    server: Delays = NONE
    proxy: ProxyDelays = NO_DELAY
    stops: Stopped | None = None
    tls: bool = False
    pace: float = 1.0
    users: int = 0
    output_tokens: int = 1


def cases(delay_s: float) -> tuple[Case, ...]:
    """One for each phase and each place where it may be delayed; those with the same server come together."""
    return (
        Case("nothing", Phase.QUEUE),
        Case("nothing, busy", Phase.QUEUE, pace=_BUSY),
        Case("way to the server", Phase.FRONT_END, proxy=ProxyDelays(to_server_s=delay_s)),
        Case("way back", Phase.RETURN, proxy=ProxyDelays(to_client_s=delay_s)),
        Case("connection", Phase.CONNECT, proxy=ProxyDelays(handshake_s=delay_s), tls=True),
        Case("stopped client", Phase.SLIP, stops=Stopped.CLIENT),
        Case("slow tokenizer", Phase.FRONT_END, Delays(tokenizer_s=delay_s)),
        Case("engine queue", Phase.QUEUE, Delays(queue_s=delay_s)),
        Case("queue, rare", Phase.QUEUE, Delays(queue_s=delay_s), pace=_RARE),
        Case("queue, busy", Phase.QUEUE, Delays(queue_s=delay_s), pace=_BUSY),
        Case("prefill", Phase.PREFILL, Delays(prefill_s=delay_s)),
        Case("decode", Phase.DECODE, Delays(decode_step_s=delay_s / _STEPS)),
        Case("prompts of others", Phase.DECODE_BESIDE_PREFILL, Delays(prompt_step_s=delay_s), output_tokens=_LONG_OUTPUT),
        Case("queue, longer", Phase.QUEUE, Delays(queue_s=delay_s, queue_always_s=delay_s), pace=0.5),
        Case(
            "way there, longer",
            Phase.FRONT_END,
            proxy=ProxyDelays(to_server_s=delay_s, to_server_always_s=delay_s),
            pace=0.5,
        ),
    )


def cases_of_running(delay_s: float, places: int, more_tokens: int) -> tuple[Case, ...]:
    """Those that need no change of the server, whose batch has this many ``places``."""
    return (
        *(case for case in cases(delay_s) if case.server == NONE and not case.proxy.to_server_always_s),
        Case("held batch", Phase.QUEUE, users=places),
        Case("longer prompts", Phase.PREFILL, proxy=ProxyDelays(longer_prompt=more_tokens)),
        Case("stopped API server", Phase.FRONT_END, stops=Stopped.API_SERVER),
        Case("stopped engine", Phase.DECODE, stops=Stopped.ENGINE, output_tokens=_LONG_OUTPUT),
    )


def injected_ns(case: Case, run: MeasuredPhases, delay_s: float) -> NDArray[np.float64]:
    """What was put into the phase of each request, in ns, shape [n]."""
    tokens = run.requests.output_tokens
    each_s = np.full(tokens.size, delay_s) if case.phase is not Phase.DECODE else (tokens - 1.0) * case.server.decode_step_s
    return each_s * 1e9


def measure_case(
    case: Case, ports: Ports, target: Target, traffic: Traffic, folder: Path
) -> tuple[MeasuredPhases, NDArray[np.float64]]:
    """The run of a case against the server at ``ports``, and what was injected."""
    folder.mkdir()
    proxy, port, options, environment = case.proxy, ports.usual, target.options, dict[str, str]()
    if case.tls:
        certificate, context = self_signed(folder)
        proxy, port, options = replace(proxy, tls=context, closes=True), ports.http, target.options_of_tls
        environment = {"SSL_CERT_FILE": str(certificate)}
    if proxy.longer_prompt:
        options, traffic = target.options_of_ids, replace(traffic, delay_s=takes_longer_s(ports.http, proxy.longer_prompt))
    with delaying_proxy(port, proxy) as proxied:
        arguments = [*traffic.options, *(word.format(port=proxied) for word in options)]
        if case.stops is Stopped.CLIENT:
            run, stops = measure_stopped(folder / "run", arguments)
            return run, waited_ns(run.due_ns, stops)
        with disturbed(case, ports) as stops:
            run = measure(folder / "run", arguments, environment)
    if case.server.prompt_step_s:
        assert ports.step_log is not None
        run, steps = divided(run, ports.step_log), stops_of(ports.step_log.with_suffix(DELAYED))
        first_ns = run.requests.server_arrival_ns + run.requests.server_queue_ns + run.requests.server_prefill_ns
        return run, decoding_ns(first_ns, first_ns + run.requests.server_decode_ns, steps)
    if case.stops is Stopped.ENGINE:
        return run, decoding_ns(run.requests.first_token_ns + run.start_ns, run.requests.last_token_ns + run.start_ns, stops)
    if case.stops or case.users:
        return run, waited_ns(run.due_ns, stops)
    return run, injected_ns(case, run, traffic.delay_s)


def stops_of(path: Path) -> Stops:
    """From when to when the steps were delayed that the file at ``path`` has."""
    lines = (line.split() for line in path.read_text().splitlines())
    return Stops((int(from_ns), int(to_ns)) for from_ns, to_ns in lines)


def disturbed(case: Case, ports: Ports) -> AbstractContextManager[Stops]:
    """The server with its processes stopped, or its batch held, as the case says."""
    match case.stops:
        case Stopped.API_SERVER:
            return api_server_stopped(ports.http)
        case Stopped.ENGINE:
            return engine_stopped(ports.http)
        case _:
            return held_batch(ports.http, case.users)


# ---- servers


EMBEDDED = ["--url", "127.0.0.1:{port}", "-i", "grpc", "--model", "ensemble"]
EMBEDDED_TLS = ["--url", "https://127.0.0.1:{port}", "-i", "http", "--model", "ensemble"]
OPENAI = ["--url", "http://127.0.0.1:{port}", "-i", "openai"]
OPENAI_IDS = ["--url", "http://127.0.0.1:{port}", "-i", "openai_completions", "--prompt_as", "ids", "--vocab_size", "2000"]
OPENAI_TLS = ["--url", "https://127.0.0.1:{port}", "-i", "openai"]


@dataclass(frozen=True, slots=True)
class Ports:
    """The port of a server that is measured as a rule, that of HTTP, and the log of its engine's steps, where it has one."""

    usual: int
    http: int
    step_log: Path | None = None


@contextmanager
def embedded(delays: Delays, folder: Path) -> Iterator[Ports]:
    """The ports of the embedded pipeline."""
    with slow_pipeline(delays, folder) as server:
        log = folder / STEPS if delays.prompt_step_s else None
        yield Ports(server.addresses.grpc_port, server.addresses.http_port, log)


@contextmanager
def over_openai(delays: Delays, folder: Path) -> Iterator[Ports]:
    """The port of the scripted server."""
    with scripted_openai(delays) as port:
        yield Ports(port, port)


@dataclass(frozen=True)
class Target:
    """What is measured. ``unseen`` are the phases of which its server says nothing: their time is unattributed."""

    name: str
    options: list[str]
    options_of_tls: list[str]
    serve: Callable[[Delays, Path], AbstractContextManager[Ports]]
    unseen: tuple[Phase, ...] = ()
    options_of_ids: list[str] = field(default_factory=list)
    logs_steps: bool = False

    def seen(self, phase: Phase) -> Phase:
        return Phase.UNATTRIBUTED if phase in self.unseen else phase


TARGETS = (
    Target("embedded", EMBEDDED, EMBEDDED_TLS, embedded, logs_steps=True),
    Target(
        "openai", OPENAI, OPENAI_TLS, over_openai, unseen=(Phase.FRONT_END, Phase.RETURN)
    ),  # vLLM returns durations without a stamp
)


def running(port: int) -> Target:
    """A server that runs on loopback, whose queue, prefill and decode nothing here can slow down."""

    @contextmanager
    def serve(delays: Delays, folder: Path) -> Iterator[Ports]:
        assert delays == NONE, "a server that runs takes no delays"
        folder.mkdir()
        yield Ports(port, port)

    return Target(f":{port}", OPENAI, OPENAI_TLS, serve, unseen=(Phase.FRONT_END, Phase.RETURN), options_of_ids=OPENAI_IDS)


def results(target: Target, chosen: Sequence[Case], traffic: Traffic, folder: Path) -> Iterator[tuple[Case, Found]]:
    """What is found in each of the cases; one server for each kind of server."""
    possible = [case for case in chosen if target.logs_steps or not case.server.prompt_step_s]
    for delays, alike in groupby(possible, key=lambda case: case.server):
        with target.serve(delays, folder / f"server-{len(list(folder.iterdir()))}") as ports:
            for case in alike:
                run, injected = measure_case(case, ports, target, traffic.of(case), folder / case.name)
                yield case, found(run, target.seen(case.phase), injected)


def row(target: Target, case: Case, result: Found) -> str:
    """A line of the table."""
    what_if = " ".join(_what_if(result.what_if[q]) for q in QUANTILES)
    elsewhere = f"{100 * result.elsewhere:+5.1f} {result.elsewhere_phase.value}"
    return (
        f"{target.name:9} {case.name:18} {target.seen(case.phase).value:21} {result.delayed:4} {result.injected_ms:9.1f} "
        f"{100 * result.found:7.1f} {100 * result.unattributed:7.1f} {result.contradicted:6} {what_if}  {elsewhere}"
    )


def json_row(target: Target, case: Case, result: Found) -> str:
    """The same as a line of JSON; shares of 1, not of 100."""
    found = {
        "target": target.name,
        "case": case.name,
        "phase": target.seen(case.phase).value,
        "delayed": result.delayed,
        "others": result.others,
        "injected_ms": result.injected_ms,
        "found": result.found,
        "unattributed": result.unattributed,
        "contradicted": result.contradicted,
        "what_if": {f"p{100 * q:g}": asdict(what_if) for q, what_if in result.what_if.items()},
        "elsewhere": {"share": result.elsewhere, "phase": result.elsewhere_phase.value},
    }
    return json.dumps(found) + "\n"


def _what_if(found: WhatIf) -> str:
    within, equal = (" - " if share is None else f"{100 * share:.1f}" for share in (found.half_width, found.equal))
    return f"{100 * found.difference:+6.1f} ±{within:4} ({equal:>4})"


def _head(of: str) -> str:
    return f"{f'{of} % ±95 % (equal)':>19}"


def pooled_row(target: Target, case: Case, results: Sequence[Found]) -> str:
    """A line of the table of all repeats of a case: with the median of the others in ms, and the p50 what-if of each."""
    latencies = of_all([result.latencies for result in results])
    usual_ms = float(np.median(latencies.without_ms[~latencies.delayed]))
    delayed = np.count_nonzero(latencies.delayed)
    of_each = f"{delayed:6} {latencies.delayed.size - delayed:6} {usual_ms:6.1f}"
    what_if_of_all = " ".join(_what_if(what_if(latencies, q)) for q in QUANTILES)
    each = " ".join(f"{100 * result.what_if[QUANTILES[0]].difference:+.1f}" for result in results)
    return f"{target.name:9} {case.name:18} {of_each} {what_if_of_all}  {each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=700)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--delay_ms", type=float, default=100.0)
    parser.add_argument("--output_tokens", type=int, default=_OUTPUT, help="of an answer, where a case does not need more")
    parser.add_argument("--target", choices=[target.name for target in TARGETS], help="one of them alone")
    parser.add_argument("--port", type=int, help="a server of OpenAI's protocol on loopback alone")
    parser.add_argument("--places", type=int, default=4, help="of the batch of that server")
    parser.add_argument("--more_tokens", type=int, default=800, help="of a longer prompt")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too, a JSON object a line")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these cases alone")
    parser.add_argument("--repeats", type=int, default=1, help="how often each case is measured")
    parser.add_argument("--awake", action="store_true", help="keep all cores awake")
    arguments = parser.parse_args()
    if arguments.port is not None and arguments.target is not None:
        parser.error("--port measures a server alone: give it without --target")
    traffic = Traffic(arguments.requests, arguments.rate, arguments.delay_ms / 1e3, arguments.output_tokens)
    targets: Sequence[Target] = TARGETS
    all_cases = cases(traffic.delay_s)
    if arguments.port is not None:
        targets = (running(arguments.port),)
        all_cases = cases_of_running(traffic.delay_s, arguments.places, arguments.more_tokens)
    chosen = [case for case in all_cases if not arguments.only or case.name in arguments.only]
    print(
        f"{'target':9} {'delayed':18} {'phase':21} {'n':>4} {'mean ms':>9} {'found %':>7} {'unatt %':>7} {'contr.':>6} "
        f"{_head('p50')} {_head('p99')}  elsewhere, % of the injected"
    )
    for target in targets:
        if arguments.target in (None, target.name):
            with tempfile.TemporaryDirectory() as folder, awake_cores() if arguments.awake else nullcontext():
                all_results = _measure(target, chosen, traffic, Path(folder), arguments.repeats)
            if arguments.json is not None:
                with arguments.json.open("a", encoding="utf-8") as file:
                    file.writelines(json_row(target, case, found) for case, rows in all_results.items() for found in rows)


def _measure(target: Target, chosen: Sequence[Case], traffic: Traffic, folder: Path, repeats: int) -> dict[Case, list[Found]]:
    """Measure the cases and print their rows."""
    all_results: dict[Case, list[Found]] = {case: [] for case in chosen}
    for repeat in range(repeats):
        (folder / str(repeat)).mkdir()
        for case, result in results(target, chosen, traffic, folder / str(repeat)):
            print(row(target, case, result), flush=True)
            all_results[case].append(result)
    if repeats > 1:
        print(f"{'all':9} {'delayed':18} {'n':>6} {'others':>6} {'ms':>6} {_head('p50')} {_head('p99')}  p50 % of each")
        for case, measured in all_results.items():
            print(pooled_row(target, case, measured))
    return all_results


if __name__ == "__main__":
    main()
