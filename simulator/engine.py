"""One engine with in-flight batching: a step at a time, in constant time for each step and request.

Sequences that decode get a token in every step that decodes, so the step that ends a sequence is known when it begins.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from simulator.fetches import Fetches
from simulator.prefixes import PrefixCache
from simulator.server import NO_LIMIT, Order, Server
from simulator.traffic import Work

LEAST_SHARE = 0.25  # noise never makes a step shorter than this share of its law


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one step, one for each of ``requests``, handed to the front end at ``at_s``.

    ``firsts`` and ``lasts`` are those of ``requests`` that got their first and their last token.
    """

    at_s: float
    requests: list[int]
    firsts: list[int]
    lasts: list[int]


@dataclass(frozen=True, slots=True)
class _Prompts:
    """The prompt tokens of a step."""

    tokens: int
    with_context: int  # Σ tokens · (context at the chunk's end)
    finished: list[int]  # requests whose prompt is complete


_NO_PROMPTS = _Prompts(0, 0, [])


class Engine:
    """The state of the engine; times are s. Requests are those of ``work``, by their numbers."""

    def __init__(
        self,
        server: Server,
        work: Work,
        noise: Iterator[float],
        launch_noise: Iterator[float],
        cache: PrefixCache | None = None,
    ) -> None:
        self._law, self._admission = server.law, server.admission
        self._noise, self._launch_noise = noise, launch_noise
        self._work, self._cache = work, cache
        self._fetches = None if work.fetch is None else Fetches(work.fetch)
        self._prefill_left, self._input, self._output = work.prefill_left, work.input_tokens, work.output_tokens
        self._waiting: deque[tuple[float, int]] = deque()
        self._running: list[int] = []  # that decode, in the order of their admission
        self._ends: defaultdict[int, list[int]] = defaultdict(list)  # by the number of the step that decodes
        self._decoding_steps = 0
        self._in_cache = 0  # tokens of the running sequences
        self._blocks_free = self._admission.kv_blocks  # of the KV cache, not promised to a request
        self._is_within_prompt = False
        self._next_decision = 0.0
        self._accelerator_free_at = 0.0
        self._held: Tokens | None = None  # of the step that runs while the next one is decided
        self._fetched: list[int] = []  # that were seen when that one was launched
        self.steps = 0
        self.busy_s = 0.0

    def accept(self, at_s: float, request: int) -> None:
        """Take a request that the front end hands over; times ascend."""
        if self._fetches is None:
            self._waiting.append((at_s, request))
        else:
            self._fetches.accept(at_s, request)

    def next_start(self) -> float:
        """When the next step is decided; infinite where nothing is to be done."""
        if self._running or self._is_within_prompt:
            return self._next_decision
        soonest = self._waiting[0][0] if self._waiting else inf
        if self._fetches is not None:
            soonest = min(soonest, self._fetches.next(self._has_room))
        return max(self._next_decision, soonest)

    def step(self) -> list[Tokens]:
        """Decide and run the next step; returns the tokens whose time of sending is known now."""
        decided = self.next_start()
        if self._fetches is not None and not (self._running or self._is_within_prompt):
            self._wait(decided, self._fetches.poll(decided))  # without a step to wait for it has looked all the time
        prompts = self._admit(decided)
        posted = decided if self._fetches is None else self._post(self._fetches, decided, prompts)
        if self._fetches is not None and not (self._running or prompts.tokens):
            self._next_decision = posted
            return []
        decodes = self._admission.order is Order.MIXED or not prompts.tokens
        decoding = len(self._running) if decodes else 0
        tokens, context = self._advance(prompts, decodes)
        duration = self._duration(prompts, len(tokens.requests), context)
        launched = posted + self._launch(prompts, decoding)
        end = max(max(self._accelerator_free_at, posted) + duration, launched)
        self._accelerator_free_at = end
        self.steps += 1
        self.busy_s += duration
        fetched = [] if self._fetches is None else self._fetches.poll(launched)
        return self._sent(Tokens(end, tokens.requests, tokens.firsts, tokens.lasts), launched, fetched)

    def _post(self, fetches: Fetches, decided: float, prompts: _Prompts) -> float:
        """Start the transfers of what arrived, unless the step is full; returns when the host has done that."""
        at_s = decided
        sequences, tokens = self._spare()
        if sequences <= len(prompts.finished) or tokens <= prompts.tokens:
            return at_s
        while (request := fetches.first(decided)) is not None and self._has_room(request):
            self._promise(request)
            at_s = fetches.post(at_s, request)
        return at_s

    def _spare(self) -> tuple[int, int]:
        """How many sequences and prompt tokens a step can take beside those that decode, and those that end in the step that
        runs.
        """
        limit, budget = self._admission.max_sequences, self._admission.token_budget
        decoding = len(self._running) if self._admission.order is Order.MIXED else 0
        ending = 0 if self._held is None else len(self._held.lasts)
        return (
            NO_LIMIT if limit is None else limit - len(self._running) - ending,
            NO_LIMIT if budget is None else max(0, budget - decoding),
        )

    def _admit(self, cutoff: float) -> _Prompts:
        """The prompts, or their parts, that the step takes from those that arrived until ``cutoff``, in the order of
        arrival.
        """
        waiting = self._waiting
        if not waiting or waiting[0][0] > cutoff:
            return _NO_PROMPTS
        room, left = self._spare()
        tokens, with_context, finished = 0, 0, []
        while waiting and room > 0 and left > 0 and waiting[0][0] <= cutoff:
            request = waiting[0][1]
            if not self._is_within_prompt:
                if self._fetches is None:
                    if not self._has_room(request):
                        break
                    self._promise(request)
                self._look_up(request)
            whole = self._prefill_left[request]
            taken = min(whole, left)
            tokens += taken
            with_context += taken * (self._input[request] - whole + taken)
            left -= taken
            self._prefill_left[request] = whole - taken
            self._is_within_prompt = taken < whole
            if self._is_within_prompt:
                break
            finished.append(request)
            waiting.popleft()
            room -= 1
        return _Prompts(tokens, with_context, finished)

    def _has_room(self, request: int) -> bool:
        """Whether the KV cache has room for all tokens of the request."""
        return self._blocks_free is None or self._blocks_of(request) <= self._blocks_free

    def _promise(self, request: int) -> None:
        """Give a request the room for all its tokens."""
        if self._blocks_free is not None:
            self._blocks_free -= self._blocks_of(request)

    def _blocks_of(self, request: int) -> int:
        return self._admission.blocks_of(self._input[request] + self._output[request])

    def _look_up(self, request: int) -> None:
        """Leave out what the cache has of a prompt, but its last token. The blocks of the prompt are in the cache then: a step
        that computes them gives them to others that it takes, too.
        """
        prefixes = self._work.prefixes
        if self._cache is None or prefixes is None:
            return
        held = self._cache.use(prefixes.blocks[request])
        cached = min(int(held * prefixes.block_tokens[request]), self._input[request] - 1)
        self._work.cached_tokens[request] = cached
        self._prefill_left[request] = self._input[request] - cached

    def _advance(self, prompts: _Prompts, decodes: bool) -> tuple[Tokens, int]:
        """Give their tokens to the sequences that decode and to those whose prompt is complete; returns the tokens in the KV
        cache of all these sequences, too.
        """
        requests, lasts, context = [], [], 0
        if decodes and self._running:
            requests = self._running.copy()
            self._in_cache += len(requests)
            context = self._in_cache
            self._decoding_steps += 1
            lasts = self._ends.pop(self._decoding_steps, [])
        for request in prompts.finished:
            self._in_cache += self._input[request] + 1
            context += self._input[request] + 1
            if self._output[request] <= 1:
                lasts.append(request)
            else:
                self._ends[self._decoding_steps + self._output[request] - 1].append(request)
        requests += prompts.finished
        self._running += prompts.finished
        return Tokens(0.0, requests, prompts.finished, lasts), context

    def _duration(self, prompts: _Prompts, sequences: int, context: int) -> float:
        expected = self._law.duration(prompts.tokens, prompts.with_context, sequences, context)
        return max(expected + next(self._noise), LEAST_SHARE * expected)

    def _launch(self, prompts: _Prompts, decoding: int) -> float:
        expected = self._law.launch_of(prompts.tokens, prompts.tokens + decoding)
        return max(0.0, expected * (1 + next(self._launch_noise))) if expected else 0.0

    def _sent(self, tokens: Tokens, launched: float, fetched: list[int]) -> list[Tokens]:
        """Remove the sequences that ended, and send ``tokens``: now, or with a lookahead when the next step is launched. Then
        their places and blocks are free, and requests that were ``fetched`` during the step may be taken, too.
        """
        for request in tokens.lasts:
            self._running.remove(request)
            self._in_cache -= self._input[request] + self._output[request]
        if not self._admission.lookahead:
            self._next_decision = tokens.at_s
            self._settle(tokens, tokens.at_s, fetched)
            return [tokens] if tokens.requests else []
        ready = []
        self._next_decision = launched
        if (held := self._held) is not None:
            at_s = max(held.at_s, launched)
            ready.append(Tokens(at_s, held.requests, held.firsts, held.lasts))
            self._next_decision = at_s
            self._settle(held, at_s, self._fetched)
        self._held, self._fetched = tokens, fetched
        if not self._goes_on():
            ready.append(tokens)
            self._held, self._next_decision = None, tokens.at_s
            self._settle(tokens, tokens.at_s, fetched)
        return [each for each in ready if each.requests]

    def _goes_on(self) -> bool:
        """Whether another step is launched while the one that is held runs."""
        if self._running or self._is_within_prompt:
            return True
        if not self._waiting or self._waiting[0][0] > self._next_decision:
            return False
        is_promised = self._fetches is not None
        return self._spare()[0] > 0 and (is_promised or self._has_room(self._waiting[0][1]))

    def _settle(self, tokens: Tokens, at_s: float, fetched: list[int]) -> None:
        """``tokens`` are sent at ``at_s``: those that ended need no room any more, and ``fetched`` requests wait."""
        if self._blocks_free is not None:
            self._blocks_free += sum(map(self._blocks_of, tokens.lasts))
        self._wait(at_s, fetched)

    def _wait(self, at_s: float, fetched: list[int]) -> None:
        self._waiting.extend((at_s, request) for request in fetched)
