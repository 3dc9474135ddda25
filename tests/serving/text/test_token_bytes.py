"""Bytes of single tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from serving.text.token_bytes import token_bytes


@dataclass(frozen=True)
class _Vocabulary:
    token: str | None

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        return self.token


@pytest.mark.parametrize(
    ("token", "text", "expected"),
    [
        ("Ġð", " \ufffd", b" \xf0"),  # byte-level BPE
        ("<0xE2>", "\ufffd", b"\xe2"),  # byte fallback
        ("ï¿½", "\ufffd", "\ufffd".encode()),  # the character itself
        ("▁é", "é", "é".encode()),
        ("▁\ufffd", " \ufffd", " \ufffd".encode()),  # SentencePiece's own character
        (None, "\ufffd", "\ufffd".encode()),
    ],
)
def test_bytes_of_a_token(token: str | None, text: str, expected: bytes) -> None:
    assert token_bytes(_Vocabulary(token), 7, text) == expected
