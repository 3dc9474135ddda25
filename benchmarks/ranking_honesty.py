"""How often a ranking of settings by their capacities is right, and what it finds: simulated servers whose capacity is known.

Per target (benchmarks/capacity_targets.py), four settings: two alike, one that holds a tenth more, and one that holds three
tenths more, which are the same server with its loads scaled. A ranking is wrong where any difference that it shows is not so.
At 95 % that may be in 5 %; at most 6.5 % are allowed.

Run: python -m benchmarks.ranking_honesty [--rankings 100] [--seed 31] [--only NAME …] [--budget 150000]
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from tabulate import tabulate

from benchmarks.capacity_honesty import Search, search
from benchmarks.capacity_targets import TARGETS, CapacityTarget
from reports.capacity.ranking import confidence_of_each

_FACTORS = (1.0, 1.0, 1.1, 1.3)
_HEADERS = ("target", "wrong", "+30 % shown", "+10 % shown", "+30 % against +10 % shown", "requests of all", "s")
_CONFIDENCE, _ALLOWED = 0.95, 0.065


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankings", type=int, default=100, help="simulated rankings of each target")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--only", nargs="+", default=["M/M/1", "M/D/1", "8 servers"], metavar="NAME", help="targets, by name")
    parser.add_argument("--budget", type=int, default=150_000, help="requests of a setting, at most")
    options = parser.parse_args()
    wrong = []
    for target in (each for each in TARGETS if each.name in options.only):
        begin_s = time.monotonic()
        row, share = _row(target, options.rankings, options.budget, options.seed)
        print(tabulate([(*row, f"{time.monotonic() - begin_s:.0f}")], headers=_HEADERS, disable_numparse=True), flush=True)
        wrong += [target.name] if share > _ALLOWED else []
    print(f"\nWrong too often: {', '.join(wrong) or 'none'}.")
    sys.exit(1 if wrong else 0)


def _row(target: CapacityTarget, rankings: int, budget: int, seed: int) -> tuple[tuple[str, ...], float]:
    """The row of the table, and the share of rankings in which some difference is wrong."""
    confidence = confidence_of_each(_CONFIDENCE, len(_FACTORS))
    shown = np.zeros((rankings, len(_FACTORS), len(_FACTORS)), dtype=np.bool_)
    requests = 0
    for k in range(rankings):
        found = [search(target, budget, np.random.default_rng([seed, k, n]), confidence) for n in range(len(_FACTORS))]
        requests += sum(each.requests for each in found)
        certified, refused = (np.array(ends) for ends in zip(*map(_ends, found, _FACTORS), strict=True))
        shown[k] = certified[:, None] >= refused[None, :]
    more = np.array([[a > b for b in _FACTORS] for a in _FACTORS])
    wrong = float((shown & ~more).any(axis=(1, 2)).mean())
    shares = (shown[:, 3, :2].mean(), shown[:, 2, :2].mean(), shown[:, 3, 2].mean())
    return (target.name, f"{wrong:.1%}", *(f"{each:.0%}" for each in shares), f"{requests / rankings:,.0f}"), wrong


def _ends(search: Search, factor: float) -> tuple[float, float]:
    """The bracket of the server that does at a load what the one of the ``search`` does at this load over ``factor``."""
    return factor * (search.found.certified or 0.0), factor * (search.found.refused or np.inf)


if __name__ == "__main__":
    main()
