"""The proof that a worker is expected: both sides know the run's token, which itself never crosses the network.

The worker sends a random number, the master answers with one of its own, and each proves by an HMAC over both that it knows the
token; the worker first, so that a stranger learns nothing. From the same numbers come the keys that seal every later
message in its direction. A sealed message that comes twice does no harm: each message of a run can be repeated.

A run without a token has the empty one, which everybody knows.
"""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.errors import TokenError

TOKEN_VARIABLE = "BENCH_WORKER_TOKEN"  # noqa: S105  the variable's name
NONCE_BYTES = 16
FEWEST_CHARACTERS = 16
_MOST_BYTES = 4096
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Token:
    """The secret that master and workers of a run share."""

    value: bytes = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The variable by which a process of this host is given the token."""
        return {TOKEN_VARIABLE: self.value.decode()}


NO_TOKEN = Token(b"")


def new_token() -> Token:
    return Token(secrets.token_hex(NONCE_BYTES).encode())


def token_of_environment() -> Token:
    """The token that another process of bench has put into the environment of this one, which forgets it."""
    return Token(os.environ.pop(TOKEN_VARIABLE, "").encode())


def configured_token(path: Path | None) -> Token:
    """The token in the file at ``path``, or else in the environment, NO_TOKEN where neither is given. Raises TokenError."""
    if path is None:
        place, text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
        if not text:
            return NO_TOKEN
    else:
        place, text = f"--worker_token_file {path}", _content(path)
    text = text.strip()
    if len(text) < FEWEST_CHARACTERS or not text.isascii() or not text.isprintable():
        raise TokenError(
            f"{place}: a token has at least {FEWEST_CHARACTERS} printable ASCII characters; 'openssl rand -hex 16' makes one"
        )
    return Token(text.encode())


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError as error:
        raise TokenError(f"--worker_token_file {path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Seal:
    """Signs and checks the messages of one direction."""

    key: bytes = field(repr=False)

    def sign(self, kind: str, data: bytes) -> bytes:
        return hmac.digest(self.key, kind.encode() + b"\0" + data, "sha256")

    def is_valid(self, kind: str, data: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(kind, data), signature)


@dataclass(frozen=True, slots=True)
class Handshake:
    """What both sides of one connection know: the token, the name of the worker's connection, a random number of each side."""

    token: Token
    peer: str
    worker_nonce: bytes
    master_nonce: bytes

    @property
    def worker_proof(self) -> bytes:
        return self._digest("proof of the worker")

    @property
    def master_proof(self) -> bytes:
        return self._digest("proof of the master")

    @property
    def of_worker(self) -> Seal:
        """The seal of the worker's messages."""
        return Seal(self._digest("messages of the worker"))

    @property
    def of_master(self) -> Seal:
        return Seal(self._digest("messages of the master"))

    def _digest(self, purpose: str) -> bytes:
        said = _encode((purpose, self.peer, self.worker_nonce, self.master_nonce))
        return hmac.digest(self.token.value, said, "sha256")


class Admission:
    """The master's side. It keeps nothing of those who ask, so that no number of strangers can fill its memory."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self._secret = secrets.token_bytes(32)

    @property
    def refusal(self) -> str:
        """Why a worker without the right proof takes no part."""
        if self._token == NO_TOKEN:
            return "it has a token, and the master has none: give both the same, or neither one"
        return f"its token is not this run's: give the worker the master's {TOKEN_VARIABLE} or --worker_token_file"

    def challenge(self, peer: str, worker_nonce: bytes) -> bytes:
        """The master's random number for a worker; the same one for the same question."""
        return hmac.digest(self._secret, _encode((peer, worker_nonce)), "sha256")[:NONCE_BYTES]

    def admit(self, peer: str, worker_nonce: bytes, proof: bytes) -> Handshake | None:
        """The handshake of a worker that knows the token; None of another."""
        made = Handshake(self._token, peer, worker_nonce, self.challenge(peer, worker_nonce))
        return made if hmac.compare_digest(made.worker_proof, proof) else None
