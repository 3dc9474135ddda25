"""Addresses of servers: origins and URLs as values, and the one parser of both."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from harness.clients.transport.certificates import client_context

WEB_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
_GRPC_PORTS: Mapping[str, int] = {"grpc": 8001, "grpcs": 443}  # the first is Triton's
_ENCRYPTED = ("https", "grpcs")

_WITHOUT_PATH = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]*://)?[^/?#]*")
_SCHEME_FIRST = re.compile(r"\s*[a-zA-Z][a-zA-Z0-9+.-]*://")
_PORT_FIRST = re.compile(r"\s*[^/?#\s]+:\d+\s*(?=[/?#]|$)")
_WITH_USER = re.compile(r"[^/?#]*@")


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a server (RFC 6454); ``host`` is a name or an address, IPv6 without brackets."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"

    @property
    def address(self) -> str:
        """``host:port``, with IPv6 in brackets."""
        return f"{self._bracketed_host}:{self.port}"

    @property
    def _bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_encrypted(self) -> bool:
        return self.scheme in _ENCRYPTED

    @property
    def authority(self) -> str:
        """Value of the Host header (RFC 9110, section 7.2)."""
        return self._bracketed_host if self.port == WEB_PORTS[self.scheme] else self.address

    def tls(self) -> ssl.SSLContext | None:
        """``client_context``; None for http and gRPC without encryption."""
        return client_context() if self.is_encrypted else None

    def url(self, path: str) -> HttpUrl:
        """The URL of ``path`` at this origin."""
        return HttpUrl(self.scheme, self.host, self.port, path)


@dataclass(frozen=True, slots=True)
class HttpUrl(Origin):
    """An http or https URL; ``path`` includes the query."""

    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"

    @property
    def origin(self) -> Origin:
        return Origin(self.scheme, self.host, self.port)


def separate_urls(text: str) -> tuple[str, ...]:
    """The addresses of a list with commas, without the spaces around each.

    A comma separates two addresses where none has a path before it, and elsewhere before a scheme or ``host:port``: paths,
    queries and passwords may have commas.
    """
    first, *further = text.split(",")
    found = [first]
    for number, piece in enumerate(further):
        if _is_next(found[-1], piece, ",".join(further[number:])):
            found.append(piece)
        else:
            found[-1] += f",{piece}"
    return tuple(url.strip() for url in found)


def _is_next(url: str, piece: str, rest: str) -> bool:
    """Whether ``piece``, which follows ``url`` and a comma and begins ``rest``, is another address."""
    if not piece.strip() or _SCHEME_FIRST.match(piece):
        return True
    in_url = rest if _SCHEME_FIRST.match(url) else piece
    return not _WITH_USER.match(in_url) if _WITHOUT_PATH.fullmatch(url) else _PORT_FIRST.match(piece) is not None


def parse_origin(text: str, default_ports: Mapping[str, int]) -> Origin:
    """Parse ``[scheme://]host[:port]``. Raises ValueError, with the reason.

    ``default_ports`` maps each accepted scheme to its port; a text without a scheme has the first.
    """
    origin, parts = _parse(text, default_ports)
    if parts.path.strip("/") or parts.query:
        raise ValueError("it has a path; give host:port alone")
    return origin


def parse_grpc(text: str) -> Origin:
    """Parse ``[grpc[s]://]host[:port]`` as ``parse_origin``; the ports default to Triton's 8001 and, encrypted, 443."""
    return parse_origin(text, _GRPC_PORTS)


def parse_base(text: str, default_ports: Mapping[str, int]) -> HttpUrl:
    """Parse ``[scheme://]host[:port][/path]`` as ``parse_origin``; the path has no slash at its end, and may be empty."""
    origin, parts = _parse(text, default_ports)
    if parts.query:
        raise ValueError("it has a query; give http://host:port/path alone")
    return origin.url(parts.path.rstrip("/"))


def parse_url(text: str, default_path: str) -> HttpUrl:
    """Parse ``[http[s]://]host[:port][/path]``; the ports default to 80 and 443. Raises ValueError, with the reason."""
    origin, parts = _parse(text, WEB_PORTS)
    query = f"?{parts.query}" if parts.query else ""
    return origin.url((parts.path if parts.path.strip("/") else default_path) + query)


def _parse(text: str, default_ports: Mapping[str, int]) -> tuple[Origin, SplitResult]:
    schemes = tuple(default_ports)
    parts = urlsplit(text if "://" in text else f"{schemes[0]}://{text}")
    if parts.scheme not in default_ports:
        raise ValueError(f"the scheme {parts.scheme!r} is not {' or '.join(schemes)}")
    if not parts.hostname or "@" in parts.netloc or parts.netloc.endswith(":") or parts.fragment or parts.port == 0:
        raise ValueError(f"give {schemes[0]}://host:port")
    return Origin(parts.scheme, parts.hostname, parts.port or default_ports[parts.scheme]), parts
