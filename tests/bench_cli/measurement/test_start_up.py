"""What a measurement imports: nothing heavy that a user happens to have installed, and that it can do without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.calibration.null_server.server import NullServerOptions, null_server

_HEAVY = ("torch", "transformers", "pandas", "matplotlib", "openvino", "openvino_genai", "pytriton", "jax")
_TRAP = """\
import os
open(os.environ["IMPORTED"], "a").write(__name__ + "\\n")
raise ImportError(__name__ + " was imported")
"""


@pytest.fixture
def trap(tmp_path: Path) -> dict[str, str]:
    """An environment whose heavy packages report their import, in workers too."""
    packages = tmp_path / "packages"
    for name in _HEAVY:
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(_TRAP)
    return dict(os.environ) | {"PYTHONPATH": str(packages), "IMPORTED": str(tmp_path / "imported")}


def test_a_run_with_its_tokenizer_and_report_imports_nothing_heavy(trap: dict[str, str], tmp_path: Path) -> None:
    caught = subprocess.run([sys.executable, "-c", "import torch"], env=trap, capture_output=True, check=False)
    assert caught.returncode == 1
    assert Path(trap["IMPORTED"]).read_text() == "torch\n"
    Path(trap["IMPORTED"]).unlink()
    lengths = ["--input_mean", "9", "--input_stdev", "1", "--output_mean", "4", "--output_stdev", "1", "--num_requests", "20"]
    tokenizer = Path(__file__).parents[3] / "serving" / "demo_engine"
    with null_server(NullServerOptions()) as server:
        target = ["-i", "openai", "--url", server.http, "--tokenizer_dir", str(tokenizer), "--run_dir", str(tmp_path / "run")]
        command = [sys.executable, "-m", "bench_cli", "token_norm_dist", *lengths, "--request_rate", "40", *target]
        done = subprocess.run([*command, "--workers", "2"], env=trap, capture_output=True, text=True, check=False)
    assert (tmp_path / "run" / "report.html").is_file(), done.stderr
    assert not Path(trap["IMPORTED"]).exists()
