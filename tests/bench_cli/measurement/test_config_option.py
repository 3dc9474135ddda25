"""``--config``: options from a TOML file, of which the command line wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer


def test_options_come_from_the_file_and_the_command_line_wins(server: ScriptedServer, tmp_path: Path) -> None:
    config = tmp_path / "bench.toml"
    config.write_text(
        f"""
url = "{server.address}"
model = "scripted"
vocab-size = 100
isl = 12
osl = "4:0"
num_requests = 9
request_rate = 200
ignore_eos = false
slo = "e2e<=60s"
fail_if = ["failed_share>50%"]
""",
        encoding="utf-8",
    )
    line = ["token_norm_dist", "--config", str(config), "--num_requests", "3", "--run_dir", str(tmp_path / "run")]
    assert run(line) in (ExitStatus.VALID, ExitStatus.INVALID)
    manifest = RunFolder(tmp_path / "run").read_document()[0]
    assert manifest["workload"]["input_mean"] == 12
    options = manifest["options"]
    assert (options["num_requests"], options["request_rate"], options["ignore_eos"]) == (3, 200.0, False)
    assert (options["slo"], options["fail_if"]) == (["e2e<=60000ms"], ["failed_share>50%"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("request_rat = 10", "'request_rat' is no option of token_norm_dist; did you mean 'request_rate'?"),
        ("[load]\nrequest_rate = 10", "'load' is no option of token_norm_dist"),
        ("a = [", "bench.toml: "),
        ("seed = " + "[" * 100_000 + "]" * 100_000, "bench.toml: "),
        ("seed = " + "9" * 5_000, "bench.toml: "),
        ("#" * (1 << 21), "bench.toml: longer than 1,048,576 bytes"),
        ("config = 'other.toml'", "'config' is no option"),
        ("request_rate = 'fast'", "'--request_rate': 'fast' is not a valid float"),
        ("request_rate = 5\nconcurrency = 4", "--request_rate cannot be combined with --concurrency"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    config = tmp_path / "bench.toml"
    config.write_text(text, encoding="utf-8")
    assert run(["token_norm_dist", "--config", str(config)]) == ExitStatus.USAGE
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert len(error) < 1_000


def test_a_file_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "--config", str(tmp_path / "none.toml")]) == ExitStatus.USAGE
    assert "none.toml: No such file or directory" in capsys.readouterr().err
