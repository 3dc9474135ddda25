"""``bench -i openai`` and vLLM's ``bench serve`` against one running vLLM server, beside the server's own histograms.

    python -m benchmarks.beside_vllm --url http://127.0.0.1:8000 --tokenizer_dir MODEL

Prints a Markdown table of means in ms, latencies from the send. The server may have no other load, since its histograms cover
all requests. Needs ``vllm`` on this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from prometheus_client.parser import text_string_to_metric_families

INPUT_TOKENS, OUTPUT_TOKENS = 128, 20
HISTOGRAMS = {
    "TTFT": "vllm:time_to_first_token_seconds",
    "TPOT": "vllm:request_time_per_output_token_seconds",
    "ITL": "vllm:inter_token_latency_seconds",
    "E2E": "vllm:e2e_request_latency_seconds",
}
Means = Mapping[str, float | None]


@dataclass(frozen=True)
class Load:
    """A rate per second, or with None ``in_flight`` requests at a time."""

    rate_per_s: float | None
    in_flight: int
    requests: int

    @property
    def ours(self) -> list[str]:
        if self.rate_per_s is None:
            return ["--concurrency", str(self.in_flight)]
        return ["--request_rate", str(self.rate_per_s)]

    @property
    def theirs(self) -> list[str]:
        if self.rate_per_s is None:
            return ["--max-concurrency", str(self.in_flight)]
        return ["--request-rate", str(self.rate_per_s)]

    def __str__(self) -> str:
        return f"{self.in_flight} in flight" if self.rate_per_s is None else f"{self.rate_per_s:g}/s"


LOADS = (Load(40, 0, 400), Load(100, 0, 800), Load(None, 256, 1_500))


def measured_by_bench(url: str, tokenizer_dir: Path, load: Load, scratch: Path) -> Means:
    folder = scratch / f"bench {load}".replace("/", " per ")
    lengths = [
        "--input_mean",
        str(INPUT_TOKENS),
        "--input_stdev",
        "5",
        "--output_mean",
        str(OUTPUT_TOKENS),
        "--output_stdev",
        "2",
    ]
    target = ["-i", "openai", "--url", url, "--tokenizer_dir", str(tokenizer_dir), "--ignore_eos"]
    size = ["--num_requests", str(load.requests), "--run_dir", str(folder)]
    _run([sys.executable, "-m", "bench_cli", "token_norm_dist", *lengths, *target, *load.ours, *size])
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    of_send = {"TTFT": metrics["ttft_ms"]["sent"], "E2E": metrics["e2e_ms"]["sent"]}
    found = of_send | {"TPOT": metrics["tpot_ms"], "ITL": metrics["itl_ms"]}
    return {name: None if value is None else value["mean"] for name, value in found.items()}


def measured_by_vllm(url: str, tokenizer_dir: Path, load: Load, scratch: Path) -> Means:
    target = ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", url, "--ignore-eos"]
    lengths = ["--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)]
    dataset = ["--dataset-name", "random", *lengths, "--num-prompts", str(load.requests), "--tokenizer", str(tokenizer_dir)]
    model = ["--model", _served_model(url)]
    result = ["--save-result", "--result-dir", str(scratch), "--result-filename", "vllm.json", "--disable-tqdm"]
    result += ["--percentile-metrics", "ttft,tpot,itl,e2el"]
    _run(["vllm", "bench", "serve", *target, *model, *dataset, *load.theirs, *result])
    found = json.loads((scratch / "vllm.json").read_text())
    return {
        name: found[f"mean_{key}_ms"] for name, key in (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2el"))
    }


def _served_model(url: str) -> str:
    return str(json.loads(_get(f"{url}/v1/models"))["data"][0]["id"])


def _run(command: list[str]) -> None:
    """Raises CalledProcessError, but not for the exit status of a run with an invalid finding."""
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status not in (0, 3):
        raise subprocess.CalledProcessError(status, command)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def histogram_sums(url: str) -> dict[str, float]:
    """Sums (s) and counts of the server's histograms, by the names of their samples."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(_get(f"{url}/metrics")):
        for sample in family.samples:
            if sample.name.endswith(("_sum", "_count")):
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def means_between(before: Mapping[str, float], after: Mapping[str, float]) -> Means:
    def mean_ms(name: str) -> float | None:
        counted = after.get(f"{name}_count", 0.0) - before.get(f"{name}_count", 0.0)
        return 1e3 * (after[f"{name}_sum"] - before.get(f"{name}_sum", 0.0)) / counted if counted else None

    return {label: mean_ms(name) for label, name in HISTOGRAMS.items()}


def row(load: Load, measured_by: str, client: Means, server: Means) -> str:
    cells = [_text(means[name]) for name in HISTOGRAMS for means in (client, server)]
    return f"| {load} | {measured_by} | {' | '.join(cells)} |"


def _text(value_ms: float | None) -> str:
    return "–" if value_ms is None else f"{value_ms:,.2f}"


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--url", required=True, help="The server, such as http://127.0.0.1:8000.")
@click.option("--tokenizer_dir", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
def main(url: str, tokenizer_dir: Path) -> None:
    tools: dict[str, Callable[[str, Path, Load, Path], Means]] = {"`bench`": measured_by_bench, "vLLM's": measured_by_vllm}
    heads = [head for name in HISTOGRAMS for head in (name, "server's")]
    click.echo(f"| load | measured by | {' | '.join(heads)} |")
    click.echo(f"| {' | '.join(['---'] * (2 + len(heads)))} |")
    with tempfile.TemporaryDirectory() as scratch:
        for load in LOADS:
            for name, measure in tools.items():
                before = histogram_sums(url)
                client = measure(url, tokenizer_dir, load, Path(scratch))
                click.echo(row(load, name, client, means_between(before, histogram_sums(url))))


if __name__ == "__main__":
    main()
