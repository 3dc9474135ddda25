"""Prefixes of prompts that are known by the hashes of their blocks.

Some origins hash a block together with all before it (Mooncake, Dynamo), others each block by itself (Qwen-Bailian), where one
hash occurs at several places of a prompt. So a prefix is the sequence of all hashes up to a block, and not the last one alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def first_with_prefix(hashes: Integers, blocks: Integers) -> Integers:
    """For each block the place of the first one, in the order of the rows, that has the same hash and the same ones before it
    in its row; its own place where no earlier row has them.

    ``hashes`` has the blocks of all rows one after another, and ``blocks`` their number in each row; shape [blocks of all].
    """
    found: Integers = np.arange(hashes.size)
    codes = np.unique(hashes, return_inverse=True)[1]
    ends = np.cumsum(blocks)
    has_any = blocks > 0
    places, ends = (ends - blocks)[has_any], ends[has_any]  # of the blocks at one depth, in the rows that may share it
    before = np.zeros(places.size, np.int64)  # equal where all blocks before are
    while places.size > 1:
        keys = before * hashes.size + codes[places]
        _, first, group, sizes = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        found[places] = places[first][group]
        goes_on = (sizes[group] > 1) & (places + 1 < ends)
        before, places, ends = group[goes_on], places[goes_on] + 1, ends[goes_on]
    return found
