"""In which steps prompts were computed, where a step holds a limited number of tokens."""

from __future__ import annotations

import numpy as np

from simulator.arrays import FloatArray
from simulator.steps import Steps

SMALLEST_BUDGET, LARGEST_BUDGET = 64, 1 << 14


def budgets_to_try(steps: Steps) -> list[int]:
    """The powers of 2 that some step would have exceeded."""
    most = float((steps.prefill + steps.decoding)[steps.is_whole].max(initial=0.0))
    exponents = range(SMALLEST_BUDGET.bit_length() - 1, LARGEST_BUDGET.bit_length())
    return [1 << exponent for exponent in exponents if 1 << exponent < most]


def prefill_by_step(steps: Steps, budget: int | None) -> FloatArray:
    """The prompt tokens that each step computed, shape [steps].

    A prompt is complete in the step of the first token. What exceeds ``budget`` beside the sequences that decode was computed
    in the steps before, as far as the engine was busy. A step that leaves a prompt incomplete is full, so of the steps that
    prompts are spread over it is the last that has room left.
    """
    if budget is None:
        return steps.prefill.copy()
    computed = np.zeros(len(steps))
    carried, last = 0.0, -1  # what steps before have to compute, and the last step that it is spread over
    room = np.maximum(budget - steps.decoding, 1.0)
    for number in range(len(steps) - 1, -1, -1):
        last = last if carried else number
        wanted = steps.prefill[number] + carried
        computed[number] = min(wanted, room[number]) if steps.is_busy[number] else wanted
        carried = wanted - computed[number]
        if not carried and last > number:
            moved = min(max(room[number] - computed[number], 0.0), computed[last])
            computed[number] += moved
            computed[last] -= moved
    return computed
