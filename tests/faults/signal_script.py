"""``bench`` that gets a signal at one point of its way, for phases too short to be met from outside.

    python signal_script.py SIGNAL MODULE FUNCTION [ARGUMENT …]

The first call of MODULE's FUNCTION sends SIGNAL to this process and then goes on.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from bench_cli import main


def _signalling(number: signal.Signals, module: str, name: str) -> None:
    place = importlib.import_module(module)
    original = getattr(place, name)
    pending = [number]

    def function(*arguments: Any, **named: Any) -> Any:
        if pending:
            os.kill(os.getpid(), pending.pop())
        return original(*arguments, **named)

    setattr(place, name, function)


if __name__ == "__main__":
    _signalling(signal.Signals[sys.argv[1]], sys.argv[2], sys.argv[3])
    main(sys.argv[4:])
