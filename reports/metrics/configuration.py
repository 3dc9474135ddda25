"""The configuration of a run, read from its manifest: target, load and arrival law."""

from __future__ import annotations

from dataclasses import dataclass

from bench_records.manifest import LoadFacts, Manifest

_TESTED_LAWS = ("exponential", "constant", "gamma", "weibull")


@dataclass(frozen=True, slots=True)
class ConfiguredTarget:
    """``model`` and ``protocol`` are "" where they are unknown; ``address`` is None for one that is not recorded.

    ``template_tokens`` are those that the server adds to each prompt. ``retokenised_ratio`` is the number of tokens, by the
    run's tokenizer, of the text of a random token of its vocabulary. Both are None where unknown. ``sends_finish_reason``: the
    probe before the run had one; None for a protocol without. ``simulation`` is what simulated the server, None
    of a real one.
    """

    model: str
    protocol: str
    streaming: bool
    embedded: bool
    address: str | None
    template_tokens: int | None = None
    retokenised_ratio: float | None = None
    sends_finish_reason: bool | None = None
    simulation: str | None = None

    def __str__(self) -> str:
        streamed = "streamed" if self.streaming else "unstreamed"
        simulation = "" if self.simulation is None else f", {self.simulation}"
        return f"{self.model or 'unknown model'} over {self.protocol or '?'}, {streamed}{simulation}"


def configured_target(manifest: Manifest) -> ConfiguredTarget:
    """The target of a run."""
    target = manifest.target
    return ConfiguredTarget(
        model=target.model or "",
        protocol=target.protocol or "",
        streaming=bool(target.streaming),
        embedded=bool(target.embedded),
        address=target.address,
        template_tokens=target.template_tokens,
        retokenised_ratio=target.retokenised_ratio,
        sends_finish_reason=target.sends_finish_reason,
        simulation=None if manifest.simulation is None else str(manifest.simulation),
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


def configured_load(manifest: Manifest) -> ConfiguredLoad:
    """The load of a run."""
    load = manifest.load or LoadFacts()
    asked = load.asked_arrivals if not load.own_arrivals and load.mode not in ("closed", "sessions") else None
    return ConfiguredLoad(
        closed=load.mode == "closed",
        max_concurrency=load.max_concurrency,
        concurrency=load.concurrency,
        duration_s=load.duration_s,
        ramp_up_s=load.ramp_up_s or 0.0,
        prepared=load.prepared,
        ran_out=load.ran_out,
        rate_per_s=None if asked is None else asked.rate_per_s,
        sessions=load.mode == "sessions",
    )


@dataclass(frozen=True, slots=True)
class Law:
    """The configured distribution of gaps: "exponential", "gamma" or "weibull" (with ``shape``), or "constant"; the rate rises
    from 0 to ``rate_per_s`` over ``ramp_up_s``.
    """

    name: str
    rate_per_s: float
    shape: float = 1.0
    ramp_up_s: float = 0.0


def configured_law(manifest: Manifest) -> Law | None:
    """The requested law; None where there was none, as at a rate of -1 or in a closed loop, and for bursts, whose gaps
    have no distribution to test.
    """
    load, law = configured_load(manifest), None if manifest.load is None else manifest.load.law
    if load.rate_per_s is None or law is None or law.name not in _TESTED_LAWS:
        return None
    return Law(law.name, load.rate_per_s, 1.0 if law.parameter is None else law.parameter, load.ramp_up_s)
