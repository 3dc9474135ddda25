"""The number of threads of the linear algebra (BLAS) that numpy brings.

It makes a thread for each core when it is loaded: 2.2 s of CPU on 16 cores, in every process, for work that nothing here needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have a numpy that is loaded meanwhile, here or in a process started meanwhile, use one thread.

    A user's own setting of any of the variables stays, and at the end none is left behind: a server that is started later
    computes with all cores.
    """
    if any(name in os.environ for name in _VARIABLES):
        yield
        return
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        yield
    finally:
        for name in _VARIABLES:
            os.environ.pop(name, None)
