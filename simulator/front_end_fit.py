"""The front end's costs and the engine's lookahead: those with which simulations of the fitted runs show the latencies
measured.

The method of simulated moments (McFadden, 1989): a simulation with the same arrivals and lengths gives the logarithms of
quantiles of TTFT, TPOT and E2E latency, and least squares brings them near the measured ones. A structure is chosen by its
error on the halves of the runs that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, least_squares

from simulator.arrays import BoolArray, FloatArray
from simulator.latencies import Latencies, measured, simulated
from simulator.observed import Observed
from simulator.server import FrontEnd, Server
from simulator.simulation import simulate

COSTS = ("delay", "intake", "token", "response")
ROUNDS = (1, 2, 4, 6, 8, 10)
_LEAST_S, _MOST_S = 1e-6, 0.3
_START = FrontEnd(delay=1e-3, intake=1e-3, token=1e-5, response=5e-5)
_MOMENTS = {
    "ttft": ((0.10, 0.25, 0.50, 0.75, 0.90, 0.97, 0.99), 1.0),
    "tpot": ((0.10, 0.50, 0.90), 2.0),
    "e2e": ((0.25, 0.50, 0.75, 0.90), 2.0),
}  # quantiles and the weight of their errors
_SPACING_WEIGHT = 1.0  # of the measured time between responses
_LOG_STEP = 0.35  # of the derivatives: quantiles of a simulation are rough, and a smaller one finds their noise
_ENOUGH_WORSE = 2  # numbers of rounds that were worse than the best, before no larger one is tried
_COARSE, _FINE = 8, 20  # evaluations of the derivatives at most
_BLOCKS = 25  # of a run, in the bootstrap
_RANGE_DRAWS = 400  # for the ranges, which are cheap: nothing is simulated for them
_LEAST_SHOWN, _CLEARLY_SHOWN = 1e-3, 0.1  # of the change in the direction that the moments show best
_MOST_UNSHOWN = 0.1  # of the square of a cost's axis may lie in directions that change less
_CONTRADICTED = 2.0  # times the held-out error, on the fitted runs
_HALVINGS = 8  # of the way to costs that the runs contradict
_LEAST_GAIN = 0.03  # of the held-out error, for a structure with more rounds or a lookahead


@dataclass(frozen=True, eq=False)
class FittedFrontEnd:
    """``server`` has the costs and structure. ``draws`` are costs in s of the bootstrap, shape [_RANGE_DRAWS, COSTS]: they go
    as far as the runs leave them free. ``likely``, shape [draws, COSTS], leave out what the runs hardly show, so that they can
    be simulated, and what the runs contradict. ``held_out`` is the error of each latency on what was not fitted, the root mean
    square over the logarithms of its quantiles.
    """

    server: Server
    draws: FloatArray
    likely: FloatArray
    reason: str
    held_out: dict[str, float]


@dataclass(frozen=True, eq=False)
class _Part:
    """Requests of a run whose latencies are compared."""

    observed: Observed
    chosen: BoolArray

    def moments(self) -> FloatArray:
        return _moments(measured(self.observed, self.observed.sent_s).of(self.chosen))


def fit_front_end(
    server: Server,
    runs: Sequence[Observed],
    spacing_s: float | None,
    draws: int,
    seed: int,
    progress: Callable[[str], None],
) -> FittedFrontEnd:
    """Fit the costs, the rounds of the intake and the lookahead to ``runs``; ``server`` has the engine's law and structure.

    ``spacing_s`` is the measured time between two responses of a step, None where it is unknown.
    """
    errors: dict[tuple[int, int], float] = {}
    by_latency: dict[tuple[int, int], dict[str, float]] = {}
    for lookahead in (1,) if server.admission.lookahead else (0, 1):
        worse = 0
        for rounds in ROUNDS:
            found = _held_out(_with_structure(server, lookahead, rounds), runs, spacing_s, seed)
            error = _root_mean_square(found)
            progress(f"lookahead {lookahead}, {rounds} rounds: {error:.1%} on what was not fitted")
            worse += error > min(errors.values(), default=error)
            errors[lookahead, rounds] = error
            by_latency[lookahead, rounds] = {name: _root_mean_square(found[:, name == _LATENCY]) for name in _MOMENTS}
            if worse == _ENOUGH_WORSE:
                break
    best = _simplest(errors)
    chosen = _with_structure(server, *best)
    fit = _Fit(chosen, _whole(runs), spacing_s, seed)
    result = fit.solve(_FINE)
    others = f"{min(errors.values()):.1%} to {max(errors.values()):.1%}"
    taken = f"{best[1]} round{'s' * (best[1] > 1)}"
    reason = (
        f"the front end takes a request in within {taken} of its loop: error {errors[best]:.1%} on what was not fitted, "
        f"over all structures {others}"
    )
    if not server.admission.lookahead and best[0]:
        reason += "; a step is decided while the one before it runs"
    return FittedFrontEnd(
        server=fit.server(result.x),
        draws=with_unshown(_bootstrap(fit, result, _RANGE_DRAWS, seed, _LEAST_SHOWN), np.asarray(result.jac), seed),
        likely=not_contradicted(
            _bootstrap(fit, result, draws, seed, _CLEARLY_SHOWN), result.x, fit.error, _CONTRADICTED * errors[best]
        ),
        reason=reason,
        held_out=by_latency[best],
    )


def with_costs(front_end: FrontEnd, costs: FloatArray) -> FrontEnd:
    """``front_end`` with other costs in s, shape [COSTS]."""
    delay, intake, token, response = costs.tolist()
    return replace(front_end, delay=delay, intake=intake, token=token, response=response)


def _simplest(errors: dict[tuple[int, int], float]) -> tuple[int, int]:
    """The first structure that is not much worse than the best."""
    least = min(errors.values())
    return next(structure for structure, error in errors.items() if error <= least * (1 + _LEAST_GAIN))


def _with_structure(server: Server, lookahead: int, rounds: int) -> Server:
    return replace(
        server,
        admission=replace(server.admission, lookahead=lookahead),
        front_end=replace(server.front_end, intake_rounds=rounds),
    )


def _whole(runs: Sequence[Observed]) -> list[_Part]:
    return [_Part(observed, np.ones(len(observed), bool)) for observed in runs]


def _folds(runs: Sequence[Observed]) -> list[tuple[list[_Part], list[_Part]]]:
    """What is fitted and what is judged: the earlier and the later halves of all runs, by each other."""
    halves = [np.arange(len(observed)) < len(observed) // 2 for observed in runs]
    early = [_Part(observed, half) for observed, half in zip(runs, halves, strict=True)]
    late = [_Part(observed, ~half) for observed, half in zip(runs, halves, strict=True)]
    return [(early, late), (late, early)]


def _held_out(server: Server, runs: Sequence[Observed], spacing_s: float | None, seed: int) -> FloatArray:
    """The differences of the moments of each half that was not fitted; shape [halves of runs, moments]."""
    errors = []
    for fitted, judged in _folds(runs):
        fit = _Fit(server, fitted, spacing_s, seed)
        found = fit.server(fit.solve(_COARSE).x)
        errors.append(_Fit(found, judged, None, seed).errors(found).reshape(len(judged), -1) / _WEIGHTS)
    return np.concatenate(errors)


def _root_mean_square(errors: FloatArray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


class _Fit:
    """The errors of simulated against measured moments, as a function of the logarithms of COSTS."""

    def __init__(self, server: Server, parts: Sequence[_Part], spacing_s: float | None, seed: int) -> None:
        self._server, self._seed, self._spacing_s = server, seed, spacing_s
        self.parts = parts
        self._measured = [part.moments() for part in parts]

    def server(self, logs: FloatArray) -> Server:
        """The server with these costs."""
        return replace(self._server, front_end=with_costs(self._server.front_end, np.exp(logs)))

    def errors(self, server: Server) -> FloatArray:
        """The weighted differences of the moments, those of one part after the other."""
        found = []
        for part, target in zip(self.parts, self._measured, strict=True):
            answers = simulate(server, part.observed.traffic(part.observed.sent_s), self._seed)
            found.append(_WEIGHTS * (_moments(simulated(answers).of(part.chosen)) - target))
        return np.concatenate(found)

    def error(self, logs: FloatArray) -> float:
        """The root mean square of the differences of the moments."""
        return _root_mean_square(self.errors(self.server(logs)).reshape(len(self.parts), -1) / _WEIGHTS)

    def solve(self, evaluations: int) -> OptimizeResult:
        """The costs with the least squares of the errors."""
        spacing = self._spacing_s or _START.response
        start = np.log([_START.delay, _START.intake, spacing / 5, spacing])
        bounds = (np.log(_LEAST_S), np.log(_MOST_S))
        return least_squares(
            self._residuals,
            np.clip(start, *bounds),
            jac=self._derivatives,
            bounds=bounds,
            max_nfev=evaluations,
            xtol=1e-3,
            ftol=1e-3,
        )

    def _derivatives(self, logs: FloatArray) -> FloatArray:
        """The derivatives of the residuals, over a step that is large enough to move quantiles; shape [residuals, COSTS]."""
        here = self._residuals(logs)
        steps = np.where(logs + _LOG_STEP < np.log(_MOST_S), _LOG_STEP, -_LOG_STEP)
        moved = [self._residuals(logs + step * axis) for step, axis in zip(steps, np.eye(len(logs)), strict=True)]
        return np.column_stack([(there - here) / step for there, step in zip(moved, steps, strict=True)])

    def _residuals(self, logs: FloatArray) -> FloatArray:
        errors = self.errors(self.server(logs))
        if self._spacing_s is None:
            return errors
        return np.append(errors, _SPACING_WEIGHT * (logs[COSTS.index("response")] - np.log(max(self._spacing_s, _LEAST_S))))


def _moments(latencies: Latencies) -> FloatArray:
    """The logarithms of the quantiles of _MOMENTS, shape [moments]; 0 where there is no value."""
    found = []
    for metric, (quantiles, _) in _MOMENTS.items():
        values = getattr(latencies, metric)
        values = values[~np.isnan(values)]
        found.append(np.log(np.maximum(np.quantile(values, quantiles), 1e-6)) if values.size else np.zeros(len(quantiles)))
    return np.concatenate(found)


_LATENCY = np.repeat(list(_MOMENTS), [len(quantiles) for quantiles, _ in _MOMENTS.values()])
_WEIGHTS = np.concatenate([np.full(len(quantiles), weight) for quantiles, weight in _MOMENTS.values()])


def _bootstrap(fit: _Fit, result: OptimizeResult, draws: int, seed: int, least: float) -> FloatArray:
    """Costs that fit resampled blocks of the measured requests, by the derivatives at the solution; shape [draws, COSTS].

    Directions in which the moments change less than by the share ``least`` of the most are left alone.
    """
    random = np.random.default_rng(seed)
    jacobian = np.asarray(result.jac)
    inverse = np.linalg.pinv(jacobian, rcond=least)
    found = np.empty((draws, len(COSTS)))
    for draw in range(draws):
        change = np.concatenate([_resampled_change(part, random) for part in fit.parts])
        padded = np.zeros(len(jacobian))
        padded[: len(change)] = change
        found[draw] = inverse @ padded
    centred = result.x + found - found.mean(axis=0)
    costs: FloatArray = np.exp(np.clip(centred, np.log(_LEAST_S), np.log(_MOST_S)))
    return costs


def not_contradicted(costs: FloatArray, solution: FloatArray, error: Callable[[FloatArray], float], most: float) -> FloatArray:
    """``costs`` in s, shape [draws, COSTS], each as near to the ``solution``, logarithms of shape [COSTS], as it takes for an
    ``error`` on the fitted runs, of such logarithms, of at most ``most``, or that of the solution.

    The derivatives hold near the solution alone: far from it they lead to costs that no run allows.
    """
    most = max(most, error(solution))
    found = np.log(costs)
    for number, logs in enumerate(found):
        ways = (solution + (logs - solution) / 2**halvings for halvings in range(_HALVINGS))
        found[number] = next((way for way in ways if error(way) <= most), solution)
    near: FloatArray = np.exp(found)
    return near


def with_unshown(draws: FloatArray, jacobian: FloatArray, seed: int) -> FloatArray:
    """``draws``, in which a cost that the moments hardly show goes over all that it may be, shape [draws, COSTS].

    The bootstrap leaves the directions alone that change the moments by less than the share _LEAST_SHOWN, so a cost that lies
    in one of them would have the narrowest range of all.
    """
    _, sizes, directions = np.linalg.svd(jacobian, full_matrices=False)
    is_unshown = (directions[sizes < _LEAST_SHOWN * sizes.max()] ** 2).sum(axis=0) > _MOST_UNSHOWN
    anywhere = np.random.default_rng([seed, len(draws)]).uniform(np.log(_LEAST_S), np.log(_MOST_S), draws.shape)
    shown: FloatArray = np.where(is_unshown, np.exp(anywhere), draws)
    return shown


def _resampled_change(part: _Part, random: np.random.Generator) -> FloatArray:
    """The weighted change of the measured moments when blocks of requests are drawn again."""
    latencies = measured(part.observed, part.observed.sent_s)
    blocks = np.array_split(np.flatnonzero(part.chosen), _BLOCKS)
    rows = np.concatenate([blocks[number] for number in random.integers(_BLOCKS, size=_BLOCKS)])
    again = Latencies(latencies.ttft[rows], latencies.tpot[rows], latencies.e2e[rows], latencies.span_s)
    change: FloatArray = _WEIGHTS * (_moments(again) - part.moments())
    return change
