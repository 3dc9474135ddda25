"""``bench capacity`` from the command line: what it refuses before anything is sent, its plan, and its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run as bench
from bench_cli.experiments import rank_run, search_run
from bench_cli.experiments.search_command import status_of
from bench_errors import ExitStatus
from bench_records.search import PlannedProbe, SearchFolder
from bench_records.settings import PlannedRanking, PlannedSetting, RankingFolder
from harness.clients.secret_values import HIDDEN
from reports.capacity.answer import answer
from reports.capacity.result import Ended
from tests.bench_cli.experiments.searches import SEARCH
from tests.reports.capacity.searches import BRACKET, capacity

_LIMIT = ("--slo", "p99_ttft<=150ms")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["token_norm_dist"], "say what has to hold"),
        ([*_LIMIT], "dataset or token_norm_dist"),
        ([*_LIMIT, "serve"], "dataset or token_norm_dist"),
        ([*_LIMIT, "--sol", "x", "dataset"], "--sol is no option of bench capacity"),
        ([*_LIMIT, "dataset", "--request-rate", "4"], "--request_rate cannot be one of the run's options"),
        ([*_LIMIT, "dataset", "--num_requests=9"], "--budget before the verb"),
        ([*_LIMIT, "dataset", "--concurrency", "9"], "--max_users before the verb"),
        ([*_LIMIT, "--max_users", "9", "--first_load", "10", "dataset"], "--first_load 10: give a number of users from 1 to"),
        ([*_LIMIT, "--max_users", "9", "--first_load", "0.4", "dataset"], "--first_load 0.4: give a number of users from 1 to"),
        ([*_LIMIT, "--max_users", "9", "dataset", "--ramp_up", "9"], "--ramp_up cannot be one of the run's options"),
        ([*_LIMIT, "dataset", "--arrival", "constant"], "--arrival has no meaning in a closed loop, so that none shows"),
        ([*_LIMIT, "dataset", "--max_concurrency", "4"], "so that none shows where to start: give --first_load, a rate"),
        ([*_LIMIT, "--max_users", "9", "dataset", "--time_delay_dist", "constant"], "with --max_users answers set the rate"),
        ([*_LIMIT, "dataset", "--seed", "9"], "give --seed before the verb"),
        ([*_LIMIT, "dataset", "--run_dir", "r"], "--experiment_dir before the verb"),
        ([*_LIMIT, "dataset", "--slo", "p99_ttft<=1s"], "give --slo before the verb"),
        ([*_LIMIT, "trace", "t.csv", "--speed", "2"], "it stretches the trace"),
        ([*_LIMIT, "dataset", "--tokeniser", "x"], "--tokenizer"),
        (["--slo", "p99_ttft<=2s", "dataset", "--first_token_timeout", "2"], "before that can be beyond ttft<=2000ms; give"),
        (["--slo", "chat:p99_e2e<=20s", "dataset", "-t", "9"], "--request_timeout 9: it ends a request before"),
        (["--slo", "p99_e2e<=900s", "dataset"], "--request_timeout 600: it ends a request before"),
        (["--slo", "p99_tpot<=50ms", "dataset", "--token_gap_timeout", "0.04"], "give more than 0.05 s"),
        (["--slo", "p99_e2e<=5s", "dataset", "--first_token_timeout", "2"], "--first_token_timeout 2: it ends a request"),
        (["--slo", "p99_ttfo<=5s", "dataset", "-t", "4"], "--request_timeout 4: it ends a request before"),
        (
            ["--slo", "attainment>=9%", "--slo", "e2e<=5s", "dataset", "--first_token_timeout", "4"],
            "--first_token_timeout 4: it ends a request before that can be beyond e2e<=5000ms",
        ),
        (["--slo", "p99_e2e<=5s", "dataset", "--token_gap_timeout", "1"], "--token_gap_timeout 1: it ends a request before"),
        (["--slo", "p95_ttft<=25ms", "dataset", "--no_streaming"], "--slo p95_ttft<=25ms needs streamed answers"),
        (
            ["--slo", "attainment>=9%", "--slo", "e2e<=5s", "--slo", "tpot<=9ms", "dataset", "--no_streaming"],
            "--slo tpot<=9ms needs streamed answers (--streaming); use e2e",
        ),
        ([*_LIMIT, "--precision", "10", "dataset"], "as 10%"),
        ([*_LIMIT, "--budget", "long", "dataset"], "write a time"),
        (
            [*_LIMIT, "--budget", "6s", "dataset"],
            "--budget 6 s: no probe can be made in it, since the closed loop sends for 1 s, and a probe takes about 6 s beside "
            "its sending; give 2 min or more",
        ),
        (
            [*_LIMIT, "--budget", "1m", "--first_load", "1", "dataset"],
            "a probe takes about 6 s beside its sending, and its 100 requests 100 s at the first load; give 27 min or more",
        ),
        (
            [*_LIMIT, "--budget", "12s", "--over", "max_num_sequences=4,8", "dataset"],
            "--budget 12 s (6 s for each of 2 settings): no probe can be made in it",
        ),
        ([*_LIMIT, "--over", "max_num_sequences", "dataset"], "write OPTION=V1,V2"),
        ([*_LIMIT, "--over", "max_num_sequences=4", "dataset"], "one setting alone cannot be ranked"),
        ([*_LIMIT, "--over", "max_num_sequences=4,4", "dataset"], "a value is given twice"),
        ([*_LIMIT, "--over", "max_num_sequenses=4,8", "dataset"], "--over max_num_sequenses=4: No such option"),
        ([*_LIMIT, "--over", "max_num_sequences=4,8", "dataset", "--url", "a:1"], "it cannot be combined with --url"),
        ([*_LIMIT, "--dry_run", "dataset", "--url", "a:1", "--max_num_sequences", "4"], "it cannot be combined with --url"),
        ([*_LIMIT, "--dry_run", "dataset", "--url", "http://a:1"], "'http://a:1' is no gRPC address"),
        ([*_LIMIT, "--over", "max_num_sequences=4,many", "dataset"], "--over max_num_sequences=many: Invalid value"),
        ([*_LIMIT, "--over", "request_rate=4,8", "dataset"], "--request_rate cannot be one of --over request_rate=4"),
        ([*_LIMIT, "--over", "max_num_sequences=4,8"], "dataset or token_norm_dist"),
        ([*_LIMIT, "--over", "header=x: 1,authorization: b", "dataset", "-i", "openai", "--url", "a:1"], "a secret would show"),
        ([*_LIMIT, "--over", "max_num_sequences=1,2,3,4,5,6,7", "--over", "osl=1,2,3", "dataset"], "21 combinations"),
        (["--over", "max_num_sequences=4,8", "dataset"], "say what has to hold"),
        ([*_LIMIT, "--model", "none.json", "dataset"], "none.json' does not exist"),
        ([*_LIMIT, "--model", "t.csv", "--max_users", "9", "dataset"], "only a rate of requests is searched with one"),
        ([*_LIMIT, "--model", "t.csv", "--over", "max_num_sequences=4,8", "dataset"], "--model is fitted to one setting"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_what_to_write(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").touch()
    assert bench(["capacity", *arguments]) == ExitStatus.USAGE
    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_option_of_a_config_file_that_the_search_sets_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("seed = 3\n")
    assert bench(["capacity", *_LIMIT, "dataset", "--config", str(tmp_path / "c.toml")]) == ExitStatus.USAGE
    assert "--seed cannot be one of the run's options" in " ".join(capsys.readouterr().err.split())


def test_a_search_leaves_the_time_outs_of_a_config_file_as_it_leaves_those_of_its_arguments(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search sets --request_timeout by its budget, which would be shorter than a time-out of the file, or override it."""
    monkeypatch.chdir(tmp_path)
    given = {"first_token_timeout": 30.0, "connection-timeout": 9, "cancel": "5%:after=2s", "warmup_requests": 3}
    (tmp_path / "c.toml").write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in given.items()))
    made = list[list[str]]()

    def run(arguments: list[str], *_: object) -> tuple[int, str]:
        made.append(arguments)
        return ExitStatus.FAILED, "it is gone"

    monkeypatch.setattr(search_run, "make_quiet_run", run)
    command = ["capacity", *_LIMIT, "--budget", "20s", "token_norm_dist", "-i", "openai", "--url", "127.0.0.1:1"]
    assert bench([*command, "--config", "c.toml"]) == ExitStatus.FAILED
    (arguments,) = made
    for name, value in given.items():
        assert arguments[arguments.index(f"--{name.replace('-', '_')}") + 1] == str(value)
    assert "--request_timeout" not in arguments


