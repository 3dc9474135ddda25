"""The law of a step from samples that are known."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.step_law import BASE, DRAWS_OF_A_RUN, FURTHER, FittedLaw, Sample, fit_law, joined, widened


def _sample(seed: int, prefill_s: float, rows: int = 800) -> Sample:
    random = np.random.default_rng(seed)
    features = np.zeros((rows, len(BASE) + len(FURTHER)))
    features[:, 0] = 1.0
    features[:, 1] = random.integers(0, 300, rows)
    features[:, 2] = random.integers(1, 40, rows)
    durations = 6e-3 + prefill_s * features[:, 1] + 40e-6 * features[:, 2] + 0.1e-3 * random.standard_normal(rows)
    return Sample(durations, features, features[:, 2], np.diff(features[:, 2], prepend=features[0, 2]))


def _alone(law: FittedLaw, samples: list[Sample]) -> list[FittedLaw]:
    return [fit_law(sample, law.terms, DRAWS_OF_A_RUN, 0) for sample in samples]


def test_runs_that_agree_leave_the_ranges_and_those_that_do_not_widen_them() -> None:
    alike, apart = ([_sample(1, 20e-6), _sample(2, prefill)] for prefill in (20e-6, 21e-6))
    law = fit_law(joined(alike), BASE, 200, 0)
    assert widened(law, _alone(law, alike)).draws.std(axis=0) == pytest.approx(law.draws.std(axis=0), rel=1.0)
    law = fit_law(joined(apart), BASE, 200, 0)
    found = widened(law, _alone(law, apart))
    low, high = np.percentile(found.draws[:, BASE.index("prefill")], (2.5, 97.5))
    assert low < 20e-6 < 21e-6 < high  # the bootstrap alone has neither
    own = np.percentile(law.draws[:, BASE.index("prefill")], (2.5, 97.5))
    assert 20e-6 < own[0] < own[1] < 21e-6
    assert found.draws.std(axis=0)[0] < 3 * law.draws.std(axis=0)[0]  # the other constants are as sure as before


def test_one_run_has_nothing_to_differ_from() -> None:
    law = fit_law(_sample(1, 20e-6), BASE, 50, 0)
    assert widened(law, _alone(law, [_sample(1, 20e-6)])) is law
