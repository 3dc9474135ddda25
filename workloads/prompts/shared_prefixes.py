"""Prompts that share prefixes: a system prompt of all requests, then a prefix of a group of them, then a part of their own.

The structure of SGLang's ``generated-shared-prefix`` and of vLLM's ``prefix_repetition``, which also give a length to each
part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LONGEST_TOKENS
from workloads.elements.token_ids import token_ids
from workloads.prompts.exact_text import TextCodec, exact_text
from workloads.prompts.rounds import Made, Making, decoded, encoded
from workloads.prompts.vocabulary import Vocabulary

MOST_PROMPTS = 10_000_000  # far beyond any run: more is a typing error that would exhaust memory
_PREFIX_END = "\n"  # most pre-tokenizers split after a line's end, so that the next token does not merge with the prefix
_SEAM_TRIES = 8
_SYSTEM, _REDRAWN = 0, 1  # parts of the stream of prefixes; groups are numbered from 1

Integers = NDArray[np.int64]
Draw = Callable[[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """``groups`` prefixes of ``prefix_tokens`` each, after a system prompt of ``system_tokens`` that all share.

    The group of a request is drawn uniformly, or is k = 1, 2, … with a probability in proportion to k^−``zipf_exponent``. With
    ``prompts_per_group`` each group has exactly this many requests, in shuffled order.
    """

    groups: int
    prefix_tokens: int
    system_tokens: int = 0
    prompts_per_group: int | None = None
    zipf_exponent: float | None = None

    @property
    def tokens(self) -> int:
        """The tokens that a prompt has before its own part."""
        return self.system_tokens + self.prefix_tokens

    @property
    def prompts(self) -> int | None:
        """The number of prompts of all groups; None where the groups have no given number."""
        return None if self.prompts_per_group is None else self.groups * self.prompts_per_group

    def __str__(self) -> str:
        system = f"a system prompt of {self.system_tokens:,} tokens" if self.system_tokens else ""
        if not self.prefix_tokens:
            return system
        chosen = f" of {self.prompts_per_group:,} prompts" if self.prompts_per_group is not None else ""
        if self.zipf_exponent is not None:
            chosen = f" by Zipf({self.zipf_exponent:g})"
        noun = "group" if self.groups == 1 else "groups"
        prefix = f"a prefix of {self.prefix_tokens:,} tokens, one of {self.groups:,} {noun}{chosen}"
        return f"{system} and {prefix}" if system else prefix

    def check(self) -> None:
        """Raise WorkloadError for prompts that no run can have."""
        if self.tokens > LONGEST_TOKENS:
            raise WorkloadError(
                Field("prefix_len"), " and ", Field("system_prompt_len"), f": together at most {LONGEST_TOKENS:,} tokens"
            )
        if self.prompts is not None and self.prompts > MOST_PROMPTS:
            raise WorkloadError(
                Field("prompts_per_group"),
                f": {self.prompts:,} prompts of all groups are too many; at most {MOST_PROMPTS:,}",
            )

    def groups_of(self, count: int, seed: int) -> Integers:
        """The group of each of ``count`` requests, from 0; shape [count]. A larger count only adds to them.

        Raises WorkloadError for more requests than the groups have.
        """
        drawn = generator(seed, Stream.PREFIX_GROUPS)
        if self.prompts_per_group is not None:
            if count > self.groups * self.prompts_per_group:
                raise WorkloadError(
                    Field("prompts_per_group"), f" {self.prompts_per_group}: the groups have no {count:,} prompts"
                )
            shuffled: Integers = drawn.permutation(np.repeat(np.arange(self.groups), self.prompts_per_group))
            return shuffled[:count]
        weights = np.arange(1, self.groups + 1, dtype=np.float64) ** -(self.zipf_exponent or 0.0)
        ends = np.cumsum(weights) / weights.sum()
        found: Integers = np.searchsorted(ends, drawn.random(count), side="right")
        return np.minimum(found, self.groups - 1)  # the last end may be rounded to below 1


@dataclass(frozen=True, slots=True)
class PromptText:
    """Token ids, and the text that encodes to them; None for prompts of ids alone."""

    ids: Sequence[int]
    text: str | None


NO_PREFIX = PromptText((), None)


@dataclass(frozen=True, slots=True)
class GroupPrefix:
    """A group, counted from 0, and what its prompts begin with: the system prompt and the group's prefix."""

    group: int
    prompt: PromptText


NO_GROUP = GroupPrefix(0, NO_PREFIX)


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """An infinite prefix cache would have had ``reused_tokens`` of the ``total_tokens`` of all prompts, from earlier prompts.

    Prompts should begin with ``prefix_tokens`` in all, and do begin with ``common_tokens`` of them.
    """

    reused_tokens: int
    total_tokens: int
    prefix_tokens: int
    common_tokens: int

    @property
    def share(self) -> float | None:
        """None without prompts."""
        return self.reused_tokens / self.total_tokens if self.total_tokens else None

    @property
    def common_share(self) -> float | None:
        """None without prefixes."""
        return self.common_tokens / self.prefix_tokens if self.prefix_tokens else None


def prefix_reuse(
    prompts: Sequence[Sequence[int]], prefixes: Sequence[GroupPrefix], system_tokens: int, block_tokens: int = 1
) -> PrefixReuse:
    """The reuse of ``prompts`` (token ids) in their order, each answered before the next; ``prefixes`` has one for each.

    A cache keeps whole blocks of ``block_tokens``. Tokens that two prompts' own parts share by chance are left out.
    """
    seen: dict[int, int] = {}
    seen_system = reused = total = expected = common = 0
    for ids, prefix in zip(prompts, prefixes, strict=True):
        equal = common_tokens(prefix.prompt.ids, ids)
        of_system = min(equal, system_tokens)
        cached = max(min(equal, seen.get(prefix.group, 0)), min(of_system, seen_system))
        reused += cached // block_tokens * block_tokens
        seen[prefix.group] = max(seen.get(prefix.group, 0), equal)
        seen_system = max(seen_system, of_system)
        total += len(ids)
        expected += len(prefix.prompt.ids)
        common += equal
    return PrefixReuse(reused, total, expected, common)


