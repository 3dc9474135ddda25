"""The options of ``bench generate``: those of upstream's two client scripts, under their names.

A field has the name of its option.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, part, switch

if TYPE_CHECKING:
    from serving.client.request import Scalar
    from serving.client.triton import EarlyStop

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_INT32 = click.INT  # the range is checked later, which keeps it out of every option's help
_COUNT = click.IntRange(1, 2**31 - 1)
_UINT64 = click.INT
_UINT64_OPTIONS = ("seed", "lora_task_id", "prompt_table_extra_id")
_OF_A_CONNECTION = ("ssl", "root_certificates", "private_key", "certificate_chain", "grpc_compression_algorithm")
MANY_VALUED = ("stop_words", "bad_words", "embedding_bias_words", "embedding_bias_weights", "requested_outputs")


@dataclass(frozen=True)
class TargetOptions(Concern, title="Server and model"):
    """The server and the model; ``url`` None: the embedded pipeline, which ``engine_dir`` and ``decoupled_mode`` configure."""

    url: str | None = option(
        None,
        "-u",
        common=True,
        help="[grpcs://]host:port of a running server's gRPC endpoint; without it the embedded pipeline is deployed.",
    )
    model: str | None = option(
        None,
        "-m",
        "--model",
        "--model_name",
        show_default="ensemble, or tensorrt_llm with --input_tokens_csv",
        common=True,
        help="Model: tensorrt_llm takes token ids (bench tokenizes text), ensemble and tensorrt_llm_bls take text.",
    )
    tokenizer_dir: Path | None = option(
        None, type=_FOLDER, common=True, help="Tokenizer folder. Default: the server's, if it is on this machine."
    )
    engine_dir: Path | None = option(None, type=_FOLDER, help="Without --url: engine folder. Default: the demo engine.")
    decoupled_mode: bool = switch(True, help="Without --url: deploy models that can stream.")
    stream_timeout: float | None = option(
        None, "-t", type=click.FloatRange(0, min_open=True), help="Timeout of a request in seconds."
    )
    ssl: bool = option(False, "-s", help="Encrypt the connection with TLS.")
    root_certificates: Path | None = option(None, "-r", type=_FILE, help="TLS: PEM file of trusted root certificates.")
    private_key: Path | None = option(None, type=_FILE, help="TLS: PEM file of the client's private key.")
    certificate_chain: Path | None = option(None, "-x", type=_FILE, help="TLS: PEM file of the client's certificate.")
    grpc_compression_algorithm: str = option(
        "none", "-C", type=click.Choice(["none", "deflate", "gzip"]), help="Compression of requests."
    )

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.url is None:
            for name in self.given(*_OF_A_CONNECTION):
                raise click.UsageError(f"--{name} is for a server at --url; the embedded pipeline is on this machine")
        else:
            for name in self.given("engine_dir", "decoupled_mode"):
                raise click.UsageError(f"--{name} is for the embedded pipeline; the server at --url has its own models")
        is_encrypted = self.ssl or (self.url is not None and self.url.strip().lower().startswith("grpcs://"))
        if self.url is not None and not is_encrypted and (self.root_certificates or self.private_key or self.certificate_chain):
            raise click.UsageError("certificates and keys require an encrypted connection; add --ssl")


@dataclass(frozen=True)
class PromptOptions(Concern, title="Prompt"):
    """The input: ``prompt``, one text or a JSON list of them, or a file of token ids."""

    prompt: str | None = option(
        None, "-p", "--prompt", "--text", common=True, help="Text, or a JSON list of texts, which are sent one after another."
    )
    batch_inputs: bool = option(False, help="Send the list of texts as one request of several rows.")
    input_tokens_csv: Path | None = option(
        None, type=_FILE, common=True, help="Token ids instead of text: the file's first line."
    )
    draft_tokens_csv: Path | None = option(None, type=_FILE, help="Draft token ids for the core model: the file's first line.")

    def check(self) -> None:
        """Raise UsageError unless there is exactly one input."""
        if (self.prompt is None) == (self.input_tokens_csv is None):
            raise click.UsageError("give either --prompt (or --text) or --input_tokens_csv")


@dataclass(frozen=True)
class GenerationOptions(Concern, title="Generation"):
    """Sampling, and what ends the answer. None: not sent."""

    streaming: bool = option(False, "-S", common=True, help="Print the answer as it arrives.")
    request_output_len: int | None = option(
        None, "-o", type=_INT32, show_default="16 for ids, 100 for text", common=True, help="Tokens to generate."
    )
    min_tokens: int | None = option(None, type=_INT32, help="At least this many tokens.")
    beam_width: int | None = option(None, "-b", type=_INT32, common=True, help="Beams.")
    num_return_sequences: int | None = option(None, "-n", type=_INT32, help="Sequences to sample.")
    temperature: float | None = option(None, type=float, common=True, help="Sampling temperature.")
    top_k: int | None = option(None, type=_INT32, common=True, help="Sample from the k most probable tokens; 1: greedy.")
    top_p: float | None = option(
        None, type=float, common=True, help="Sample from the most probable tokens with this total probability."
    )
    seed: int | None = option(None, type=_UINT64, common=True, help="Seed of the sampling.")
    repetition_penalty: float | None = option(
        None, type=float, common=True, help="Above 1: tokens that have occurred become less probable."
    )
    presence_penalty: float | None = option(None, type=float, help="Subtracted from the logit of each token that has occurred.")
    frequency_penalty: float | None = option(None, type=float, help="The same, once per occurrence.")
    length_penalty: float | None = option(None, type=float, help="Beam search: weight of the length.")
    beam_search_diversity_rate: float | None = option(None, type=float, help="Beam search: strength of the diversity of beams.")
    early_stopping: bool | None = switch(None, help="Beam search: end once enough beams are complete.")
    stop_words: tuple[str, ...] = option((), metavar="WORD…", common=True, help="Words that end the answer.")
    bad_words: tuple[str, ...] = option((), metavar="WORD…", common=True, help="Words to exclude from the answer.")
    embedding_bias_words: tuple[str, ...] = option((), metavar="WORD…", help="Words to make more or less probable.")
    embedding_bias_weights: tuple[float, ...] = option((), type=float, metavar="W…", help="One weight per word.")
    end_id: int | None = option(
        None, type=_INT32, common=True, help="Token that ends the answer; -1: none. Default: the tokenizer's."
    )
    pad_id: int | None = option(None, type=_INT32, help="Token that pads shorter rows. Default: the tokenizer's.")
    exclude_input_in_output: bool = option(False, help="Exclude the prompt from the answer.")
    guided_decoding_guide_type: str | None = option(None, help="Kind of guide: json, json_schema, regex or ebnf_grammar.")
    guided_decoding_guide: str | None = option(None, help="Schema, expression or grammar for the answer.")
    lookahead_config: str | None = option(
        None, metavar="[W,N,V]", help="Lookahead decoding: window, n-gram and verification set."
    )
    num_draft_tokens: int | None = option(None, type=_INT32, help="Speculative decoding in tensorrt_llm_bls: tokens per draft.")
    use_draft_logits: bool = option(False, help="Speculative decoding: accept drafts by their logits.")

    def check(self) -> None:
        """Raise UsageError for options that are incomplete."""
        if len(self.embedding_bias_words) != len(self.embedding_bias_weights):
            raise click.UsageError(
                "--embedding_bias_words and --embedding_bias_weights differ in number: give one weight per word"
            )
        if (self.guided_decoding_guide_type is None) != (self.guided_decoding_guide is None):
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


@dataclass(frozen=True)
class AdapterOptions(Concern, title="Adapters"):
    """LoRA adapter and prompt embedding table."""

    lora_path: Path | None = option(None, type=_FOLDER, help="Folder with model.lora_weights.npy and model.lora_config.npy.")
    lora_task_id: int | None = option(
        None, type=_UINT64, help="The adapter's id; without --lora_path, of an adapter in the server's cache. 0: none."
    )
    prompt_embedding_table_path: Path | None = option(None, type=_FILE, help="P-tuning table, .npy [tasks, tokens, hidden].")
    prompt_task_id: int = option(0, type=click.IntRange(0), help="Row of that table.")
    prompt_table_extra_id: int | None = option(
        None, type=_UINT64, help="Id that distinguishes prompt tables in a reused KV cache."
    )
    vocab_size: int | None = option(
        None, type=_COUNT, help="Size of the vocabulary; ids from here on belong to the prompt table."
    )

    def check(self) -> None:
        """Raise UsageError for an adapter without an id."""
        if self.lora_path is not None and not self.lora_task_id:
            raise click.UsageError("--lora_path needs --lora_task_id, by which later requests refer to the adapter")


@dataclass(frozen=True)
class EndingOptions(Concern, title="Ending early"):
    """The request's id, and its early stop; ``stop_after_ms`` 0: none."""

    request_id: str = option("", common=True, help="The request's id, to which a stop request refers.")
    stop_after_ms: int = option(0, type=click.IntRange(0), common=True, help="Stop after this many ms; 0: never.")
    stop_via_request_cancel: bool = option(False, help="Stop by cancelling the call instead of a stop request.")

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


