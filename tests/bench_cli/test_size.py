"""``bench size`` from a model's file to the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench_cli import run
from bench_cli.simulate import sized
from bench_cli.simulate.limits import simulated_limits
from bench_cli.simulate.size_text import Draws
from bench_errors import ExitStatus
from bench_records.search import PlannedTier
from reports.render.tables import three_digits
from simulator.answers import Answers
from simulator.model import Extent
from simulator.server import Admission, Server, StepLaw
from tests.bench_cli.test_simulate_run import model_file
from workloads.arrivals.processes import Exponential

_ONE_AT_A_TIME = Server(StepLaw(step=10e-3), Admission(max_sequences=1))
_TRAFFIC = ["token_norm_dist", "--request_rate", "250", "--num_requests", "100", "--isl", "20", "--osl", "1"]
_TRAFFIC += ["--arrival", "constant"]
_SLO = ["--slo", "p90_ttft<=15ms", "--router", "rr", "--draws", "18"]


def _sized(tmp_path: Path, *options: str) -> int:
    model = model_file(tmp_path / "model.json", server=_ONE_AT_A_TIME, draws=(), hull=(Extent("requests in flight", 4.0),))
    return run(["size", "--model", str(model), *options, *_TRAFFIC])


def test_250_requests_a_second_of_10_ms_each_need_three_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round robin of even arrivals: three get 83 a second each, which never wait, two get 125, more than 100."""
    assert _sized(tmp_path, *_SLO) == ExitStatus.VALID
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("3 replicas, 95 %; 2 do not hold; one more buys 3")  # 300 and 400 requests a second
    assert "0 of 18" in text
    assert "18 of 18" in text
    assert "Simulated, no server was measured: 18 draws of the model's errors, with one schedule, which is that of" in text


def test_the_rate_that_replicas_hold_is_that_of_the_schedules_that_they_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of five draws holds its own schedule as it is. The first of these, of 20 requests, is far from the median rate."""
    monkeypatch.setattr(sized, "highest_factor", lambda holds_at, low, high, ratio: 1.0)
    few = ["--arrival", "exponential", "--num_requests", "20", "--seed", "4"]
    model = str(model_file(tmp_path / "model.json", server=_ONE_AT_A_TIME, draws=()))
    assert run(["size", "--model", model, *_SLO, *_TRAFFIC, *few]) == ExitStatus.VALID
    rates = [19e9 / float(np.ptp(Exponential(250.0).offsets_ns(20, 4 + number))) for number in range(5)]
    middle = float(np.median(rates))
    assert abs(rates[0] / middle - 1.0) > 0.1
    text = " ".join(capsys.readouterr().out.split())
    assert f"the median of what these hold is {three_digits(middle)} requests/s" in text
    assert "the schedule (8 different)" in text


@pytest.mark.parametrize(("requests", "is_said"), [(99, True), (100, False)])
def test_a_limit_on_the_slowest_request_alone_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], requests: int, is_said: bool
) -> None:
    model = str(model_file(tmp_path / "model.json", server=_ONE_AT_A_TIME, draws=()))
    few = ["--num_requests", str(requests)]
    assert run(["size", "--model", model, "--slo", "p99_e2e<=500ms", *_TRAFFIC, *few]) == ExitStatus.VALID
    said = "--slo p99_e2e<=500ms: of 99 requests it limits the slowest; give 100 or more (--num_requests)."
    assert (said in capsys.readouterr().err.splitlines()) is is_said


def test_further_replica_does_not_buy_less_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The router may deal a schedule worse to one more; three hold 1.5 times the rate here, and four as it seems 1.2 times."""
    factors = iter([1.5] * 5 + [1.2] * 5)
    monkeypatch.setattr(sized, "highest_factor", lambda holds_at, low, high, ratio: next(factors))
    assert _sized(tmp_path, *_SLO) == ExitStatus.VALID
    assert "3 replicas, 95 %; 2 do not hold; one more buys 0% of rate; " in " ".join(capsys.readouterr().out.split())


