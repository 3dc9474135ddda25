"""The workers of a run in a test's own process, as forks of a server that has imported what they need.

A worker that is spawned, as those of every program are that a test starts, spends a third of a second of CPU on imports.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.host.blas_threads import one_blas_thread
from harness.host.signals import signals_blocked
from harness.run import local_pool, worker

_ROOT = Path(__file__).parents[2]
_LOADED = [__name__, "harness.clients.openai_chat", "harness.clients.openai_completions"]


@contextmanager
def forked_workers() -> Iterator[None]:
    """Take workers meanwhile from a server, which starts with the first run, as a worker is started."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)

    def get_context(_method: str) -> ForkServerContext:
        with chdir(_ROOT), signals_blocked(), one_blas_thread():  # it finds this module from there
            forkserver.ensure_running()
        return context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_pool, "multiprocessing", SimpleNamespace(get_context=get_context))
        yield


def _has_parent() -> bool:
    """As a worker sees it whose parent by the system is the server."""
    test = multiprocessing.parent_process()
    return test is None or test.is_alive()


worker._has_parent = _has_parent  # in the server, and so in its forks
