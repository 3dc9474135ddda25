"""A small HTTP server in Triton's place, as a separate program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_SERVER = f"""#!{sys.executable}
import http.server, os, signal, subprocess, sys
options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if "=" in word)
models = os.listdir(options["model-repository"])
known = ["/v2/health/ready", *(f"/v2/models/{{name}}/ready" for name in models)]
child = subprocess.Popen(["sleep", "1000"])
def end(*words):
    ENDS_CHILD and child.kill()
    os._exit(0)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in known else 400)
        self.end_headers()
    def log_message(self, *words):
        pass
signal.signal(signal.SIGINT, end)
http.server.HTTPServer((options["http-address"], int(options["http-port"])), Handler).serve_forever()
"""


def make_program(folder: Path, name: str, text: str) -> Path:
    """An executable file."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def fake_triton(tmp_path: Path) -> Path:
    """A ``tritonserver`` that is ready at once, and has a child process, which it ends on SIGINT."""
    return make_program(tmp_path, "tritonserver", _SERVER.replace("ENDS_CHILD", "True"))


@pytest.fixture
def careless_triton(fake_triton: Path) -> Path:
    """The same program, made to leave its child running, for which the supervisor waits before it kills it."""
    return make_program(fake_triton.parent, fake_triton.name, _SERVER.replace("ENDS_CHILD", "False"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one model."""
    folder = tmp_path / "repo"
    (folder / "tensorrt_llm").mkdir(parents=True)
    (folder / "tensorrt_llm" / "config.pbtxt").touch()
    return folder
