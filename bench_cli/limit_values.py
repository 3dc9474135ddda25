"""Values of the options of ``bench capacity``: limits by sets, MLPerf's limits, shares and times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bench_records.search import PlannedTier

_PRESETS_MS = {
    "llama2-70b": (2000, 200),
    "llama2-70b-interactive": (450, 40),
    "llama3.1-405b": (6000, 175),
    "llama3.1-405b-interactive": (4500, 80),
    "llama3.1-8b": (2000, 100),
    "llama3.1-8b-interactive": (500, 30),
    "deepseek-r1": (2000, 80),
    "deepseek-r1-interactive": (1500, 15),
    "gpt-oss-120b": (3000, 80),
    "gpt-oss-120b-interactive": (2000, 15),
    "mixtral-8x7b": (2000, 200),
}
"""MLPerf Inference's limits by benchmark: p99 TTFT and p99 TPOT."""

PRESETS = tuple(_PRESETS_MS)
_NAMED = re.compile(r"\s*([A-Za-z][\w.-]*)\s*:(.*)", re.DOTALL)
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)\s*h)?\s*(?:(\d+(?:\.\d+)?)\s*m(?:in)?)?\s*(?:(\d+(?:\.\d+)?)\s*s)?", re.IGNORECASE)
_SHARE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(%?)")


def tiers_of(limits: Sequence[str], presets: Sequence[str]) -> tuple[PlannedTier, ...]:
    """The sets of limits, of --slo and --slo_preset, in their order. Limits without a name hold in each set.

    Raises UsageError where there is none, or one is no limit of a share of the requests.
    """
    from bench_records.search import PlannedTier
    from reports.capacity.limits import limit_set

    shared: list[str] = []
    named: dict[str, list[str]] = {preset: _preset(preset) for preset in presets}
    for text in limits:
        match = _NAMED.fullmatch(text)
        if match is None:
            shared.append(text.strip())
        else:
            named.setdefault(match[1], []).append(match[2].strip())
    if not shared and not named:
        raise click.UsageError("say what has to hold: --slo 'p99_ttft<=500ms', or --slo_preset with MLPerf's limits of a model")
    sets = {name: [*shared, *own] for name, own in named.items()} if named else {None: shared}
    tiers = []
    for name, texts in sets.items():
        try:
            found = limit_set(name, texts)
        except ValueError as error:
            where = "--slo" if name is None else f"--slo {name}"
            raise click.UsageError(f"{where}: {error}") from error
        objectives = dict.fromkeys(str(objective) for limit in found.limits for objective in limit.objectives)
        tiers.append(PlannedTier(name, tuple(str(limit.requirement) for limit in found.limits), tuple(objectives)))
    return tuple(tiers)


def _preset(name: str) -> list[str]:
    ttft_ms, tpot_ms = _PRESETS_MS[name]
    return [f"p99_ttft<={ttft_ms}ms", f"p99_tpot<={tpot_ms}ms"]


def read_share(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """Callback of a share: "95%" or "0.95", above 0 and below 1. Raises BadParameter."""
    match = _SHARE.fullmatch(text.strip())
    share = 0.0 if match is None else float(match[1]) * (0.01 if match[2] else 1.0)
    if not 0.0 < share < 1.0:
        example = f"{match[1]}%" if match is not None and 0.0 < float(match[1]) < 100.0 else parameter.default
        raise click.BadParameter(f"{text!r}: write a share between 0% and 100%, as {example}", context, parameter)
    return round(share, 9)


def read_time(context: click.Context, parameter: click.Parameter, text: str) -> float | None:
    """Callback of a time: "15m", "90s", "1h30m" or seconds; None for "none". Raises BadParameter."""
    if text.strip().lower() == "none":
        return None
    try:
        seconds = float(text)
    except ValueError:
        match = _TIME.fullmatch(text.strip())
        parts = (None, None, None) if match is None else match.groups()
        seconds = sum(float(part or 0.0) * unit for part, unit in zip(parts, (3600.0, 60.0, 1.0), strict=True))
    if not 0.0 < seconds < 1e7:
        raise click.BadParameter(f"{text!r}: write a time, as 15m, 90s or 1h30m, or none", context, parameter)
    return seconds
