"""One row of a request's input tensors: validated access by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.errors import RequestError


class Row:
    """The tensors of one row: a request with a batch of n has n rows, and every tensor has a value for each."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]], index: int, rows: int) -> None:
        self._tensors = tensors
        self._index = index
        self._rows = rows

    def array(self, name: str) -> NDArray[Any] | None:
        """This row's values, without the batch dimension; None when the tensor was not sent or is empty."""
        values = self._tensors.get(name)
        if values is None or values.size == 0:
            return None
        if values.ndim == 0 or values.shape[0] != self._rows:
            raise RequestError(f"{name} must have a row for each of the {self._rows} of input_ids, not {list(values.shape)}")
        row: NDArray[Any] = values[self._index]
        return row

    def scalar(self, name: str, default: Any = None) -> Any:
        """This row's single value; ``default`` when the tensor was not sent."""
        values = self._tensors.get(name)
        if values is None:
            return default
        if values.size != self._rows:
            each = "" if self._rows == 1 else f" for each of the {self._rows} rows"
            raise RequestError(f"{name} must hold one value{each}, but its shape is {list(values.shape)}")
        value = values.reshape(-1)[self._index]
        return value.item() if isinstance(value, np.generic) else value

    def number(self, name: str, default: Any, low: float, high: float | None) -> Any:
        """A scalar within [low, high]; ``high`` None means unbounded."""
        value = self.scalar(name)
        if value is None:
            return default
        if not low <= value or (high is not None and value > high) or value == float("inf"):  # `not low <=` also rejects NaN
            limits = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
            raise RequestError(f"{name} must be {limits}, not {value:g}")
        return value

    def first(self, *names: str, default: Any) -> Any:
        """The scalar of the first of several names that was sent."""
        for name in names:
            if (value := self.scalar(name)) is not None:
                return value
        return default

    def text(self, name: str) -> str | None:
        """A scalar of type STRING. Raises RequestError when it is not UTF-8."""
        value = self.scalar(name)
        if value is None:
            return None
        try:
            return value.decode("utf-8") if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError as error:
            raise RequestError(f"{name} is not UTF-8: {error.reason}") from error

    def token(self, name: str, vocabulary_size: int, none: int = -1) -> int | None:
        """A scalar token id; None when it was not sent or is ``none``."""
        value = self.scalar(name)
        if value is None or value == none:
            return None
        if not 0 <= value < vocabulary_size:
            raise RequestError(f"{name} is {value}: neither {none} (none) nor in the vocabulary [0, {vocabulary_size})")
        return int(value)

    def tokens(self, name: str, vocabulary_size: int) -> list[int]:
        """A row of token ids, empty when it was not sent."""
        ids = self.array(name)
        if ids is None:
            return []
        if ids.ndim != 1:
            raise RequestError(f"{name} must have shape [batch, length], but a row of it has shape {list(ids.shape)}")
        check_tokens(name, ids, vocabulary_size)
        listed: list[int] = ids.tolist()
        return listed


def check_tokens(name: str, ids: NDArray[Any], vocabulary_size: int) -> None:
    """Raise RequestError for the first id outside the vocabulary."""
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary_size:
        wrong = ids[(ids < 0) | (ids >= vocabulary_size)].reshape(-1)[0]
        raise RequestError(f"{name} holds {wrong}, which is outside the vocabulary [0, {vocabulary_size})")
