"""What routers say in the head of an answer of the time that a request spent in them."""

from __future__ import annotations

import math
from collections.abc import Mapping

ENVOY = b"x-envoy-upstream-service-time"
"""Envoy's, and that of gateways made of it: whole ms, cut, from the end of the request to the head of the upstream's answer
(envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter)."""
LITELLM = b"x-litellm-overhead-duration-ms"
"""LiteLLM's: ms of its own within its call of a model (docs.litellm.ai/docs/proxy/response_headers)."""
LITELLM_CALL = b"x-litellm-response-duration-ms"
"""LiteLLM's: ms of that call, the upstream's answer included. The head of a whole answer comes with its end, so that all of the
wait that the upstream did not take is the router's. The head of a stream comes with its first chunk, for which the call does
not wait."""
_NS_PER_MS = 1e6
_CUT_MS = 0.5  # on average, of the whole ms


def router_ns(headers: Mapping[bytes, bytes], waited_ns: int) -> int | None:
    """The time in routers, in ns, and with Envoy on the network to it; None where none says anything that can be.

    ``waited_ns`` is the time from the send to the head. What two routers say is added up: one passes the request to the other.
    """
    if ENVOY not in headers and LITELLM not in headers:
        return None
    found_ms, waited_ms = [], waited_ns / _NS_PER_MS
    upstream_ms, own_ms = _ms(headers.get(ENVOY)), _ms(headers.get(LITELLM))
    if upstream_ms is not None and upstream_ms <= waited_ms:
        found_ms.append(max(0.0, waited_ms - upstream_ms - _CUT_MS))
    if own_ms is not None and own_ms <= waited_ms:
        call_ms = None if _is_stream(headers) else _ms(headers.get(LITELLM_CALL))
        is_whole = call_ms is not None and own_ms <= call_ms <= waited_ms
        found_ms.append(waited_ms - (call_ms - own_ms) if call_ms is not None and is_whole else own_ms)
    return round(min(sum(found_ms), waited_ms) * _NS_PER_MS) if found_ms else None


def _is_stream(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")


def _ms(value: bytes | None) -> float | None:
    """None for what is no duration."""
    try:
        ms = math.nan if value is None else float(value)
    except ValueError:
        return None
    return ms if 0.0 <= ms < math.inf else None
