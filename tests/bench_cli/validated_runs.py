"""Validations of given errors."""

from __future__ import annotations

from simulator.validation import KEYS, Prediction, Validation

BEYOND = ("81 requests a second, fitted up to 67",)


def validated_run(name: str, error: float = 0.0, beyond: tuple[str, ...] = (), half_width: float = 0.05) -> Validation:
    """Each figure was measured at 100, and predicted off by ``error`` with a range of this half width."""
    at = 100.0 * (1.0 + error)
    reach = 100.0 * half_width
    return Validation(name, 400, None, beyond, tuple(Prediction(key, 100.0, at, at - reach, at + reach) for key in KEYS))
