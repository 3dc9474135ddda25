"""Values of the options of ``bench capacity``: sets of limits, shares and times."""

from __future__ import annotations

import click
import pytest

from bench_cli.limit_values import PRESETS, read_share, read_time, tiers_of
from bench_records.search import PlannedTier

_CONTEXT = click.Context(click.Command("capacity"))
_PARAMETER = click.Option(["--x"])


def test_limits_without_a_name_are_one_set_and_hold_in_each_named_one() -> None:
    assert tiers_of(["p99_ttft<=0.5s", "p99_tpot<=50ms"], []) == (PlannedTier(None, ("p99_ttft<=500ms", "p99_tpot<=50ms")),)
    assert tiers_of(["failed_share<=0.1%", "fast:p99_ttft<=450ms", "slow: p99_ttft<=2s"], []) == (
        PlannedTier("fast", ("failed_share<=0.1%", "p99_ttft<=450ms")),
        PlannedTier("slow", ("failed_share<=0.1%", "p99_ttft<=2000ms")),
    )


def test_a_limit_may_be_one_on_any_percentile() -> None:
    assert tiers_of(["p95_ttft<=1s", "P99_9_e2e<=9s"], []) == (PlannedTier(None, ("p95_ttft<=1000ms", "p99_9_e2e<=9000ms")),)


def test_attainment_counts_the_objectives_beside_it() -> None:
    assert tiers_of(["attainment>=99%", "ttft<=200ms", "e2e<=5s"], []) == (
        PlannedTier(None, ("attainment>=99%",), ("ttft<=200ms", "e2e<=5000ms")),
    )


def test_presets_are_mlperfs_limits() -> None:
    assert tiers_of([], ["llama2-70b", "deepseek-r1-interactive"]) == (
        PlannedTier("llama2-70b", ("p99_ttft<=2000ms", "p99_tpot<=200ms")),
        PlannedTier("deepseek-r1-interactive", ("p99_ttft<=1500ms", "p99_tpot<=15ms")),
    )
    assert all(len(tiers_of([], [name])[0].limits) == 2 for name in PRESETS)


@pytest.mark.parametrize(
    ("limits", "instead"),
    [
        ([], "--slo 'p99_ttft<=500ms', or --slo_preset"),
        (["mean_ttft<=200ms"], "write p99_ttft<=…ms, or p50_ttft<=…ms"),
        (["goodput>=20"], "write a limit such as p99_ttft<=500ms, or attainment>=99% with ttft<=500ms"),
        (["ttft<=200ms"], "'attainment>=99%', or write 'p99_ttft<=200ms'"),
        (["attainment>=99%"], "attainment needs what each request has to meet, for example 'ttft<=200ms' beside it"),
        (["attainment>=100%", "ttft<=200ms"], "no number of requests shows that"),
        (["attainment<=99%", "ttft<=200ms"], "its limit is a lower one"),
        (["failed_share<=0%"], "no number of requests shows that"),
        (["failed_share>=1%"], "their limit is an upper one"),
        (["p0_ttft<=1s"], "no percentile between 0 and 100"),
        (["p99_ttft>=1s"], "its limit is an upper one: p99_ttft<=…ms"),
        (["chat:p99_ttfb<=1s"], "--slo chat: "),
    ],
)
def test_a_limit_that_is_none_on_a_share_is_refused_with_what_to_write(limits: list[str], instead: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        tiers_of(limits, [])
    assert instead in refused.value.message


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900.0), ("90", 90.0), ("90s", 90.0), ("1h30m", 5400.0), ("1.5 min", 90.0), ("none", None)]
)
def test_a_time_has_units(text: str, seconds: float | None) -> None:
    assert read_time(_CONTEXT, _PARAMETER, text) == seconds


@pytest.mark.parametrize("text", ["", "0", "soon", "-5m", "15 x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write a time"):
        read_time(_CONTEXT, _PARAMETER, text)


@pytest.mark.parametrize(("text", "share"), [("95%", 0.95), ("0.95", 0.95), ("2.5 %", 0.025)])
def test_a_share_is_one_or_a_percentage(text: str, share: float) -> None:
    assert read_share(_CONTEXT, _PARAMETER, text) == share


@pytest.mark.parametrize("text", ["95", "0", "100%", "much"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="between 0% and 100%"):
        read_share(_CONTEXT, _PARAMETER, text)


@pytest.mark.parametrize(
    ("text", "example"), [("10", "10%"), ("0.5 ", None), ("150", "95%"), ("much", "95%"), ("99.5", "99.5%")]
)
def test_a_share_without_its_sign_is_shown_with_it(text: str, example: str | None) -> None:
    parameter = click.Option(["--confidence"], default="95%")
    if example is None:
        assert read_share(_CONTEXT, parameter, text) == 0.5
        return
    with pytest.raises(click.BadParameter, match=f"as {example}$"):
        read_share(_CONTEXT, parameter, text)
