"""The simulated deployment: a model from its file, its replicas and their router, in place of a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import click

from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.target import Target
from bench_cli.simulate.changing_replicas import failure_text, parse_failure, read_autoscaler
from bench_cli.simulate.deployment_options import BLOCK_TOKENS, DeploymentOptions, ReplicaOptions, RunOptions
from bench_cli.simulate.fitted_model import read_fitted
from bench_cli.tokenizers import open_tokenizer, shipped_tokenizer
from harness.clients.secret_values import Spellings
from harness.clients.transport.url import Origin
from harness.protocols.listed import PROTOCOLS
from harness.protocols.protocol import MeasuredModel
from reports.render.counts import counted
from simulator.answers import Decode, Deployment, Post
from simulator.deployed import Deployed, check_tokenizer, fingerprint
from simulator.hull import structures_beyond
from simulator.model import Model, model_digest
from simulator.plausible import edits
from simulator.routers import Router
from simulator.server import Admission, Order
from workloads.elements.errors import WorkloadError

if TYPE_CHECKING:
    from harness.protocols.known_client import KnownClient

_MS = 1e3
_NOWHERE = Origin("http", "simulated", 80)


@dataclass(frozen=True)
class Simulated:
    """A deployment that is simulated: ``name`` and ``digest`` are those of the model's file. ``changes`` are what it has in
    place of what was fitted, a phrase each.
    """

    model: Model
    name: str
    digest: str
    deployment: Deployment
    draws: int
    changes: tuple[str, ...] = ()


def replicas_of(options: ReplicaOptions) -> tuple[int, Decode | None]:
    """The number of servers that prefill, and those that decode alone, None where each does both. Raises UsageError for options
    that do not go together.
    """
    given = options.given(
        "prefill", "decode", "transfer_ms", "transfer_tokens_per_s", "transfer_post_ms", "transfer_post_tokens_per_s"
    )
    if options.prefill is None or options.decode is None:
        if given:
            missing = (name for name in ("--prefill", "--decode") if name[2:] not in given)
            raise click.UsageError(f"--{given[0]} needs {' and '.join(missing)}")
        return options.replicas, None
    if options.given("replicas"):
        raise click.UsageError("--replicas are servers that prefill and decode: leave it out beside --prefill and --decode")
    transfer_s, tokens_per_s = options.transfer_ms / _MS, options.transfer_tokens_per_s
    return options.prefill, Decode(options.decode, transfer_s, tokens_per_s, _post_of(options))


def _post_of(options: ReplicaOptions) -> Post | None:
    each_ms, tokens_per_s = options.transfer_post_ms, options.transfer_post_tokens_per_s
    return None if each_ms is tokens_per_s is None else Post((each_ms or 0.0) / _MS, tokens_per_s)


class ReplicaFacts(TypedDict):
    """The replicas of a deployment, by the names that manifests and documents have for them."""

    replicas: int
    router: str | None
    prefill_replicas: int | None
    transfer_ms: float | None
    transfer_tokens_per_s: float | None
    transfer_post_ms: float | None
    transfer_post_tokens_per_s: float | None


def replica_facts(deployment: Deployment) -> ReplicaFacts:
    """What a manifest or document says of them; the router None where it has nothing to choose, the others where each replica
    prefills and decodes.
    """
    decode = deployment.decode
    post = None if decode is None else decode.post
    return ReplicaFacts(
        replicas=deployment.servers,
        router=deployment.router.value if deployment.has_choice else None,
        prefill_replicas=None if decode is None else deployment.replicas,
        transfer_ms=None if decode is None else decode.transfer_s * _MS,
        transfer_tokens_per_s=None if decode is None else decode.tokens_per_s,
        transfer_post_ms=None if post is None else post.each_s * _MS,
        transfer_post_tokens_per_s=None if post is None else post.tokens_per_s,
    )


def read_simulated(options: DeploymentOptions, replicas: int, decode: Decode | None = None) -> Simulated:
    """The deployment of the options, with ``decode`` beside ``replicas`` that prefill alone; stderr says where its model is
    unfit for use.

    Raises SimulatorError, and UsageError for a router that needs a prefix cache.
    """
    if options.router == Router.PREFIX and options.prefix_cache is None:
        raise click.UsageError("--router prefix needs --prefix_cache, the tokens that the cache of each replica holds")
    read = read_fitted(options.model)
    draws = min(options.draws, len(read.draws))
    blocks = None if options.prefix_cache is None else options.prefix_cache // BLOCK_TOKENS
    model = replace(read, server=replace(read.server, admission=_admission(options, read.server.admission)))
    deployment = Deployment(model.server, replicas, Router(options.router), blocks, decode)
    changes = (*edits(read), *_changes(options), *structures_beyond(deployment))
    return Simulated(model, options.model.name, model_digest(options.model), deployment, draws, changes)


def with_changes(simulated: Simulated, options: RunOptions) -> Simulated:
    """With the failures and the autoscaler of the options. Raises UsageError for options that do not go together."""
    changes, deployment = options.changes, simulated.deployment
    try:
        failures = tuple(map(parse_failure, changes.fail))
    except WorkloadError as error:
        raise click.UsageError(f"--{error}") from error
    scaler = None if changes.autoscale is None else read_autoscaler(changes.autoscale)
    given = options.given("fail", "autoscale")
    if given and deployment.decode is not None:
        raise click.UsageError(f"--{given[0]} is for servers that prefill and decode: leave out --prefill and --decode")
    replicas = deployment.replicas
    if scaler is not None and not options.given("replicas"):
        replicas = scaler.min_replicas
    if scaler is not None and not scaler.min_replicas <= replicas <= scaler.max_replicas:
        raise click.UsageError(
            f"--replicas {replicas}: {changes.autoscale} has from {scaler.min_replicas} to {scaler.max_replicas}"
        )
    most = replicas if scaler is None else scaler.max_replicas
    for failure in failures:
        if failure.replica >= most:
            raise click.UsageError(f"--fail {failure_text(failure)}: the deployment has at most {counted(most, 'replica')}")
    return replace(simulated, deployment=replace(deployment, replicas=replicas, failures=failures, autoscaler=scaler))


def _admission(options: DeploymentOptions, fitted: Admission) -> Admission:
    """The admission that was fitted, with what the options have in place of it."""
    return replace(
        fitted,
        order=fitted.order if options.scheduler is None else Order(options.scheduler),
        token_budget=fitted.token_budget if options.chunk is None else options.chunk,
        max_sequences=fitted.max_sequences if options.max_num_sequences is None else options.max_num_sequences,
        kv_blocks=fitted.kv_blocks if options.kv_blocks is None else options.kv_blocks,
    )


def _changes(options: DeploymentOptions) -> tuple[str, ...]:
    """What no fitted run had: whether the server's law holds there is not known."""
    chunk, sequences, blocks = options.chunk, options.max_num_sequences, options.kv_blocks
    said = (
        None if options.scheduler is None else f"scheduler {options.scheduler}",
        None if chunk is None else f"at most {counted(chunk, 'token')} a step",
        None if sequences is None else f"at most {counted(sequences, 'sequence')} a step",
        None if blocks is None else f"a KV cache of {counted(blocks, 'block')}",
    )
    return tuple(f"{text}, which was not fitted" for text in said if text is not None)


