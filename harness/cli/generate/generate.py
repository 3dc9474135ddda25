"""``bench generate``: ask a deployed model once and show what it answers. What upstream's two client scripts do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.generate.inputs import _lookahead, ids_of_csv, prompts_of
from harness.cli.generate.options import UINT64_OPTIONS, ManyValuedCommand, generate_options

if TYPE_CHECKING:
    from serving.client.request import Ask, ServedModel
    from serving.client.triton import Early, TritonClient

_TEXT_TOKENS, _CORE_TOKENS = 100, 16  # upstream's defaults of --request_output_len


@cloup.command(
    name="generate",
    cls=ManyValuedCommand,
    short_help="Ask a deployed model once.",
    epilog="""\b
Examples:
  bench generate -p "What is machine learning?" --streaming
  bench generate --url localhost:8001 --model tensorrt_llm --text "Born in France" --tokenizer_dir ./llama -o 32
  bench generate -p '["first", "second"]' --batch_inputs --stop_words "." "!"
  bench generate --url localhost:8001 --model tensorrt_llm --input_tokens_csv ids.csv -S --stop_after_ms 200 --request_id 7

\b
Exit status: 0 it worked, 1 the server refused or failed or the answer is not as expected, 2 usage, 130 interrupted (the
request is cancelled).""",
)
@generate_options
def command(**values: Any) -> int:
    """Ask a deployed model once (each prompt of a list in turn) and print the answer.

    Without --url the embedded pipeline is deployed for the length of the call. Only what is named is sent, so that the
    deployment's own defaults hold; what the model does not take is refused, never dropped.
    """
    from harness.cli.signals import signals_as_interrupt
    from serving.errors import RequestError

    _check(values)
    with signals_as_interrupt(), _server(values) as (client, tokenizer_dir):
        try:
            return _generate(client, values, tokenizer_dir)
        except RequestError as error:
            raise click.UsageError(str(error)) from error


def _check(values: dict[str, Any]) -> None:
    """Numbers that fit no tensor, and options that cannot stand together; found before anything is deployed."""
    for name, value in values.items():
        low, high = (0, 2**64) if name in UINT64_OPTIONS else (-(2**31), 2**31)
        if isinstance(value, int) and not low <= value < high:
            raise click.UsageError(f"--{name} {value}: must lie between {low} and {high - 1}")
    if (values["prompt"] is None) == (values["input_tokens_csv"] is None):
        raise click.UsageError("give either --prompt (or --text) or --input_tokens_csv")
    if values["stop_via_request_cancel"] and not values["stop_after_ms"]:
        raise click.UsageError("--stop_via_request_cancel needs --stop_after_ms, which says when")
    if values["stop_after_ms"] and not values["stop_via_request_cancel"] and not values["request_id"]:
        raise click.UsageError("--stop_after_ms needs --request_id: a stop request names what it stops by its id")
    if len(values["embedding_bias_words"]) != len(values["embedding_bias_weights"]):
        raise click.UsageError(
            "--embedding_bias_words and --embedding_bias_weights differ in number: give each word one weight"
        )
    if values["check_output"] and not (values["output_tokens_csv"] or values["expected_outputs"]):
        raise click.UsageError("--check_output needs --output_tokens_csv or --expected_outputs, which say what is expected")
    if values["check_output"] and (values["beam_width"] or 1) > 1:
        raise click.UsageError("--check_output compares one beam; leave --beam_width at 1")
    if (values["guided_decoding_guide_type"] is None) != (values["guided_decoding_guide"] is None):
        raise click.UsageError("--guided_decoding_guide_type and --guided_decoding_guide go together")
    if values["url"] is not None and values["engine_dir"] is not None:
        raise click.UsageError("--engine_dir is for the embedded pipeline; with --url the server has its engine")


@contextmanager
def _server(values: dict[str, Any]) -> Iterator[tuple[TritonClient, Path | None]]:
    """A client of the server that --url names, or of one deployed for the call; and a tokenizer folder that is known."""
    from harness.cli.measurement.urls import grpc_address
    from serving.client.triton import TritonClient

    if values["url"] is not None:
        with TritonClient(grpc_address(values["url"]), _security(values)) as client:
            yield client, values["tokenizer_dir"]
        return
    import tempfile

    from serving.engines.openvino.folder import DEMO_ENGINE_DIR
    from serving.launch.addresses import choose_addresses
    from serving.launch.embedded import deploy
    from serving.repository.pipeline import RepositorySpec

    engine_dir = (values["engine_dir"] or DEMO_ENGINE_DIR).resolve()
    tokenizer_dir = (values["tokenizer_dir"] or engine_dir).resolve()
    spec = RepositorySpec(engine_dir=engine_dir, tokenizer_dir=tokenizer_dir, decoupled_mode=values["decoupled_mode"])
    click.echo("Deploying the embedded pipeline …", err=True)
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as folder:
        log = Path(folder) / "server.log"
        with deploy(spec, choose_addresses(), log) as server, TritonClient(server.addresses.grpc) as client:
            yield client, tokenizer_dir


def _security(values: dict[str, Any]) -> Any:
    import grpc

    from serving.client.triton import Security

    named = {name: values[name] for name in ("root_certificates", "private_key", "certificate_chain")}
    if any(named.values()) and not values["ssl"]:
        raise click.UsageError("certificates and keys are for an encrypted connection; add --ssl")
    compression = {"none": "NoCompression", "deflate": "Deflate", "gzip": "Gzip"}[values["grpc_compression_algorithm"]]
    files = {name: None if path is None else path.read_bytes() for name, path in named.items()}
    return Security(tls=values["ssl"], compression=grpc.Compression[compression], **files)


def _generate(client: TritonClient, values: dict[str, Any], tokenizer_dir: Path | None) -> int:
    from harness.cli.generate.output import Printer, expectations, generated, verdict
    from serving.client.triton import encode

    model = client.describe(values["model"] or ("tensorrt_llm" if values["input_tokens_csv"] else "ensemble"))
    tokenizer = _tokenizer(client, model, tokenizer_dir)
    expected = expectations(values)
    status: int = ExitStatus.VALID
    for number, ask in enumerate(_asks(values, model, tokenizer)):
        printer = Printer(ask, model, tokenizer, overwrite=values["overwrite_output_text"])
        message = encode(model, ask, tokenizer)
        printer.begin()
        answer = client.generate(
            model,
            ask,
            message,
            early=_early(values),
            timeout_s=values["stream_timeout"],
            overwrite_text=values["overwrite_output_text"],
            on_response=printer.add,
        )
        printer.end(answer)
        made = generated(ask, model, tokenizer, answer)
        problem = verdict(ask, answer, made, expected, number, values["correctness_threshold"], _early(values) is not None)
        if problem is not None:
            click.echo(f"Error: {problem}", err=True)
            status = ExitStatus.FAILED
    return status


def _early(values: dict[str, Any]) -> Early | None:
    from serving.client.triton import Early

    return Early(values["stop_after_ms"], values["stop_via_request_cancel"]) if values["stop_after_ms"] else None


def _tokenizer(client: TritonClient, model: ServedModel, tokenizer_dir: Path | None) -> Any | None:
    """The tokenizer, where the core model needs one: of the folder named, or of the deployment's if that lies here."""
    if not model.takes_token_ids:
        return None
    from serving.errors import ClientError
    from serving.text.detokenization import load_tokenizer

    named = tokenizer_dir or _tokenizer_dir_of_server(client, model)
    if named is None:
        return None
    try:
        return load_tokenizer(named)
    except ValueError as error:
        raise ClientError(f"--tokenizer_dir: {error}") from error


