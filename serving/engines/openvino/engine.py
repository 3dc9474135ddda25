"""The embedded engine: OpenVINO GenAI on the CPU, in a worker process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from serving.engines.process_engine import ProcessEngine, start
from serving.engines.protocol import EngineOptions


class OpenVinoEngine(ProcessEngine):
    """An ``Engine`` over ``serving/engines/openvino/worker.py``."""

    def __init__(self, engine_dir: Path, options: EngineOptions) -> None:
        """Load an OpenVINO IR folder as written by ``bench engine build``. Raises EngineError when it cannot be loaded."""
        python = f"{sys.prefix}/bin/python3"  # Triton's stub embeds Python: there sys.executable is the stub
        own = ("-m", "serving.engines.openvino.worker")
        settings = json.dumps(msgspec.to_builtins(options))  # in ASCII: Python in Triton's stub encodes nothing else
        super().__init__(start(lambda pipe: [python, *own, str(pipe), str(engine_dir), settings]))
