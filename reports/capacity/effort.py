"""How long further requests of a search take."""

from __future__ import annotations

_PROBE_S = 30.0  # of sending, about, where a probe sends as many requests as it may


def needed_s(requests: int, per_s: float, overhead_s: float) -> float:
    """The time of this many more ``requests`` at ``per_s`` a second; a probe takes ``overhead_s`` beside its sending."""
    sending_s = requests / per_s
    return sending_s * (1.0 + overhead_s / max(overhead_s, min(sending_s, _PROBE_S), 1.0))
