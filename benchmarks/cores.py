"""Which cores a null server and the client that measures it have: each its own, or both all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

APART, SHARED = "apart", "shared"


@contextmanager
def placed(server_pid: int, cores: str) -> Iterator[None]:
    """APART: the server has the first core, and what this thread starts meanwhile the others; SHARED: as the kernel likes.

    Left to itself the kernel often puts a server on the core of the worker that wakes it, though another is idle: then each
    waits for the other. In virtual machines more than elsewhere, where an idle core can look taken.
    """
    all_cores = os.sched_getaffinity(0)
    of_server, *others = sorted(all_cores)
    if cores == APART:
        if not others:
            raise SystemExit("--cores apart needs two cores, and this process may use one: --cores shared")
        os.sched_setaffinity(server_pid, {of_server})
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)
