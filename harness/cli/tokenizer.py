"""The tokenizer of a deployment, for measurements and ``bench generate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.clients.triton.model import TritonModel


def deployed_tokenizer_dir(model: TritonModel, inspect: Callable[[str], TritonModel]) -> Path | None:
    """The tokenizer folder that the deployment itself uses, if it is on this machine.

    The parameter ``tokenizer_dir`` is searched in ``model`` and then in ``preprocessing``, which ``inspect`` fetches.
    """
    from harness.errors import TargetError

    for parameters in (lambda: model.parameters, lambda: inspect("preprocessing").parameters):
        try:
            path = dict(parameters()).get("tokenizer_dir")
        except TargetError:
            return None
        if path and Path(path).is_dir():
            return Path(path)
    return None


def open_tokenizer(tokenizer_dir: Path) -> Any:
    """The tokenizer of --tokenizer_dir. Raises TargetError when the folder has none."""
    from harness.errors import TargetError
    from serving.text.detokenization import load_tokenizer

    try:
        return load_tokenizer(tokenizer_dir)
    except ValueError as error:
        raise TargetError(f"--tokenizer_dir: {error}") from error