@dataclass(frozen=True)
class PrefixTexts:
    """The prefixes of ``shared``, drawn from ``vocabulary``; with ``codec`` they have text, each of the exact length."""

    shared: SharedPrefixes
    vocabulary: Vocabulary
    seed: int
    codec: TextCodec | None

    def of_group(self, group: int) -> PromptText:
        """The system prompt and the prefix of ``group``, counted from 0; shape [``shared.tokens``]."""
        made = self._by_group.get(group)
        if made is None:
            made = self._by_group[group] = self._part(self._system, group + 1, self.shared.prefix_tokens)
        return made

    @cached_property
    def _by_group(self) -> dict[int, PromptText]:
        return {}

    @cached_property
    def _system(self) -> PromptText:
        return self._part(NO_PREFIX, _SYSTEM, self.shared.system_tokens)

    def _part(self, before: PromptText, number: int, tokens: int) -> PromptText:
        """``before`` and ``tokens`` tokens more. Its text ends with a new line, and prompts continue after it."""
        if not tokens:
            return before
        ids = self.vocabulary.draw(generator(self.seed, Stream.PREFIXES, number), tokens)
        if self.codec is None:
            return PromptText((*before.ids, *ids), None)
        redrawn = generator(self.seed, Stream.PREFIXES, number, _REDRAWN)
        return self.codec.make(_text_after(before, ids, lambda count: self.vocabulary.draw(redrawn, count), _PREFIX_END))


def ids_after(prefix: PromptText, own_ids: Sequence[int]) -> PromptText:
    """The prompt of ids alone that begins with ``prefix`` and goes on with ``own_ids``."""
    return PromptText(token_ids((*prefix.ids, *own_ids)) if prefix.ids else own_ids, None)


def text_after(prefix: PromptText, own_ids: Sequence[int], draw: Draw) -> Making[PromptText]:
    """Makes the prompt that begins with ``prefix`` and goes on with ``exact_text`` of ``own_ids``.

    The text's own part is that of a prompt without a prefix, where the whole encodes to the tokens of the two parts. Else it is
    drawn again, up to 8 times, for a prompt that has the exact length and begins with the prefix's tokens; the last one may
    have neither. ``draw`` gives this many random token ids.
    """
    own_text, own_encoded = yield from exact_text(own_ids, draw)
    if not prefix.ids:
        return PromptText(own_encoded, own_text)
    text = (prefix.text or "") + own_text
    ids = tuple((yield from encoded(text)))
    if _continues(ids, prefix, len(own_ids)):
        return PromptText(ids, text)
    return (yield from _text_after(prefix, own_ids, draw, ""))


def common_tokens(prefix: Sequence[int], ids: Sequence[int]) -> int:
    """How many tokens ``ids`` has in common with ``prefix``, from the first on."""
    if tuple(ids[: len(prefix)]) == tuple(prefix):
        return len(prefix)
    pairs = enumerate(zip(prefix, ids, strict=False))
    return next((number for number, (wanted, other) in pairs if wanted != other), min(len(prefix), len(ids)))


def _text_after(before: PromptText, ids: Sequence[int], draw: Draw, end: str) -> Making[PromptText]:
    """The text of ``before``, and as many tokens more as ``ids`` has, the last of which are those of ``end`` where it fits."""
    start = before.text or ""
    end_tokens = yield from _tokens_within(end)
    if end_tokens >= len(ids):
        end, end_tokens = "", 0
    nearest: PromptText | None = None
    drawn: Sequence[int] = ids[: len(ids) - end_tokens]
    for _ in range(_SEAM_TRIES):
        own_text, _ids = yield from _between(exact_text(drawn, draw), start, len(before.ids), end, end_tokens)
        text = start + own_text + end
        made = PromptText(tuple((yield from encoded(text))), text)
        if _continues(made.ids, before, len(ids)):
            return made
        nearest = nearest or made
        drawn = draw(len(drawn))  # another beginning, too: the tokens at the seam may have merged
    assert nearest is not None
    return nearest


def _between(making: Making[Made], start: str, start_tokens: int, end: str, end_tokens: int) -> Making[Made]:
    """``making`` with texts that are encoded between ``start`` and ``end``, without the tokens of these."""
    answer: str | Sequence[int] | None = None
    while True:
        try:
            asks = making.send(answer)
        except StopIteration as ended:
            made: Made = ended.value
            return made
        if isinstance(asks, str):
            whole = yield from encoded(start + asks + end)
            answer = whole[start_tokens : len(whole) - end_tokens]
        else:
            answer = yield from decoded(asks)


def _tokens_within(end: str) -> Making[int]:
    """The tokens that ``end`` has between two words; 0 where the tokenizer takes it for the white space of the next one."""
    if not end:
        return 0
    within = yield from encoded(f"a{end}a")
    word = yield from encoded("a")
    return max(0, len(within) - 2 * len(word))


def _continues(ids: Sequence[int], prefix: PromptText, tokens: int) -> bool:
    """Whether ``ids`` are the prefix's and ``tokens`` more."""
    return len(ids) == len(prefix.ids) + tokens and tuple(ids[: len(prefix.ids)]) == prefix.ids
