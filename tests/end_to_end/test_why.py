"""Known delays in each phase of a request are found in the phase that they belong to (``benchmarks/injected_delays.py``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.injected_delays import EMBEDDED, OPENAI, TARGETS, Target, Traffic, cases, embedded, measure_case, over_openai
from benchmarks.injection.delays import NONE, Delays
from benchmarks.injection.measured import MeasuredPhases, measure, measure_stopped
from benchmarks.injection.met_prompts import met_no_prompt, steps_with_prompts_ns
from benchmarks.injection.proxies import ProxyDelays, delaying_proxy
from benchmarks.injection.stopped import waited_ns
from benchmarks.injection.windows import WINDOW_S
from reports.metrics.request_phases import Phase

pytestmark = pytest.mark.slow

_CLOCK_MS = 5.0  # by which an event loop may wake early, and the clocks of client and server differ, at most
_FEWEST_DELAYED = 3

_TRAFFIC = [
    *("token_norm_dist", "--input_mean", "32", "--input_stdev", "0", "--output_mean", "9", "--output_stdev", "0"),
    *("--arrival", "constant", "--warmup_requests", "4", "--seed", "5", "--server_timings"),
]
_ONE_A_SECOND = [*_TRAFFIC, "--request_rate", "1", "--num_requests", "40"]
_DELAYS = Delays(tokenizer_s=0.15, queue_s=0.2, prefill_s=0.2, decode_step_s=0.025)
_WAYS = ProxyDelays(to_server_s=0.1, to_client_s=0.15)


def _check(run: MeasuredPhases, injected_ms: dict[Phase, float]) -> None:
    """An injected time is in its phase, in every request that had all of its delays. A delay is a sleep, which may take longer
    than it was set to and never less. So these bounds hold however slow the machine is; and since the phases add up to the
    latency, time in a wrong phase would be missing in the right one.
    """
    times, delayed = run.times, _delayed_throughout(run)
    assert np.count_nonzero(delayed) >= _FEWEST_DELAYED
    assert (times.contradiction_ns == 0.0).all()
    [middle, _] = run.parts(delayed).percentiles
    assert middle.value_ms is not None
    for phase, ms in injected_ms.items():
        assert (run.spans_ms(phase, delayed) >= ms - _CLOCK_MS).all(), phase
        without_ms = middle.by_phase[phase].without_ms
        assert without_ms is not None
        assert middle.value_ms - without_ms >= ms - _CLOCK_MS, phase
    assert middle.value_ms >= sum(injected_ms.values()) - len(injected_ms) * _CLOCK_MS


def _delayed_throughout(run: MeasuredPhases) -> NDArray[np.bool_]:
    """Which requests were due and done in one window with delays, shape [n]: a late one may have met the end of the delays."""
    due_ns, done_ns = run.requests.scheduled_ns + run.start_ns, run.requests.done_ns + run.start_ns
    same: NDArray[np.bool_] = np.floor(due_ns / 1e9 / WINDOW_S) == np.floor(done_ns / 1e9 / WINDOW_S)
    return run.delayed & same


def test_each_delay_of_the_embedded_pipeline_is_found_where_it_is(tmp_path: Path) -> None:
    with embedded(_DELAYS, tmp_path / "server") as ports, delaying_proxy(ports.usual, _WAYS) as proxied:
        run = measure(tmp_path / "run", [*_ONE_A_SECOND, *(word.format(port=proxied) for word in EMBEDDED)])
    _check(
        run,
        {Phase.FRONT_END: 250.0, Phase.QUEUE: 200.0, Phase.PREFILL: 200.0, Phase.DECODE: 200.0, Phase.RETURN: 150.0},
    )
    assert run.times.clock_error_ns is not None
    assert (run.times.by_phase[Phase.UNATTRIBUTED] == 0.0).all()


def test_prompts_of_others_are_found_in_the_decode_that_they_delay(tmp_path: Path) -> None:
    """Each step with a prompt takes 60 ms longer, also for requests whose decode shares it: the step log has all of that, and
    nothing else. Some requests meet no prompt, since the gaps between them vary.
    """
    traffic = Traffic(requests=60, rate=3.0, delay_s=0.06, arrival="exponential")
    [case] = [case for case in cases(traffic.delay_s) if case.phase is Phase.DECODE_BESIDE_PREFILL]
    [target] = [target for target in TARGETS if target.logs_steps]
    with target.serve(case.server, tmp_path / "server") as ports:
        run, injected_ns = measure_case(case, ports, target, traffic.of(case), tmp_path / "case")
    delayed = injected_ns > 0
    assert np.count_nonzero(delayed) >= _FEWEST_DELAYED
    beside_ns = run.times.by_phase[Phase.DECODE_BESIDE_PREFILL]
    assert (beside_ns[delayed] >= injected_ns[delayed]).all()
    assert ports.step_log is not None
    assert np.array_equal(beside_ns, steps_with_prompts_ns(run.requests, ports.step_log))
    alone = met_no_prompt(run.requests)
    assert np.count_nonzero(alone) >= _FEWEST_DELAYED
    assert (beside_ns[alone] == 0.0).all()
    assert (beside_ns[~alone] > 0.0).any()
    assert (run.times.by_phase[Phase.UNATTRIBUTED] == 0.0).all()
    whole_ns = run.times.by_phase[Phase.DECODE] + beside_ns
    assert (whole_ns == run.requests.server_decode_ns).all()


def test_each_delay_of_an_openai_server_is_found_where_it_is_or_unattributed(tmp_path: Path) -> None:
    """vLLM's times have no stamp: what passes before and after the engine is unattributed."""
    with over_openai(_DELAYS, tmp_path) as ports, delaying_proxy(ports.usual, _WAYS) as proxied:
        run = measure(tmp_path / "run", [*_ONE_A_SECOND, *(word.format(port=proxied) for word in OPENAI)])
    _check(run, {Phase.QUEUE: 200.0, Phase.PREFILL: 200.0, Phase.DECODE: 200.0, Phase.UNATTRIBUTED: 400.0})


def test_a_stop_of_the_client_is_schedule_slip(tmp_path: Path) -> None:
    with over_openai(Delays(), tmp_path) as ports:
        load = ["--request_rate", "10", "--num_requests", "160", *(word.format(port=ports.usual) for word in OPENAI)]
        run, stops = measure_stopped(tmp_path / "run", [*_TRAFFIC, *load])
    injected_ns = waited_ns(run.due_ns, stops)
    assert np.count_nonzero(injected_ns) >= 5
    stopped = injected_ns > 0
    found_ms = run.spans_ms(Phase.SLIP, stopped)
    assert found_ms.sum() >= 0.95 * injected_ns[stopped].sum() / 1e6  # each process stops a little after the signal


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_late_handshake_is_found_in_the_time_to_connect(target: Target, tmp_path: Path) -> None:
    traffic = Traffic(requests=40, rate=2.0, delay_s=0.2)
    [case] = [case for case in cases(traffic.delay_s) if case.tls]
    with target.serve(NONE, tmp_path / "server") as ports:
        run, _ = measure_case(case, ports, target, traffic, tmp_path / "case")
    delayed = _delayed_throughout(run)
    assert np.count_nonzero(delayed) >= _FEWEST_DELAYED
    assert (run.spans_ms(Phase.CONNECT, delayed) >= 200.0 - _CLOCK_MS).all()
    assert (run.spans_ms(Phase.CONNECT, run.others) > 0).all()
