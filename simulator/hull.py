"""How far the fitted runs reach, and what of another run lies beyond."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.model import Extent
from simulator.observed import Observed, in_flight_at_sending

_TOLERANCE = 1.05
_RARE = 0.99  # the share of requests that a run's extent covers


def extents_of(observed: Observed) -> dict[str, float]:
    """What a run held at most: by what it is called."""
    seconds = max(float(observed.last_s.max() - observed.sent_s[0]), 1e-9)
    tokens = observed.input_tokens + observed.output_tokens
    return {
        "requests in flight": float(np.quantile(in_flight_at_sending(observed.sent_s, observed.last_s), _RARE)),
        "requests a second": len(observed) / seconds,
        "output tokens a second": float(observed.output_tokens.sum()) / seconds,
        "prompt tokens of a request": float(np.quantile(observed.prefill_tokens, _RARE)),
        "tokens of a request": float(np.quantile(tokens, _RARE)),
    }


def hull_of(runs: Sequence[Observed]) -> tuple[Extent, ...]:
    """The most of everything over ``runs``, which are at least one."""
    each = [extents_of(observed) for observed in runs]
    return tuple(Extent(what, max(extents[what] for extents in each)) for what in each[0])


def beyond(hull: Sequence[Extent], observed: Observed) -> tuple[str, ...]:
    """What a run holds more of than was fitted, a phrase each; none where it lies inside."""
    extents = extents_of(observed)
    return tuple(
        f"{extents[extent.what]:,.0f} {extent.what}, fitted up to {extent.most:,.0f}"
        for extent in hull
        if extent.what in extents and extents[extent.what] > _TOLERANCE * extent.most
    )
