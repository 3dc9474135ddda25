"""What lies beyond the fitted runs, in words."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.hull import Seen, beyond
from simulator.model import Extent


@pytest.mark.parametrize(
    ("held", "most", "said"),
    [
        (81.2, 66.8, "81 requests a second, fitted up to 67"),
        (5_109.0, 4_245.0, "5,109 requests a second, fitted up to 4,245"),
        (21.5, 20.2, "22 requests a second, fitted up to 20"),
        (10.49, 9.98, "10.5 requests a second, fitted up to 9.98"),
        (1.42, 0.81, "1.42 requests a second, fitted up to 0.81"),
        (0.4, 0.2, "0.4 requests a second, fitted up to 0.2"),
    ],
)
def test_what_lies_beyond_is_another_number_than_what_was_fitted(held: float, most: float, said: str) -> None:
    assert beyond((Extent("requests a second", most),), {"requests a second": held}) == (said,)


def test_what_was_fitted_and_a_little_more_is_not_beyond() -> None:
    assert beyond((Extent("requests a second", 0.4),), {"requests a second": 0.41}) == ()


def test_one_request_has_no_rate_and_two_that_of_their_gap() -> None:
    """At one request in 10 s, each of which takes 10 ms, 100 a second would be the rate of the server, not of the requests."""
    for count, per_s in ((1, 0.0), (2, pytest.approx(0.1, rel=1e-2))):
        sent_s, tokens = np.arange(count) * 10.0, np.ones(count, np.int64)
        seen = Seen(sent_s, sent_s + 0.01, tokens, tokens, tokens, float(sent_s[-1]) + 0.01)
        assert seen.extents()["requests a second"] == per_s
