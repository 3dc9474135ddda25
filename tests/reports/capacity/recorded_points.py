"""The probes of a search for p99 TTFT of at most 250 ms on an H100 with Llama-3.1-8B's shape, 4 minutes long."""

from __future__ import annotations

from reports.capacity.probe import Probe, Violations
from reports.metrics.in_flight import QueueCourse

_Moved = tuple[float, float, float] | None


def _probe(load: float, requests: int, n: int, above: int, effect: float, none: float, moved: _Moved, needs: int = 0) -> Probe:
    queue = None if moved is None else QueueCourse(*moved)
    return Probe(load, requests, (Violations(n, above, effect, none),), queue, gave_up=False, needs=needs)


def _gave_up(load: float, requests: int, n: int, above: int, effect: float) -> Probe:
    return Probe(load, requests, (Violations(n, above, effect),), gave_up=True)


CLIFF = (
    _probe(71.61, 429, 369, 0, 3.59, 0.1646, (0.176, 0.286, 23.05)),
    _probe(114.6, 410, 306, 0, 2.11, 0.0118, (0.345, 0.692, 55.82)),
    _probe(183.4, 667, 404, 0, 4.78, 0.001, None, 844),
    _probe(183.4, 1055, 794, 0, 11.51, 0.0, (0.303, 0.535, 157.19)),
    _gave_up(293.4, 1135, 702, 506, 33.91),
    _probe(232.0, 903, 627, 0, 4.3, 0.0178, (0.995, 1.175, 107.93)),
    _probe(260.9, 1128, 736, 0, 11.49, 0.3703, None, 1379),
    _probe(260.9, 1724, 1299, 0, 7.56, 0.2173, (0.374, 0.636, 78.08)),
    _probe(276.7, 1528, 991, 28, 8.07, 0.1057, None, 2094),
    _probe(276.7, 2750, 2060, 271, 17.17, 0.0009, (1.266, 1.673, 168.09)),
    _probe(256.2, 2561, 2076, 0, 31.59, 0.0007, (-0.166, 1.01, 158.61)),
    _probe(260.2, 2613, 2033, 12, 30.71, 0.0, (0.409, 1.239, 200.75)),
    _probe(257.0, 2594, 1961, 0, 14.33, 0.0005, (0.296, 0.788, 162.99)),
    _gave_up(268.7, 2723, 1927, 487, 104.36),
    _probe(245.3, 2501, 2064, 0, 19.35, 0.0707, (-0.004, 0.784, 93.88)),
    _probe(245.3, 2470, 2039, 0, 16.91, 0.0007, (0.383, 0.659, 150.89)),
    _probe(223.9, 2413, 1918, 0, 7.87, 0.0, (0.289, 0.524, 190.97)),
    _probe(245.3, 2453, 1871, 0, 7.9, 0.0003, (0.099, 0.721, 158.41)),
    _probe(232.0, 1267, 814, 0, 14.51, 0.0948, None, 1488),
)
"""Its queue grows before the limit is exceeded: the embedded pipeline."""
