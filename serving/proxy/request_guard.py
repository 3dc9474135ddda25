"""Which requests come from another web page, or to a name that is not this server's.

A page of another site can make a browser send requests to any address (CSRF), and can have its own name resolve to this host
(DNS rebinding). The first has another Origin, the second another Host. The owner of a site can't have a numeric address for its
name, nor a name without a dot.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

_OTHER_SITES = ("cross-site", "same-site")  # values of Sec-Fetch-Site; a port is no part of a site


def refusal(host: str | None, origin: str | None, site: str | None, allowed_hosts: Collection[str]) -> str | None:
    """Why a request is refused, None where it is not.

    ``host``, ``origin`` and ``site`` are its headers Host, Origin and Sec-Fetch-Site; None where it has none, as of programs.
    """
    if host is not None and not _is_own_host(host, allowed_hosts):
        return "the Host of this request is no name of this server; 'bench serve --allowed_hosts' names it"
    if (origin is not None and origin != f"http://{host}") or site in _OTHER_SITES:
        return "this request comes from a web page of another origin"
    return None


def _is_own_host(authority: str, allowed_hosts: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    return _is_ip_address(name) or (bool(name) and "." not in name) or name in allowed_hosts


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
