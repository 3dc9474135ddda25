"""What routers say of the time that a request spent in them."""

from __future__ import annotations

import pytest

from harness.clients.transport.router_headers import ENVOY, LITELLM, LITELLM_CALL, router_ns


@pytest.mark.parametrize(
    ("headers", "found_ms"),
    [
        ({}, None),
        ({b"server": b"envoy"}, None),
        ({ENVOY: b"40"}, 9.5),  # 40.0 to 41.0 of 50
        ({ENVOY: b"50"}, 0.0),
        ({ENVOY: b"51"}, None),  # longer than the client waited: of another request, or another clock
        ({ENVOY: b"0"}, 49.5),
        ({LITELLM: b"3.5"}, 3.5),
        ({LITELLM: b"0.0"}, 0.0),
        ({LITELLM: b"51"}, None),
        ({LITELLM: b"3.5", LITELLM_CALL: b"43.5"}, 10.0),  # all but the 40 of the upstream
        ({LITELLM: b"3.5", LITELLM_CALL: b"43.5", b"content-type": b"text/event-stream; charset=utf-8"}, 3.5),
        ({LITELLM: b"3.5", LITELLM_CALL: b"51"}, 3.5),
        ({LITELLM: b"3.5", LITELLM_CALL: b"3.4"}, 3.5),
        ({LITELLM: b"3.5", LITELLM_CALL: b"None"}, 3.5),
        ({LITELLM_CALL: b"43.5"}, None),
        ({ENVOY: b"40", LITELLM: b"3.5"}, 13.0),
        ({ENVOY: b"1", LITELLM: b"49"}, 50.0),  # no more than the whole
        ({ENVOY: b"51", LITELLM: b"3.5"}, 3.5),
        ({ENVOY: b"-"}, None),
        ({ENVOY: b"", LITELLM: b"None"}, None),
        ({ENVOY: b"-4"}, None),
        ({ENVOY: b"nan"}, None),
        ({LITELLM: b"inf"}, None),
        ({LITELLM: b"1e400"}, None),
        ({ENVOY: b"\xff"}, None),
    ],
)
def test_the_time_in_routers(headers: dict[bytes, bytes], found_ms: float | None) -> None:
    found_ns = router_ns(headers, 50_000_000)
    assert found_ns == (None if found_ms is None else round(found_ms * 1e6))