def _tokenizer_dir_of_server(client: TritonClient, model: ServedModel) -> Path | None:
    from serving.errors import ClientError

    try:
        others = client.describe("preprocessing").parameters
    except ClientError:
        others = {}
    for parameters in (model.parameters, others):
        named = parameters.get("tokenizer_dir")
        if named and Path(named).is_dir():
            return Path(named)
    return None


def _asks(values: dict[str, Any], model: ServedModel, tokenizer: Any | None) -> list[Ask]:
    """One request for each prompt, or one for all with --batch_inputs."""
    from dataclasses import replace

    ask = _ask(values, model, tokenizer)
    if values["batch_inputs"] or ask.input_ids:
        return [ask]
    return [replace(ask, prompts=(prompt,)) for prompt in ask.prompts]


def _ask(values: dict[str, Any], model: ServedModel, tokenizer: Any | None) -> Ask:
    from serving.client.request import SCALARS, Ask

    flags_off = {name for name, value in values.items() if value is False} - {"early_stopping"}  # a flag not given is not sent
    scalars = {name: values[name] for name in SCALARS if values.get(name) is not None and name not in flags_off}
    scalars.setdefault("request_output_len", _CORE_TOKENS if model.takes_token_ids else _TEXT_TOKENS)
    if scalars.get("lora_task_id") == 0:  # upstream's way to say none
        del scalars["lora_task_id"]
    for name, token in (("end_id", "eos_token_id"), ("pad_id", "pad_token_id")):
        known = None if tokenizer is None else getattr(tokenizer, token)
        if known is None and name == "pad_id" and tokenizer is not None:
            known = tokenizer.eos_token_id
        if model.takes_token_ids and known is not None:
            scalars.setdefault(name, known)
    return Ask(
        prompts=() if values["prompt"] is None else prompts_of(values["prompt"]),
        input_ids=() if values["input_tokens_csv"] is None else (ids_of_csv("--input_tokens_csv", values["input_tokens_csv"]),),
        scalars=scalars,
        stop_words=values["stop_words"],
        bad_words=values["bad_words"],
        arrays=_arrays(values),
        requested_outputs=values["requested_outputs"],
        request_id=values["request_id"],
        prompt_table_extra_id=values["prompt_table_extra_id"],
        vocab_size=values["vocab_size"],
    )


def _arrays(values: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from serving.client.request import load_lora, load_prompt_table

    arrays: dict[str, Any] = {}
    if values["embedding_bias_words"]:
        arrays["embedding_bias_words"] = np.array([word.encode() for word in values["embedding_bias_words"]], dtype=np.object_)
        arrays["embedding_bias_weights"] = np.array(values["embedding_bias_weights"], dtype=np.float32)
    if values["draft_tokens_csv"]:
        arrays["draft_input_ids"] = np.array(ids_of_csv("--draft_tokens_csv", values["draft_tokens_csv"]), dtype=np.int32)
    if values["lookahead_config"] is not None:
        names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
        sizes = _lookahead(values["lookahead_config"])
        arrays.update({name: np.array([size], dtype=np.int32) for name, size in zip(names, sizes, strict=True)})
    if values["lora_path"] is not None:
        if not values["lora_task_id"]:
            raise click.UsageError("--lora_path needs --lora_task_id, by which the server knows the adapter later")
        arrays.update(load_lora(values["lora_path"]))
    if values["prompt_embedding_table_path"] is not None:
        arrays.update(load_prompt_table(values["prompt_embedding_table_path"], values["prompt_task_id"]))
    return arrays
