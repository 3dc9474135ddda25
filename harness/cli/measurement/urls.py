"""What --url names, by the protocol that is spoken there."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

import click

from harness.clients.transport.http1_pool import Origin

DEFAULT_GRPC_PORT = 8001
DEFAULT_HTTP_PORT = 8000
DEFAULT_HTTPS_PORT = 443


def grpc_address(url: str) -> str:
    """host:port; the port defaults to Triton's gRPC port. Raises BadParameter."""
    parts = _parts(url, ("grpc",), f"{url!r} is no gRPC address; give host:port")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or DEFAULT_GRPC_PORT}"


def http_origin(url: str) -> Origin:
    """Scheme, host and port; the port defaults to 8000 as servers of models have it, for https to 443. Raises BadParameter."""
    parts = _parts(url, ("http", "https"), f"{url!r} is no HTTP address; give http://host:port, without a path")
    default = DEFAULT_HTTPS_PORT if parts.scheme == "https" else DEFAULT_HTTP_PORT
    return Origin(parts.scheme, parts.hostname or "", parts.port or default)


def _parts(url: str, schemes: tuple[str, ...], problem: str) -> SplitResult:
    refusal = click.BadParameter(problem, param_hint="--url")
    try:
        parts = urlsplit(url if "://" in url else f"{schemes[0]}://{url}")
        port = parts.port
    except ValueError as error:
        raise refusal from error
    if parts.scheme not in schemes or not parts.hostname or port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
        raise refusal
    if (port is None and parts.netloc.endswith(":")) or "@" in parts.netloc:
        raise refusal
    return parts
