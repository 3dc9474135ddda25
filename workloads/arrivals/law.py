"""The laws of gaps between arrivals as the command line spells them: ``exponential``, ``gamma:cv=2``, ``bursts:size=20``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from workloads.arrivals.processes import AllAtOnce, Arrivals, Bursts, Constant, Exponential, Gamma, Weibull, weibull_cv
from workloads.elements.errors import Field, WorkloadError
from workloads.elements.spelling import Spelt, number_text, parse_spelt

_SHAPES = (0.01, 1e6)  # below, nearly all gaps are 0; above, gaps are constant
_WEIBULL_SHAPES = (0.1, 1e3)
_MOST_IN_A_BURST = 1_000_000
_FASTEST_PER_S = 1_000_000_000
FORMS = "exponential, constant, gamma:cv=2, weibull:cv=2 or bursts:size=20"


class LawName(StrEnum):
    EXPONENTIAL = "exponential"
    CONSTANT = "constant"
    GAMMA = "gamma"
    WEIBULL = "weibull"
    BURSTS = "bursts"


@dataclass(frozen=True, slots=True)
class ArrivalLaw:
    """A law of gaps without its rate. ``parameter`` is the shape of gamma and Weibull gaps, or the size of bursts; else None.

    Its text parses back to it: ``parse_law(str(law)) == law``.
    """

    name: LawName
    parameter: float | None = None

    def at(self, rate_per_s: float) -> Arrivals:
        """The process with this law at a rate."""
        match self.name, self.parameter:
            case LawName.GAMMA, float(shape):
                return Gamma(rate_per_s, shape)
            case LawName.WEIBULL, float(shape):
                return Weibull(rate_per_s, shape)
            case LawName.BURSTS, float(size):
                return Bursts(rate_per_s, int(size))
            case LawName.CONSTANT, None:
                return Constant(rate_per_s)
            case _:
                return Exponential(rate_per_s)

    def __str__(self) -> str:
        if self.parameter is None:
            return self.name.value
        return f"{self.name.value}:{'size' if self.name is LawName.BURSTS else 'shape'}={number_text(self.parameter)}"


EXPONENTIAL = ArrivalLaw(LawName.EXPONENTIAL)
CONSTANT = ArrivalLaw(LawName.CONSTANT)


def parse_law(text: str) -> ArrivalLaw:
    """The law that ``text`` spells, in any letter case; ``cv`` is the gaps' standard deviation over their mean.

    Raises WorkloadError.
    """
    spelt = parse_spelt(text, "arrival", FORMS, ("cv", "shape", "size"))
    readers: Mapping[str, Callable[[Spelt], ArrivalLaw]] = {
        LawName.EXPONENTIAL: lambda spelt: _without_parameter(spelt, EXPONENTIAL),
        LawName.CONSTANT: lambda spelt: _without_parameter(spelt, CONSTANT),
        LawName.GAMMA: _gamma,
        LawName.WEIBULL: _weibull,
        LawName.BURSTS: _bursts,
    }
    if spelt.name not in readers:
        raise spelt.error(f"{spelt.name!r} is no law of gaps")
    return readers[spelt.name](spelt)


def law_of_upstream(time_delay_dist: str, burstiness: float | None = None) -> ArrivalLaw:
    """The law that upstream's name of it and ``burstiness`` describe, the shape of gamma gaps, 1 when None.

    Raises WorkloadError for a burstiness that is out of range, or could have no effect.
    """
    if time_delay_dist != "gamma_dist":
        if burstiness is not None:
            raise WorkloadError(
                Field("burstiness"), " is the shape of gamma gaps; it needs gamma_dist and a ", Field("request_rate")
            )
        return CONSTANT if time_delay_dist == "constant" else EXPONENTIAL
    shape = 1.0 if burstiness is None else burstiness
    if not _SHAPES[0] <= shape <= _SHAPES[1]:
        raise WorkloadError(Field("burstiness"), f" {number_text(shape)}: give a shape from {_SHAPES[0]:g} to {_SHAPES[1]:g}")
    return ArrivalLaw(LawName.GAMMA, shape)


def arrivals_at(request_rate: float, law: ArrivalLaw) -> Arrivals:
    """The process with this law at ``request_rate``; all at once at -1. Raises WorkloadError for another rate up to 0, or above
    _FASTEST_PER_S.
    """
    if request_rate == -1:
        return AllAtOnce()
    if not 0 < request_rate <= _FASTEST_PER_S:
        raise WorkloadError(
            Field("request_rate"),
            f" {request_rate:g}: give requests per second, more than 0 and up to {_FASTEST_PER_S:,}, or -1 to send everything "
            "at once",
        )
    return law.at(request_rate)


def _without_parameter(spelt: Spelt, law: ArrivalLaw) -> ArrivalLaw:
    spelt.check_names(())
    return law


def _gamma(spelt: Spelt) -> ArrivalLaw:
    spelt.check_one_of("cv", "shape")
    shape = spelt.numbers["shape"] if "shape" in spelt.numbers else _squared_inverse(spelt.numbers["cv"])
    if not _SHAPES[0] <= shape <= _SHAPES[1]:
        raise spelt.error("gamma gaps have a cv from 0.001 to 10, a shape from 0.01 to 1e6")
    return ArrivalLaw(LawName.GAMMA, shape)


def _squared_inverse(cv: float) -> float:
    return 1.0 / cv**2 if cv > 1e-6 else math.inf


def _weibull(spelt: Spelt) -> ArrivalLaw:
    spelt.check_one_of("cv", "shape")
    shape = spelt.numbers.get("shape")
    if shape is None:
        from scipy.optimize import brentq  # 0.5 s, which other laws need not wait for

        cv = spelt.numbers["cv"]
        widest, narrowest = weibull_cv(_WEIBULL_SHAPES[0]), weibull_cv(_WEIBULL_SHAPES[1])
        if not narrowest <= cv <= widest:
            raise spelt.error(f"Weibull gaps have a cv from {narrowest:.2g} to {widest:.4g}")
        shape = float(brentq(lambda k: weibull_cv(k) - cv, *_WEIBULL_SHAPES, xtol=1e-12))
    if not _WEIBULL_SHAPES[0] <= shape <= _WEIBULL_SHAPES[1]:
        raise spelt.error(f"Weibull gaps have a shape from {_WEIBULL_SHAPES[0]:g} to {_WEIBULL_SHAPES[1]:g}")
    return ArrivalLaw(LawName.WEIBULL, shape)


def _bursts(spelt: Spelt) -> ArrivalLaw:
    spelt.check_names(("size",))
    size = spelt.numbers["size"]
    if not 1 <= size <= _MOST_IN_A_BURST or size != int(size):
        raise spelt.error(f"a burst has from 1 to {_MOST_IN_A_BURST:,} requests")
    return ArrivalLaw(LawName.BURSTS, size)
