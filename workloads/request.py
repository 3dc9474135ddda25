"""What to send."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_TOKENS = 10_000_000  # far beyond any context; keeps a typing error from filling the memory


@dataclass(frozen=True, slots=True)
class Request:
    """One request: a prompt as text, as token ids, or both, and how many tokens to ask for.

    ``input_tokens`` is the prompt's length in tokens as far as the client knows it, else None. ``ignore_eos`` asks the
    server not to stop before ``output_tokens``. ``session`` names the conversation that the request belongs to.
    """

    output_tokens: int
    prompt: str | None = None
    input_ids: tuple[int, ...] | None = None
    input_tokens: int | None = None
    ignore_eos: bool = False
    session: str | None = None
