"""The probes of two searches for p99 TTFT of at most 250 ms on an H100 with Llama-3.1-8B's shape, 4 minutes each."""

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

STALLS = (
    _probe(61.76, 370, 305, 0, 17.43, 0.1097, (0.23, 0.5, 21.76)),
    _probe(98.82, 358, 286, 0, 5.36, 0.017, (0.15, 0.632, 46.2)),
    _probe(158.1, 544, 384, 0, 5.29, 0.0003, (-0.091, 0.641, 103.89)),
    _gave_up(253.0, 895, 662, 260, 11.86),
    _probe(200.0, 727, 590, 122, 10.02, 0.0, (0.577, 0.891, 197.66)),
    _probe(177.8, 658, 480, 0, 4.27, 0.0231, (0.284, 0.438, 80.12)),
    _probe(188.6, 707, 553, 0, 7.9, 0.0025, (0.002, 0.527, 105.98)),
    _probe(194.2, 725, 551, 0, 8.95, 0.0033, (0.128, 0.443, 106.72)),
    _probe(182.6, 1958, 1683, 0, 19.62, 0.0, (0.144, 0.351, 134.55)),
    _probe(182.6, 2287, 1969, 17, 29.94, 0.0, (0.012, 0.184, 159.55)),
    _probe(182.6, 1881, 1587, 128, 17.03, 0.0, (0.106, 0.346, 257.43)),
    _probe(166.7, 1760, 1458, 203, 28.7, 0.0, (0.187, 0.222, 288.55)),
    _probe(166.7, 1825, 1520, 0, 17.59, 0.0, (0.536, 0.811, 163.28)),
    _probe(166.7, 1928, 1632, 5, 18.73, 0.0, (0.014, 0.301, 175.39)),
    _probe(152.2, 1789, 1522, 17, 9.95, 0.0, (0.056, 0.193, 185.55)),
    _probe(152.2, 1860, 1577, 160, 25.27, 0.0, (0.147, 0.295, 259.13)),
    _probe(152.2, 1705, 1447, 0, 24.46, 0.0, (0.057, 0.256, 154.33)),
)
"""Its front end stalls now and then: vLLM's OpenAI server."""
