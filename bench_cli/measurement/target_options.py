"""Options of the target: ``--url``, the protocol, the model, and what only one protocol takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, switch
from bench_cli.measurement.secrets import (
    SecretText,
    WrittenIn,
    hide_in_refused_url,
    is_reference,
    is_secret_name,
    literal,
    reveal_fields,
    reveal_query,
    revealed,
    secret_fields,
)
from harness.clients.secret_values import HIDDEN, Spellings, spellings
from harness.clients.triton.model import DEFAULT_MODEL
from harness.protocols.listed import PROTOCOLS
from workloads.elements.request import Balance

if TYPE_CHECKING:
    from harness.clients.transport.url import Origin
    from harness.protocols.protocol import ServingProtocol
    from workloads.schedule.schedule import AnySchedule

_TEXT_MODELS = ("ensemble", "tensorrt_llm_bls")  # of the embedded pipeline
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_CONNECTION_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "upgrade", "expect"})
_ANSWERS = ("n", "best_of")  # fields of OpenAI's protocol: how many answers to generate for one prompt
*_FIRST, _LAST = (protocol.title for protocol in PROTOCOLS.values())
_OVER_HTTP = "Over HTTP (all but -i grpc)"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")  # of a repository: the owner may be left out


@dataclass(frozen=True, slots=True)
class Header:
    """One header of every request."""

    name: str
    value: str
    is_secret: bool = False  # it was read from a file or the environment

    def __str__(self) -> str:
        """Text for the manifest, as --header takes it: the value of a header that may hold a secret is hidden."""
        return f"{self.name}: {HIDDEN if self.may_be_secret else literal(self.value)}"

    @property
    def may_be_secret(self) -> bool:
        return self.is_secret or is_secret_name(self.name)


def _read_tokenizer(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Path | None:
    """Callback of --tokenizer: the folder of the tokenizer. Raises BadParameter."""
    if text is None:
        return None
    path = Path(text)
    if path.is_dir():
        return path
    if path.is_file():
        if path.name.startswith("tokenizer"):
            return path.parent
        raise click.BadParameter(f"{text} is no tokenizer file; give its tokenizer.json, or the folder", ctx, parameter)
    if not _HUB_NAME.fullmatch(text):
        raise click.BadParameter(f"{text}: no such folder or file", ctx, parameter)
    from bench_cli.tokenizers import hub_tokenizer_dir

    folder = hub_tokenizer_dir(text)
    if folder is None:
        raise click.BadParameter(
            f"{text}: no such folder, and neither the local Hugging Face cache nor the hub has a tokenizer of that name",
            ctx,
            parameter,
        )
    return folder


def _read_headers(ctx: click.Context, parameter: click.Parameter, lines: tuple[str, ...]) -> tuple[Header, ...]:
    """Callback of --header. Raises BadParameter."""
    headers = []
    for number, line in enumerate(lines, start=1):
        match = _HEADER.fullmatch(line)
        if match is None or not line.isascii():  # it is not shown, for it may be a secret alone
            raise click.BadParameter(f"number {number} is no header; give 'Name: value'", ctx, parameter)
        if match[1].lower() in _CONNECTION_HEADERS:
            raise click.BadParameter(f"{match[1]} is between bench and the server; it cannot be set", ctx, parameter)
        written = match[2].rstrip(" \t")
        value = revealed(WrittenIn.of(ctx, parameter), match[1], written)
        if not value.isascii() or not _HEADER.fullmatch(f"{match[1]}: {value}"):
            raise click.BadParameter(f"{match[1]}: what was read is no value of a header", ctx, parameter)
        headers.append(Header(match[1], value, is_reference(written)))
    return tuple(headers)


def _read_extra_body(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Mapping[str, object]:
    """Callback of --extra_body. Raises BadParameter."""
    if text is None:
        return {}
    from harness.clients.openai_client import OUR_FIELDS

    try:
        fields = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", ctx, parameter) from error
    if not isinstance(fields, dict):
        raise click.BadParameter('give a JSON object, for example {"temperature": 0}', ctx, parameter)
    reserved = sorted(OUR_FIELDS & fields.keys())
    if reserved:
        raise click.BadParameter(f"{', '.join(reserved)}: bench sets that itself", ctx, parameter)
    for name in _ANSWERS:
        if isinstance(fields.get(name), int | float) and fields[name] > 1:
            raise click.BadParameter(f"{name} is {fields[name]}: bench measures one answer to a request", ctx, parameter)
    return dict(reveal_fields(WrittenIn.of(ctx, parameter), fields))


def _read_endpoint(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Callback of --endpoint. Raises BadParameter."""
    if path is None:
        return None
    revealed_path = reveal_query(WrittenIn.of(ctx, parameter), path)
    if not re.fullmatch(r"/[!-~]*", revealed_path):
        raise click.BadParameter(
            f"{hide_in_refused_url(revealed_path.shown)!r} is no path; give one that begins with /", ctx, parameter
        )
    return revealed_path


