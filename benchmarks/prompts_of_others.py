"""How much of a known delay of steps with prompts the step log finds: in the decode of the requests that shared the steps, and
in its estimate of what prompts add to a step.

    python -m benchmarks.prompts_of_others [--requests 280] [--rate 5] [--delay_ms 50] [--arrival constant]

In every second window of 4 s each step of the embedded engine with a prompt takes longer, and the slowed engine notes from when
to when. Steps of the other windows show what prompts add without that. The decode beside prefill is compared with the rows of
the log, too, so that too much of it would show; with ``--arrival exponential`` and a low rate some requests meet no prompt.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from bench_records.step_log import LoggedSteps, read_step_log
from benchmarks.injected_delays import TARGETS, Traffic, cases, measure_case, stops_of
from benchmarks.injection.delays import DELAYED
from benchmarks.injection.met_prompts import met_no_prompt, steps_with_prompts_ns
from reports.metrics.request_phases import Phase
from reports.why.step_log import added_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=280)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--delay_ms", type=float, default=50.0)
    parser.add_argument("--arrival", default="constant")
    arguments = parser.parse_args()
    traffic = Traffic(arguments.requests, arguments.rate, arguments.delay_ms / 1e3, arrival=arguments.arrival)
    [case] = [case for case in cases(traffic.delay_s) if case.phase is Phase.DECODE_BESIDE_PREFILL]
    [target] = [target for target in TARGETS if target.logs_steps]
    with tempfile.TemporaryDirectory() as folder, target.serve(case.server, Path(folder) / "server") as ports:
        run, injected_ns = measure_case(case, ports, target, traffic.of(case), Path(folder) / "case")
        assert ports.step_log is not None
        steps, stops = read_step_log(ports.step_log, None), stops_of(ports.step_log.with_suffix(DELAYED))
        expected_ns = steps_with_prompts_ns(run.requests, ports.step_log)
    delayed = run.requests.done & (injected_ns > 0)
    beside_ns = run.times.by_phase[Phase.DECODE_BESIDE_PREFILL]
    print(
        f"{np.count_nonzero(delayed)} requests were delayed in their decode, by {injected_ns[delayed].mean() / 1e6:.1f} ms on "
        f"the mean; in {np.count_nonzero(beside_ns[delayed] >= injected_ns[delayed])} the decode beside prefill has all of it"
    )
    alone = met_no_prompt(run.requests)
    print(
        f"the decode beside prefill is the sum of the steps with prompts in {np.count_nonzero(beside_ns == expected_ns)} of "
        f"{beside_ns.size} requests; {np.count_nonzero(alone)} met no prompt, and {np.count_nonzero(beside_ns[alone])} of them "
        "have some"
    )
    print(_steps_text(steps, np.array(stops, dtype=np.float64)))


def _steps_text(steps: LoggedSteps, stops_ns: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> str:
    """What the log says prompts added to steps with sequences in decode, in those that were delayed and in the others."""
    slept_ms = np.zeros(steps.start_ns.size)
    slept_ms[np.searchsorted(steps.start_ns, stops_ns[:, 0], side="right") - 1] = np.diff(stops_ns)[:, 0] / 1e6
    added_ms = added_ns(steps) / 1e6
    compared = (steps.prefill_tokens > 0) & (steps.decode_tokens > 0) & ~np.isnan(added_ms)
    delayed, others = compared & (slept_ms > 0), compared & (slept_ms == 0)
    more_ms = added_ms[delayed].mean() - added_ms[others].mean()
    return (
        f"{np.count_nonzero(delayed)} steps were delayed, by {slept_ms[delayed].mean():.1f} ms on the mean: prompts added "
        f"{added_ms[delayed].mean():.1f} ms to them by the log, and {added_ms[others].mean():.1f} ms to "
        f"{np.count_nonzero(others)} others; {100 * more_ms / slept_ms[delayed].mean():.1f} % of the delay is found"
    )


if __name__ == "__main__":
    main()
