"""Who used the CPU of the machine: the client, the target, and others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from harness.observation.machine_use import FindTarget, MachineMeter, targets_at

_BURN = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"  # an orphan ends, too
_USED_S = 0.3  # of CPU, however long that takes on a busy machine


def _meter(find: FindTarget) -> MachineMeter:
    return MachineMeter(find(), find)


@contextmanager
def _burning(code: str = _BURN) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _burn(*processes: psutil.Process) -> None:
    """Wait until each process has used _USED_S more of a CPU."""
    ends_s = [sum(process.cpu_times()[:2]) + _USED_S for process in processes]
    while any(sum(process.cpu_times()[:2]) < end_s for process, end_s in zip(processes, ends_s, strict=True)):
        time.sleep(0.02)


def test_a_target_below_the_client_is_not_the_client() -> None:
    with _burning() as target, _burning() as other:
        begin_s = time.monotonic()
        meter = _meter(lambda: frozenset({target}))
        _burn(psutil.Process(target), psutil.Process(other))
        took_s = time.monotonic() - begin_s
        use = meter.read()
    assert use is not None
    assert use.cores == os.cpu_count()
    assert use.seconds >= took_s * 0.9
    assert use.target_cores * use.seconds > _USED_S * 0.8
    assert use.client_cores * use.seconds > _USED_S * 0.8  # the other one is a child of this process
    assert use.busy_cores > 0.8 * (use.target_cores + use.client_cores) - 0.2


def test_the_children_of_a_target_are_the_target() -> None:
    starts_one = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BURN!r}])"
    with _burning(starts_one) as target:
        while not (children := psutil.Process(target).children()):
            time.sleep(0.02)
        meter = _meter(lambda: frozenset({target}))
        _burn(*children)
        use = meter.read()
        for child in children:
            child.kill()
    assert use is not None
    assert use.target_cores * use.seconds > _USED_S * 0.8


def test_the_servers_that_a_router_calls_are_the_target() -> None:
    listens = "import socket; own = socket.create_server(('127.0.0.1', 0)); print(own.getsockname()[1], flush=True)\n"
    calls = (
        "import socket, time; call = socket.create_connection(('127.0.0.1', int(input()))); print(flush=True); time.sleep(60)"
    )
    with ExitStack() as cleaning:
        server = cleaning.enter_context(_talking(listens + _BURN))
        router = cleaning.enter_context(_talking(calls))
        assert server.stdout is not None
        assert router.stdin is not None
        assert router.stdout is not None
        router.stdin.write(server.stdout.readline())
        router.stdin.flush()
        router.stdout.readline()
        meter = _meter(lambda: frozenset({router.pid}))
        _burn(psutil.Process(server.pid))
        use = meter.read()
    assert use is not None
    assert use.target_cores * use.seconds > _USED_S * 0.8


@contextmanager
def _talking(code: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_target_that_is_unknown_or_was_replaced_has_no_use() -> None:
    found = iter([frozenset({os.getpid()}), frozenset({os.getppid()})])
    assert _meter(lambda: None).read() is None
    assert _meter(lambda: next(found)).read() is None
    assert _meter(targets_at([("192.0.2.1", 80)])).read() is None
