"""Where secrets could be left: a server that repeats all that it is sent, and a search of files, pages and process lists."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

import psutil

from bench_records.run_folder import RunFolder
from tests.harness.chat_server import DONE, WHOLE, chunk
from tests.harness.threaded_http import threaded_http

_SHARED_MEMORY = Path("/dev/shm")
_PERIOD_S = 0.1
_HELD_FROM = 8  # the first requests have their records by then, among them some of each kind of failure
_LONGEST_HOLD_S = 60.0


@dataclass
class Echo:
    """A running server that repeats what it is sent: its port, and all that it received.

    Its last answers are ``held`` until ``go_on``: so that a search has the time to look while a run lasts.
    """

    port: int = 0
    received: list[str] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


@contextmanager
def echo_server() -> Iterator[Echo]:
    """Chat completions that repeat path, headers and body: in the answer, in an error's status, in an error within a stream."""
    echo, numbers = Echo(), itertools.count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            said = self._said("")
            if self.path.startswith("/v1/models"):
                self._send(200, "application/json", json.dumps({"data": [{"id": "m"}]}).encode())
            elif self.path.startswith("/metrics"):
                self._send(403, "application/json", json.dumps({"error": said}).encode())
            else:
                self._send(404, "text/plain", said.encode())

        def do_POST(self) -> None:
            said = self._said(self.rfile.read(int(self.headers["Content-Length"])).decode())
            number = next(numbers)
            if number >= _HELD_FROM:
                echo.held.set()
                echo.go_on.wait(_LONGEST_HOLD_S)
            if number % 4 == 1:
                self._send(401, "application/json", json.dumps({"error": {"message": said}}).encode())
                return
            events = [chunk(content=said), *WHOLE] if number % 4 == 2 else WHOLE
            events = [*WHOLE[:3], {"error": {"message": said}}, DONE] if number % 4 == 3 else events
            texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
            self._send(200, "text/event-stream", "".join(f"data: {text}\n\n" for text in texts).encode())

        def _said(self, body: str) -> str:
            said = f"{self.path} {dict(self.headers)} {body}"
            echo.received.append(said)
            return said

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with threaded_http(Handler) as port:
        echo.port = port
        yield echo


@dataclass
class Search:
    """A search for ``secrets`` (by the option that has each); ``found`` are pairs of the option and the place."""

    secrets: Mapping[str, str]
    found: set[tuple[str, str]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    has_failures: bool = False  # the live page showed what the server repeats

    def text(self, place: str, content: bytes) -> None:
        for option, secret in self.secrets.items():
            spellings = (secret, json.dumps(secret)[1:-1], html.escape(secret), unquote(secret))
            if any(spelling.encode() in content for spelling in spellings):
                self.found.add((option, place))

    def folder(self, folder: Path) -> None:
        for parent, _, names in os.walk(folder):  # unlike rglob, it goes on where a folder vanishes meanwhile
            for path in (Path(parent, name) for name in names):
                with suppress(OSError):
                    if path.is_file():
                        self.files.add(str(path))
                        self.text(str(path), path.read_bytes())

    def tables(self, folder: Path) -> None:
        """The run's records, which Parquet compresses."""
        self.text("requests.parquet", json.dumps(RunFolder(folder).read_requests().to_pylist(), default=str).encode())

    def process_list(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            with suppress(psutil.Error):
                root = psutil.Process(process.pid)
                for member in (root, *root.children(recursive=True)):
                    with suppress(psutil.Error):
                        self.text("process list", " ".join(member.cmdline()).encode())

    def live_page(self, errors: Path) -> None:
        """The page whose URL is in ``errors``, with the failures that it shows."""
        match = re.search(rb"Live: (\S+)/(\?token=\S+)", errors.read_bytes()) if errors.exists() else None
        for path in ("/", "/stats/requests", "/stats/failures/csv", "/stats/report") if match is not None else ():
            with suppress(OSError):
                address = f"{match[1].decode()}{path}{match[2].decode()}"
                with urlopen(address, timeout=5) as answer:
                    content = answer.read()
                self.text(f"live page {path}", content)
                self.has_failures |= b"server_error" in content

    def while_alive(
        self, processes: Sequence[subprocess.Popen[bytes]], folders: Sequence[Path], echo: Echo, argv: bool, page: bool = False
    ) -> None:
        """Search folders, shared memory, the live page and, for ``argv``, the process list until the first process ends.

        The last answers of ``echo`` come when all has been searched after the first ones, and for ``page`` the live page has
        shown failures.
        """
        before = set(_shared_memory())
        deadline_s = time.monotonic() + 120
        while processes[0].poll() is None and time.monotonic() < deadline_s:
            was_held = echo.held.is_set()
            for folder in folders:
                self.folder(folder)
            for path in set(_shared_memory()) - before:
                with suppress(OSError):
                    self.text("shared memory", path.read_bytes())
            if argv:
                self.process_list(processes)
            self.live_page(folders[0].with_name("errors"))
            if was_held and (self.has_failures or not page):
                echo.go_on.set()
            time.sleep(_PERIOD_S)


def _shared_memory() -> list[Path]:
    with suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(_SHARED_MEMORY) if entry.is_file(follow_symlinks=False)]
    return []
