"""Who may use the live page: the browser that opened the URL which ``bench`` printed, and no other web page through it.

A page of another site can make a browser send requests to any address (CSRF), and can have its own name resolve to this host
(DNS rebinding). The first has another Origin, the second another Host; neither has the token.
"""

from __future__ import annotations

import hmac
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from harness.errors import RunError

TOKEN_VARIABLE = "BENCH_PAGE_TOKEN"  # noqa: S105  the variable's name; arguments would be in the list of processes
_ANY_HOST = ("", "*", "0.0.0.0", "::")  # noqa: S104


@dataclass(frozen=True, slots=True)
class LiveAddress:
    """Host and port of the live page, and the token that its URL contains."""

    host: str
    port: int
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self.token}"

    def check(self) -> None:
        """Raises RunError where nothing can listen there: Locust would go on without its page, and the URL with the token would
        lead to whatever program has the port.
        """
        host = None if self.host in _ANY_HOST else self.host
        of_names = socket.AF_INET if host is not None and ":" not in host else socket.AF_UNSPEC  # Locust's server has no other
        try:
            found = socket.getaddrinfo(host, self.port, of_names, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
        except OSError as error:
            raise RunError(
                f"--web_host {self.host} --web_port {self.port}: the page cannot be opened there "
                f"({error.strerror or error}); choose another host or port"
            ) from error


@dataclass(frozen=True, slots=True)
class PageGuard:
    """The check of each request to the page at ``address``."""

    address: LiveAddress

    @property
    def cookie(self) -> str:
        """The name of the cookie with the token: cookies of one host are shared by its ports."""
        return f"bench-live-{self.address.port}"

    def is_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.address.token.encode())

    def refusal(self, host: str, origin: str | None, tokens: tuple[str | None, ...]) -> str | None:
        """Why a request is refused, None where it is not. ``host`` and ``origin`` are its headers, ``tokens`` what it gives."""
        if not self._is_own_host(host):
            return "the Host of this request is not that of the live page"
        if origin is not None and origin != f"http://{host}":
            return "this request comes from another web page"
        if not any(map(self.is_token, tokens)):
            return "open the URL that bench printed: it has the token of this run"
        return None

    def _is_own_host(self, authority: str) -> bool:
        try:
            parts = urlsplit(f"//{authority}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.address.port:
            return False
        if self.address.host in _ANY_HOST:  # a name that another site's owner chose is neither of these
            return name in ("localhost", socket.gethostname().lower()) or _is_ip_address(name)
        return name == self.address.host.lower() or (name in ("localhost", "127.0.0.1", "::1") and self._is_loopback)

    @property
    def _is_loopback(self) -> bool:
        host = self.address.host
        return host == "localhost" or (_is_ip_address(host) and ip_address(host).is_loopback)


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
