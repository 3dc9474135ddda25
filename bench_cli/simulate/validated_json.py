"""A validation of a model as JSON, schema 1 (docs/reference/json.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from collections.abc import Sequence

from bench_cli.simulate.deployment import replica_facts
from bench_cli.simulate.validated import (
    Validated,
    are_too_narrow,
    beyond_sentences,
    coverage_sentences,
    doubt_sentences,
    inside_and_beyond,
    unit_of,
)
from simulator.answers import Deployment
from simulator.figures import Key
from simulator.model import Model
from simulator.validation import GOOD, Prediction, Validation, median_error, verdict

SCHEMA = 1


def document(validated: Validated) -> dict[str, object]:
    """The document; a value that is unknown or does not exist is null."""
    validations, simulations = validated.validations, validated.simulations
    return {
        "schema": SCHEMA,
        "model": _model(validated.name, validated.model),
        "draws": min(simulations.draws, len(validated.model.draws)),
        "seed": simulations.seed,
        **replica_facts(simulations.dealing or Deployment(validated.model.server)),
        "runs": [_run(each) for each in validations],
        "errors": [_error(key, validations) for key in GOOD],
        "coverage": _coverage(validations),
        "sentences": {
            "beyond": list(beyond_sentences(validations)),
            "doubts": list(doubt_sentences(validated)),
            "coverage": list(coverage_sentences(validations)),
            "verdict": verdict(validations),
        },
    }


def _model(name: str, model: Model) -> dict[str, object]:
    fitted = [{"name": source.name, "requests": source.requests, "users": source.users} for source in model.sources]
    return {"file": name, "fitted_runs": fitted, "unfit": list(model.unfit)}


def _run(validation: Validation) -> dict[str, object]:
    return {
        "name": validation.name,
        "requests": validation.requests,
        "users": validation.users,
        "dealt": validation.dealt or None,
        "beyond": list(validation.beyond),
        "figures": [_figure(each) for each in validation.predictions],
    }


def _figure(prediction: Prediction) -> dict[str, object]:
    metric, figure = prediction.key
    return {
        "metric": metric,
        "figure": figure,
        "unit": unit_of(prediction),
        "measured": prediction.measured,
        "predicted": prediction.predicted,
        "low": prediction.low,
        "high": prediction.high,
        "error": prediction.error,
        "within_range": prediction.is_covered,
    }


def _error(key: Key, validations: Sequence[Validation]) -> dict[str, object]:
    metric, figure = key
    inside, beyond = (median_error(group, key) for group in inside_and_beyond(validations))
    good = None if inside is None else inside <= GOOD[key]
    return {"metric": metric, "figure": figure, "limit": GOOD[key], "inside": inside, "beyond": beyond, "good": good}


def _coverage(validations: Sequence[Validation]) -> dict[str, object]:
    inside, beyond = inside_and_beyond(validations)
    return {
        "all": _held(validations),
        "inside": _held(inside),
        "beyond": _held(beyond),
        "too_narrow": are_too_narrow(validations),
    }


def _held(validations: Sequence[Validation]) -> dict[str, object]:
    held = [each.is_covered for validation in validations for each in validation.predictions]
    return {"figures": len(held), "within": sum(held), "share": sum(held) / len(held) if held else None}