def test_limits_and_the_rate_that_is_held_are_those_of_the_load_without_its_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers of five tokens take 50 ms, and there are about four times as many probes, which take 10 ms."""
    model = str(model_file(tmp_path / "model.json", server=_ONE_AT_A_TIME, draws=()))
    traffic = ["token_norm_dist", "--request_rate", "8", "--arrival", "constant", "--num_requests", "40", "--isl", "20"]
    traffic += ["--osl", "5", "--probe_rate", "30", "--probe_isl", "8", "--probe_osl", "1"]
    few = ["--draws", "18", "--max_replicas", "1"]
    assert run(["size", "--model", model, "--slo", "p50_e2e<=30ms", *few, *traffic]) == ExitStatus.FAILED
    said = capsys.readouterr()
    assert "Simulating 40 requests, " in said.err
    assert said.out.startswith("No number up to 1 replica holds with 95 %.")
    assert run(["size", "--model", model, "--slo", "p50_e2e<=80ms", *few, *traffic]) == ExitStatus.VALID
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("1 replica, 95 %; one more buys")
    held = float(text.partition("the median of what these hold is ")[2].split()[0])
    assert 8.0 <= held < 14.0  # 1.4 times this rate would keep the server busy all the time


def test_too_few_replicas_are_said_and_what_lies_beyond_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _sized(tmp_path, *_SLO, "--max_replicas", "2") == ExitStatus.FAILED
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("This lies beyond what the model was fitted to, so its errors are not known: ")
    assert "No number up to 2 replicas holds with 95 %." in text


def test_the_other_loads_that_an_answer_rests_on_are_said_to_lie_beyond_the_fitted_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three get 83 requests a second each, as was fitted, and hold 100 of each; two get 125 of each."""
    hull = (Extent("requests a second", 90.0),)
    model = str(model_file(tmp_path / "model.json", server=_ONE_AT_A_TIME, draws=(), hull=hull, held_out={"ttft": 0.1}))
    not_known = "lies beyond what the model was fitted to, so its errors are not known: "
    assert run(["size", "--model", model, "--slo", "p90_ttft<=36ms", *_SLO[2:], *_TRAFFIC]) == ExitStatus.VALID
    of_rate, answer, *_ = capsys.readouterr().out.split("\n\n")
    assert of_rate.startswith(f"The rate that 3 replicas hold {not_known}")
    assert answer.startswith("3 replicas, 95 %; 2 do not hold")
    assert run(["size", "--model", model, "--slo", "p90_ttft<=86ms", *_SLO[2:], *_TRAFFIC]) == ExitStatus.VALID
    of_fewer, of_rate, answer, *_ = capsys.readouterr().out.split("\n\n")
    assert of_fewer.startswith(f"The load of 2 replicas {not_known}")
    assert of_rate.startswith(f"The rate that 3 replicas hold {not_known}")
    assert answer.startswith("3 replicas, 95 %; 2 cannot be excluded")


def test_sets_of_limits_have_answers_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--slo", "fast:p90_ttft<=15ms", "--slo", "slow:attainment>=90%", "--slo", "slow:e2e<=10s"]
    assert _sized(tmp_path, *limits, "--router", "rr", "--draws", "18") == ExitStatus.VALID
    text = " ".join(capsys.readouterr().out.split())
    assert "fast: 3 replicas, 95 %" in text
    assert "slow: 1 replica, 95 %" in text


