"""Common mistakes on the command line: one sentence that names the option and the remedy, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.measurement.dataset import shipped_dataset
from bench_errors import ExitStatus

_LENGTHS = shipped_dataset().with_name("dynamo_request_trace.jsonl")  # a trace without prompts
_USAGE, _FAILED = ExitStatus.USAGE, ExitStatus.FAILED
_MISTAKES: list[tuple[str, ExitStatus, tuple[str, ...]]] = [
    ("datset", _USAGE, ("'datset'", "Did you mean 'dataset'?")),
    ("-i grpc --isl 128 tokn_norm_dist", _USAGE, ("'tokn_norm_dist'", "Did you mean 'token_norm_dist'?")),
    ("-i grpc --ils 128 token_norm_dist", _USAGE, ("'--ils'", "Did you mean '--isl'?")),
    ("dataset --request_rat 10", _USAGE, ("'--request_rat'", "Did you mean '--request_rate'?")),
    ("dataset --request-rat 10", _USAGE, ("'--request-rat'", "Did you mean '--request_rate'?")),
    ("dataset --request-rat=10", _USAGE, ("'--request-rat'", "Did you mean '--request_rate'?")),
    ("--help-all", _USAGE, ("'--help-all'", "Did you mean '--help'?")),
    ("dataset --help-all", _USAGE, ("'--help-all'", "Did you mean '--help'?")),
    ("report nothere --ful", _USAGE, ("'--ful'", "Did you mean '--full'?")),
    ("dataset --request_rate fast", _USAGE, ("--request_rate", "not a valid float")),
    ("dataset --request_rate 0", _USAGE, ("--request_rate 0", "more than 0 and up to 1,000,000,000, or -1")),
    ("dataset --num_requests 0", _USAGE, ("--num_requests", "x>=1")),
    ("dataset --workers 0", _USAGE, ("--workers", "1<=x")),
    (f"dataset --seed {2**63}", _USAGE, ("--seed", str(2**63 - 1))),
    (f"sweep --seed {2**63} --over request_rate=1,2 dataset", _USAGE, ("--seed", str(2**63 - 1))),
    ("dataset --duration 10", _USAGE, ("--duration", "give --request_rate or --concurrency")),
    ("dataset --concurrency 4 --request_rate 5", _USAGE, ("--request_rate cannot be combined with --concurrency",)),
    ("dataset --class chat:wieght=3", _USAGE, ("--class chat:wieght=3", "no 'wieght'", "NAME:weight=3")),
    ("dataset --class chat --class chat:weight=2", _USAGE, ("--class", "chat is given twice")),
    ("dataset --class chat:slo=latency<=3", _USAGE, ("--class", "chat", "is none of ttft")),
    ("dataset --class chat:slo=p99_ttft<=3", _USAGE, ("--class", "chat", "as ttft<=500ms")),
    ("dataset -i openai --url h --class chat:lora=7", _USAGE, ("--class chat:weight=1,lora=7", "give model=ADAPTER")),
    ("dataset --probe_isl 5", _USAGE, ("--probe_isl applies to probes: give --probe_rate",)),
    (
        "dataset --probe_rate 1 --concurrency 2",
        _USAGE,
        ("--probe_rate cannot be combined with --concurrency", "--request_rate"),
    ),
    ("dataset --cancel 5%", _USAGE, ("--cancel 5%", "5%:after=2s or 5%:after=20tokens")),
    ("dataset --cancel 5%:after=900s", _USAGE, ("--cancel 5%:after=900s", "--request_timeout 600")),
    ("dataset --cancel 5%:after=3tokens --no_streaming", _USAGE, ("--cancel 5%:after=3tokens", "give a time")),
    ("dataset --dataset nothere.json", _USAGE, ("--dataset", "'nothere.json' does not exist")),
    ("dataset --model nosuch", _USAGE, ("--model nosuch", "tensorrt_llm", "ensemble", "--url")),
    ("dataset --tokenizer ./nope/", _USAGE, ("--tokenizer", "no such folder or file")),
    ("dataset --run_dir /proc/none", _USAGE, ("--run_dir", "name a folder that you may write to")),
    ("dataset --run_dir r\udcff", _USAGE, ("--run_dir", "the name is not UTF-8")),
    (f"workload import {_LENGTHS} -o w\udcff.parquet", _USAGE, ("--output", "the name is not UTF-8")),
    ("recover r\udcff", _USAGE, ("RUN", "the name is not UTF-8")),
    ("experiment --arm a= --arm b= --experiment_dir r\udcff dataset", _USAGE, ("--experiment_dir", "the name is not UTF-8")),
    (f"dataset --run_dir {'a' * 300}", _USAGE, ("--run_dir", "File name too long")),
    ("dataset --op_stats_csv /nonexistent/x.csv", _FAILED, ("--op_stats_csv", "there is no folder /nonexistent")),
    ("dataset --check_perf_key k", _USAGE, ("--check_perf_key needs --check_perf_json",)),
    ("dataset --check_perf_rtol 0.1", _USAGE, ("--check_perf_rtol needs --check_perf_json",)),
    ("dataset --check_perf_atol 5", _USAGE, ("--check_perf_atol needs --check_perf_json",)),
    ("dataset --undecided fail", _USAGE, ("--undecided", "give --fail_if")),
    ("report nothere --undecided fail", _USAGE, ("--undecided", "give --fail_if")),
    ("compare a b --undecided fail", _USAGE, ("--undecided", "give --fail_if")),
    ("trend a --undecided fail", _USAGE, ("--undecided", "give --fail_if")),
    ("experiment --undecided fail --arm a= --arm b= dataset", _USAGE, ("--undecided", "give --fail_if")),
    ("sweep --undecided fail --over request_rate=1,2 dataset", _USAGE, ("--undecided", "give --fail_if")),
    ("dataset --metrics_url h:8002 --telemetry_period 0", _USAGE, ("--metrics_url", "--telemetry_period 0 reads no metrics")),
    (f"dataset --dataset {_LENGTHS} --output_tokens 4", _USAGE, ("--output_tokens", "the trace has its own lengths")),
    (f"dataset --dataset {_LENGTHS} --op_tokens_per_word 2", _USAGE, ("--op_tokens_per_word", "--output_factor scales")),
    ("dataset --slo latency<=3", _USAGE, ("--slo", "is none of ttft")),
    ("dataset --slo p90_ttft<=3", _USAGE, ("--slo", "use p50, p99 or mean")),
    ("dataset --fail_if ttft>3", _USAGE, ("--fail_if", "write p99_ttft")),
    ("dataset -i openai -m ensemble", _USAGE, ("--model", "one model for OpenAI's clients")),
    ("dataset --url localhost:99999", _USAGE, ("--url", "give host:port")),
    ("dataset --url http://localhost:8000", _USAGE, ("--url", "-i openai or -i http")),
    ("dataset -i openai --url http://h/v1?version=1", _USAGE, ("--url", "has a query", "--endpoint '/v1/chat/completions?")),
    ("dataset -i openai --url http://h/v1 --endpoint /x", _USAGE, ("--endpoint", "give the path once")),
    ("token_norm_dist --isl 128x", _USAGE, ("--isl", "128±5 or 128:5")),
    ("token_norm_dist --isl 128 --input_mean 3", _USAGE, ("--isl", "leave --input_mean and --input_stdev out")),
    ("token_norm_dist --isl 0", _USAGE, ("--isl 0", "between 1 and")),
    ("token_norm_dist --osl unifrm:min=1,max=3", _USAGE, ("--osl", "'unifrm'", "normal, lognormal, uniform")),
    ("token_norm_dist --osl uniform:min=1", _USAGE, ("--osl", "uniform:min=MIN,max=MAX")),
    ("token_norm_dist --isl uniform:min=9,max=3", _USAGE, ("--isl uniform:min=9,max=3", "min=9 is above max=3")),
    ("token_norm_dist --isl zipf:exponent=x,min=1,max=9", _USAGE, ("--isl", "exponent=x is no number")),
    ("token_norm_dist --isl normal:mean=9,std=4", _USAGE, ("--isl", "'std=4'", "normal:mean=MEAN,stdev=STDEV")),
    ("token_norm_dist --isl normal:mean=9,stdev=1,min=50", _USAGE, ("--isl", "widen min and max")),
    ("token_norm_dist --isl empirical:nothere", _USAGE, ("--isl", "no file 'nothere'")),
    ("token_norm_dist --osl histogram:nothere", _USAGE, ("--osl", "'nothere'", "example")),
    ("token_norm_dist --length_pairs nothere", _USAGE, ("--length_pairs", "'nothere' does not exist")),
    ("token_from_histogram", _USAGE, ("--histogram_key KEY", "--histogram FILE")),
    ("token_from_histogram --histogram_key exmaple", _USAGE, ("--histogram_key 'exmaple'", "the keys are example")),
    ("token_from_histogram --histogram nothere", _USAGE, ("--histogram", "'nothere' does not exist")),
    ("sweep --over rate=1,2 dataset", _USAGE, ("--over rate=1", "'--rate'")),
    (
        "experiment --arm a= --arm b=--seed=1 dataset --num-request 3",
        _USAGE,
        ("'--num-request'", "Did you mean '--num_requests'?"),
    ),
    ("sweep --over request_rate= dataset", _USAGE, ("--over", "request_rate=2,4,8")),
    ("sweep --over request_rate=1,1 dataset", _USAGE, ("--over", "request_rate=1,1", "a value is given twice", "--repeats")),
    ("sweep --over request_rate=1,2 --experimentdir x dataset", _USAGE, ("--experimentdir", "Did you mean --experiment_dir?")),
    ("sweep --over request_rate=1,2 --url h:1 dataset", _USAGE, ("--url is no option of bench sweep", "after their verb")),
    ("simulate run --model m.json --run_dir r dataset", _USAGE, ("--run_dir is no option of bench simulate run",)),
    ("sweep --over request_rate=1,2", _USAGE, ("what to run: dataset or token_norm_dist",)),
    ("experiment --arm a=--foo --arm b=--seed dataset", _USAGE, ("--arm a", "'--foo'")),
    ("experiment dataset", _USAGE, ("--arm NAME=OPTIONS",)),
    ("compare one", _USAGE, ("bench compare BEFORE AFTER",)),
    ("compare nothere alsonot", _USAGE, ("nothere", "run.json")),
    ("compare a b --fail_if p99>5%", _USAGE, ("--fail_if", "p99_ttft>+5%")),
    ("report nothere", _USAGE, ("nothere", "run.json")),
]


@pytest.mark.parametrize(("line", "status", "parts"), _MISTAKES, ids=[line for line, _, _ in _MISTAKES])
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    line: str,
    status: ExitStatus,
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Deploying" not in printed.err
    assert "Traceback" not in printed.err
    sentences = [text for text in printed.err.splitlines() if text.startswith("Error: ")]
    assert len(sentences) == 1
    for part in parts:
        assert part in sentences[0]
    assert list(tmp_path.iterdir()) == []
