"""CPU time of ``bench`` and of a peer, AIPerf, for the same work: OpenAI's chat completions, streamed, from one null server.

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install aiperf
    python -m benchmarks.peer_cpu --aiperf /tmp/peer/bin [--requests 5000] [--tokens 100] [--in_flight 50] [--rounds 3]

Both have the same pace, number of requests and concurrency, and use the server's token counts. CPU time is measured as in
``client_cpu``: all processes of the command, minus start-up (one request of one token). The peer's dashboard, GPU and server
telemetry, and retokenization are off. AIPerf is not a dependency: it needs an environment of its own. Its tokenizer, for the
prompts, is the demo engine's; with HF_HUB_OFFLINE set, version 0.13 does not find a tokenizer in a folder.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.client_cpu import PACE, PROMPT_WORDS, arguments_of, cpu_of, measure_bench, protocols
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server
from serving.engines.openvino.folder import DEMO_ENGINE_DIR


def measure_aiperf(
    program: Path, addresses: NullServerAddresses, folder: Path, requests: int, tokens: int, in_flight: int
) -> float:
    """CPU seconds of one run of AIPerf."""
    with tempfile.TemporaryDirectory(dir=folder) as artifacts:
        target = ["--model", "null", "--url", f"http://{addresses.http}", "--endpoint-type", "chat", "--streaming"]
        lengths = ["--isl", str(PROMPT_WORDS), "--isl-stddev", "0", "--osl", str(tokens), "--osl-stddev", "0"]
        load = ["--concurrency", str(min(in_flight, requests)), "--request-count", str(requests), "--random-seed", "0"]
        lean = ["--use-server-token-count", "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"]
        output = ["--tokenizer", str(DEMO_ENGINE_DIR), "--artifact-dir", artifacts]
        seconds = cpu_of([str(program), "profile", *target, *lengths, *load, *lean, *output])
        [summary] = Path(artifacts).rglob("profile_export_aiperf.json")
        done = json.loads(summary.read_text())["request_count"]["avg"]
    if done != requests:
        raise SystemExit(f"AIPerf did {done} of {requests} requests")
    return seconds


def main() -> None:
    parser = arguments_of(__doc__.splitlines()[0], requests=5000)
    parser.add_argument("--aiperf", type=Path, required=True, help="folder of the program aiperf (the environment's bin)")
    arguments = parser.parse_args()
    work = (arguments.requests, arguments.tokens, arguments.in_flight)
    times_us: dict[str, list[float]] = {"bench": [], "AIPerf": []}
    with tempfile.TemporaryDirectory() as name, null_server(NullServerOptions(PACE)) as addresses:
        folder, program = Path(name), arguments.aiperf / "aiperf"
        chat = protocols(addresses)["SSE, chat/completions"]
        for number in range(1, arguments.rounds + 1):
            for tool, measure in (
                ("bench", partial(measure_bench, chat, folder)),
                ("AIPerf", partial(measure_aiperf, program, addresses, folder)),
            ):
                start_up_s, whole_s = measure(1, 1, 1), measure(*work)
                times_us[tool].append((whole_s - start_up_s) / (arguments.requests * arguments.tokens) * 1e6)
                print(
                    f"round {number}: {tool}: {whole_s:.2f} s, start-up {start_up_s:.2f} s: {times_us[tool][-1]:.1f} µs",
                    flush=True,
                )
    for tool, values in times_us.items():
        print(f"{tool:8} {statistics.median(values):7.1f} µs of CPU per token ({min(values):.1f} to {max(values):.1f})")
    print(f"bench needs 1/{statistics.median(times_us['AIPerf']) / statistics.median(times_us['bench']):.1f} of AIPerf's")


if __name__ == "__main__":
    main()
