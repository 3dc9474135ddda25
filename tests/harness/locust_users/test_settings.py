"""Options of the users on Locust's command line."""

from __future__ import annotations

import pytest

from harness.locust_users.settings import Settings, add_settings, read_settings

configargparse = pytest.importorskip("configargparse", reason="the extra [distributed] is not installed")


def _settings(*arguments: str) -> Settings:
    parser = configargparse.ArgParser()
    add_settings(parser)
    return read_settings(parser.parse_args(arguments))


def test_without_options_users_send_one_request_after_another() -> None:
    settings = _settings()
    assert (settings.gap_s, settings.rate_profile, settings.problem()) == (None, None, None)


def test_both_spellings_and_the_environment_set_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _settings("--output_tokens", "7").output_tokens == _settings("--output-tokens", "7").output_tokens == 7
    monkeypatch.setenv("BENCH_OUTPUT_TOKENS", "9")
    assert _settings().output_tokens == 9


def test_a_profile_paces_its_users_once_a_second_unless_asked_otherwise() -> None:
    assert _settings("--rate_profile", "stages:5/s*60s").gap_s == 1.0
    assert _settings("--rate_profile", "stages:5/s*60s", "--seconds_per_request", "4").gap_s == 4.0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--arrival", "constant"), "--arrival"),
        (("--request_rate", "5"), "--request_rate"),
        (("--rate_profile", "sine:amplitude=0.5,period=60s"), "--request_rate"),
        (("--rate_profile", "stages:5/s*60s", "--request_rate", "5"), "--request_rate"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(arguments: tuple[str, ...], named: str) -> None:
    problem = _settings(*arguments).problem()
    assert problem is not None
    assert named in problem


@pytest.mark.parametrize(
    "arguments", [("--rate_profile", "stages:5"), ("--arrival", "cauchy"), ("--request_timeout", "0"), ("--output_tokens", "0")]
)
def test_a_value_that_cannot_be_read_is_a_usage_error_with_the_options_name(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _settings(*arguments)
    assert arguments[0] in capsys.readouterr().err


def test_the_text_of_a_law_and_a_profile_is_kept_since_workers_get_plain_values() -> None:
    settings = _settings("--rate_profile", "sine:amplitude=0.5,period=60s", "--request_rate", "5", "--arrival", "gamma:cv=2")
    assert (settings.rate_profile, settings.arrival) == ("sine:amplitude=0.5,period=60s", "gamma:cv=2")
    assert settings.problem() is None