@dataclass(frozen=True)
class AnswerOptions(Concern, title="Answer"):
    """The outputs to request and the expected answer."""

    return_log_probs: bool = option(False, common=True, help="Print log probabilities.")
    return_context_logits: bool = option(False, help="Print the prompt's logits.")
    return_generation_logits: bool = option(False, help="Print the answer's logits.")
    return_perf_metrics: bool = option(False, help="Print KV cache blocks, times and draft acceptance.")
    return_num_input_tokens: bool = option(False, help="Print the server's count of input tokens.")
    return_num_output_tokens: bool = option(False, help="Print the server's count of output tokens.")
    requested_outputs: tuple[str, ...] = option(
        (), metavar="NAME…", help="Request exactly these outputs, and check that they arrive."
    )
    overwrite_output_text: bool = option(False, help="Each streamed text replaces the previous one (accumulate_tokens).")
    check_output: bool = option(False, "-c", "--check_output", "--check_outputs", common=True, help="Compare the answer with:")
    output_tokens_csv: Path | None = option(None, type=_FILE, help="Expected token ids: the file's first line.")
    expected_outputs: str | None = option(None, metavar="JSON", help="Expected texts: a JSON list, one per prompt.")
    correctness_threshold: float = option(1.0, type=click.FloatRange(0, 1), help="Share of token ids that must match.")

    def check(self, beam_width: int) -> None:
        """Raise UsageError for --check_output without an expected answer, or with several beams."""
        if not self.check_output:
            for name in self.given("output_tokens_csv", "expected_outputs", "correctness_threshold"):
                raise click.UsageError(f"--{name} needs --check_output, which compares the answer")
        if self.check_output and not (self.output_tokens_csv or self.expected_outputs):
            raise click.UsageError("--check_output needs --output_tokens_csv or --expected_outputs, the expected answer")
        if self.check_output and beam_width > 1:
            raise click.UsageError("--check_output compares one beam; omit --beam_width")


