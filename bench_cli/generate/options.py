"""The options of ``bench generate``: those of upstream's two client scripts, under their names.

Each option group follows the dataclass that it fills; a field has the name of its option.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.engine_options import options_from

if TYPE_CHECKING:
    from serving.client.request import Scalar
    from serving.client.triton import EarlyStop

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_INT32 = click.INT  # the range is checked later, which keeps it out of every option's help
_COUNT = click.IntRange(1, 2**31 - 1)
_UINT64 = click.INT
_UINT64_OPTIONS = ("seed", "lora_task_id", "prompt_table_extra_id")
MANY_VALUED = ("stop_words", "bad_words", "embedding_bias_words", "embedding_bias_weights", "requested_outputs")


@dataclass(frozen=True)
class TargetOptions:
    """The server and the model; ``url`` None: the embedded pipeline, which ``engine_dir`` and ``decoupled_mode`` configure."""

    url: str | None
    model: str | None
    tokenizer_dir: Path | None
    engine_dir: Path | None
    decoupled_mode: bool
    stream_timeout: float | None
    ssl: bool
    root_certificates: Path | None
    private_key: Path | None
    certificate_chain: Path | None
    grpc_compression_algorithm: str

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.url is not None and self.engine_dir is not None:
            raise click.UsageError("--engine_dir is for the embedded pipeline; with --url the server has its own engine")
        if self.url is not None and not self.ssl and (self.root_certificates or self.private_key or self.certificate_chain):
            raise click.UsageError("certificates and keys require an encrypted connection; add --ssl")


_target = cloup.option_group(
    "Server and model",
    cloup.option(
        "-u", "--url", help="host:port of a running server's gRPC endpoint; without it the embedded pipeline is deployed."
    ),
    cloup.option(
        "-m",
        "--model",
        "--model_name",
        show_default="ensemble, or tensorrt_llm with --input_tokens_csv",
        help="Model: tensorrt_llm takes token ids (bench tokenizes text), ensemble and tensorrt_llm_bls take text.",
    ),
    cloup.option("--tokenizer_dir", type=_FOLDER, help="Tokenizer folder. Default: the server's, if it is on this machine."),
    cloup.option("--engine_dir", type=_FOLDER, help="Without --url: engine folder. Default: the demo engine."),
    cloup.option("--decoupled_mode/--no_decoupled_mode", default=True, help="Without --url: deploy models that can stream."),
    cloup.option("-t", "--stream_timeout", type=click.FloatRange(0, min_open=True), help="Timeout of a request in seconds."),
    cloup.option("-s", "--ssl", is_flag=True, help="Encrypt the connection with TLS."),
    cloup.option("-r", "--root_certificates", type=_FILE, help="TLS: PEM file of trusted root certificates."),
    cloup.option("--private_key", type=_FILE, help="TLS: PEM file of the client's private key."),
    cloup.option("-x", "--certificate_chain", type=_FILE, help="TLS: PEM file of the client's certificate."),
    cloup.option(
        "-C",
        "--grpc_compression_algorithm",
        type=click.Choice(["none", "deflate", "gzip"]),
        default="none",
        help="Compression of requests.",
    ),
)


@dataclass(frozen=True)
class PromptOptions:
    """The input: ``prompt``, one text or a JSON list of them, or a file of token ids."""

    prompt: str | None
    batch_inputs: bool
    input_tokens_csv: Path | None
    draft_tokens_csv: Path | None

    def check(self) -> None:
        """Raise UsageError unless there is exactly one input."""
        if (self.prompt is None) == (self.input_tokens_csv is None):
            raise click.UsageError("give either --prompt (or --text) or --input_tokens_csv")


_prompt = cloup.option_group(
    "Prompt",
    cloup.option("-p", "--prompt", "--text", help="Text, or a JSON list of texts, which are sent one after another."),
    cloup.option("--batch_inputs", is_flag=True, help="Send the list of texts as one request of several rows."),
    cloup.option("--input_tokens_csv", type=_FILE, help="Token ids instead of text: the file's first line."),
    cloup.option("--draft_tokens_csv", type=_FILE, help="Draft token ids for the core model: the file's first line."),
)


@dataclass(frozen=True)
class GenerationOptions:
    """Sampling and outputs. ``scalars`` has the given options of ``serving.client.request.SCALARS``, by name."""

    scalars: Mapping[str, Scalar]
    stop_words: tuple[str, ...]
    bad_words: tuple[str, ...]
    embedding_bias_words: tuple[str, ...]
    embedding_bias_weights: tuple[float, ...]
    lookahead_config: str | None

    def check(self) -> None:
        """Raise UsageError for options that are incomplete."""
        if len(self.embedding_bias_words) != len(self.embedding_bias_weights):
            raise click.UsageError(
                "--embedding_bias_words and --embedding_bias_weights differ in number: give one weight per word"
            )
        if ("guided_decoding_guide_type" in self.scalars) != ("guided_decoding_guide" in self.scalars):
            raise click.UsageError("--guided_decoding_guide_type and --guided_decoding_guide go together")

    def lookahead_sizes(self) -> tuple[int, ...]:
        """Window, n-gram and verification set of --lookahead_config; empty without it. Raises UsageError."""
        if self.lookahead_config is None:
            return ()
        try:
            sizes = json.loads(self.lookahead_config)
        except ValueError:
            sizes = None
        if not isinstance(sizes, list) or len(sizes) != 3 or not all(type(size) is int and 0 <= size < 2**31 for size in sizes):
            raise click.UsageError(
                f"--lookahead_config {self.lookahead_config}: give three numbers, [window, ngram, verification set]"
            )
        return tuple(sizes)


_generation = cloup.option_group(
    "Generation",
    cloup.option("-S", "--streaming", is_flag=True, help="Print the answer as it arrives."),
    cloup.option(
        "-o", "--request_output_len", type=_INT32, show_default="16 for ids, 100 for text", help="Tokens to generate."
    ),
    cloup.option("--min_tokens", type=_INT32, help="At least this many tokens."),
    cloup.option("-b", "--beam_width", type=_INT32, help="Beams."),
    cloup.option("-n", "--num_return_sequences", type=_INT32, help="Sequences to sample."),
    cloup.option("--temperature", type=float, help="Sampling temperature."),
    cloup.option("--top_k", type=_INT32, help="Sample from the k most probable tokens; 1: greedy."),
    cloup.option("--top_p", type=float, help="Sample from the most probable tokens with this total probability."),
    cloup.option("--seed", type=_UINT64, help="Seed of the sampling."),
    cloup.option("--repetition_penalty", type=float, help="Above 1: tokens that have occurred become less probable."),
    cloup.option("--presence_penalty", type=float, help="Subtracted from the logit of each token that has occurred."),
    cloup.option("--frequency_penalty", type=float, help="The same, once per occurrence."),
    cloup.option("--length_penalty", type=float, help="Beam search: weight of the length."),
    cloup.option("--beam_search_diversity_rate", type=float, help="Beam search: strength of the diversity of beams."),
    cloup.option("--early_stopping/--no_early_stopping", default=None, help="Beam search: end once enough beams are complete."),
    cloup.option("--stop_words", multiple=True, metavar="WORD…", help="Words that end the answer."),
    cloup.option("--bad_words", multiple=True, metavar="WORD…", help="Words to exclude from the answer."),
    cloup.option("--embedding_bias_words", multiple=True, metavar="WORD…", help="Words to make more or less probable."),
    cloup.option("--embedding_bias_weights", multiple=True, type=float, metavar="W…", help="One weight per word."),
    cloup.option("--end_id", type=_INT32, help="Token that ends the answer; -1: none. Default: the tokenizer's."),
    cloup.option("--pad_id", type=_INT32, help="Token that pads shorter rows. Default: the tokenizer's."),
    cloup.option("--exclude_input_in_output", is_flag=True, help="Exclude the prompt from the answer."),
    cloup.option(
        "--guided_decoding_guide_type",
        help="Kind of guide: json, json_schema, regex or ebnf_grammar.",
    ),
    cloup.option("--guided_decoding_guide", help="Schema, expression or grammar for the answer."),
    cloup.option("--lookahead_config", metavar="[W,N,V]", help="Lookahead decoding: window, n-gram and verification set."),
    cloup.option("--num_draft_tokens", type=_INT32, help="Speculative decoding in tensorrt_llm_bls: tokens per draft."),
    cloup.option("--use_draft_logits", is_flag=True, help="Speculative decoding: accept drafts by their logits."),
)


@dataclass(frozen=True)
class AdapterOptions:
    """LoRA adapter and prompt embedding table."""

    lora_path: Path | None
    lora_task_id: int | None
    prompt_embedding_table_path: Path | None
    prompt_task_id: int
    prompt_table_extra_id: int | None
    vocab_size: int | None

    def check(self) -> None:
        """Raise UsageError for an adapter without an id."""
        if self.lora_path is not None and not self.lora_task_id:
            raise click.UsageError("--lora_path needs --lora_task_id, by which later requests refer to the adapter")


_adapters = cloup.option_group(
    "Adapters",
    cloup.option("--lora_path", type=_FOLDER, help="Folder with model.lora_weights.npy and model.lora_config.npy."),
    cloup.option(
        "--lora_task_id",
        type=_UINT64,
        help="The adapter's id; without --lora_path, of an adapter in the server's cache. 0: none.",
    ),
    cloup.option("--prompt_embedding_table_path", type=_FILE, help="P-tuning table, .npy [tasks, tokens, hidden]."),
    cloup.option("--prompt_task_id", type=click.IntRange(0), default=0, help="Row of that table."),
    cloup.option("--prompt_table_extra_id", type=_UINT64, help="Id that distinguishes prompt tables in a reused KV cache."),
    cloup.option("--vocab_size", type=_COUNT, help="Size of the vocabulary; ids from here on belong to the prompt table."),
)


@dataclass(frozen=True)
class EndingOptions:
    """The request's id, and its early stop; ``stop_after_ms`` 0: none."""

    request_id: str
    stop_after_ms: int
    stop_via_request_cancel: bool

    def check(self) -> None:
        """Raise UsageError for options that are incomplete."""
        if self.stop_via_request_cancel and not self.stop_after_ms:
            raise click.UsageError("--stop_via_request_cancel needs --stop_after_ms, the time of the stop")
        if self.stop_after_ms and not self.stop_via_request_cancel and not self.request_id:
            raise click.UsageError("--stop_after_ms needs --request_id: a stop request refers to its target by id")

    def early_stop(self) -> EarlyStop | None:
        """The early stop, if any."""
        from serving.client.triton import EarlyStop

        return EarlyStop(self.stop_after_ms, self.stop_via_request_cancel) if self.stop_after_ms else None


