"""The ``dataset`` workload: prompts from a file whose format is detected from its first row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workloads import sharegpt, upstream_json
from workloads.errors import DatasetError, WorkloadError
from workloads.request import LONGEST_TOKENS, NO_LIMITS, LengthLimits, PromptRow, Request

Encode = Callable[[str], list[int]]
_READERS = (sharegpt, upstream_json)  # in this order: a conversation may have an "output" too, upstream's rows have no turns


@dataclass(frozen=True, slots=True)
class DatasetRequests:
    """Requests made from a dataset, and how many prompts were left out because they are too long."""

    requests: tuple[Request, ...]
    rows: int
    dropped_too_long: int


def read_dataset(path: Path) -> list[PromptRow]:
    """Read a dataset file of any known shape. Raises DatasetError naming the file and the place in it."""
    try:
        document = json.loads(path.read_bytes().decode("utf-8").removeprefix("\ufeff"))
    except OSError as error:
        raise DatasetError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise DatasetError(path, f"is not UTF-8: {error.reason}", f"byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DatasetError(path, f"is not JSON: {error.msg}", f"line {error.lineno}, column {error.colno}") from error
    except ValueError as error:  # a number with more digits than Python reads
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
        "unknown shape; expected objects with input, instruction and output (upstream's), or with conversations (ShareGPT's)",
        "row 1",
    )


def dataset_requests(
    rows: Iterable[PromptRow],
    encode: Encode | None,
    num_requests: int | None,
    op_tokens_per_word: float,
    limits: LengthLimits = NO_LIMITS,
    ignore_eos: bool = False,
) -> DatasetRequests:
    """Turn rows into requests, at most ``num_requests``, in the file's order.

    The output length is the answer's words (split at single spaces) times ``op_tokens_per_word``, at least 1: upstream's
    rule. ``encode`` gives token ids; without it a request carries text only, and lengths are not checked. Requests beyond
    ``limits`` are dropped and counted. Raises WorkloadError.
    """
    if not 0 < op_tokens_per_word < float("inf"):
        raise WorkloadError(f"--op_tokens_per_word {op_tokens_per_word:g}: must be a positive number")
    if limits.max_input_len is not None and encode is None:
        raise WorkloadError("--max_input_len counts tokens, so it needs --tokenizer_dir")
    requests: list[Request] = []
    used = dropped = 0
    for row in rows:
        if num_requests is not None and len(requests) == num_requests:
            break
        used += 1
        request = _request(row, encode, op_tokens_per_word, ignore_eos)
        if request.input_tokens is not None and not limits.allow(request.input_tokens, request.output_tokens):
            dropped += 1
            continue
        requests.append(request)
    if not requests:
        limit = f"the context of {limits.context_tokens} tokens"
        if limits.max_input_len is not None:
            limit = f"--max_input_len {limits.max_input_len}"
        raise WorkloadError(f"every prompt of the dataset is longer than {limit} allows; nothing is left to send")
    return DatasetRequests(tuple(requests), used, dropped)


def _request(row: PromptRow, encode: Encode | None, op_tokens_per_word: float, ignore_eos: bool) -> Request:
    ids = None if encode is None else tuple(encode(row.prompt))
    if not row.prompt.strip() or ids == ():
        raise WorkloadError(f"row {row.row} of the dataset has an empty prompt")
    output_tokens = max(1, int(len(row.answer.split(" ")) * op_tokens_per_word))
    if output_tokens > LONGEST_TOKENS:
        raise WorkloadError(f"--op_tokens_per_word {op_tokens_per_word:g}: asks for more than {LONGEST_TOKENS:,} tokens")
    return Request(
        output_tokens=output_tokens,
        prompt=row.prompt,
        input_ids=ids,
        input_tokens=None if ids is None else len(ids),
        ignore_eos=ignore_eos,
    )
