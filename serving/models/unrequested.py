"""Zeros in place of outputs that a response does not have: models up to release 0.11 answer all that a client requests.

Those are outputs that the request did not enable, and in a stream those of another response, such as the context's logits.

Their shapes are those of upstream's ``postprocessing/1/model.py`` of v0.11.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serving.models.parameters import Parameters
from serving.repository.routing import PASSED_THROUGH
from serving.repository.tensors import Release

Zeros = Mapping[str, NDArray[np.float32]]
"""float32 zeros by the name of an output of the core model."""

NO_ZEROS: Zeros = MappingProxyType({})
_DIMENSIONS = {"cum_log_probs": 2, "output_log_probs": 3, "context_logits": 3, "generation_logits": 4}
_ZEROS_OF_V0_11: Zeros = MappingProxyType({name: np.zeros((1,) * _DIMENSIONS[name], np.float32) for name in PASSED_THROUGH})


def zeros_of_release(parameters: Parameters) -> Zeros:
    """The zeros that a model of the parameter ``upstream_release`` answers with."""
    return _ZEROS_OF_V0_11 if parameters.text("upstream_release", Release.NEWEST) == Release.V0_11 else NO_ZEROS


def zeros_for(zeros: Zeros, wanted: Collection[str]) -> Zeros:
    """The part of ``zeros`` that a request wants, for each response without a value of that name."""
    return {name: values for name, values in zeros.items() if name in wanted}