_ending = cloup.option_group(
    "Ending early",
    cloup.option("--request_id", default="", help="The request's id, to which a stop request refers."),
    cloup.option("--stop_after_ms", type=click.IntRange(0), default=0, help="Stop after this many ms; 0: never."),
    cloup.option("--stop_via_request_cancel", is_flag=True, help="Stop by cancelling the call instead of a stop request."),
)


@dataclass(frozen=True)
class AnswerOptions:
    """The outputs to request and the expected answer."""

    requested_outputs: tuple[str, ...]
    overwrite_output_text: bool
    check_output: bool
    output_tokens_csv: Path | None
    expected_outputs: str | None
    correctness_threshold: float

    def check(self, beam_width: int) -> None:
        """Raise UsageError for --check_output without an expected answer, or with several beams."""
        if self.check_output and not (self.output_tokens_csv or self.expected_outputs):
            raise click.UsageError("--check_output needs --output_tokens_csv or --expected_outputs, the expected answer")
        if self.check_output and beam_width > 1:
            raise click.UsageError("--check_output compares one beam; omit --beam_width")


_answer = cloup.option_group(
    "Answer",
    cloup.option("--return_log_probs", is_flag=True, help="Print log probabilities."),
    cloup.option("--return_context_logits", is_flag=True, help="Print the prompt's logits."),
    cloup.option("--return_generation_logits", is_flag=True, help="Print the answer's logits."),
    cloup.option("--return_perf_metrics", is_flag=True, help="Print KV cache blocks, times and draft acceptance."),
    cloup.option("--return_num_input_tokens", is_flag=True, help="Print the server's count of input tokens."),
    cloup.option("--return_num_output_tokens", is_flag=True, help="Print the server's count of output tokens."),
    cloup.option(
        "--requested_outputs", multiple=True, metavar="NAME…", help="Request exactly these outputs, and check that they arrive."
    ),
    cloup.option(
        "--overwrite_output_text", is_flag=True, help="Each streamed text replaces the previous one (accumulate_tokens)."
    ),
    cloup.option("-c", "--check_output", "--check_outputs", is_flag=True, help="Compare the answer with:"),
    cloup.option("--output_tokens_csv", type=_FILE, help="Expected token ids: the file's first line."),
    cloup.option("--expected_outputs", metavar="JSON", help="Expected texts: a JSON list, one per prompt."),
    cloup.option(
        "--correctness_threshold",
        type=click.FloatRange(0, 1),
        default=1.0,
        help="Share of token ids that must match.",
    ),
)


