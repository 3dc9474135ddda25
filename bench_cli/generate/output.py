"""The output of ``bench generate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from harness.clients.triton.model import TritonModel
from serving.client.request import Array, GenerationRequest
from serving.client.triton import GeneratedSequence, GenerationResult
from serving.repository.tensors import PERF_METRICS
from serving.text.detokenization import CONTEXT_TOKENS, decode, decode_piece

_EXTRA_OUTPUTS = ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits", *PERF_METRICS)
_ORDER = {name: index for index, name in enumerate(_EXTRA_OUTPUTS)}


class Printer:
    """Prints the result of one request: a single streamed sequence as it arrives, any other result when it is complete."""

    def __init__(self, request: GenerationRequest, model: TritonModel, tokenizer: Any | None, overwrite_text: bool) -> None:
        self._request, self._model, self._tokenizer = request, model, tokenizer
        single = request.rows == 1 and all(int(request.scalar(name, 1)) == 1 for name in ("beam_width", "num_return_sequences"))
        readable = tokenizer is not None or not model.takes_token_ids
        self._live = bool(request.scalar("streaming", False)) and single and readable and not overwrite_text
        self._printed_live = False
        self._shown_tokens: list[int] = []

    def begin(self) -> None:
        """Print the end and padding tokens, as upstream's core client does, and the input."""
        if self._model.takes_token_ids:
            for name in ("pad_id", "end_id"):
                if name in self._request.scalars:
                    click.echo(f"Using {name}: {self._request.scalars[name]}")
        for row in self._request.input_ids:
            click.echo(f"Input sequence: {list(row)}")
        for prompt in self._request.prompts:
            click.echo(f"Input: {prompt}")

    def add(self, sequence: GeneratedSequence, values: Mapping[str, Array]) -> None:
        """Print what a streamed response adds."""
        if not self._live:
            return
        if not self._printed_live:
            self._printed_live = True
            click.echo("Output: ", nl=False)
        if "text_output" in values:
            click.echo(b"".join(values["text_output"].reshape(-1)).decode("utf-8", "replace"), nl=False)
        elif sequence.tokens:
            self._print_tokens(sequence.tokens[0], is_last=False)

    def _print_tokens(self, tokens: list[int], is_last: bool) -> None:
        new = tokens[len(self._shown_tokens) :]
        before = self._shown_tokens[-CONTEXT_TOKENS:]
        click.echo(decode_piece(self._tokenizer, before, new, is_last, skip_special_tokens=True), nl=False)
        self._shown_tokens = list(tokens)

    def end(self, result: GenerationResult) -> None:
        """Print the complete result, less what was printed live."""
        if self._printed_live:
            if self._shown_tokens:
                self._print_tokens(self._shown_tokens, is_last=True)
            click.echo()
        several = len(result.sequences) > 1
        for (row, number), sequence in sorted(result.sequences.items()):
            suffix = f" of input {row}, sequence {number}" if several else ""
            self._print_sequence(sequence, suffix, row)
        if result.stopped:
            click.echo("Stopped early.")

    def _print_sequence(self, sequence: GeneratedSequence, suffix: str, row: int) -> None:
        for beam, tokens in enumerate(sequence.tokens):
            ids = without_prompt(self._request, self._model, self._tokenizer, tokens, row)
            if self._tokenizer is not None and not self._printed_live:
                click.echo(f"Output beam {beam}{suffix}: {decode(self._tokenizer, ids, skip_special_tokens=True)}")
            click.echo(f"Output sequence{suffix}: {tokens}")
        for beam, text in enumerate(sequence.texts):
            if not self._printed_live:
                click.echo(f"Output beam {beam}{suffix}: {text}")
        for name, value in sorted(sequence.extras.items(), key=lambda item: _ORDER.get(item[0], len(_ORDER))):
            _print_extra(f"{name}{suffix}", value)


def _print_extra(label: str, value: Array) -> None:
    if "logits" in label:
        click.echo(f"{label}.shape: {list(value.shape)}")
    click.echo(f"{label}: {value.reshape(-1)[0] if value.size == 1 and 'log' not in label else value}")


def without_prompt(
    request: GenerationRequest, model: TritonModel, tokenizer: Any | None, tokens: list[int], row: int
) -> list[int]:
    """``tokens`` without the prompt, which an unstreamed answer repeats unless the request or the model excludes it."""
    parameter = dict(model.parameters).get("exclude_input_in_output", "false")
    model_excludes = parameter.lower() in ("true", "1", "t", "y", "yes")
    if request.scalar("streaming", False) or request.scalar("exclude_input_in_output", model_excludes):
        return tokens
    if request.input_ids:
        return tokens[len(request.input_ids[row]) :]
    return tokens if tokenizer is None else tokens[len(tokenizer.encode(request.prompts[row])) :]