@pytest.mark.parametrize("written", [["-t", "100"], ["--request_timeout=100"], ["--request-timeout", "100"]])
def test_a_time_out_of_the_arguments_wins_over_that_of_a_config_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text("request_timeout = 5\n")
    assert bench(["capacity", "--dry_run", *_LIMIT, "dataset", *written, "--config", "c.toml"]) == ExitStatus.VALID
    plan = capsys.readouterr().out
    assert " ".join(written) in plan
    assert "--request_timeout 5" not in plan


def test_a_dry_run_says_what_it_would_do_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench(["capacity", "--dry_run", *_LIMIT, "--slo", "chat:p99_tpot<=30ms", "dataset"]) == ExitStatus.VALID
    plan = capsys.readouterr().out
    assert "bench dataset --repeat_dataset --request_rate … --num_requests … --seed 1" in plan
    assert "within ±10 % at 95 %, or the budget of 15 min is spent" in plan
    assert "Limits of chat: p99_ttft<=150ms, p99_tpot<=30ms" in plan
    assert "1. A closed loop of 32 users, of at most 10 s." in plan
    assert "2. Probes from half of its throughput on, then where each teaches most, as" in plan
    assert "The budget of 15 min may be enough from 15.6 requests/s on, and is enough from 64.4 on." in plan
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("over", [[], ["--over", "max_num_sequences=4,8"]])
def test_a_dry_run_reads_the_file_of_the_probes(
    over: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text('{"timestamp": 5, "prompt": "a"}\n{"prompt": "b"}\n{"timestamp": 9, "prompt": "c"}\n')
    assert bench(["capacity", "--dry_run", *_LIMIT, *over, "trace", "t.jsonl"]) == ExitStatus.VALID
    assert '1 row was not read; for example line 2: the field "timestamp" is missing' in capsys.readouterr().err
    (tmp_path / "x.csv").write_text("x,y\n1,2\n")
    assert bench(["capacity", "--dry_run", *_LIMIT, *over, "dataset", "--dataset", "x.csv"]) == ExitStatus.USAGE
    captured = capsys.readouterr()
    assert "x.csv, row 1: unknown shape" in captured.err
    assert "Plan" not in captured.out
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("load", [["--max_users", "9"], ["--max_users", "9", "--first_load", "4"], []])
def test_a_dry_run_reads_conversations_of_users_and_rates(load: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["capacity", "--dry_run", *_LIMIT, *load, "dataset", "--sessions", "think_time"]) == ExitStatus.VALID
    assert "Plan (nothing is sent):" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "verb", "lines"),
    [
        (
            [],
            ["dataset"],
            "of 60 s holds: the start of the embedded pipeline takes some seconds, unless --url names a server; the "
            "closed loop sends for at most 3 s, and waits for the answers to its warm-up and for its last ones, at most 29 s "
            "each; at most 57 s remain for probes. Each takes about 6 s beside its sending, and has 100 requests or more, so "
            "that the first fits from 1.96 requests/s on.",
        ),
        (
            ["--first_load", "20"],
            ["dataset", "--url", "localhost:8001"],
            "of 60 s holds: at most 60 s remain for probes. Each takes about 6 s beside its sending, and has 100 "
            "requests or more, which take 5 s at first.",
        ),
        ([], ["dataset", "--url", "localhost:8001", "-t", "100"], "for its last ones, as long as their time-out allows;"),
        (
            [],
            ["dataset", "--url", "localhost:8001", "--sessions", "think_time"],
            "the closed loop takes as long as 320 requests of whole conversations do;",
        ),
    ],
    ids=["usual", "known rate", "own time-out", "conversations"],
)
def test_a_dry_run_says_what_the_budget_goes_to(
    options: list[str], verb: list[str], lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(["capacity", "--dry_run", *_LIMIT, "--budget", "60s", *options, *verb]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert lines in " ".join(captured.out.split())
    assert "The budget of 60 s is short: about 15 probes, as many as a search usually makes, take about " in captured.err
    assert bench(["capacity", "--dry_run", *_LIMIT, "--budget", "2m", *options, *verb]) == ExitStatus.VALID
    assert ("is short" in capsys.readouterr().err) is ("--first_load" in options)


@pytest.mark.parametrize(
    ("spent_s", "last"),
    [
        (1_200.0, "What is left of the budget, 10 min, may be enough from 23.3 requests/s on, and is enough from 96.7 on."),
        (1_900.0, "The budget of 30 min is spent; a longer one goes on."),
    ],
)
def test_a_dry_run_of_a_search_that_has_begun_counts_what_it_took(
    spent_s: float, last: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    begun = replace(SEARCH, first_load=50.0, first_per_s=100.0, spent_s=spent_s, probes=(PlannedProbe(50.0, 600, 1, "001-50"),))
    SearchFolder(tmp_path).write(begun)
    assert bench(["capacity", "--experiment_dir", str(tmp_path), "--dry_run"]) == ExitStatus.VALID
    plan = capsys.readouterr().out
    assert "1. No closed loop: the search has begun, and took " in plan
    assert "2. Further probes, after 1, where each teaches most, as" in plan
    assert plan.splitlines()[-1] == last


def test_a_dry_run_of_settings_names_them_and_their_shares(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench(["capacity", "--dry_run", *_LIMIT, "--over", "max_num_sequences=4,8", "dataset"]) == ExitStatus.VALID
    plan = capsys.readouterr().out
    assert plan.startswith("2 settings in turns, each with a search as below, with 97.5 % and 7.5 min of 15 min.\n")
    assert "All brackets are right together at 95 %" in plan
    assert "\n  max_num_sequences=4\n  max_num_sequences=8\n" in plan
    assert "bench dataset --max_num_sequences 4 --repeat_dataset --request_rate … --num_requests … --seed 1" in plan
    assert "within ±10 % at 97.5 %, or the budget of 7.5 min is spent" in plan
    assert not list(tmp_path.iterdir())


def _settings(path: Path, **changes: Any) -> RankingFolder:
    """A recorded ranking of two settings, whose budget is nearly spent."""
    folder = RankingFolder(path)
    settings = tuple(PlannedSetting(f"isl={n}", ("--isl", str(n)), f"0{k}-isl={n}") for k, n in enumerate((4, 9), start=1))
    plan = PlannedRanking(settings, 0.95, 1_800.0)
    for setting in settings:
        folder.search_folder(setting).path.mkdir(parents=True)
        arguments = ("token_norm_dist", *setting.options)
        search = replace(SEARCH, arguments=arguments, confidence=0.975, first_load=50.0, spent_s=895.0)
        folder.search_folder(setting).write(replace(search, **changes))
    folder.write(plan)
    return folder


def test_a_ranking_is_continued_by_its_folder_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = _settings(tmp_path)
    command = ["capacity", "--experiment_dir", str(tmp_path)]
    assert bench([*command, "--budget", "1m", "--confidence", "90%", "--precision", "20%"]) == ExitStatus.FAILED
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("No setting is shown to hold more than another with p99 TTFT of at most 150 ms (90 %)")
    assert "the budget of 60 s is spent" in said
    plan = folder.read()
    searches = [folder.search_folder(setting).read() for setting in plan.settings]
    assert (plan.confidence, plan.budget_s) == (0.9, 60.0)
    assert [(search.confidence, search.ratio, search.budget_s) for search in searches] == [(pytest.approx(0.95), 1.4, 30.0)] * 2
    assert json.loads((tmp_path / "ranking.json").read_text())["confidence"] == 0.9
    assert (tmp_path / "01-isl=4" / "capacity.html").exists()


def test_a_ranking_that_is_stopped_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    _settings(tmp_path)
    monkeypatch.setattr(rank_run, "rank_settings", stopped)
    assert bench(["capacity", "--experiment_dir", str(tmp_path)]) == ExitStatus.INTERRUPTED
    assert f"0 probes are saved. To go on: bench capacity --experiment_dir {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--over", "isl=4,8", "token_norm_dist"], "holds another search"),
        (["--over", "isl=4,9", "token_norm_dist", "--osl", "3"], "holds another search"),
        (["--over", "isl=4,8"], "holds other settings than those of --over"),
        (["token_norm_dist"], "is not empty"),
        (["--slo", "p99_ttft<=9ms"], "was searched by other limits"),
    ],
)
def test_another_ranking_in_the_folder_is_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _settings(tmp_path)
    limits = _LIMIT if "token_norm_dist" in options else ()
    assert bench(["capacity", "--experiment_dir", str(tmp_path), "--seed", "7", *limits, *options]) == ExitStatus.USAGE
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_ranking_whose_options_had_secrets_needs_them_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _settings(tmp_path, arguments=("dataset", "--header", f"Authorization: {HIDDEN}"))
    assert bench(["capacity", "--experiment_dir", str(tmp_path)]) == ExitStatus.USAGE
    assert "without their secrets" in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_of_users_says_where_they_start(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["capacity", "--dry_run", *_LIMIT, "--max_users", "200"]
    assert bench([*command, "dataset"]) == ExitStatus.VALID
    plan = capsys.readouterr().out
    assert "1. A closed loop of 16 users, of at most 10 s." in plan
    assert "2. Probes, at first of as many users as its latencies leave room for, of at most 200, as" in plan
    assert bench([*command, "--first_load", "50", "dataset"]) == ExitStatus.VALID
    assert "1. A closed loop of 50 users, to know how many requests a second they send." in capsys.readouterr().out


def test_another_search_in_the_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    SearchFolder(tmp_path).write(SEARCH)
    others = [
        ["--slo", "p99_ttft<=151ms", "--seed", "7", "token_norm_dist"],
        [*_LIMIT, "--seed", "8", "token_norm_dist"],
        [*_LIMIT, "--seed", "7", "token_norm_dist", "--isl", "9"],
        [*_LIMIT, "--seed", "7", "--max_users", "9", "token_norm_dist"],
    ]
    for other in others:
        assert bench(["capacity", "--experiment_dir", str(tmp_path), *other]) == ExitStatus.USAGE
        assert "holds another search" in " ".join(capsys.readouterr().err.split())


def test_a_search_is_continued_by_its_folder_alone_unless_its_options_have_secrets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = SearchFolder(tmp_path)
    folder.write(replace(SEARCH, first_load=50.0, spent_s=1_790.0))
    command = ["capacity", "--experiment_dir", str(tmp_path)]
    assert bench([*command, "--budget", "1m"]) == ExitStatus.FAILED  # nothing is certified
    assert "the budget of 60 s is spent" in " ".join(capsys.readouterr().out.split())
    assert (folder.read().budget_s, folder.read().confidence) == (60.0, SEARCH.confidence)
    assert bench([*command, "--slo", "p99_ttft<=9ms"]) == ExitStatus.USAGE
    assert "was searched by other limits" in " ".join(capsys.readouterr().err.split())
    for option, value in (("--seed", "8"), ("--max_users", "9"), ("--first_load", "51")):
        assert bench([*command, option, value]) == ExitStatus.USAGE
        assert f"{option}: {tmp_path} was searched with another one" in " ".join(capsys.readouterr().err.split())
    folder.write(replace(SEARCH, arguments=("dataset", "--header", f"Authorization: {HIDDEN}")))
    assert bench(command) == ExitStatus.USAGE
    assert "without their secrets" in " ".join(capsys.readouterr().err.split())


def test_a_search_that_cannot_begin_leaves_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "search"
    command = ["capacity", "--experiment_dir", str(path), *_LIMIT]
    verb = ["token_norm_dist", "-i", "openai", "--url", "127.0.0.1:1"]  # no server listens there
    assert bench([*command, *verb]) == ExitStatus.FAILED
    assert "no server answers there" in capsys.readouterr().err
    assert not path.exists()
    assert bench([*command, "--before_each", "echo no route; exit 5", *verb]) == ExitStatus.FAILED
    assert "--before_each: 'echo no route; exit 5' ended with status 5: no route" in capsys.readouterr().err
    assert not path.exists()


def test_a_search_with_a_command_before_each_probe_goes_on_with_that_command_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = SearchFolder(tmp_path)
    folder.write(replace(SEARCH, first_load=50.0, spent_s=1_790.0, before_each=True))
    command = ["capacity", "--experiment_dir", str(tmp_path), "--budget", "1m"]
    assert bench(command) == ExitStatus.USAGE
    assert "give --before_each again" in " ".join(capsys.readouterr().err.split())
    assert bench([*command, "--before_each", "true"]) == ExitStatus.FAILED  # nothing is certified
    assert "the budget of 60 s is spent" in " ".join(capsys.readouterr().out.split())


def test_a_search_without_a_valid_probe_has_the_status_of_a_run_that_is_not_valid() -> None:
    """Also where its budget ended before it gave up on the client; a target that died is another fault."""
    found = capacity(replace(BRACKET, certified=None, refused=None), ended=Ended.BUDGET)
    none_valid = replace(found, probes=tuple(replace(run, valid=False) for run in found.probes))
    assert answer(none_valid).startswith("Undecided: no probe is valid.")
    assert status_of(none_valid) is ExitStatus.INVALID
    assert status_of(replace(none_valid, ended=Ended.TARGET_FAILED)) is ExitStatus.FAILED
    assert status_of(found) is ExitStatus.FAILED
