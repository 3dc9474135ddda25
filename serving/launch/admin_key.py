"""The key of Triton's administrative protocols, also on loopback: every user of a machine reaches that, and so do web pages.

Triton restricts a protocol to requests with a header: ``KEY_HEADER`` over HTTP, ``GRPC_KEY_HEADER`` over gRPC. Source: Triton's
docs/customization_guide/inference_protocols.md, "Limit Endpoint Access". Inference, health, metadata and configurations of
models stay open, and so do statistics by default, which the metrics repeat.

A plan holds ``KEY_VARIABLE`` in the key's place, so that neither a dry run nor a state file has the key itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

ADMINISTRATIVE = ("model-repository", "shared-memory", "trace", "logging")
RESTRICTABLE = (*ADMINISTRATIVE, "statistics")
KEY_HEADER = "triton-admin-key"
GRPC_KEY_HEADER = f"triton-grpc-protocol-{KEY_HEADER}"
KEY_VARIABLE = "${TRITON_ADMIN_KEY:?}"  # a shell stops where it is not set
_KEY_BYTES = 24


def restricted_apis(requested: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The protocols that need the key: the administrative ones and those ``requested``."""
    return tuple(dict.fromkeys((*ADMINISTRATIVE, *requested)))


def restriction_arguments(apis: Sequence[str]) -> tuple[str, ...]:
    """Arguments of ``tritonserver`` that restrict ``apis`` over HTTP and gRPC."""
    if not apis:
        return ()
    restriction = f"{','.join(apis)}:{KEY_HEADER}={KEY_VARIABLE}"
    return f"--http-restricted-api={restriction}", f"--grpc-restricted-protocol={restriction}"


def new_key() -> str:
    """A key for one start of a server: 24 random bytes, URL-safe."""
    return secrets.token_urlsafe(_KEY_BYTES)


def with_key(command: tuple[str, ...], key: str | None) -> tuple[str, ...]:
    """``command`` with ``key`` in place of KEY_VARIABLE. Raises ValueError where it needs a key and has None."""
    if not any(KEY_VARIABLE in word for word in command):
        return command
    if key is None:
        raise ValueError("the command restricts protocols of Triton, so it needs a key")
    return tuple(word.replace(KEY_VARIABLE, key) for word in command)