@dataclass(frozen=True)
class GenerateOptions(Concern):
    """The options of one ``bench generate``."""

    target: TargetOptions = part(TargetOptions)
    prompt: PromptOptions = part(PromptOptions)
    generation: GenerationOptions = part(GenerationOptions)
    adapters: AdapterOptions = part(AdapterOptions)
    ending: EndingOptions = part(EndingOptions)
    answer: AnswerOptions = part(AnswerOptions)

    @property
    def scalars(self) -> dict[str, Scalar]:
        """The options to send as scalars of ``serving.client.request.SCALARS``, by name: those that are given. A flag that is
        not given is not sent."""
        from serving.client.request import SCALARS

        given = {name: value for name, value in self.values_of_parts().items() if name in SCALARS and value is not None}
        return {
            name: given[name] for name in SCALARS if name in given and (given[name] is not False or name == "early_stopping")
        }

    def check(self) -> None:
        """Raise UsageError for values beyond their range, and for options that contradict each other or are incomplete."""
        for name, value in self.values_of_parts().items():
            low, high = (0, 2**64) if name in _UINT64_OPTIONS else (-(2**31), 2**31)
            if isinstance(value, int) and not low <= value < high:
                raise click.UsageError(f"--{name} {value}: must lie between {low} and {high - 1}")
        for concern in (self.prompt, self.ending, self.generation, self.adapters, self.target):
            concern.check()
        self.answer.check(self.generation.beam_width or 1)


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
