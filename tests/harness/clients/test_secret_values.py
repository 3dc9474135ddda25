"""Secrets that a server repeats, in whatever form."""

from __future__ import annotations

import json
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from harness.clients.secret_values import HIDDEN, SHORTEST, hide_in_bodies, hide_in_text, spellings

_SECRETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=SHORTEST, max_size=40)


@given(_SECRETS)
def test_a_secret_is_hidden_in_a_url_in_json_and_in_json_within_json(secret: str) -> None:
    hidden = spellings([secret])
    body = json.dumps({"api_key": secret})
    for repeated in (secret, body, json.dumps({"error": body}), f"/v1?key={quote(secret, safe='')}"):
        kept = hide_in_text(f"[{repeated}]", hidden)
        assert HIDDEN in kept
        assert hide_in_text(kept, hidden) == kept or secret in HIDDEN


def test_a_key_is_hidden_without_its_scheme_too() -> None:
    hidden = spellings(["Bearer sk-12345678"])
    assert hide_in_text("Incorrect API key provided: sk-12345678.", hidden) == f"Incorrect API key provided: {HIDDEN}."


def test_a_short_value_is_left_for_it_occurs_by_chance() -> None:
    assert spellings(["8000", "a b c"]) == ()
    assert spellings([""]) == ()


def test_a_body_without_a_secret_is_the_same_object() -> None:
    bodies = [b'{"text": "a"}', b'{"text": "secret-value"}']
    kept = hide_in_bodies(bodies, spellings(["secret-value"]))
    assert kept[0] is bodies[0]
    assert kept[1] == b'{"text": "' + HIDDEN.encode() + b'"}'
