from __future__ import annotations

from pathlib import Path

import pytest

from harness.distribution.admission import (
    NO_TOKEN,
    TOKEN_VARIABLE,
    Admission,
    Handshake,
    Token,
    configured_token,
    new_token,
)
from harness.errors import TokenError

_TOKEN, _OTHER = Token(b"0123456789abcdef"), Token(b"fedcba9876543210")
_NONCE = bytes(16)


def _of_worker(token: Token, admission: Admission, peer: str = "w1") -> Handshake:
    return Handshake(token, peer, _NONCE, admission.challenge(peer, _NONCE))


def test_a_worker_with_the_token_is_admitted_and_both_sides_have_the_same_keys() -> None:
    admission = Admission(_TOKEN)
    worker = _of_worker(_TOKEN, admission)
    master = admission.admit("w1", _NONCE, worker.worker_proof)
    assert master is not None
    assert master.master_proof == worker.master_proof
    signature = worker.of_worker.sign("bench", b"data")
    assert master.of_worker.is_valid("bench", b"data", signature)
    assert not master.of_worker.is_valid("bench", b"data!", signature)
    assert not master.of_worker.is_valid("bench_pong", b"data", signature)
    assert not master.of_master.is_valid("bench", b"data", signature)  # a side does not accept its own messages


@pytest.mark.parametrize("token", [_OTHER, NO_TOKEN])
def test_a_worker_without_the_token_is_not_admitted(token: Token) -> None:
    admission = Admission(_TOKEN)
    assert admission.admit("w1", _NONCE, _of_worker(token, admission).worker_proof) is None


def test_a_proof_is_of_one_connection_and_one_master() -> None:
    admission = Admission(_TOKEN)
    proof = _of_worker(_TOKEN, admission).worker_proof
    assert admission.admit("w2", _NONCE, proof) is None
    assert admission.admit("w1", bytes([1] * 16), proof) is None
    assert Admission(_TOKEN).admit("w1", _NONCE, proof) is None


def test_the_masters_proof_is_not_the_workers() -> None:
    made = _of_worker(_TOKEN, Admission(_TOKEN))
    assert len({made.worker_proof, made.master_proof, made.of_worker.key, made.of_master.key}) == 4


def test_no_text_of_a_token_shows_it() -> None:
    made = _of_worker(_TOKEN, Admission(_TOKEN))
    assert _TOKEN.value.decode() not in f"{made!r} {made.of_worker!r}"


def test_the_file_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert configured_token(None) == NO_TOKEN
    monkeypatch.setenv(TOKEN_VARIABLE, _OTHER.value.decode())
    assert configured_token(None) == _OTHER
    (tmp_path / "token").write_bytes(_TOKEN.value + b"\n")
    assert configured_token(tmp_path / "token") == _TOKEN
    assert len(new_token().value) >= 32


@pytest.mark.parametrize("content", [b"short", b"", b"\x00" * 20, "ÿ".encode() * 20])
def test_a_token_that_is_none_is_named_with_its_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(TokenError, match=r"--worker_token_file .*token: a token has at least 16 printable"):
        configured_token(tmp_path / "token")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match=r"--worker_token_file .*absent cannot be read: No such file"):
        configured_token(tmp_path / "absent")
