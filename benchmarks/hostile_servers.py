"""Whole runs against servers that misbehave: one record for each scheduled request, in bounded memory and time.

    python -m benchmarks.hostile_servers [--only WORD]

Each server is measured by ``bench`` as a process of its own: three requests, at most two in flight, ``--request_timeout 2``.
The table shows how the requests ended, the largest memory of all processes of the client together (PSS), and the
seconds. The exit status is 1 where a record is missing, a traceback was printed, the client had 500 MB or more,
or did not end within a minute. A server that misbehaves before the run must be named in a message. Takes 3 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from tabulate import tabulate

from benchmarks.hostile_scripts import (
    GRPC_ATTACKS,
    HTTP_ATTACKS,
    SSE_ATTACKS,
    Attack,
    Wire,
    dripping_head,
    dripping_models,
    listening,
    over_grpc,
    over_http,
)
from serving.engines.openvino.folder import DEMO_ENGINE_DIR

REQUESTS = 3
MOST_MB = 500
MOST_S = 60.0
_BENCH = str(Path(sys.executable).parent / "bench")
_LENGTHS = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]
_RUN = ["--num_requests", str(REQUESTS), "--request_rate", "20", "--max_concurrency", "2", "--workers", "1"]
_OPENAI = ["-i", "openai", "--tokenizer_dir", str(DEMO_ENGINE_DIR), "--model", "m"]
_COMPLETE = "events after the end marker"  # whose answers may count as done


@dataclass(frozen=True)
class Case:
    """A server, how ``bench`` is pointed at it, and a word of its message where no run may begin."""

    protocol: str
    name: str
    serve: Attack
    options: tuple[str, ...]
    refusal: str | None = None
    is_https: bool = False


@dataclass(frozen=True)
class Result:
    """What came of a run. ``problems`` is empty where all is well."""

    outcomes: Counter[str]
    peak_mb: float
    duration_s: float
    problems: tuple[str, ...]


def cases() -> Iterator[Case]:
    whole, events = (*_OPENAI, "--no_streaming"), tuple(_OPENAI)
    for name, attack in HTTP_ATTACKS.items():
        yield Case("HTTP/1", name, over_http(attack), whole)
    for name, attack in SSE_ATTACKS.items():
        yield Case("SSE", name, over_http(attack), events)
    for name, attack in GRPC_ATTACKS.items():
        yield Case("gRPC", name, over_grpc(attack), ("-i", "grpc", "--model", "m"))
    limit, named = ("--connect_timeout", "2"), "--connect_timeout 2"
    yield Case(
        "HTTP/1",
        "set-up: models, a byte every 0.3 s",
        over_http(_end, dripping_models),
        (*whole, *limit),
        named,
    )
    yield Case("HTTP/1", "set-up: a head, a byte every 0.3 s", over_http(_end, dripping_head), (*whole, *limit), named)
    yield Case("HTTP/1", "set-up: a certificate of its own", over_http(_end), whole, "SSL_CERT_FILE", is_https=True)
    huge = over_grpc(_end, GRPC_ATTACKS["a length of 4 GiB"])
    half = over_grpc(_end, GRPC_ATTACKS["half a message, then the end"])
    silent = over_grpc(_end, GRPC_ATTACKS["no answer"])
    grpc = ("-i", "grpc", "--model", "m")
    yield Case("gRPC", "set-up: a length of 4 GiB", huge, grpc, "RESOURCE_EXHAUSTED")
    yield Case("gRPC", "set-up: half a message, then the end", half, grpc, "without a message")
    yield Case("gRPC", "set-up: no answer", silent, (*grpc, *limit), named)


def _end(wire: Wire) -> None:
    raise ConnectionError


def measure(case: Case, folder: Path) -> Result:
    """Run ``bench`` against the server of ``case``."""
    tls = None
    if case.is_https:
        tls = _self_signed(folder)
    with listening(case.serve, tls) as address:
        url = address if case.protocol == "gRPC" else f"{'https' if case.is_https else 'http'}://{address}"
        command = [_BENCH, "token_norm_dist", *_LENGTHS, *_RUN, "--warmup_requests", "0", "--request_timeout", "2"]
        command += ["--url", url, "--run_dir", str(folder / "run"), *case.options]
        started_s = time.monotonic()
        with (folder / "printed").open("wb") as printed:
            process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, cwd=folder)
            peak_mb = _watch(process, started_s + MOST_S)
        duration_s = time.monotonic() - started_s
    text = (folder / "printed").read_text(errors="replace")
    outcomes = _outcomes(folder / "run" / "requests.parquet")
    return Result(outcomes, peak_mb, duration_s, tuple(_problems(case, process.returncode, text, outcomes, peak_mb)))


def _self_signed(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "key", folder / "certificate"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _watch(process: subprocess.Popen[bytes], end_s: float) -> float:
    """Wait for the end of ``process``, which is killed at ``end_s``; returns the largest memory of its tree in MB."""
    peak_mb = 0.0
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            tree = [root, *root.children(recursive=True)]
            peak_mb = max(peak_mb, sum(map(_memory_mb, tree)))
            if time.monotonic() > end_s:
                for member in tree:
                    member.kill()
        time.sleep(0.1)
    return peak_mb


def _memory_mb(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return float(process.memory_full_info().pss / 1e6)
    return 0.0


def _outcomes(path: Path) -> Counter[str]:
    if not path.exists():
        return Counter()
    table = pq.read_table(path, columns=["index", "outcome"])
    assert sorted(table["index"].to_pylist()) == list(range(table.num_rows))
    return Counter(table["outcome"].to_pylist())


def _problems(case: Case, status: int, text: str, outcomes: Counter[str], peak_mb: float) -> Iterator[str]:
    if "Traceback" in text:
        yield "a traceback"
    if status < 0:
        yield "it did not end"
    if peak_mb >= MOST_MB:
        yield f"{peak_mb:.0f} MB"
    if case.refusal is not None and (case.refusal not in text or outcomes):
        yield f"no message with {case.refusal!r}: {text[-300:]!r}"
    done = outcomes["done"] if case.name != _COMPLETE else 0
    if case.refusal is None and (outcomes.total() != REQUESTS or outcomes["lost"] or done):
        yield f"records: {dict(outcomes)}: {text[-300:]!r}"


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="servers whose protocol or name contains this")
    only = parser.parse_args().only
    rows: list[tuple[str, ...]] = []
    broken: list[str] = []
    for case in (case for case in cases() if only in f"{case.protocol} {case.name}"):
        with tempfile.TemporaryDirectory() as folder:
            result = measure(case, Path(folder))
        ends = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items()) or "no run, with a message"
        rows.append((case.protocol, case.name, ends, f"{result.peak_mb:.0f}", f"{result.duration_s:.0f}"))
        broken += [f"{case.protocol}, {case.name}: {problem}" for problem in result.problems]
        print(*rows[-1], *result.problems, sep=" | ", file=sys.stderr)
    print(tabulate(rows, ("protocol", "the server sends", "requests", "memory (MB)", "seconds"), tablefmt="github"))
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
