"""Who used the CPU of the machine: the client, the target, and others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.observation.machine_use import MachineMeter, targets_at

_BURN = "import time; end = time.monotonic() + 5\nwhile time.monotonic() < end: pass"  # an orphan ends, too
_FOR_S = 1.5


@contextmanager
def _burning(code: str = _BURN) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_target_below_the_client_is_not_the_client() -> None:
    with _burning() as target, _burning():
        meter = MachineMeter(lambda: frozenset({target}))
        time.sleep(_FOR_S)
        use = meter.read()
    assert use is not None
    assert use.cores == os.cpu_count()
    assert use.seconds > _FOR_S * 0.9
    assert use.target_cores > 0.05
    assert use.client_cores > 0.05  # the other one is a child of this process
    assert use.busy_cores > 0.8 * (use.target_cores + use.client_cores) - 0.2


def test_the_children_of_a_target_are_the_target() -> None:
    starts_one = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BURN!r}])"
    with _burning(starts_one) as target:
        time.sleep(0.5)
        meter = MachineMeter(lambda: frozenset({target}))
        time.sleep(_FOR_S)
        use = meter.read()
        subprocess.run(["pkill", "-P", str(target)], check=False)
    assert use is not None
    assert use.target_cores > 0.1


def test_a_target_that_is_unknown_or_was_replaced_has_no_use() -> None:
    found = iter([frozenset({os.getpid()}), frozenset({os.getppid()})])
    assert MachineMeter(lambda: None).read() is None
    assert MachineMeter(lambda: next(found)).read() is None
    assert MachineMeter(targets_at([("192.0.2.1", 80)])).read() is None
