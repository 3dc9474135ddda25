"""The ``dataset`` workload: prompts from a file, told apart by their shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workloads import sharegpt, upstream_json
from workloads.errors import DatasetError, WorkloadError
from workloads.request import LONGEST_TOKENS, Request
from workloads.rows import PromptRow

Encode = Callable[[str], list[int]]
_READERS = (sharegpt, upstream_json)  # a conversation may also have an "output"; a row of upstream's has no turns


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
    max_input_len: int | None,
    op_tokens_per_word: float,
    context_tokens: int | None = None,
    ignore_eos: bool = False,
) -> DatasetRequests:
    """Turn rows into requests, at most ``num_requests``, in the file's order.

    The output length is the answer's words (split at single spaces) times ``op_tokens_per_word``, at least 1: upstream's
    rule. ``encode`` gives token ids; without it a request carries text only, and lengths are not checked. Prompts longer
    than ``max_input_len`` tokens, or that with their output exceed ``context_tokens``, are dropped and counted.
    """
    if not 0 < op_tokens_per_word < float("inf"):
        raise WorkloadError(f"--op_tokens_per_word {op_tokens_per_word:g}: must be a positive number")
    if max_input_len is not None and encode is None:
        raise WorkloadError("--max_input_len counts tokens, so it needs --tokenizer_dir")
    requests: list[Request] = []
    used = dropped = 0
    for row in rows:
        if num_requests is not None and len(requests) == num_requests:
            break
        used += 1
        ids = None if encode is None else tuple(encode(row.prompt))
        if not row.prompt.strip() or ids == ():
            raise WorkloadError(f"row {row.row} of the dataset has an empty prompt")
        output_tokens = max(1, int(len(row.answer.split(" ")) * op_tokens_per_word))
        if output_tokens > LONGEST_TOKENS:
            raise WorkloadError(f"--op_tokens_per_word {op_tokens_per_word:g}: asks for more than {LONGEST_TOKENS:,} tokens")
        if ids is not None and _too_long(len(ids), output_tokens, max_input_len, context_tokens):
            dropped += 1
            continue
        requests.append(
            Request(
                output_tokens=output_tokens,
                prompt=row.prompt,
                input_ids=ids,
                input_tokens=None if ids is None else len(ids),
                ignore_eos=ignore_eos,
            )
        )
    if not requests:
        limit = f"--max_input_len {max_input_len}" if max_input_len is not None else f"the context of {context_tokens} tokens"
        raise WorkloadError(f"every prompt of the dataset is longer than {limit} allows; nothing is left to send")
    return DatasetRequests(tuple(requests), used, dropped)


def _too_long(input_tokens: int, output_tokens: int, max_input_len: int | None, context_tokens: int | None) -> bool:
    if max_input_len is not None and input_tokens > max_input_len:
        return True
    return context_tokens is not None and input_tokens + output_tokens > context_tokens
