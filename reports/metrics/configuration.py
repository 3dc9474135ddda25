"""The configuration of a run, read from its manifest: target, load and arrival law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_TESTED_LAWS = ("exponential", "constant", "gamma", "weibull")
_LAW_NAMES = {"exponential_dist": "exponential", "constant": "constant"}


@dataclass(frozen=True, slots=True)
class ConfiguredTarget:
    """``model`` and ``protocol`` are "" where they are unknown; ``address`` is None for one that is not recorded.

    ``template_tokens`` are those that the server adds to each prompt. ``retokenised_ratio`` is the number of tokens, by the
    run's tokenizer, of the text of a random token of its vocabulary. Both are None where unknown. ``sends_finish_reason``: the
    probe before the run had one; None for a protocol without, and for runs older than this entry.
    """

    model: str
    protocol: str
    streaming: bool
    embedded: bool
    address: str | None
    template_tokens: int | None = None
    retokenised_ratio: float | None = None
    sends_finish_reason: bool | None = None

    def __str__(self) -> str:
        streamed = "streamed" if self.streaming else "unstreamed"
        return f"{self.model or 'unknown model'} over {self.protocol or '?'}, {streamed}"


def configured_target(manifest: dict[str, Any]) -> ConfiguredTarget:
    """The target of a run."""
    target = manifest.get("target") or {}
    return ConfiguredTarget(
        model=str(target.get("model") or ""),
        protocol=str(target.get("protocol") or ""),
        streaming=bool(target.get("streaming")),
        embedded=bool(target.get("embedded")),
        address=target.get("address"),
        template_tokens=target.get("template_tokens"),
        retokenised_ratio=target.get("retokenised_ratio"),
        sends_finish_reason=target.get("sends_finish_reason"),
    )


@dataclass(frozen=True, slots=True)
class ConfiguredLoad:
    """An open loop (requests arrive by the clock), or with ``closed`` a closed one (users that wait for their answers), or with
    ``sessions`` an open loop of conversations whose later turns wait for answers.

    ``max_concurrency`` is a ceiling on requests in flight, ``duration_s`` an end by the clock; None where there is none.
    ``prepared`` is the number of requests that could be sent, ``ran_out`` whether they were too few for the duration; None is
    unknown. ``rate_per_s`` is the mean rate of an open loop's arrivals; None where none is set.
    """

    closed: bool = False
    max_concurrency: int | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    ramp_up_s: float = 0.0
    prepared: int | None = None
    ran_out: bool | None = None
    rate_per_s: float | None = None
    sessions: bool = False

    @property
    def waits_for_answers(self) -> bool:
        """Whether answers decide when requests are due, so that no rate of requests is offered."""
        return self.closed or self.sessions


OPEN_LOOP = ConfiguredLoad()


def configured_load(manifest: dict[str, Any]) -> ConfiguredLoad:
    """The load of a run; a manifest older than load modes belongs to an open loop."""
    load = manifest.get("load")
    if not isinstance(load, dict):
        return ConfiguredLoad(rate_per_s=_rate_per_s(manifest))
    closed, sessions = load.get("mode") == "closed", load.get("mode") == "sessions"
    return ConfiguredLoad(
        closed=closed,
        max_concurrency=load.get("max_concurrency"),
        concurrency=load.get("concurrency"),
        duration_s=load.get("duration_s"),
        ramp_up_s=float(load.get("ramp_up_s") or 0.0),
        prepared=load.get("prepared"),
        ran_out=load.get("ran_out"),
        rate_per_s=None if closed or sessions or load.get("own_arrivals") else _rate_per_s(manifest),
        sessions=sessions,
    )


def _rate_per_s(manifest: dict[str, Any]) -> float | None:
    """The rate that the options set; None at a rate of -1."""
    options = manifest.get("options")
    rate = options.get("request_rate") if isinstance(options, dict) else None
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


@dataclass(frozen=True, slots=True)
class Law:
    """The configured distribution of gaps: "exponential", "gamma" or "weibull" (with ``shape``), or "constant"; the rate rises
    from 0 to ``rate_per_s`` over ``ramp_up_s``.
    """

    name: str
    rate_per_s: float
    shape: float = 1.0
    ramp_up_s: float = 0.0


def configured_law(manifest: dict[str, Any]) -> Law | None:
    """The law that a manifest's options set; None where they set none, as at a rate of -1 or in a closed loop, and for bursts,
    whose gaps have no distribution to test. Runs before --arrival have upstream's options alone.
    """
    load = configured_load(manifest)
    if load.rate_per_s is None:
        return None
    spelt = (manifest.get("load") or {}).get("law")
    if isinstance(spelt, dict):
        shape = spelt.get("parameter")
        if spelt.get("name") not in _TESTED_LAWS:
            return None
        return Law(spelt["name"], load.rate_per_s, 1.0 if shape is None else float(shape), load.ramp_up_s)
    options = manifest["options"]
    name = options.get("time_delay_dist")
    if name == "gamma_dist":
        return Law("gamma", load.rate_per_s, float(options.get("burstiness") or 1.0), load.ramp_up_s)
    return Law(_LAW_NAMES[name], load.rate_per_s, ramp_up_s=load.ramp_up_s) if name in _LAW_NAMES else None