@dataclass(frozen=True)
class GenerateOptions:
    """The options of one ``bench generate``."""

    target: TargetOptions
    prompt: PromptOptions
    generation: GenerationOptions
    adapters: AdapterOptions
    ending: EndingOptions
    answer: AnswerOptions


def generate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the verb with every option."""
    for group in (_answer, _ending, _adapters, _generation, _prompt, _target):
        function = group(function)
    return function


def read_options(values: Mapping[str, Any]) -> GenerateOptions:
    """The options, from the values that click passes. Raises UsageError before anything is deployed."""
    _check_ranges(values)
    scalars = _given_scalars(values)
    options = GenerateOptions(
        target=options_from(TargetOptions, values),
        prompt=options_from(PromptOptions, values),
        generation=options_from(GenerationOptions, {**values, "scalars": scalars}),
        adapters=options_from(AdapterOptions, values),
        ending=options_from(EndingOptions, values),
        answer=options_from(AnswerOptions, values),
    )
    for concern in (options.prompt, options.ending, options.generation, options.adapters, options.target):
        concern.check()
    options.answer.check(beam_width=int(scalars.get("beam_width", 1)))
    return options


def _check_ranges(values: Mapping[str, Any]) -> None:
    """Raise UsageError for an integer beyond the range of its tensor."""
    for name, value in values.items():
        low, high = (0, 2**64) if name in _UINT64_OPTIONS else (-(2**31), 2**31)
        if isinstance(value, int) and not low <= value < high:
            raise click.UsageError(f"--{name} {value}: must lie between {low} and {high - 1}")


def _given_scalars(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """The options to send as scalars: those that are given. A flag that is not given is not sent."""
    from serving.client.request import SCALARS

    given = {name: values[name] for name in SCALARS if values.get(name) is not None}
    return {name: value for name, value in given.items() if value is not False or name == "early_stopping"}


class ManyValuedCommand(cloup.Command):
    """A command that reads ``--stop_words a b`` as ``--stop_words a --stop_words b``, as upstream's clients do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated(args))


def repeated(args: list[str]) -> list[str]:
    """``args`` with each option of MANY_VALUED repeated before every further value."""
    spread: list[str] = []
    option, values = "", 0
    for token in args:
        if _is_option(token):
            option = token if token.lstrip("-").replace("-", "_") in MANY_VALUED else ""
            values = 0
        elif option:
            values += 1
            if values > 1:
                spread.append(option)
        spread.append(token)
    return spread


def _is_option(word: str) -> bool:
    if len(word) < 2 or not word.startswith("-"):
        return False
    try:
        float(word)  # a negative number is a value
    except ValueError:
        return True
    return False