def _read_urls(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of --url: one or more, each alone or in a list with commas. Raises BadParameter for one that comes twice."""
    from harness.clients.transport.url import separate_urls

    urls = tuple(url for text in given for url in separate_urls(text))
    twice = next((url for number, url in enumerate(urls) if url in urls[:number]), None)
    if twice is not None:
        raise click.BadParameter(f"{hide_in_refused_url(twice)!r} is given twice", ctx, parameter)
    return urls


@dataclass(frozen=True)
class TargetOptions(Concern, title="What to measure"):
    """The model to measure. ``url`` (): the embedded pipeline; ``streaming`` None: streaming where the model can; ``endpoint``
    None: the protocol's default.
    """

    url: tuple[str, ...] = option(
        (),
        "-u",
        callback=_read_urls,
        common=True,
        help="Running server: [grpcs://]host:port for grpc, http(s)://host:port for http, http(s)://host:port/v1 for OpenAI's; "
        "without it the embedded pipeline is deployed. Repeatable: requests are spread over several servers of one model.",
    )
    balance: str = option(
        Balance.ROUND_ROBIN.value,
        type=click.Choice([balance.value for balance in Balance]),
        show_default=True,
        help="The one of several --url that a request goes to: round_robin each as often as the others, in an order that the "
        "seed draws; least_in_flight the one with the fewest requests of this client in flight, in a distributed run of the "
        "worker that sends it; session one for all turns of a session.",
    )
    protocol: str = option(
        "grpc", "-i", type=click.Choice(list(PROTOCOLS)), common=True, help=f"Protocol: {', '.join(_FIRST)}, or {_LAST}."
    )
    model: str | None = option(
        None,
        "-m",
        show_default="tensorrt_llm; for OpenAI's protocols the server's only model",
        common=True,
        help="Model to drive: tensorrt_llm takes token ids, ensemble and tensorrt_llm_bls take text.",
    )
    streaming: bool | None = switch(
        None, show_default="streaming if the model is decoupled", common=True, help="Request answers token by token."
    )
    tokenizer_dir: Path | None = option(
        None,
        "--tokenizer",
        "--tokenizer_dir",
        metavar="FOLDER|FILE|NAME",
        callback=_read_tokenizer,
        common=True,
        help="Hugging Face tokenizer: folder, tokenizer.json, or a name such as meta-llama/Llama-3.1-8B, from the local cache "
        "or the hub. Default: the engine's, or the server's if it is on this machine.",
    )
    server_timings: bool = option(
        False,
        help="Ask the server for its own times of each request, for 'bench why': return_perf_metrics of Triton's models, which "
        "makes their responses larger, include_metrics of bench serve --openai_port and of vLLM, which must run with "
        "--enable-per-request-metrics, nvext.timing of Dynamo, or /perf_metrics of trtllm-serve, which is read once a second.",
    )
    reset_prefix_cache: bool = option(
        False,
        help="Empty the prefix cache of the server at --url after the warm-up: bench serve, vLLM (started with "
        "VLLM_SERVER_DEV_MODE=1) and SGLang.",
    )
    endpoint: str | None = option(
        None,
        callback=_read_endpoint,
        show_default="the protocol's own, as /v1/chat/completions",
        help="Path of OpenAI's and vLLM's protocols; in its query, NAME=@FILE and NAME=$VARIABLE read the value. The "
        "environment variable OPENAI_API_KEY may hold a key.",
        group=_OVER_HTTP,
    )
    header: tuple[Header, ...] = option(
        (),
        callback=_read_headers,
        help="'Name: value', sent with every request; 'Name: @FILE' and 'Name: $VARIABLE' read the value, and @@x and $$x are "
        "@x and $x themselves. Repeatable.",
        group=_OVER_HTTP,
    )
    extra_body: Mapping[str, object] = option(
        {},
        callback=_read_extra_body,
        help='JSON object with more fields for every request to OpenAI\'s protocol, such as {"temperature": 0}.',
        group=_OVER_HTTP,
    )
    prompt_as: str | None = option(
        None,
        type=click.Choice(["ids", "text"]),
        show_default="ids with --tokenizer or without --url, else text",
        help="Send prompts to OpenAI's completions as token ids, which have exactly the requested length, or as text.",
        group=_OVER_HTTP,
    )

    @property
    def serving(self) -> ServingProtocol:
        """The protocol that ``protocol`` names."""
        return PROTOCOLS[self.protocol].load()

    @property
    def headers(self) -> dict[str, str]:
        """``header`` by name."""
        return {header.name: header.value for header in self.header}

    @property
    def token_ids(self) -> bool:
        """Whether prompts are sent as token ids, by a protocol that takes ids or text."""
        has_tokenizer = self.tokenizer_dir is not None or not self.url  # the embedded pipeline's own
        return self.prompt_as == "ids" or (self.prompt_as is None and has_tokenizer)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that the requests send and no file or message may repeat."""
        of_headers = [header.value for header in self.header if header.may_be_secret]
        of_query = self.endpoint.secrets if isinstance(self.endpoint, SecretText) else ()
        return (*of_headers, *of_query, *secret_fields(self.extra_body))

    @property
    def hidden(self) -> Spellings:
        """What is replaced in messages: the ``secrets``, and the key in the environment."""
        from harness.clients.openai_server import api_key

        return spellings((*self.secrets, api_key()))


def check_target_options(options: TargetOptions) -> None:
    """Raises UsageError for an option that the protocol does not have, a malformed --url and an unknown model."""
    protocol = options.serving
    if protocol.embedded_port is None and not options.url:
        raise click.UsageError(f"-i {protocol.name} needs --url: the embedded pipeline does not serve it")
    if not protocol.takes_own_fields:
        for name, value in (("--endpoint", options.endpoint), ("--extra_body", options.extra_body)):
            if value:
                raise click.UsageError(f"{name} goes with -i openai, openai_completions, openai_responses and vllm_tokens")
    if options.prompt_as is not None and not protocol.takes_ids_or_text:
        raise click.UsageError("--prompt_as goes with -i openai_completions")
    if options.reset_prefix_cache and not options.url:
        raise click.UsageError("--reset_prefix_cache goes with --url: the pipeline that bench deploys has an empty cache")
    if options.header and not protocol.takes_headers:
        raise click.UsageError("--header goes with protocols over HTTP, and not with -i grpc")
    if options.url:
        _check_addresses(protocol, options)
    else:
        _check_embedded_model(protocol, options.model)
    _check_balance(options)


def _check_balance(options: TargetOptions) -> None:
    """Raises UsageError for --balance without several --url."""
    if len(options.url) < 2 and options.given("balance"):
        raise click.UsageError("--balance goes with several --url, over which it spreads the requests")


def _check_embedded_model(protocol: ServingProtocol, model: str | None) -> None:
    """Raises UsageError for a model that the embedded pipeline does not have."""
    if protocol.embedded_port == "openai":
        if model is not None:
            raise click.UsageError("--model: the embedded pipeline has one model for OpenAI's clients; omit it, or give --url")
    elif model not in (None, DEFAULT_MODEL, *_TEXT_MODELS):
        raise click.UsageError(
            f"--model {model}: the embedded pipeline has {DEFAULT_MODEL}, which takes token ids, and "
            f"{' and '.join(_TEXT_MODELS)}, which take text; --url measures another server"
        )


def check_sessions(options: TargetOptions, schedule: AnySchedule) -> None:
    """Raises UsageError for --balance session where no request belongs to a session."""
    if options.balance == Balance.SESSION.value and all(request.session is None for request in schedule.requests):
        raise click.UsageError("--balance session: no request belongs to a session; give round_robin or least_in_flight")


def _check_addresses(protocol: ServingProtocol, options: TargetOptions) -> None:
    """Raises BadParameter for a malformed --url and for two of one address, UsageError for paths in --url and --endpoint."""
    known: dict[Origin, str] = {}
    for url in options.url:
        address = read_address(protocol, url, options.endpoint)
        if address in known:
            both = f"{hide_in_refused_url(known[address])!r} and {hide_in_refused_url(url)!r}"
            raise click.BadParameter(f"{both} are one address", param_hint="--url")
        known[address] = url


def read_address(protocol: ServingProtocol, url: str, endpoint: str | None = None) -> Origin:
    """The address in --url. Raises BadParameter, and UsageError for a path in both --url and --endpoint."""
    from harness.protocols.protocol import TwoPathsError, UrlError

    try:
        return protocol.address(url, None if endpoint is None else str(endpoint))
    except UrlError as error:
        shown = hide_in_refused_url(url)
        shown = shown.partition("?")[0] if error.without_query else shown
        raise click.BadParameter(f"{shown!r} {error}", param_hint="--url") from error
    except TwoPathsError as error:
        raise click.UsageError(str(error)) from error
