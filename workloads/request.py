"""Requests: prompt, output length and session; and limits of their lengths."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_TOKENS = 10_000_000  # far beyond any context; a typing error must not fill the memory


@dataclass(frozen=True, slots=True)
class Request:
    """One request: a prompt as text, as token ids, or both, and the requested number of output tokens.

    ``input_tokens`` is the prompt's length in tokens if the client can determine it, else None. ``ignore_eos`` requests that
    the server does not stop before ``output_tokens``. ``session`` is the conversation that the request belongs to.
    """

    output_tokens: int
    prompt: str | None = None
    input_ids: tuple[int, ...] | None = None
    input_tokens: int | None = None
    ignore_eos: bool = False
    session: str | None = None


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """Limits in tokens, None if unlimited: of a prompt (``max_input_len``), and of prompt and output together."""

    max_input_len: int | None = None
    context_tokens: int | None = None

    def exceeded_by(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether a request is too long."""
        if self.max_input_len is not None and input_tokens > self.max_input_len:
            return True
        return self.context_tokens is not None and input_tokens + output_tokens > self.context_tokens


UNLIMITED = LengthLimits()
