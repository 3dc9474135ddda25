"""Time and memory of drawing a million requests with their schedule and its digest, as a run does before it sends.

``python -m benchmarks.draw_a_schedule`` prints a line for each mean length of prompts; each is drawn by a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

_REQUESTS = 1_000_000
_MEAN_TOKENS = (8, 128)


def main() -> None:
    """Draw each."""
    if len(sys.argv) > 1:
        draw(int(sys.argv[1]))
        return
    for mean_tokens in _MEAN_TOKENS:
        subprocess.run([sys.executable, "-m", "benchmarks.draw_a_schedule", str(mean_tokens)], check=True)


def draw(mean_tokens: int) -> None:
    """Draw prompts of ``mean_tokens`` ± 4 % random token ids, and print what it took."""
    from workloads.arrivals.processes import Exponential
    from workloads.lengths.families import Normal
    from workloads.lengths.samples import Independent
    from workloads.prompts.token_norm_dist import TokenNormDist
    from workloads.schedule.load import OpenLoop

    start = time.perf_counter()
    lengths = Independent(Normal(mean_tokens, 0.04 * mean_tokens), Normal(20, 2))
    drawn = TokenNormDist(lengths, range(3, 3072), seed=0).draw(_REQUESTS)
    schedule = OpenLoop(Exponential(1000.0)).schedule(drawn.requests, 0)
    digest = schedule.digest
    seconds = time.perf_counter() - start
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(schedule):,} requests of {mean_tokens} tokens: {seconds:.1f} s, peak {peak_gib:.2f} GiB, {digest[:12]}")


if __name__ == "__main__":
    main()
