"""Whether the constants of a model's file can be those of a server, and whether they are those that were fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simulator.model import MOST_SPREAD, Model, Parameter
from simulator.server import StepLaw

_SHORTEST_STEP_S = 1e-6  # with _MUCH_WORK: no engine computes that in less
_MUCH_WORK = (100, 10_000, 10, 10_000)  # prompt tokens, with their context, sequences, and tokens in the KV cache
_FAR = 2.0  # times the ends of a range, beyond which a value is no estimate with that range
_TINY_S = 1e-6
_SAME = 1e-6  # relative


def implausible(model: Model) -> str | None:
    """Why no server has these constants, or no fit gives them, with the name of the field; None where they are plausible."""
    return next(_implausible(model), None)


def _implausible(model: Model) -> Iterator[str]:
    laws = {"server.law": model.server.law} | {f"draws[{n}].law": draw.law for n, draw in enumerate(model.draws)}
    for where, law in laws.items():
        long_s = law.duration(*_MUCH_WORK)
        if long_s < _SHORTEST_STEP_S:
            yield f"{where}.step of {law.step:g} s, with the other costs, makes steps of {long_s:g} s, and no engine is as fast"
    spread, runs = model.between_runs.spread, model.between_runs.runs
    if spread and not 2 <= runs <= len(model.sources):
        yield f"between_runs: a spread of the speed from {runs} of {len(model.sources)} runs, and it takes two to show one"
    if spread > MOST_SPREAD:
        yield f"between_runs.spread of {spread:g}: no server's speed moves as much between runs"
    for parameter in model.parameters:
        if parameter.low > parameter.high:
            yield f"parameters: the range of {parameter.name} ends at {parameter.high:g} s, and begins at {parameter.low:g} s"
    longest_run = max((source.requests for source in model.sources), default=None)
    for extent in model.hull:
        if extent.what == "requests in flight" and longest_run is not None and extent.most > longest_run:
            yield f"hull: {extent.most:,.0f} requests in flight, in runs of at most {longest_run:,} requests"


def edits(model: Model) -> tuple[str, ...]:
    """The constants that are not those that were fitted, since the file was edited, a phrase each."""
    named = {parameter.name: parameter for parameter in model.parameters}
    found = [f"{each.name} of {each.value:g} s, far from its own range" for each in model.parameters if _is_far(each)]
    for where, constants in (("server.law", _constants(model.server.law)), ("server.front_end", _costs(model))):
        for name, seconds in constants.items():
            if name in named and _differs(seconds, named[name]):
                found.append(f"{where}.{name} of {seconds:g} s in its file, which was fitted as {_fitted(named[name])}")
    return tuple(found)


def _is_far(parameter: Parameter) -> bool:
    above, below = _FAR * parameter.high + _TINY_S, parameter.low / _FAR - _TINY_S
    return not below <= parameter.value <= above


def _constants(law: StepLaw) -> Mapping[str, float]:
    """By the names of the parameters."""
    return {name: value for name, value in vars(law).items() if isinstance(value, float)}


def _costs(model: Model) -> Mapping[str, float]:
    return {name: value for name, value in vars(model.server.front_end).items() if isinstance(value, float)}


def _differs(seconds: float, fitted: Parameter) -> bool:
    return abs(seconds - fitted.value) > _SAME * max(abs(seconds), abs(fitted.value))


def _fitted(parameter: Parameter) -> str:
    return f"{parameter.value:g} s ({parameter.low:g} to {parameter.high:g})"
