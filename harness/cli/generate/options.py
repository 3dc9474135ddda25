"""The options of ``bench generate``: those of upstream's two client scripts, under their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cloup

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_INT32 = click.INT  # its range is checked later, so that the help need not show it at every option
_COUNT = click.IntRange(1, 2**31 - 1)
_UINT64 = click.INT
UINT64_OPTIONS = ("seed", "lora_task_id", "prompt_table_extra_id")
MANY_VALUED = ("stop_words", "bad_words", "embedding_bias_words", "embedding_bias_weights", "requested_outputs")

_target = cloup.option_group(
    "Whom to ask",
    cloup.option("-u", "--url", help="host:port of a running server's gRPC; without it the embedded pipeline is deployed."),
    cloup.option(
        "-m",
        "--model",
        "--model_name",
        show_default="ensemble, or tensorrt_llm with --input_tokens_csv",
        help="tensorrt_llm takes token ids (text is tokenised here), ensemble and tensorrt_llm_bls take text.",
    ),
    cloup.option("--tokenizer_dir", type=_FOLDER, help="Tokenizer folder. Default: the server's own, if it lies here."),
    cloup.option("--engine_dir", type=_FOLDER, help="Without --url: engine folder. Default: the demo engine."),
    cloup.option("--decoupled_mode/--no_decoupled_mode", default=True, help="Without --url: deploy models that can stream."),
    cloup.option("-t", "--stream_timeout", type=click.FloatRange(0, min_open=True), help="Seconds a request may take."),
    cloup.option("-s", "--ssl", is_flag=True, help="Encrypt the connection with TLS."),
    cloup.option("-r", "--root_certificates", type=_FILE, help="TLS: PEM file of the roots to trust."),
    cloup.option("--private_key", type=_FILE, help="TLS: PEM file of the client's key."),
    cloup.option("-x", "--certificate_chain", type=_FILE, help="TLS: PEM file of the client's certificate."),
    cloup.option(
        "-C",
        "--grpc_compression_algorithm",
        type=click.Choice(["none", "deflate", "gzip"]),
        default="none",
        help="Compress what is sent.",
    ),
)
_prompt = cloup.option_group(
    "Prompt",
    cloup.option("-p", "--prompt", "--text", help="Text, or a JSON list of texts, asked one after the other."),
    cloup.option("--batch_inputs", is_flag=True, help="Send the list of texts as one request of several rows."),
    cloup.option("--input_tokens_csv", type=_FILE, help="Token ids instead of text: the file's first line."),
    cloup.option("--draft_tokens_csv", type=_FILE, help="Draft token ids for the core model: the file's first line."),
)
_generation = cloup.option_group(
    "Generation",
    cloup.option("-S", "--streaming", is_flag=True, help="Show the answer as it comes."),
    cloup.option("-o", "--request_output_len", type=_INT32, show_default="16 for ids, 100 for text", help="Tokens to make."),
    cloup.option("--min_tokens", type=_INT32, help="At least this many tokens."),
    cloup.option("-b", "--beam_width", type=_INT32, help="Beams."),
    cloup.option("-n", "--num_return_sequences", type=_INT32, help="Sequences to sample."),
    cloup.option("--temperature", type=float, help="Sampling temperature."),
    cloup.option("--top_k", type=_INT32, help="Sample among the k likeliest tokens; 1 is greedy."),
    cloup.option("--top_p", type=float, help="Sample among the likeliest tokens that make up this probability."),
    cloup.option("--seed", type=_UINT64, help="Seed of the sampling."),
    cloup.option("--repetition_penalty", type=float, help="Above 1: tokens that occurred become less likely."),
    cloup.option("--presence_penalty", type=float, help="Taken from every token that occurred."),
    cloup.option("--frequency_penalty", type=float, help="Taken from a token for each time that it occurred."),
    cloup.option("--length_penalty", type=float, help="Beam search: how length weighs."),
    cloup.option("--beam_search_diversity_rate", type=float, help="Beam search: how much beams are pushed apart."),
    cloup.option("--early_stopping/--no_early_stopping", default=None, help="Beam search: end as soon as beams are complete."),
    cloup.option("--stop_words", multiple=True, metavar="WORD…", help="End where one of these words comes."),
    cloup.option("--bad_words", multiple=True, metavar="WORD…", help="Never make these words."),
    cloup.option("--embedding_bias_words", multiple=True, metavar="WORD…", help="Words to make likelier or less likely."),
    cloup.option("--embedding_bias_weights", multiple=True, type=float, metavar="W…", help="A weight for each such word."),
    cloup.option("--end_id", type=_INT32, help="Token that ends the answer; -1: none. Default: the tokenizer's."),
    cloup.option("--pad_id", type=_INT32, help="Token that fills shorter rows. Default: the tokenizer's."),
    cloup.option("--exclude_input_in_output", is_flag=True, help="Ask for the answer without the prompt."),
    cloup.option(
        "--guided_decoding_guide_type",
        help="Kind of guide: json, json_schema, regex or ebnf_grammar.",
    ),
    cloup.option("--guided_decoding_guide", help="The schema, expression or grammar that the answer must follow."),
    cloup.option("--lookahead_config", metavar="[W,N,V]", help="Lookahead decoding: window, n-gram and verification set."),
    cloup.option("--num_draft_tokens", type=_INT32, help="Speculative decoding in tensorrt_llm_bls: tokens a draft."),
    cloup.option("--use_draft_logits", is_flag=True, help="Speculative decoding: accept drafts by their logits."),
)
_adapters = cloup.option_group(
    "Adapters",
    cloup.option("--lora_path", type=_FOLDER, help="Folder with model.lora_weights.npy and model.lora_config.npy."),
    cloup.option(
        "--lora_task_id", type=_UINT64, help="The adapter's id; alone, for an adapter that the server holds. 0: none."
    ),
    cloup.option("--prompt_embedding_table_path", type=_FILE, help="P-tuning table, .npy [tasks, tokens, hidden]."),
    cloup.option("--prompt_task_id", type=click.IntRange(0), default=0, help="Row of that table."),
    cloup.option("--prompt_table_extra_id", type=_UINT64, help="Tells prompt tables apart where the KV cache is reused."),
    cloup.option("--vocab_size", type=_COUNT, help="Ids from here on are the prompt table's."),
)
_ending = cloup.option_group(
    "Ending early",
    cloup.option("--request_id", default="", help="The request's id; a stop names its request by it."),
    cloup.option("--stop_after_ms", type=click.IntRange(0), default=0, help="Stop after so many ms; 0: do not."),
    cloup.option("--stop_via_request_cancel", is_flag=True, help="Stop by cancelling the call, not by a stop request."),
)
_answer = cloup.option_group(
    "Answer",
    cloup.option("--return_log_probs", is_flag=True, help="Show log probabilities."),
    cloup.option("--return_context_logits", is_flag=True, help="Show the prompt's logits."),
    cloup.option("--return_generation_logits", is_flag=True, help="Show the answer's logits."),
    cloup.option("--return_perf_metrics", is_flag=True, help="Show KV cache blocks, times and draft acceptance."),
    cloup.option("--return_num_input_tokens", is_flag=True, help="Show the server's count of input tokens."),
    cloup.option("--return_num_output_tokens", is_flag=True, help="Show the server's count of output tokens."),
    cloup.option(
        "--requested_outputs", multiple=True, metavar="NAME…", help="Exactly these outputs, and check that they come."
    ),
    cloup.option("--overwrite_output_text", is_flag=True, help="Each streamed text replaces the last (accumulate_tokens)."),
    cloup.option("-c", "--check_output", "--check_outputs", is_flag=True, help="Compare with what is expected, as given by:"),
    cloup.option("--output_tokens_csv", type=_FILE, help="Expected token ids: the file's first line."),
    cloup.option("--expected_outputs", metavar="JSON", help="Expected texts: a JSON list, one for each prompt."),
    cloup.option(
        "--correctness_threshold",
        type=click.FloatRange(0, 1),
        default=1.0,
        help="Share of token ids that must be as expected.",
    ),
)


def generate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the verb with every option."""
    for group in (_answer, _ending, _adapters, _generation, _prompt, _target):
        function = group(function)
    return function


class ManyValuedCommand(cloup.Command):
    """A command that reads ``--stop_words a b`` as ``--stop_words a --stop_words b``, as upstream's clients do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated(args))


def repeated(args: list[str]) -> list[str]:
    """Repeat an option of MANY_VALUED before each of its values but the first."""
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
