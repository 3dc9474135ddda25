"""What ``bench generate`` prints, and whether an answer is what was asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from serving.client.request import Ask, ServedModel
from serving.client.triton import Generation, Sequence
from serving.repository.tensors import PERF_METRICS
from serving.text.detokenization import CONTEXT_TOKENS, decode, decode_piece


class Printer:
    """Prints one request's answer: a lone streamed one as it comes, anything else when it is whole."""

    def __init__(self, ask: Ask, model: ServedModel, tokenizer: Any | None, overwrite: bool) -> None:
        self._ask, self._model, self._tokenizer = ask, model, tokenizer
        single = ask.rows == 1 and all(int(ask.scalar(name, 1)) == 1 for name in ("beam_width", "num_return_sequences"))
        readable = tokenizer is not None or not model.takes_token_ids
        self._live = bool(ask.scalar("streaming", False)) and single and readable and not overwrite
        self._begun = False
        self._shown_tokens: list[int] = []

    def begin(self) -> None:
        """The ids that end and fill, as upstream's core client shows them, and the prompt."""
        if self._model.takes_token_ids:
            for name in ("pad_id", "end_id"):
                if name in self._ask.scalars:
                    click.echo(f"Using {name}: {self._ask.scalars[name]}")
        for row in self._ask.input_ids:
            click.echo(f"Input sequence: {list(row)}")
        for prompt in self._ask.prompts:
            click.echo(f"Input: {prompt}")

    def add(self, sequence: Sequence, values: Any) -> None:
        """Show what a streamed response added."""
        if not self._live:
            return
        if not self._begun:
            self._begun = True
            click.echo("Output: ", nl=False)
        if "text_output" in values:
            click.echo(b"".join(values["text_output"].reshape(-1)).decode("utf-8", "replace"), nl=False)
        elif sequence.tokens:
            self._show_tokens(sequence.tokens[0], is_last=False)

    def _show_tokens(self, tokens: list[int], is_last: bool) -> None:
        new = tokens[len(self._shown_tokens) :]
        before = self._shown_tokens[-CONTEXT_TOKENS:]
        click.echo(decode_piece(self._tokenizer, before, new, is_last, skip_special_tokens=True), nl=False)
        self._shown_tokens = list(tokens)

    def end(self, answer: Generation) -> None:
        """Show the whole answer, without what has been shown."""
        if self._begun:
            if self._shown_tokens:
                self._show_tokens(self._shown_tokens, is_last=True)
            click.echo()
        several = len(answer.sequences) > 1
        for (row, number), sequence in sorted(answer.sequences.items()):
            where = f" of input {row}, sequence {number}" if several else ""
            self._print_sequence(sequence, where, row)
        if answer.stopped:
            click.echo("Stopped early.")

    def _print_sequence(self, sequence: Sequence, where: str, row: int) -> None:
        for beam, tokens in enumerate(sequence.tokens):
            made = generated_tokens(self._ask, self._model, self._tokenizer, tokens, row)
            if self._tokenizer is not None and not self._begun:
                click.echo(f"Output beam {beam}{where}: {decode(self._tokenizer, made, skip_special_tokens=True)}")
            click.echo(f"Output sequence{where}: {tokens}")
        for beam, text in enumerate(sequence.texts):
            if not self._begun:
                click.echo(f"Output beam {beam}{where}: {text}")
        for name, value in sorted(sequence.extras.items(), key=lambda item: _ORDER.get(item[0], len(_ORDER))):
            _print_extra(f"{name}{where}", value)


_ORDER = {
    name: place
    for place, name in enumerate(("cum_log_probs", "output_log_probs", "context_logits", "generation_logits", *PERF_METRICS))
}


def _print_extra(label: str, value: Any) -> None:
    if "logits" in label:
        click.echo(f"{label}.shape: {list(value.shape)}")
    click.echo(f"{label}: {value.reshape(-1)[0] if value.size == 1 and 'log' not in label else value}")


