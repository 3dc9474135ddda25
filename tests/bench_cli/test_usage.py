"""Errors on the command line, and the messages of ``bench``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from bench_cli import run
from bench_cli.bench import bench
from bench_errors import ExitStatus
from tests.free_port import closed_port

_BENCH = Path(sys.executable).parent / "bench"
_NORMAL = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "4", "--output_stdev", "0"]


def _error(capsys: pytest.CaptureFixture[str], argv: list[str], status: ExitStatus) -> str:
    """Run ``argv``, which must fail with ``status``; returns its one error sentence."""
    assert run(argv) == status
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.out == ""
    sentences = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert len(sentences) == 1
    assert captured.err.rstrip().endswith(sentences[0])  # it is the last line, and one line
    return sentences[0]


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ---- help


def test_help_lists_every_verb_with_its_short_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert {"dataset", "token_norm_dist", "report", "serve"} <= set(bench.commands)
    for name, command in bench.commands.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {name} ")]
        assert line.split(None, 1)[1] == command.get_short_help_str(200)
    assert "Exit status: 0 valid, 1 the target, a request or a gate (--fail_if) failed, 2 usage, 3 the run is not valid" in text


@pytest.mark.parametrize("name", sorted(bench.commands))
def test_help_of_each_verb_names_its_options(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run([name, "--help"]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: bench {name}")
    verb = bench.get_command(click.Context(bench), name)
    assert verb is not None
    for parameter in verb.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert (option in text) is not getattr(parameter, "hidden", False)


def test_help_imports_nothing_heavy() -> None:
    heavy = ["numpy", "pandas", "pyarrow", "grpc", "tritonclient", "uvloop", "scipy", "matplotlib", "transformers", "openvino"]
    code = (
        f"import sys\nfrom bench_cli import run\nassert run(['--help']) == 0\nprint([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_a_verb_the_help_is_shown_and_it_is_no_error() -> None:
    done = subprocess.run([_BENCH], capture_output=True, text=True, check=False)
    assert done.returncode == ExitStatus.VALID
    assert done.stdout.startswith("Usage: bench")
    assert done.stderr == ""


def test_version() -> None:
    done = subprocess.run([_BENCH, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("bench 0.")


# ---- place and spelling of options; -5 is refused by name, which proves that the option was read


@pytest.mark.parametrize(
    "argv",
    [
        ["dataset", "--request_rate", "-5"],
        ["--request_rate", "-5", "dataset"],
        ["--request-rate", "-5", "dataset"],
        ["dataset", "--request-rate", "-5"],
        ["--request_rate=-5", "dataset"],
        ["-i", "grpc", "--request_rate", "-5", "--seed", "3", "dataset", "--num-requests", "7"],
        ["--model", "dataset", "--request_rate", "-5", "dataset"],
        ["--dump_perfetto_trace", "--no-streaming", "-mensemble", "dataset", "--request_rate", "-5"],
        ["token_norm_dist", *_NORMAL, "--request_rate", "-5"],
        ["token-norm-dist", *_NORMAL, "--request_rate", "-5"],
        [*_NORMAL, "--request_rate", "-5", "token_norm_dist"],
        ["--input-mean", "4", "--input-stdev", "0", "--request-rate", "-5", "token-norm-dist", *_NORMAL[4:]],
        ["--time-delay-dist", "exponential-dist", "dataset", "--request_rate", "-5"],
    ],
    ids=" ".join,
)
def test_options_are_accepted_before_and_after_the_verb_with_hyphens_and_underscores(
    capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    message = _error(capsys, argv, ExitStatus.USAGE)
    assert message.startswith("Error: --request_rate -5: give requests per second")


def test_help_option_before_a_verb_is_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-h", "dataset"]) == ExitStatus.VALID
    assert capsys.readouterr().out.startswith("Usage: bench dataset")


# ---- usage errors


@pytest.mark.parametrize("rate", ["-5", "0", "-0.5", "nan", "inf", "-inf"])
def test_impossible_rate(capsys: pytest.CaptureFixture[str], rate: str) -> None:
    assert "--request_rate" in _error(capsys, ["dataset", "--request_rate", rate], ExitStatus.USAGE)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["dataset", "--nosuch"], "--nosuch"),
        (["--nosuch", "dataset"], "--nosuch"),
        (["nosuch"], "nosuch"),
        (["dataset", "--request_rate", "fast"], "--request_rate"),
        (["dataset", "--request_rate"], "--request_rate"),
        (["dataset", "--num_requests", "0"], "--num_requests"),
        (["dataset", "--workers", "0"], "--workers"),
        (["dataset", "--seed", "-1"], "--seed"),
        (["dataset", "--request_timeout", "0"], "--request_timeout"),
        (["dataset", "-i", "carrier_pigeon"], "--protocol"),
        (["dataset", "--time_delay_dist", "uniform"], "--time_delay_dist"),
        (["dataset", "--burstiness", "much"], "--burstiness"),
        (["dataset", "--op_tokens_per_word", "0"], "--op_tokens_per_word"),
        (["dataset", "too", "many"], "too"),
        (["token_norm_dist", *_NORMAL, "--input_mean", "0"], "--input_mean"),
        (["token_norm_dist", *_NORMAL, "--output_stdev", "-1"], "--output_stdev"),
        (["token_norm_dist", *_NORMAL, "--input_mean", "nan"], "--input_mean"),
        (["report"], "RUN"),
        (["dataset", "--slo", "ttft_ms=200"], "'ttft_ms=200': write a number, a sign and a limit"),
        (["report", "run", "--slo", "p98_ttft<=200"], "use p50, p99 or mean"),
        (["serve", "--grpc_port", "0"], "--grpc_port"),
        (["serve", "--grpc_port", "70000"], "--grpc_port"),
        (["engine", "build"], "--model_dir"),
        (["engine", "build", "--model_dir", "m", "--output_dir", "o", "--weight_format", "fp8"], "--weight_format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_error_names_the_option(capsys: pytest.CaptureFixture[str], argv: list[str], named: str) -> None:
    assert named in _error(capsys, argv, ExitStatus.USAGE)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--concurrency", "8", "--request_rate", "5"], "--request_rate cannot be combined with --concurrency"),
        (["--concurrency", "8", "--request_rate", "-1"], "--request_rate cannot be combined with --concurrency"),
        (
            ["--concurrency", "8", "--time_delay_dist", "exponential_dist"],
            "--time_delay_dist cannot be combined with --concurrency",
        ),
        (["--concurrency", "8", "--max_concurrency", "9"], "--max_concurrency cannot be combined with --concurrency"),
        (["--concurrency", "8", "--burstiness", "2"], "--burstiness cannot be combined with --concurrency"),
        (["--concurrency", "0"], "--concurrency"),
        (["--max_concurrency", "0"], "--max_concurrency"),
        (["--duration", "0", "--request_rate", "5"], "--duration"),
        (["--duration", "5"], "--duration does nothing where everything is sent at once; give --request_rate or --concurrency"),
        (["--ramp_up", "5", "--max_concurrency", "8"], "--ramp_up does nothing where everything is sent at once"),
        (["--ramp_up", "5", "--duration", "5", "--request_rate", "5"], "--ramp_up 5 leaves nothing of --duration 5"),
        (["--workers", "some"], "--workers"),
        (["--workers", "257"], "--workers"),
        (["--workers", "9", "--concurrency", "8"], "--workers 9 cannot share --concurrency 8"),
        (["--workers", "9", "--max_concurrency", "8"], "--workers 9 cannot share --max_concurrency 8"),
        (["--workers", "250", "--pin_workers"], "--pin_workers: 250 workers cannot have a core each"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("before", [True, False], ids=["before_the_verb", "after_it"])
def test_contradicting_load_options(capsys: pytest.CaptureFixture[str], argv: list[str], message: str, before: bool) -> None:
    assert message in _error(capsys, [*argv, "dataset"] if before else ["dataset", *argv], ExitStatus.USAGE)


def test_dataset_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nosuch.json" in _error(capsys, ["dataset", "--dataset", "nosuch.json"], ExitStatus.USAGE)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("", "is empty"),
        ("[", "line 1"),
        ("{}", "unknown shape"),
        ("[]", "holds no rows"),
        ("[1]", "row 1"),
        ('[{"input": "a", "instruction": "b", "output": "c"}, {"input": "a"}]', "row 2"),
        ('[{"input": "a", "instruction": "b", "output": 5}]', '"output"'),
        ('[{"conversations": [{"from": "human"}]}]', "row 1: turn 1"),
        ("\udcff", "UTF-8"),
    ],
)
def test_malformed_dataset_is_named_with_the_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, where: str
) -> None:
    (tmp_path / "bad.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    message = _error(capsys, ["dataset", "--dataset", "bad.json", "--strict"], ExitStatus.USAGE)
    assert "bad.json" in message
    assert where in message


def test_check_perf_json_without_its_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text(json.dumps({"key": {"Requests/Sec": 10}}))
    message = _error(capsys, ["dataset", "--check_perf_json", "reference.json"], ExitStatus.USAGE)
    assert "--check_perf_key" in message


@pytest.mark.parametrize(
    ("content", "key", "named"),
    [
        ("{", "key", "reference.json"),
        ("[]", "key", "--check_perf_key key"),
        ("{}", "key", "--check_perf_key key"),
        ('{"key": {"Speed": 1}}', "key", "'Speed'"),
        ('{"key": {"Requests/Sec": "fast"}}', "key", "Requests/Sec"),
    ],
)
def test_unusable_reference_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, key: str, named: str
) -> None:
    (tmp_path / "reference.json").write_text(content)
    argv = ["dataset", "--check_perf_json", "reference.json", "--check_perf_key", key]
    assert named in _error(capsys, argv, ExitStatus.USAGE)


def test_run_folder_that_is_not_empty(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").touch()
    message = _error(capsys, ["dataset", "--run_dir", "old"], ExitStatus.USAGE)
    assert "--run_dir" in message
    assert "old is not empty" in message


def test_run_folder_that_is_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "--run_dir" in _error(capsys, ["dataset", "--run_dir", "file"], ExitStatus.USAGE)


@pytest.mark.parametrize("url", ["http://localhost:8000", "localhost:port", "localhost:0", "localhost:99999", "", "grpc://"])
def test_malformed_grpc_address(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert "--url" in _error(capsys, ["dataset", "--url", url], ExitStatus.USAGE)


@pytest.mark.parametrize("url", [":8001", "localhost:²", "[::1]:"])
def test_url_that_resembles_a_grpc_address(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert "--url" in _error(capsys, ["dataset", "--url", url], ExitStatus.USAGE)


def test_ipv6_address_without_a_port_gets_the_default_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[::1]:8001" in _error(capsys, ["dataset", "--url", "[::1]"], ExitStatus.FAILED)


def test_batch_size_above_tritons_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--triton_max_batch_size", "3000000000"]) in (ExitStatus.USAGE, ExitStatus.FAILED)
    assert "triton_max_batch_size" in capsys.readouterr().err


# ---- the target


def test_no_server_at_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{closed_port()}"
    message = _error(capsys, ["dataset", "--url", address], ExitStatus.FAILED)
    assert f"--url {address}: no server answers there" in message


def test_run_that_cannot_start_leaves_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _error(capsys, ["dataset", "--url", f"127.0.0.1:{closed_port()}"], ExitStatus.FAILED)
    assert [path for path in tmp_path.rglob("*") if path.name != "runs"] == []


def test_engine_folder_without_an_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    message = _error(capsys, ["dataset", "--engine_dir", "empty"], ExitStatus.FAILED)
    assert "holds no OpenVINO engine" in message


def test_report_of_a_folder_without_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is not a run folder" in _error(capsys, ["report", str(tmp_path)], ExitStatus.USAGE)


# ---- as a program


@pytest.mark.parametrize(
    ("argv", "status"),
    [(["dataset", "--request_rate", "-5"], 2), (["dataset", "--url", "127.0.0.1:1"], 1)],
    ids=["rate", "no_server"],
)
def test_program_exits_with_the_status_and_one_sentence(argv: list[str], status: int) -> None:
    done = subprocess.run([_BENCH, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_closed_stdout_is_no_crash() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([_BENCH, "dataset", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == ExitStatus.FAILED
    assert "Traceback" not in done.stderr


def test_engine_options_shape_the_embedded_pipeline_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "--url", "localhost:1", "--batch_scheduler_policy", "max_utilization"]) == 2
    assert "--batch_scheduler_policy configures the embedded pipeline" in capsys.readouterr().err
