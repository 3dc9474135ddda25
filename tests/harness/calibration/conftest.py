"""Null servers to ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server

FIRST_TOKEN_NS = 20_000_000
GAP_NS = 5_000_000


@pytest.fixture(scope="session")
def unpaced() -> Iterator[NullServerAddresses]:
    with null_server() as addresses:
        yield addresses


@pytest.fixture(scope="session")
def unpaced_joined() -> Iterator[NullServerAddresses]:
    with null_server(NullServerOptions(packets="joined")) as addresses:
        yield addresses


@pytest.fixture(scope="session")
def paced() -> Iterator[NullServerAddresses]:
    with null_server(NullServerOptions(Pace(FIRST_TOKEN_NS, GAP_NS))) as addresses:
        yield addresses
