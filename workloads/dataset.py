"""The ``dataset`` workload: prompts from a file, whose format is recognised by its first row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workloads import sharegpt, upstream_json
from workloads.errors import DatasetError, WorkloadError
from workloads.request import LONGEST_TOKENS, UNLIMITED, LengthLimits, Request
from workloads.rows import PromptRow

Encode = Callable[[str], list[int]]
_READERS = (sharegpt, upstream_json)  # in this order: a conversation may also have an "output"


@dataclass(frozen=True, slots=True)
class DatasetRequests:
    """Requests from a dataset, and the number of prompts that were dropped because of their length."""

    requests: tuple[Request, ...]
    rows: int
    dropped_too_long: int


def read_dataset(path: Path) -> list[PromptRow]:
    """Read a dataset file of any known format. Raises DatasetError with the file and the position in it."""
    try:
        document = json.loads(path.read_bytes().decode("utf-8").removeprefix("\ufeff"))
    except OSError as error:
        raise DatasetError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise DatasetError(path, f"is not UTF-8: {error.reason}", f"byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DatasetError(path, f"is not JSON: {error.msg}", f"line {error.lineno}, column {error.colno}") from error
    except ValueError as error:  # a number with more digits than Python parses
        raise DatasetError(path, f"holds a value that cannot be read: {error}") from error
    except RecursionError as error:
        raise DatasetError(path, "is nested too deeply to be a dataset") from error
    if not isinstance(document, list) or not document:
        raise DatasetError(path, "must be a JSON array with at least one row")
    first = document[0]
    for reader in _READERS:
        if isinstance(first, dict) and reader.recognises(first):
            rows = list(reader.read_rows(document, path))
            if not rows:
                raise DatasetError(path, "holds no usable prompt")
            return rows
    raise DatasetError(
        path,
        "unknown format; expected objects with input, instruction and output (upstream's), or with conversations (ShareGPT's)",
        "row 1",
    )


@dataclass(frozen=True, slots=True)
class DatasetWorkload:
    """Requests from the rows of a dataset.

    The output length is the answer's number of words (split at single spaces) times ``op_tokens_per_word``, at least 1:
    upstream's rule. ``encode`` returns token ids; without it a request has text only, and lengths are not checked. Prompts
    that exceed ``limits`` are dropped and counted.
    """

    op_tokens_per_word: float
    encode: Encode | None = None
    limits: LengthLimits = UNLIMITED
    ignore_eos: bool = False

    def requests(self, rows: Iterable[PromptRow], num_requests: int | None = None) -> DatasetRequests:
        """At most ``num_requests`` requests, in the order of the rows. Raises WorkloadError if there are none."""
        self._check()
        requests: list[Request] = []
        used = dropped = 0
        for row in rows:
            if num_requests is not None and len(requests) == num_requests:
                break
            used += 1
            request = self._request(row)
            if request.input_tokens is not None and self.limits.exceeded_by(request.input_tokens, request.output_tokens):
                dropped += 1
                continue
            requests.append(request)
        if not requests:
            raise WorkloadError(f"every prompt of the dataset is longer than {self._limit_name()} allows; no request is left")
        return DatasetRequests(tuple(requests), used, dropped)

    def _check(self) -> None:
        if not 0 < self.op_tokens_per_word < float("inf"):
            raise WorkloadError(f"--op_tokens_per_word {self.op_tokens_per_word:g}: must be a positive number")
        if self.limits.max_input_len is not None and self.encode is None:
            raise WorkloadError("--max_input_len counts tokens, so it needs --tokenizer_dir")

    def _request(self, row: PromptRow) -> Request:
        ids = None if self.encode is None else tuple(self.encode(row.prompt))
        if not row.prompt.strip() or ids == ():
            raise WorkloadError(f"row {row.row} of the dataset has an empty prompt")
        output_tokens = max(1, int(len(row.answer.split(" ")) * self.op_tokens_per_word))
        if output_tokens > LONGEST_TOKENS:
            option = f"--op_tokens_per_word {self.op_tokens_per_word:g}"
            raise WorkloadError(f"{option}: requests more than {LONGEST_TOKENS:,} output tokens")
        return Request(
            output_tokens=output_tokens,
            prompt=row.prompt,
            input_ids=ids,
            input_tokens=None if ids is None else len(ids),
            ignore_eos=self.ignore_eos,
        )

    def _limit_name(self) -> str:
        if self.limits.max_input_len is not None:
            return f"--max_input_len {self.limits.max_input_len}"
        return f"the context of {self.limits.context_tokens} tokens"
