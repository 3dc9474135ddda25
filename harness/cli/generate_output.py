"""What ``bench generate`` prints, and whether an answer is what was asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from serving.client import Generation, Sequence
from serving.client_request import PERF_METRICS, Ask, ServedModel
from serving.detokenization import CONTEXT_TOKENS, decode, decode_piece


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
    if not ask.input_ids and tokenizer is None:
        return tokens
    length = len(ask.input_ids[row] if ask.input_ids else tokenizer.encode(ask.prompts[row]))
    return tokens[length:]


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
        from harness.cli.generate import ids_of_csv

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


def verdict(
    ask: Ask,
    model: ServedModel,
    answer: Generation,
    expected: Expected,
    number: int,
    threshold: float,
    stopping: bool,
) -> str | None:
    """What was wrong with an answer, in one sentence, or None. ``number`` is the prompt's place in the list."""
    if answer.error is not None:
        return answer.error
    if not answer.sequences and not answer.stopped:
        return f"the model {model.name} ended the request without an answer"
    if ask.requested_outputs and not answer.stopped and answer.outputs != set(ask.requested_outputs):
        return f"--requested_outputs: asked for {sorted(ask.requested_outputs)}, and {sorted(answer.outputs)} came"
    if stopping and not _is_shorter(ask, answer):
        return f"--stop_after_ms: the answer has all its {ask.scalar('request_output_len', 0)} tokens; nothing was stopped"
    if expected.tokens is not None:
        return _differs_in_tokens(answer, expected.tokens, threshold)
    if expected.texts is not None:
        return _differs_in_texts(ask, answer, expected.texts, number)
    return None


def _is_shorter(ask: Ask, answer: Generation) -> bool:
    """Whether fewer tokens came than were asked for; of texts, which carry no count, whether a running request was stopped."""
    counts = [len(beam) for sequence in answer.sequences.values() for beam in sequence.tokens]
    if not counts:
        return answer.stopped
    return max(counts) < int(ask.scalar("request_output_len", 0)) + _repeated(ask, answer)


def _repeated(ask: Ask, answer: Generation) -> int:
    """Prompt tokens that an unstreamed answer of the core model may repeat; their number is the shortest answer's at most."""
    if ask.scalar("streaming", False) or ask.scalar("exclude_input_in_output", False):
        return 0
    return len(ask.input_ids[0]) if ask.input_ids else 0


def _differs_in_tokens(answer: Generation, expected: tuple[int, ...], threshold: float) -> str | None:
    tokens = next((sequence.tokens[0] for sequence in answer.sequences.values() if sequence.tokens), None)
    if tokens is None:
        return "--output_tokens_csv: the answer holds no token ids; name the core model with --model"
    same = sum(one == other for one, other in zip(tokens, expected, strict=False))
    rate = same / max(len(tokens), len(expected))
    if rate < threshold:
        return f"--check_output: {same} of {max(len(tokens), len(expected))} token ids are as expected"
    return None


def _differs_in_texts(ask: Ask, answer: Generation, expected: tuple[str, ...], number: int) -> str | None:
    for row in range(ask.rows):
        place = number + row
        if place >= len(expected):
            return f"--expected_outputs: {len(expected)} texts are expected, and prompt {place} has none of them"
        texts = [text for (at, _), sequence in answer.sequences.items() if at == row for text in sequence.texts]
        if any(text != expected[place] for text in texts) or not texts:
            return f"--check_output: the answer to prompt {place} is {texts[0] if texts else None!r}, not {expected[place]!r}"
    return None
