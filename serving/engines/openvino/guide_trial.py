"""Trial compilation of guides in a separate process, since a guide can crash its compiler or make it run forever.

    python3 -m serving.engines.openvino.guide_trial PIPE_FD

The trial compiles a guide in a pipeline over the demo engine, which is small and whose tokenizer covers every byte.
"""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import Guide, GuideType

_CPU_SECONDS = 3.0
_MEMORY_BYTES = 2 << 30
_STACK_BYTES = 2 << 20  # less than the engine's, so that what fits here fits there
_ANY_JSON = '{"anyOf": [{"type": "object"}, {"type": "array"}]}'
_FIELDS = {
    GuideType.JSON: "json_schema",
    GuideType.JSON_SCHEMA: "json_schema",
    GuideType.REGEX: "regex",
    GuideType.EBNF_GRAMMAR: "grammar",
}


class GuideTrial:
    """Client of the trial process, which is started on demand; checks one guide at a time."""

    def __init__(self) -> None:
        self._guides: deque[Guide] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._sent = False

    def check(self, guide: Guide) -> None:
        """Queue a guide for checking."""
        if guide not in self._guides:
            self._guides.append(guide)

    def result(self) -> tuple[Guide, str] | None:
        """The next checked guide and its error (empty if valid), or None if there is no result yet. Never blocks."""
        if not self._guides:
            return None
        try:
            pipe = self._pipe or self._start()
            if not self._sent:
                pipe.send_bytes(msgspec.json.encode(self._guides[0]))
                self._sent = True
            if not pipe.poll(0):
                return None
            reason = pipe.recv_bytes().decode()
        except (EOFError, OSError):
            reason = self._reap()
        self._sent = False
        return self._guides.popleft(), reason

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "serving.engines.openvino.guide_trial", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._pipe = Connection(ours.detach())
        return self._pipe

    def _reap(self) -> str:
        """Clean up after the trial process has died; returns the error of the guide that it was compiling."""
        status = self._process.wait() if self._process is not None else 0
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        if status == -signal.SIGPROF:
            return f"it takes more than {_CPU_SECONDS:g} s to compile"
        return "it is too deep or too large to compile"


def structured_output(guide: Guide) -> Any:
    """``guide`` as OpenVINO GenAI's ``StructuredOutputConfig``."""
    import openvino_genai as genai

    config = genai.StructuredOutputConfig()
    setattr(config, _FIELDS[guide.type], _ANY_JSON if guide.type is GuideType.JSON else guide.text)
    return config


def _open_pipeline() -> Any:
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 2
    tokenizer = genai.Tokenizer(str(DEMO_ENGINE_DIR))
    return genai.ContinuousBatchingPipeline(str(DEMO_ENGINE_DIR), tokenizer, scheduler, "CPU")


def _try(pipeline: Any, guide: Guide) -> str:
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    config = genai.GenerationConfig()
    config.max_new_tokens = 1
    try:
        config.structured_output_config = structured_output(guide)
        handle = pipeline.add_request(0, ov.Tensor(np.ones((1, 1), dtype=np.int64)), config)
    except Exception as error:
        return _last_line(error)
    try:
        pipeline.step()
    except Exception as error:
        return _last_line(error)
    finally:
        handle.cancel()
        pipeline.step()
    return ""


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason was given"])[-1].split(": ", 1)[-1]


def _serve(pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pipeline = _open_pipeline()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    while True:
        try:
            guide = msgspec.json.decode(pipe.recv_bytes(), type=Guide)
            signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)  # the signal ends the process inside the compiler, too
            reason = _try(pipeline, guide)
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send_bytes(reason.encode())
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    threading.stack_size(_STACK_BYTES)
    server = threading.Thread(target=_serve, args=(Connection(int(sys.argv[1])),))
    server.start()
    server.join()