def generated_tokens(ask: Ask, model: ServedModel, tokenizer: Any | None, tokens: list[int], row: int) -> list[int]:
    """``tokens`` without the prompt, which an unstreamed answer repeats unless it was asked not to."""
    default = model.parameters.get("exclude_input_in_output", "false").lower() in ("true", "1", "t", "y", "yes")
    if ask.scalar("streaming", False) or ask.scalar("exclude_input_in_output", default):
        return tokens
    if ask.input_ids:
        return tokens[len(ask.input_ids[row]) :]
    return tokens if tokenizer is None else tokens[len(tokenizer.encode(ask.prompts[row])) :]


@dataclass(frozen=True)
class Expected:
    """What --check_output compares with: token ids of the only answer, or a text for each prompt."""

    tokens: tuple[int, ...] | None = None
    texts: tuple[str, ...] | None = None


def expectations(values: dict[str, Any]) -> Expected:
    """Raises click.UsageError."""
    if not values["check_output"]:
        return Expected()
    tokens = texts = None
    if values["output_tokens_csv"]:
        from harness.cli.generate.inputs import ids_of_csv

        tokens = ids_of_csv("--output_tokens_csv", Path(values["output_tokens_csv"]))
    if values["expected_outputs"]:
        try:
            listed = json.loads(values["expected_outputs"])
        except ValueError as error:
            raise click.UsageError(f"--expected_outputs is no JSON: {error}") from error
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            raise click.UsageError("--expected_outputs must be a JSON list of texts")
        texts = tuple(listed)
    return Expected(tokens, texts)


def generated(ask: Ask, model: ServedModel, tokenizer: Any | None, answer: Generation) -> list[list[int]]:
    """The generated token ids of every sequence and beam; empty for models that answer in text."""
    return [
        generated_tokens(ask, model, tokenizer, beam, row)
        for (row, _), sequence in sorted(answer.sequences.items())
        for beam in sequence.tokens
    ]


def verdict(
    ask: Ask,
    answer: Generation,
    made: list[list[int]],
    expected: Expected,
    number: int,
    threshold: float,
    stopping: bool,
) -> str | None:
    """What was wrong with an answer, in one sentence, or None.

    ``made`` is ``generated`` of the answer, ``number`` the prompt's place in the list; ``stopping``: it was to end early.
    """
    if answer.error is not None:
        return answer.error
    if not answer.sequences and not answer.stopped:
        return "the request ended without an answer"
    if ask.requested_outputs and not answer.stopped and answer.outputs != set(ask.requested_outputs):
        return f"--requested_outputs: asked for {sorted(ask.requested_outputs)}, and {sorted(answer.outputs)} came"
    if stopping and not (answer.stopped and all(len(beam) < int(ask.scalar("request_output_len", 0)) for beam in made)):
        return "--stop_after_ms: the answer was whole before it was stopped; ask for more tokens, or stop earlier"
    if expected.tokens is not None:
        return _differs_in_tokens(made, expected.tokens, threshold)
    if expected.texts is not None:
        return _differs_in_texts(ask, answer, expected.texts, number)
    return None


def _differs_in_tokens(made: list[list[int]], expected: tuple[int, ...], threshold: float) -> str | None:
    if not made:
        return "--output_tokens_csv: the answer holds no token ids; name the core model with --model"
    longest = max(len(made[0]), len(expected))
    same = sum(one == other for one, other in zip(made[0], expected, strict=False))
    return f"--check_output: {same} of {longest} token ids are as expected" if same < threshold * longest else None


def _differs_in_texts(ask: Ask, answer: Generation, expected: tuple[str, ...], number: int) -> str | None:
    for row in range(ask.rows):
        place = number + row
        if place >= len(expected):
            return f"--expected_outputs: {len(expected)} texts are expected, and prompt {place} has none of them"
        texts = [text for (at, _), sequence in answer.sequences.items() if at == row for text in sequence.texts]
        if any(text != expected[place] for text in texts) or not texts:
            return f"--check_output: the answer to prompt {place} is {texts[0] if texts else None!r}, not {expected[place]!r}"
    return None
