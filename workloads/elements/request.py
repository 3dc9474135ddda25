"""The values of a workload: what is sent, and the limits on its length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from workloads.elements.errors import Field

LONGEST_TOKENS = 10_000_000  # far beyond any context length: more is a typing error that would exhaust memory


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation: ``role`` is "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Variant:
    """What a class of traffic changes in requests: the ``model``, or the LoRA adapter by its task id; None is the target's."""

    model: str | None = None
    lora_task_id: int | None = None


@dataclass(frozen=True, slots=True)
class CancelPoint:
    """When the client cancels a request: ``after_ns`` of its send, or with the ``after_tokens``-th token; one is set."""

    after_ns: int | None = None
    after_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request: a prompt as text, as token ids, or both, and the number of tokens to generate.

    ``history`` holds the messages of a chat before ``prompt``, which is then the last user's.

    ``input_tokens`` is the prompt's length in tokens if the client knows it, else None. ``requested_input_tokens`` is the
    length that the prompt was made for, which not every text can have; None where it was made for none. ``ignore_eos``
    requests generation up to ``output_tokens`` beyond an end-of-sequence token. ``session`` is the id of the conversation of
    the request.

    ``traffic_class`` is the name of its class in a mixture, which may make it another ``variant`` than the target's. It is
    cancelled at ``cancel``, unless its answer has ended before; None is never.
    """

    output_tokens: int
    prompt: str | None = None
    input_ids: Sequence[int] | None = None
    input_tokens: int | None = None
    ignore_eos: bool = False
    session: str | None = None
    history: tuple[Message, ...] = ()
    traffic_class: str | None = None
    variant: Variant | None = None
    cancel: CancelPoint | None = None
    requested_input_tokens: int | None = None

    @property
    def whole_text(self) -> str:
        """The text that a server reads, the history's messages and the prompt in lines; "" without text."""
        return "\n".join([*(message.content for message in self.history), self.prompt or ""])


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a request in its session: ``parent`` is the index of the request whose answer it waits for, None for the
    first turn, and ``joins`` are the indices of others that it waits for, too, as of parallel sub-turns. It is due
    ``think_time_ns`` after the last of these answers, and not before ``after_first_ns`` after the session's first turn.
    """

    parent: int | None = None
    think_time_ns: int = 0
    after_first_ns: int | None = None
    joins: tuple[int, ...] = ()


class HistorySource(StrEnum):
    """Whose answers are the history of later turns: those of the file, or those that the server gave in this run."""

    RECORDED = "recorded"
    SERVER = "server"


class Balance(StrEnum):
    """How requests are spread over several targets."""

    ROUND_ROBIN = "round_robin"  # each in turn, by the number of the request
    LEAST_IN_FLIGHT = "least_in_flight"  # the one with the fewest in flight when the request is sent
    SESSION = "session"  # all turns of a session to one target, sessions in turn


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """Limits in tokens: ``max_input_len`` of a prompt, ``context_tokens`` of prompt and output together; None is no limit."""

    max_input_len: int | None = None
    context_tokens: int | None = None

    def allow(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether a request of these lengths is within both limits."""
        if self.max_input_len is not None and input_tokens > self.max_input_len:
            return False
        return self.context_tokens is None or input_tokens + output_tokens <= self.context_tokens

    @property
    def words(self) -> tuple[str | Field, ...]:
        """The limits that there are, as parts of an error's sentence."""
        parts: tuple[str | Field, ...] = ()
        if self.max_input_len is not None:
            parts = (Field("max_input_len"), f" {self.max_input_len}")
        if self.context_tokens is not None:
            parts += (*([" or "] if parts else []), f"the context of {self.context_tokens} tokens")
        return parts


NO_LIMITS = LengthLimits()
PROBE = "probe"
"""The class of the probes beside a load (``probes.py``)."""


def class_of_file(name: str) -> str:
    """The class of a request to which its file gives the class ``name``; none of a file is the class of probes."""
    return f"{name} of the file" if name == PROBE else name
