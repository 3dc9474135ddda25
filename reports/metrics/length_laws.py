"""Lengths as the laws of the workload request them, as they were sent, and as they were counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench_records.manifest import Length, Lengths, Manifest
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, known


@dataclass(frozen=True, slots=True)
class LengthSample:
    """Mean and standard deviation (of these ``requests`` themselves, n in the denominator) of their lengths, in tokens."""

    mean: float
    stdev: float
    requests: int


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """One length of a request. ``law`` is its text, ``asked_mean`` and ``asked_stdev`` those of what it draws, in tokens; None
    where no law drew it. ``sent`` are the lengths of the requests that were sent, by the client; ``actual`` those of
    successes, of prompts as ``input_tokens`` and of answers as ``output_tokens`` counts them; None where none is known.
    """

    law: str | None
    asked_mean: float | None
    asked_stdev: float | None
    sent: LengthSample | None
    actual: LengthSample | None


def input_law(requests: Requests, manifest: Manifest) -> LengthLaw:
    """The lengths of the prompts; their actual lengths include the tokens of a chat template where the server counts them."""
    return _length_law(
        (manifest.lengths or Lengths()).input, requests, (requests.requested_input_tokens, requests.input_tokens)
    )


def output_law(requests: Requests, manifest: Manifest) -> LengthLaw:
    """The lengths of the answers."""
    return _length_law(
        (manifest.lengths or Lengths()).output, requests, (requests.requested_output_tokens, requests.output_tokens)
    )


def _length_law(entry: Length | None, requests: Requests, columns: tuple[FloatArray, FloatArray]) -> LengthLaw:
    entry = entry or Length()
    requested, actual = columns
    return LengthLaw(
        law=entry.law,
        asked_mean=entry.mean,
        asked_stdev=entry.stdev,
        sent=_sample(requested[~np.isnan(requests.sent_ns)]),
        actual=_sample(actual[requests.done]),
    )


def _sample(lengths: FloatArray) -> LengthSample | None:
    lengths = known(lengths)
    return LengthSample(float(lengths.mean()), float(lengths.std()), lengths.size) if lengths.size else None