def test_an_answer_without_tpot_is_judged_by_its_other_objectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answers have one token each."""
    limits = ["--slo", "attainment>=90%", "--slo", "ttft<=15ms", "--slo", "tpot<=50ms"]
    assert _sized(tmp_path, *limits, "--router", "rr", "--draws", "18") == ExitStatus.VALID
    assert "3 replicas, 95 %" in " ".join(capsys.readouterr().out.split())


def test_options_that_judge_a_run_are_refused_after_the_verb_and_those_that_write_one_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(model_file(tmp_path / "model.json", server=_ONE_AT_A_TIME, draws=()))
    command = ["size", "--model", model, *_SLO, "--max_replicas", "3", *_TRAFFIC]
    for option, text in (("--slo", "p99_ttft<=1ms"), ("--fail_if", "p99_ttft>1ms")):
        assert run([*command, option, text]) == ExitStatus.USAGE
        assert f"{option} after the verb judges a run, and no run is made here" in " ".join(capsys.readouterr().err.split())
    assert run([*command, "--run_dir", str(tmp_path / "run"), "--full"]) == ExitStatus.VALID
    assert "Without effect in a simulation: --run_dir, --full." in capsys.readouterr().err.splitlines()
    assert not (tmp_path / "run").exists()


def test_draws_are_of_as_many_constants_as_the_model_has() -> None:
    assert str(Draws(40, 40, 8)) == "40 draws of the model's constants, its errors and the schedule (8 different)"
    assert str(Draws(200, 40, 8)).startswith("200 draws of the model's constants (40 different), its errors and ")
    assert str(Draws(18, 0, 8)) == "18 draws of the model's errors and the schedule (8 different)"
    assert str(Draws(5, 5, 5)).endswith(" and the schedule")
    one = "draws of the model's constants (2 different) and its errors, with one schedule, which is that of every seed"
    assert str(Draws(18, 2, 1)) == f"18 {one}"
    assert str(Draws(18, 0, 1)) == "18 draws of the model's errors, with one schedule, which is that of every seed"
    assert str(Draws(1, 1, 1)) == "1 draw of the model's constants, its errors and the schedule"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "say what has to hold"),
        (("--slo", "p99_itl<=5ms"), "a simulation is judged by ttft, tpot, e2e"),
        (("--slo", "failed_share<=1%"), "no request fails in a simulation"),
        (("--slo", "p99_ttft<=5ms", "--draws", "9"), "a confidence of 0.95 needs 18 draws at least"),
        (("--slo", "p99_tpot<=9ms"), "no answer of this workload has two tokens, so none has a TPOT"),
    ],
)
def test_what_cannot_be_sized_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], reason: str
) -> None:
    assert _sized(tmp_path, *options) == ExitStatus.USAGE
    assert reason in " ".join(capsys.readouterr().err.split())


def test_an_error_of_the_fit_makes_the_answer_less_sure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10 ms are within 10.1 ms by 1 % alone, so an error of 20 % leaves every number open."""
    model = model_file(tmp_path / "model.json", server=replace(_ONE_AT_A_TIME), draws=(), held_out={"ttft": 0.2})
    limits = ["--slo", "p90_ttft<=10.1ms", "--router", "rr", "--draws", "18", "--max_replicas", "6"]
    assert run(["size", "--model", str(model), *limits, *_TRAFFIC]) == ExitStatus.FAILED
    assert "from 3 on that cannot be excluded" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        (("p99_ttft<=99ms",), 1.0),
        (("p50_ttft<=50ms",), 1.0),
        (("p99_ttft<=98ms",), 99 / 98),
        (("attainment>=99%", "ttft<=99ms"), 1.0),
    ],
)
def test_a_limit_holds_where_as_many_requests_are_beyond_it_as_it_allows(limits: tuple[str, ...], reached: float) -> None:
    """100 requests of 1 to 100 ms: the percentile is the nearest rank, as in a report."""
    times_s, whole = np.arange(1.0, 101.0) / 1e3, np.ones(100, dtype=np.int64)
    answers = Answers(np.zeros(100), times_s, times_s, whole, 0 * whole, 0 * whole, 100, 1, 1.0, 0.0)
    found = simulated_limits(PlannedTier(None, limits[:1], limits[1:]))
    factors = {"ttft": 1.0, "tpot": 1.0, "e2e": 1.0}
    assert found.reached(np.zeros(100), answers, factors) == pytest.approx((reached,), rel=1e-12)
