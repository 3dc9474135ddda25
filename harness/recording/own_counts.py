"""The counts of servers that give, in each piece of an answer, the tokens of this piece alone, rather than of all so far."""

from __future__ import annotations

from collections.abc import Sequence

from harness.clients.protocol import Response
from harness.recording.token_attribution import are_messages

_FEWEST_OF_ONE = 3  # texts, each with a count of 1: fewer can be the text of one token


def own_counts(responses: Sequence[Response]) -> tuple[int, ...] | None:
    """The tokens of each response where the server counts those of each piece alone; None where its counts are those of all so
    far.

    Such counts fall somewhere, or are 1 in each of three texts or more, and no total comes after the last piece: two texts can
    be parts of one token, and equal counts above 1 the total of an answer that was complete before it was sent. An empty piece
    at the end has the total where its own tokens would be as many as those of all before it. A role chunk has none.
    """
    if responses[-1].text is None:
        return None
    texts = [response.server_tokens_so_far for response in responses if response.text]
    own = [count for count in texts if count is not None]
    if len(own) < len(texts) or 0 in own:  # 0 beside text counts nothing
        return None
    falls, is_one_each = own != sorted(own), set(own) == {1} and len(own) >= _FEWEST_OF_ONE
    if not (falls or is_one_each):
        return None
    counts = [
        (response.server_tokens_so_far or 0) * is_message
        for response, is_message in zip(responses, are_messages(responses), strict=True)
    ]
    before = sum(counts[:-1])
    if not responses[-1].text and counts[-1] >= before:
        counts[-1] -= before
    return tuple(counts)


class OwnCountsSoFar:
    """The sum of ``own_counts`` while an answer comes, in the same time for each response."""

    def __init__(self) -> None:
        self.has_piece = False  # or only chunks that name the role came, and usage
        self._before = self._latest = 0  # tokens, if each counts its own: of the latest piece, and of those before it
        self._texts = self._last_of_text = 0
        self._falls, self._is_one_each, self._is_counted = False, True, True

    def add(self, response: Response) -> int | None:
        """The tokens of the answer with this response; None as of ``own_counts``."""
        if response.text is None:
            return None
        count = response.server_tokens_so_far or 0
        self.has_piece = self.has_piece or not response.opening
        if self.has_piece:
            self._before, self._latest = self._before + self._latest, count
        if response.text:
            self._texts += 1
            self._falls = self._falls or count < self._last_of_text
            self._is_one_each = self._is_one_each and count == 1
            self._is_counted = self._is_counted and count > 0
            self._last_of_text = count
        is_own = self._falls or (self._is_one_each and self._texts >= _FEWEST_OF_ONE)
        if not (is_own and self._is_counted):
            return None
        is_total = not response.text and count >= self._before
        return self._latest if is_total else self._before + self._latest
