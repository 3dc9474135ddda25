"""One server, compiled by numba: what ``engine.py`` and ``front_end.py`` do, bit for bit, for clients whose sendings depend on
no other replica.

Tests hold it against them. Rings are arrays whose length is a power of 2; places in them only grow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from simulator.arrays import FloatArray, IntArray
from simulator.engine import LEAST_SHARE
from simulator.server import KV_BLOCK_TOKENS

_RING = 1 << 10  # at first


class Constants(NamedTuple):
    """The constants of a server as numbers, with a large one for what has no limit."""

    step: float
    prefill: float
    prefill_context: float
    prefill_step: float
    sequence: float
    context: float
    launch: float
    launch_large: float
    free_prefill: int
    large_step: int
    is_mixed: bool
    max_sequences: int
    token_budget: int
    kv_blocks: int
    lookahead: int
    delay: float
    intake: float
    rounds: int
    token: float
    response: float


class Requests(NamedTuple):
    """Requests by number, in the order of their sending; shape [requests], but ``arrival_s`` [first ones].

    ``arrival_s`` is when the front end has those that are sent whatever is answered, ascending. Each other one is sent when an
    answer ends before ``end_s``. What follows is written: ``prefill_left``, ``sent_s`` of the others, ``first_s``, ``last_s``.
    """

    arrival_s: FloatArray
    end_s: float
    input_tokens: IntArray
    output_tokens: IntArray
    prefill_left: IntArray
    sent_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray


class Noise(NamedTuple):
    """Residuals, and by how many places they are turned and the order of their blocks each time that they are used: shape
    [residuals], [uses] and [uses, blocks].
    """

    pool: FloatArray
    turns: IntArray
    orders: IntArray


class Totals(NamedTuple):
    """What one server did: ``sent`` requests, responses and steps, and the s in which engine and front end worked."""

    sent: int
    responses: int
    steps: int
    engine_busy_s: float
    front_end_busy_s: float


@njit(cache=True)
def _oldest(unwritten, tail, token_begin, is_held, held_begin, steps_tail):  # type: ignore[no-untyped-def]
    """The first place of the requests of steps that is still needed."""
    if unwritten < tail:
        return token_begin[unwritten & (token_begin.size - 1)]
    return held_begin if is_held else steps_tail


@njit(cache=True)
def _grown(ring, begin, end):  # type: ignore[no-untyped-def]
    """A ring of twice the length, with what is in these places."""
    larger = np.empty(2 * ring.size, ring.dtype)
    for place in range(begin, end):
        larger[place & (larger.size - 1)] = ring[place & (ring.size - 1)]
    return larger


@njit(cache=True)
def _next_noise(noise, place):  # type: ignore[no-untyped-def]
    """The next residual; ``place`` is where it is and where its block ends, the number of the block and that of the use."""
    length = noise.pool.size
    if length == 1:
        return noise.pool[0]
    if place[0] == place[1]:
        blocks = noise.orders.shape[1]
        place[2] += 1
        if place[2] == blocks:
            place[2], place[3] = 0, place[3] + 1
            if place[3] == noise.turns.size:
                raise IndexError("more steps than noise was drawn for")
        size, longer = length // blocks, length % blocks
        number = noise.orders[place[3], place[2]]
        place[0] = number * size + min(number, longer)
        place[1] = place[0] + size + (1 if number < longer else 0)
    turned = place[0] - noise.turns[place[3]]
    place[0] += 1
    return noise.pool[turned if turned >= 0 else turned + length]


@njit(cache=True)
def _sort_ends(ended_s, ended, ends):  # type: ignore[no-untyped-def]
    """Sort by time, then by request; they are few, and nearly sorted."""
    for number in range(1, ends):
        at_s, request, place = ended_s[number], ended[number], number
        while place > 0 and (ended_s[place - 1] > at_s or (ended_s[place - 1] == at_s and ended[place - 1] > request)):
            ended_s[place], ended[place] = ended_s[place - 1], ended[place - 1]
            place -= 1
        ended_s[place], ended[place] = at_s, request


# One compiled loop: numba cannot pass the state on without making it slow.
@njit(cache=True)  # type: ignore[untyped-decorator]
def run_server(c: Constants, requests: Requests, noise: Noise, launch_noise: Noise) -> Totals:  # noqa: C901
    """Send ``requests`` to one server with constants ``c``."""
    count = requests.input_tokens.size
    arrivals, arrival = requests.arrival_s.size, 0
    follower_s, follower, followers = np.empty(count - arrivals), 0, 0
    ended_s, ended = np.empty(count), np.empty(count, np.int64)
    noise_place, launch_place = np.array([0, 0, -1, 0]), np.array([0, 0, -1, 0])
    # The engine: what waits, what decodes, and the last step of each request, in steps that decode.
    waiting_s, waiting, waiting_head, waiting_tail = np.empty(count), np.empty(count, np.int64), 0, 0
    running, decoding_now, in_cache = np.empty(count, np.int64), 0, 0
    last_step, decoding_steps, next_end = np.empty(count, np.int64), 0, -1
    is_within_prompt, next_decision, accelerator_free_at = False, 0.0, 0.0
    blocks_free = c.kv_blocks
    # Tokens of steps: their requests in one ring, those with their last token as ~request; the firsts are the last ones.
    of_steps, steps_tail = np.empty(_RING, np.int64), 0
    token_s, token_begin = np.empty(_RING), np.empty(_RING, np.int64)
    token_count, token_firsts = np.empty(_RING, np.int64), np.empty(_RING, np.int64)
    token_lasts = np.empty(_RING, np.int64)
    unwritten, taken, tail = 0, 0, 0  # the front end has taken tokens before ``taken``, and written those before ``unwritten``
    is_held, held_end, held_begin, held_count, held_firsts, held_lasts, held_blocks = False, 0.0, 0, 0, 0, 0, 0
    # The front end.
    staged, staged_left, staged_count, free_at = np.empty(count, np.int64), np.empty(count, np.int64), 0, 0.0
    place_in_round, round_of, rounds = np.empty(count, np.int64), np.full(count, -1, np.int64), 0
    responses, steps, engine_busy_s, front_end_busy_s = 0, 0, 0.0, 0.0
    while True:
        if decoding_now > 0 or is_within_prompt:
            step_s = next_decision
        elif waiting_head < waiting_tail:
            step_s = max(next_decision, waiting_s[waiting_head])
        else:
            step_s = np.inf
        if staged_count > 0 or unwritten < taken:
            round_s = free_at
        else:
            ready_s = requests.arrival_s[arrival] if arrival < arrivals else np.inf
            if follower < followers:
                ready_s = min(ready_s, follower_s[follower])
            if taken < tail:
                ready_s = min(ready_s, token_s[taken & (token_s.size - 1)])
            round_s = max(free_at, ready_s)
        if step_s <= round_s:
            if step_s == np.inf:
                break
            # The engine decides a step. First the prompts, or their parts, that it takes.
            prefill, with_context, first_finished = 0, 0, waiting_head
            if waiting_head < waiting_tail and waiting_s[waiting_head] <= step_s:
                room = c.max_sequences - decoding_now - (held_lasts if is_held else 0)
                left = max(0, c.token_budget - (decoding_now if c.is_mixed else 0))
                while waiting_head < waiting_tail and room > 0 and left > 0 and waiting_s[waiting_head] <= step_s:
                    request = waiting[waiting_head]
                    if not is_within_prompt:
                        tokens = requests.input_tokens[request] + requests.output_tokens[request]
                        blocks = -(-tokens // KV_BLOCK_TOKENS)
                        if blocks > blocks_free:
                            break
                        blocks_free -= blocks
                    whole = requests.prefill_left[request]
                    part = min(whole, left)
                    prefill += part
                    with_context += part * (requests.input_tokens[request] - whole + part)
                    left -= part
                    requests.prefill_left[request] = whole - part
                    is_within_prompt = part < whole
                    if is_within_prompt:
                        break
                    waiting_head += 1
                    room -= 1
            decodes = c.is_mixed or prefill == 0
            decoding = decoding_now if decodes else 0
            firsts = waiting_head - first_finished
            # Then each sequence gets its token.
            while (
                steps_tail + decoding + firsts - _oldest(unwritten, tail, token_begin, is_held, held_begin, steps_tail)
                > of_steps.size
            ):
                of_steps = _grown(of_steps, _oldest(unwritten, tail, token_begin, is_held, held_begin, steps_tail), steps_tail)
            mask = of_steps.size - 1
            context = 0
            if decoding > 0:
                for number in range(decoding):
                    of_steps[(steps_tail + number) & mask] = running[number]
                in_cache += decoding
                context = in_cache
                decoding_steps += 1
            for number in range(firsts):
                request = waiting[first_finished + number]
                in_cache += requests.input_tokens[request] + 1
                context += requests.input_tokens[request] + 1
                last_step[request] = decoding_steps + max(requests.output_tokens[request], 1) - 1
                if next_end < decoding_steps or last_step[request] < next_end:
                    next_end = last_step[request]
                of_steps[(steps_tail + decoding + number) & mask] = request
                running[decoding_now + number] = request
            decoding_now += firsts
            sequences, lasts, blocks_ended = decoding + firsts, 0, 0
            if decoding_now > 0 and next_end == decoding_steps:
                kept, next_end = 0, -1
                for number in range(decoding_now):
                    request = running[number]
                    if last_step[request] == decoding_steps:
                        tokens = requests.input_tokens[request] + requests.output_tokens[request]
                        in_cache -= tokens
                        blocks_ended += -(-tokens // KV_BLOCK_TOKENS)
                        lasts += 1
                        continue
                    if next_end < 0 or last_step[request] < next_end:
                        next_end = last_step[request]
                    running[kept] = request
                    kept += 1
                decoding_now = kept
                for number in range(steps_tail, steps_tail + sequences):
                    if last_step[of_steps[number & mask]] == decoding_steps:
                        of_steps[number & mask] = ~of_steps[number & mask]
            # Then its time.
            expected = (
                c.step
                + c.prefill * max(0, prefill - c.free_prefill)
                + c.prefill_context * with_context
                + (c.prefill_step if prefill > 0 else 0.0)
                + c.sequence * sequences
                + c.context * context
            )
            duration = max(expected + _next_noise(noise, noise_place), LEAST_SHARE * expected)
            launch = 0.0
            if prefill > 0:
                launch = c.launch if prefill + decoding <= c.large_step else c.launch_large
                if launch > 0.0:
                    launch = max(0.0, launch * (1 + _next_noise(launch_noise, launch_place)))
            launched = step_s + launch
            end = max(max(accelerator_free_at, step_s) + duration, launched)
            accelerator_free_at = end
            steps += 1
            engine_busy_s += duration
            # Then it hands over the tokens of this step, or those of the step before it when this one is launched.
            if tail + 2 - unwritten > token_s.size:
                token_s, token_begin = _grown(token_s, unwritten, tail), _grown(token_begin, unwritten, tail)
                token_count, token_firsts = _grown(token_count, unwritten, tail), _grown(token_firsts, unwritten, tail)
                token_lasts = _grown(token_lasts, unwritten, tail)
            mask = token_s.size - 1
            next_decision = end if c.lookahead == 0 else launched
            if is_held:
                next_decision = max(held_end, launched)
                blocks_free += held_blocks
                if held_count > 0:
                    token_s[tail & mask], token_begin[tail & mask] = next_decision, held_begin
                    token_count[tail & mask], token_firsts[tail & mask] = held_count, held_firsts
                    token_lasts[tail & mask] = held_lasts
                    tail += 1
            goes_on = decoding_now > 0 or is_within_prompt
            if not goes_on and waiting_head < waiting_tail and waiting_s[waiting_head] <= next_decision:
                request = waiting[waiting_head]
                tokens = requests.input_tokens[request] + requests.output_tokens[request]
                goes_on = lasts < c.max_sequences and -(-tokens // KV_BLOCK_TOKENS) <= blocks_free
            is_held = c.lookahead > 0 and goes_on
            if is_held:
                held_end, held_begin, held_count, held_firsts, held_lasts = end, steps_tail, sequences, firsts, lasts
                held_blocks = blocks_ended
            else:
                next_decision = end
                blocks_free += blocks_ended
                if sequences > 0:
                    token_s[tail & mask], token_begin[tail & mask] = end, steps_tail
                    token_count[tail & mask], token_firsts[tail & mask] = sequences, firsts
                    token_lasts[tail & mask] = lasts
                    tail += 1
            steps_tail += sequences
            continue
        # The front end runs a round. First it writes the responses of what it took in the round before.
        clock, ends = round_s, 0
        if unwritten < taken:
            mask, rounds, written = token_s.size - 1, rounds + 1, 0
            is_one = taken - unwritten == 1
            for at in range(unwritten, taken):
                begin, tokens = token_begin[at & mask], token_count[at & mask]
                if is_one:
                    written = tokens
                    if token_firsts[at & mask] == 0 and token_lasts[at & mask] == 0:
                        continue
                for number in range(tokens):
                    request = of_steps[(begin + number) & (of_steps.size - 1)]
                    is_last = request < 0
                    if is_last:
                        request = ~request
                    if is_one:
                        place = number + 1
                    else:
                        if round_of[request] != rounds:
                            written += 1
                            round_of[request], place_in_round[request] = rounds, written
                        place = place_in_round[request]
                    if number >= tokens - token_firsts[at & mask]:
                        requests.first_s[request] = round_s + c.response * place
                    if is_last:
                        requests.last_s[request] = round_s + c.response * place
                        ended_s[ends], ended[ends] = requests.last_s[request], request
                        ends += 1
            responses += written
            clock = round_s + c.response * written
            unwritten = taken
        # Then it brings requests that are on their way in a stage further.
        kept = 0
        for number in range(staged_count):
            if staged_left[number] == 1:
                clock += c.intake
                waiting_s[waiting_tail], waiting[waiting_tail] = clock, staged[number]
                waiting_tail += 1
            else:
                staged[kept], staged_left[kept] = staged[number], staged_left[number] - 1
                kept += 1
        staged_count = kept
        while True:
            ready_s = requests.arrival_s[arrival] if arrival < arrivals else np.inf
            following_s = follower_s[follower] if follower < followers else np.inf
            if min(ready_s, following_s) > round_s:
                break
            if ready_s <= following_s:
                request, arrival = arrival, arrival + 1
            else:
                request, follower = arrivals + follower, follower + 1
            if c.rounds == 1:
                clock += c.intake
                waiting_s[waiting_tail], waiting[waiting_tail] = clock, request
                waiting_tail += 1
            else:
                staged[staged_count], staged_left[staged_count] = request, c.rounds - 1
                staged_count += 1
        # Then it takes the tokens that are there.
        tokens, mask = 0, token_s.size - 1
        while taken < tail and token_s[taken & mask] <= round_s:
            tokens += token_count[taken & mask]
            taken += 1
        if tokens > 0:
            clock += c.token * tokens
        free_at = clock
        front_end_busy_s += free_at - round_s
        # A closed loop's users go on, in the order of the answers' ends.
        if ends > 0 and arrivals + followers < count:
            _sort_ends(ended_s, ended, ends)
            for number in range(ends):
                if arrivals + followers < count and ended_s[number] < requests.end_s:
                    requests.sent_s[arrivals + followers] = ended_s[number]
                    follower_s[followers] = ended_s[number] + c.delay
                    followers += 1
    return Totals(arrivals + followers, responses, steps, engine_busy_s, front_end_busy_s)
