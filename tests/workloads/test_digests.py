"""The table of digests: the same command sends the same requests at the same times, in every version.

Each row is prepared by the command line itself, against the null server, up to the start of its first worker: by then
``run.json`` has the digests. A row that differs is other traffic, and other numbers.
"""

from __future__ import annotations

import json
import multiprocessing.process
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bench_cli import run
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server

_TOKENIZER_DIR = Path(__file__).parents[2] / "serving" / "demo_engine"
_COMMON = f"--workers 1 --warmup_requests 0 --telemetry_period 0 --tokenizer_dir {_TOKENIZER_DIR}".split()
_WORDS = (
    "the server answers each request with as many tokens as it asks for " + "while others wait in a queue of their own"
).split()


class _PreparedError(Exception):
    """The run is prepared, and its first worker would start now."""


# ---- files of every format


def _text(number: int, words: int) -> str:
    return " ".join(_WORDS[(number * 7 + k * k) % len(_WORDS)] for k in range(words))


def _chat(number: int, turns: int) -> list[dict[str, str]]:
    return [
        {"from": side, "value": _text(number + 3 * k, 3 + (number + k) % 5)} for k in range(turns) for side in ("human", "gpt")
    ]


def _qwen(number: int) -> dict[str, Any]:
    parent = number - 4 if number >= 4 else -1
    lengths = {"input_length": 18 + 16 * (number // 4), "output_length": 2 + number % 3, "hash_ids": [0, 1 + number % 4]}
    return {"chat_id": number, "parent_chat_id": parent, "turn": 1 + number // 4, "type": "text"} | lengths


def _documents() -> dict[str, list[dict[str, Any]]]:
    """JSON lines, by the name of their file."""
    many = range(12)
    roles = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}]
    return {
        "upstream": [{"input": _text(k, 9), "instruction": "Say it again.", "output": _text(k, 2 + k)} for k in many],
        "sharegpt": [{"id": f"c{k}", "conversations": _chat(k, 1 + k % 4)} for k in many],
        "openai": [
            {"messages": [*roles, {"role": "assistant", "content": _text(k, 3)}, {"role": "user", "content": _text(k, 6)}]}
            | {"max_tokens": 3 + k, "timestamp": 20 * k}
            for k in many
        ],
        "custom": [{"prompt": _text(k, 4 + k), "output_tokens": 1 + k} for k in many],
        "timed": [{"prompt": _text(k, 4 + k), "output_tokens": 1 + k, "timestamp": 45 * k} for k in many],
        "aiperf": [
            {"prompt": _text(k, 5), "output_length": 2, "timestamp": 30 * k, "session_id": f"s{k % 3}", "delay": 15}
            for k in many
        ],
        "turns": [{"turns": [_text(k, 4), _text(k + 1, 5)]} for k in many],
        "mooncake": [
            {"timestamp": 40 * (k // 3), "input_length": 1100 - k, "output_length": 1 + k, "hash_ids": [0, 1 + k % 2, 9 + k]}
            for k in many
        ],
        "ticks": [
            {"timestamp": 40 * (k // 2), "input_length": 520 + k, "output_length": 1 + k, "hash_ids": [0, 1 + k]}
            for k in range(24)
        ],
        "qwen": [_qwen(k) | {"timestamp": 0.05 * k} for k in many],
    }


_TABLES = {
    "azure": ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:{k:02d}.5{k}05900,{i},{o}"),
    "burstgpt": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "{half},{s},0.5,ChatGPT,{i},{o},{t},Conversation log",
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each format."""
    folder = tmp_path_factory.mktemp("files")
    for name, rows in _documents().items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, (header, row) in _TABLES.items():
        lines = [row.format(k=k, half=k // 2, s=k % 3, i=20 + 3 * k, o=1 + k, t=21 + 4 * k) for k in range(12)]
        (folder / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "text.txt").write_text("\n\n".join(_text(k, 40) + "." for k in range(30)))
    (folder / "lengths.txt").write_text("".join(f"{length}\n" for length in (3, 8, 8, 21, 5)))
    histograms = {"input": [[5, 9, 3], [10, 30, 7]], "output": [[1, 2, 5], [3, 9, 1]]}
    (folder / "histograms.json").write_text(json.dumps(histograms))
    clients = folder / "clients"
    clients.mkdir()
    (clients / "chunk-0-trace.csv").write_text("0,2.5,1.2,Gamma,0.7,2.9\n600,2.0,1.5,Weibull,0.6,9\n")
    (clients / "chunk-0-dataset.json").write_text(
        json.dumps({"0": {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{7: 0.25, 8: 0.75}"}})
    )
    assert run(["workload", "import", str(folder / "mooncake.jsonl"), "-o", str(folder / "imported.parquet")]) == 0
    assert run(["workload", "synthesize", str(clients), "--duration", "8", "-o", str(folder / "drawn.parquet")]) == 0
    return folder


@pytest.fixture(scope="module")
def target() -> Iterator[NullServerAddresses]:
    with null_server(NullServerOptions()) as addresses:
        yield addresses


# ---- the table

_TOKENS = "token_norm_dist --num_requests 20"
_HISTOGRAM = "token_from_histogram --histogram_key example --num_requests 20"
_PREFIXES = f"{_TOKENS} --isl 8 --osl 2 --prefix_groups 4 --prefix_len 24"
_MIXTURE = f"{_TOKENS} --isl 8 --osl 9 --request_rate 50"
_CHATS = "dataset --dataset sharegpt.jsonl --output_tokens 4"

_DIGESTS = {
    # random tokens and laws of lengths
    f"{_TOKENS}": "e49eb4bf7080",
    f"{_TOKENS} --seed 7 --request_rate 10": "9b2809ea66b9",
    f"{_TOKENS} --isl 40±8 --osl 6±2 --vocab_size 1000": "1d60fd5a203b",
    f"{_TOKENS} --input_mean 30 --input_stdev 4 --output_mean 5 --output_stdev 1 --max_input_len 32": "a694151d2f7b",
    f"{_TOKENS} --isl lognormal:mean=30,stdev=20 --osl uniform:min=1,max=9 --ignore_eos": "10c3a0100951",
    f"{_TOKENS} --isl normal:mean=30,stdev=9,min=20,max=40 --osl zipf:exponent=1.2,min=1,max=40": "b000d0917747",
    f"{_TOKENS} --isl empirical:lengths.txt --osl histogram:histograms.json": "4af61557f967 165736b35041 bf4140989937",
    f"{_TOKENS} --length_pairs azure.csv": "2297f9beaacc 3010793df9f4 d31c83ed0c52",
    f"{_TOKENS} --model ensemble": "5741c6766770",
    f"{_TOKENS} --model ensemble_unary -i http": "5741c6766770",
    f"{_TOKENS} -i openai": "8203156d1955",
    f"{_HISTOGRAM}": "0681c0b1c099 9792390a2b25 955613aec51e",
    "token_from_histogram --histogram histograms.json --num_requests 20 --seed 4": "691a3cb28b0b b4ca9286b6c8 bf4140989937",
    # shared prefixes
    f"{_PREFIXES}": "e80ee91f8700",
    f"{_PREFIXES} --prefix_zipf 1.1 --seed 3": "c182c2c5d3bb",
    f"{_PREFIXES} --system_prompt_len 8 --model ensemble": "2281ad661e04",
    "token_norm_dist --isl 8 --osl 2 --prefix_groups 4 --prefix_len 24 --prompts_per_group 3": "f7e937df46fb",
    f"{_HISTOGRAM} --prefix_groups 2 --prefix_len 16": "e7aa3ae3298a 9792390a2b25 955613aec51e",
    f"{_TOKENS} --system_prompt_len 30 -i openai": "28cf46c8632b",
    # arrivals and loads
    f"{_TOKENS} --request_rate 20 --arrival constant --max_concurrency 3": "7147562ad521",
    f"{_TOKENS} --request_rate 20 --arrival gamma:cv=2": "300a1dc430da",
    f"{_TOKENS} --request_rate 20 --arrival weibull:cv=2 --duration 0.5": "abbf4db11c90",
    f"{_TOKENS} --request_rate 20 --arrival bursts:size=5": "6efae30188a0",
    f"{_TOKENS} --request_rate 20 --time_delay_dist gamma_dist --burstiness 0.5 --ramp_up 1": "ac22165935c9",
    f"{_TOKENS} --request_rate 20 --rate_profile sine:amplitude=0.5,period=2s": "fbb8541922dc",
    f"{_TOKENS} --request_rate 20 --rate_profile on_off:on=1s,off=2s": "2506f41e5c54",
    f"{_TOKENS} --rate_profile stages:5/s*1s,20/s*1s": "0c1f031a7c7f",
    f"{_TOKENS} --rate_profile piecewise:0s=5/s,2s=20/s": "01ed6ef5b592",
    f"{_TOKENS} --concurrency 4 --ramp_up 2": "74738f9b1e03",
    "token_norm_dist --isl 500000 --osl 9000 --concurrency 3 --duration 2": "8bc98e301f3e",
    # classes, probes, cancellations
    f"{_MIXTURE} --class chat:weight=3 --class code:weight=1,slo=ttft<=500ms": "0d6d78b344f8",
    f"{_MIXTURE} --class chat --class code:weight=2,model=tensorrt_llm --seed 2": "91522542a8a9",
    f"{_MIXTURE} --probe_rate 20 --probe_isl 4 --probe_osl 2": "828d8999bedf",
    f"{_MIXTURE} --cancel 20%:after=5tokens": "5a5b06319232",
    f"{_MIXTURE} --cancel 20%:after=2s --class a --class b --probe_rate 20": "d0b046924cff",
    # datasets, in the file's order
    "dataset --num_requests 30": "fcb9f62661db",
    "dataset --num_requests 30 --model ensemble --request_rate 5 --seed 9": "20f73d89dfda",
    "dataset --num_requests 30 --op_tokens_per_word 2 --ignore_eos -i http --model ensemble": "d9d00e4c3a40",
    "dataset --dataset upstream.jsonl --num_requests 20 --repeat_dataset": "02aaa27617c1",
    "dataset --dataset upstream.jsonl --max_input_len 30 -i openai": "40082d9e7078",
    f"{_CHATS}": "d484a10d6997",
    f"{_CHATS} -i openai": "d484a10d6997",
    "dataset --dataset openai.jsonl -i openai": "59c63f76e199",
    "dataset --dataset openai.jsonl --model ensemble": "59c63f76e199",
    "dataset --dataset custom.jsonl": "e610542c739a",
    "dataset --dataset turns.jsonl --output_tokens 7": "4cddacd9b6b4",
    "dataset --dataset text.txt --output_tokens 7 --model ensemble": "e167e066bba7",
    "dataset --dataset azure.csv": "3b33261b3132",
    "dataset --dataset azure.csv --model ensemble --output_factor 0.5": "49ec7eca03a0",
    "dataset --dataset burstgpt.csv --num_requests 5": "277d1fccb3d6",
    "dataset --dataset mooncake.jsonl": "3f8a97348aea",
    "dataset --dataset mooncake.jsonl --prefix_factor 2 --input_factor 0.5 --seed 5": "c37e7aae159f",
    "dataset --dataset qwen.jsonl": "930177b07dff",
    "dataset --dataset imported.parquet": "3f8a97348aea",
    "dataset --dataset drawn.parquet": "382c8ccf7c2b",
    # prompts cut from a text
    "dataset --dataset text.txt --isl 20 --osl 3": "85819677d631",
    "dataset --dataset text.txt --isl 20±5 --osl 3±1 --model ensemble --seed 2": "53213e24dd3d",
    "dataset --dataset text.txt --isl uniform:min=5,max=40 --pieces random --num_requests 20": "42d8e6259991",
    "dataset --dataset text.txt --isl 12 --pieces random --num_requests 20 -i openai": "27af1b907b9a",
    # sessions
    f"{_CHATS} --sessions think_time --think_time 2 --request_rate 3": "622fc907633e",
    f"{_CHATS} --sessions think_time --users 3 --seed 6": "367a64d429b4",
    f"{_CHATS} --sessions think_time --users 3 --user_rate 2 --model ensemble": "0e1608210be0",
    f"{_CHATS} --sessions think_time -i openai --num_requests 9": "7b22667cf17d",
    f"{_CHATS} --sessions think_time -i openai --history server --class a --class b --cancel 40%:after=2tokens": "73bc20733532",
    "dataset --dataset aiperf.jsonl --sessions think_time -i openai --history server --request_rate 4": "afd04d31a98a",
    "dataset --dataset turns.jsonl --sessions think_time -i openai --history server --users 2": "ea15e5a7c870",
    # traces, at their own times
    "trace azure.csv": "387d8704e174 7aa3df8d5637",
    "trace azure.csv --start 2 --duration 5 --speed 4": "13edf5bdca7c a9ed7cebbdd1",
    "trace azure.csv --request_rate 9 --num_requests 8 --model ensemble": "b240c9f50997 d7ddd991c115",
    "trace azure.csv --concurrency 3": "6c0a8895e2a9 7aa3df8d5637",
    "trace ticks.jsonl --spread_ticks --seed 8": "84057c0b8060 a002ddd48fa2",
    "trace burstgpt.csv --sessions recorded": "5ddb893bec17 5b3b5695faa7",
    "trace mooncake.jsonl": "4e028f71d1b9 1cd91d98f642",
    "trace ticks.jsonl --spread_ticks --prefix_factor 2 --output_factor 3": "ebccba8e5709 8a6da9c2596c",
    "trace mooncake.jsonl --max_input_len 1095 --class a --class b:weight=2": "a8f48feaa00d 49641b01bd5b",
    "trace imported.parquet": "4e028f71d1b9 1cd91d98f642",
    "trace drawn.parquet --seed 1": "4e52e8283dc1 c7786db55d48",
    "trace qwen.jsonl --sessions recorded": "517b0ed2c3fa 0f70425a3d4c",
    "trace qwen.jsonl --sessions think_time --think_time 1 --input_factor 2": "bebfb3ec36a6 6eb2d6843dc5",
    "trace openai.jsonl -i openai": "a923538062b1 44959d5218a4",
    "trace timed.jsonl --start 0.1": "d8016c319712 cfab2f62c6ad",
    "trace aiperf.jsonl --sessions think_time -i openai --history server": "952fbd8917e0 f10b24c7cd9e",
    "trace timed.jsonl --speed 2 --model ensemble": "74d6f0456092 16b7c790a6c9",
}  # fmt: skip
"""Options to digests, each without its end: of the schedule, and what else ``run.json`` has of the workload."""


def _command(options: str, target: NullServerAddresses, folder: Path) -> list[str]:
    is_openai, is_http = "-i openai" in options, "-i http" in options
    url = f"http://{target.http}" if is_openai else target.http if is_http else target.grpc
    return [*options.split(), "--url", url, "--run_dir", str(folder / "run"), *_COMMON]


def _digests(manifest: dict[str, Any]) -> str:
    """The first 12 digits of each digest, that of the schedule first."""
    of_workload = {name: value for name, value in manifest["workload"].items() if name.endswith("_digest")}
    return " ".join(
        digest[:12] for digest in (manifest["schedule"]["digest"], *(of_workload[name] for name in sorted(of_workload)))
    )


@pytest.mark.parametrize("options", _DIGESTS, ids=str)
def test_a_command_sends_what_it_sent_in_earlier_versions(
    options: str, files: Path, target: NullServerAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: object) -> NoReturn:
        raise _PreparedError

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", stop)
    monkeypatch.chdir(files)
    with pytest.raises(_PreparedError):
        run(_command(options, target, tmp_path))
    assert _digests(json.loads((tmp_path / "run" / "run.json").read_text())) == _DIGESTS[options]