def simulated_target(simulated: Simulated, options: MeasureOptions) -> Target:
    """What the requests are prepared for: a target with the fitted server's model and tokenizer, to which nothing can be sent.

    Raises SimulatorError for another tokenizer than the fitted runs', UsageError where theirs is gone, and for unstreamed runs.
    """
    if options.target.streaming is False:
        raise click.UsageError("--no_streaming: a simulated server streams its answers, as the fitted runs did")
    fitted = simulated.model.deployed or Deployed("grpc", "unknown", token_ids=True)
    if simulated.model.deployed is not None and options.target.model not in (None, fitted.model):
        raise click.UsageError(f"--model {options.target.model}: {simulated.name} was fitted to runs of {fitted.model}")
    folder = _tokenizer_dir(fitted, options.target.tokenizer_dir)
    tokenizer = shipped_tokenizer() if simulated.model.deployed is None and folder is None else None
    if folder is not None:
        tokenizer = open_tokenizer(folder)
    protocol = PROTOCOLS[fitted.protocol].load() if fitted.protocol in PROTOCOLS else options.target.serving
    return Target(
        origin=_NOWHERE,
        protocol=protocol,
        headers=(),
        client=cast("KnownClient", _NoClient()),
        model=MeasuredModel(
            fitted.model,
            fitted.token_ids,
            supports_ignore_eos=protocol.supports_ignore_eos,
            returns_text=not fitted.token_ids,
        ),
        tokenizer=tokenizer,
        tokenizer_dir=folder,
        template_tokens=fitted.template_tokens or None,
    )


def _tokenizer_dir(fitted: Deployed, given: Path | None) -> Path | None:
    if given is not None:
        check_tokenizer(fitted, fingerprint(given), f"--tokenizer_dir {given}")
        return given
    if fitted.tokenizer_dir is None:
        return None
    folder = Path(fitted.tokenizer_dir)
    found = fingerprint(folder)
    if found is None:
        raise click.UsageError(
            f"the tokenizer of the fitted runs is no longer in {folder}: give its folder with --tokenizer_dir"
        )
    check_tokenizer(fitted, found, str(folder))
    return folder


class _NoClient:
    """What a manifest asks of a client."""

    streaming = True
    continuous_usage: bool | None = None
    expects_finish_reason: bool | None = None
    hidden: Spellings = ()
