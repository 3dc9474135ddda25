"""The check of a result of ``bench generate`` against the request and --check_output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from bench_cli.generate.options import AnswerOptions
from bench_cli.generate.output import without_prompt
from bench_cli.generate.requests import read_token_ids
from harness.clients.triton.model import TritonModel
from serving.client.request import GenerationRequest
from serving.client.triton import GenerationResult


@dataclass(frozen=True)
class Expectation:
    """The expected answer: token ids of the only answer, or one text per prompt; None: any.

    ``threshold`` is the share of token ids that must match; ``early_stop``: the request must end before its last token.
    """

    tokens: tuple[int, ...] | None = None
    texts: tuple[str, ...] | None = None
    threshold: float = 1.0
    early_stop: bool = False


def read_expectation(options: AnswerOptions, early_stop: bool) -> Expectation:
    """The expectation of the options and their files. Raises UsageError."""
    threshold = options.correctness_threshold
    if not options.check_output:
        return Expectation(threshold=threshold, early_stop=early_stop)
    file, texts = options.output_tokens_csv, options.expected_outputs
    return Expectation(
        tokens=None if file is None else read_token_ids("--output_tokens_csv", file),
        texts=_parse_texts(texts) if texts else None,
        threshold=threshold,
        early_stop=early_stop,
    )


def _parse_texts(text: str) -> tuple[str, ...]:
    try:
        texts = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--expected_outputs is not valid JSON: {error}") from error
    if not isinstance(texts, list) or not all(isinstance(item, str) for item in texts):
        raise click.UsageError("--expected_outputs must be a JSON list of texts")
    return tuple(texts)


def generated_ids(
    request: GenerationRequest, model: TritonModel, tokenizer: Any | None, result: GenerationResult
) -> list[list[int]]:
    """The generated token ids of every sequence and beam, without the prompt; empty for models that return text."""
    return [
        without_prompt(request, model, tokenizer, beam, row)
        for (row, _), sequence in sorted(result.sequences.items())
        for beam in sequence.tokens
    ]


def find_problem(
    request: GenerationRequest, result: GenerationResult, ids: list[list[int]], expectation: Expectation, index: int
) -> str | None:
    """One sentence on the first problem of a result, or None. ``ids`` are its ``generated_ids``, ``index`` is the prompt's."""
    if result.error is not None:
        return result.error
    if not result.sequences and not result.stopped:
        return "the request ended without an answer"
    if request.requested_outputs and not result.stopped and result.outputs != set(request.requested_outputs):
        return f"--requested_outputs: requested {sorted(request.requested_outputs)}, received {sorted(result.outputs)}"
    if expectation.early_stop and not _stopped_early(request, result, ids):
        return "--stop_after_ms: the answer was complete before the stop; request more tokens, or stop earlier"
    if expectation.tokens is not None:
        return _token_mismatch(ids, expectation.tokens, expectation.threshold)
    if expectation.texts is not None:
        return _text_mismatch(request, result, expectation.texts, index)
    return None


def _stopped_early(request: GenerationRequest, result: GenerationResult, ids: list[list[int]]) -> bool:
    return result.stopped and all(len(beam) < int(request.scalar("request_output_len", 0)) for beam in ids)


def _token_mismatch(ids: list[list[int]], expected: tuple[int, ...], threshold: float) -> str | None:
    if not ids:
        return "--output_tokens_csv: the answer has no token ids; select the core model with --model"
    longest = max(len(ids[0]), len(expected))
    matches = sum(got == other for got, other in zip(ids[0], expected, strict=False))
    return f"--check_output: {matches} of {longest} token ids are as expected" if matches < threshold * longest else None


def _text_mismatch(request: GenerationRequest, result: GenerationResult, expected: tuple[str, ...], index: int) -> str | None:
    for row in range(request.rows):
        prompt = index + row
        if prompt >= len(expected):
            return f"--expected_outputs: only {len(expected)} texts are given, and none for prompt {prompt}"
        texts = [text for (at, _), sequence in result.sequences.items() if at == row for text in sequence.texts]
        if any(text != expected[prompt] for text in texts) or not texts:
            return f"--check_output: the answer to prompt {prompt} is {texts[0] if texts else None!r}, not {expected[prompt]!r}"
    return None
