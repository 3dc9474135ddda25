"""Routes of the pipeline: both the sender's and the receiver's tensor are declared, with the same type."""

from __future__ import annotations

import pytest

from serving.repository import routing, tensors
from serving.repository.tensors import TensorSpec, parse_tensors


def _by_name(*tables: str) -> dict[str, TensorSpec]:
    return {tensor.name: tensor for table in tables for tensor in parse_tensors(table)}


@pytest.mark.parametrize(
    ("routes", "senders", "taker"),
    [
        (routing.CLIENT_TO_PREPROCESSING, (tensors.BLS_INPUTS, tensors.ENSEMBLE_INPUTS), tensors.PREPROCESSING_INPUTS),
        (routing.PREPROCESSING_TO_CORE, (tensors.PREPROCESSING_OUTPUTS,), tensors.CORE_INPUTS),
        (routing.CORE_TO_POSTPROCESSING, (tensors.CORE_OUTPUTS,), tensors.POSTPROCESSING_INPUTS),
        (routing.client_to_core(tensors.BLS_INPUTS), (tensors.BLS_INPUTS,), tensors.CORE_INPUTS),
        (routing.client_to_core(tensors.ENSEMBLE_INPUTS), (tensors.ENSEMBLE_INPUTS,), tensors.CORE_INPUTS),
    ],
)
def test_both_ends_are_declared_with_one_type(routes: dict[str, str], senders: tuple[str, ...], taker: str) -> None:
    sent, taken = _by_name(*senders), _by_name(taker)
    assert {name: sent[name].dtype for name in routes} == {name: taken[other].dtype for name, other in routes.items()}


# Handled or rejected by the BLS model itself.
_BLS_ALONE = {"image_input", "num_draft_tokens", "use_draft_logits"}


@pytest.mark.parametrize(("table", "kept"), [(tensors.ENSEMBLE_INPUTS, set()), (tensors.BLS_INPUTS, _BLS_ALONE)])
def test_every_input_of_a_text_model_has_exactly_one_route(table: str, kept: set[str]) -> None:
    to_core = set(routing.client_to_core(table))
    assert not to_core & set(routing.CLIENT_TO_PREPROCESSING)
    assert set(_by_name(table)) - to_core - set(routing.CLIENT_TO_PREPROCESSING) == kept


def test_preprocessing_outputs_are_not_routed_from_the_client() -> None:
    from_client = set(routing.client_to_core(tensors.BLS_INPUTS).values())
    assert not from_client & set(routing.PREPROCESSING_TO_CORE.values())
