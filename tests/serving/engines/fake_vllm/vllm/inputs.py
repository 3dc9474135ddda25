"""Prompts."""

from __future__ import annotations


def tokens_input(prompt_token_ids: list[int]) -> dict[str, object]:
    return {"type": "token", "prompt_token_ids": prompt_token_ids}
