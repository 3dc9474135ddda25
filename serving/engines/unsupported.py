"""What a request asks for and its engine does not have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields

from serving.engines.protocol import Returns, Sampling


def first_unsupported(
    tensors: Mapping[str, str], supported_returns: Collection[str], sampling: Sampling, returns: Returns
) -> str | None:
    """The name of the first tensor of a request that its engine does not support; None where it supports all.

    ``tensors`` has the fields of ``Sampling`` that the engine does not support, and the tensor that sets each;
    ``supported_returns`` are the fields of ``Returns`` that it does support.
    """
    default = Sampling(sampling.max_tokens)
    names = [tensor for field, tensor in tensors.items() if getattr(sampling, field) != getattr(default, field)]
    wanted = [field.name for field in fields(returns) if getattr(returns, field.name)]
    names += [f"return_{name}" for name in wanted if name not in supported_returns]
    return names[0] if names else None
