"""The server of ``bench generate``: the one at --url, or the embedded pipeline deployed for the length of the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from bench_cli.generate.options import TargetOptions
    from harness.clients.triton.model import TritonModel
    from serving.client.triton import ConnectionSecurity, TritonClient

_INSPECTION_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class GenerateServer:
    """A running server. ``tokenizer_dir`` is None where it is not given."""

    client: TritonClient
    tokenizer_dir: Path | None

    def inspect(self, name: str) -> TritonModel:
        """A model's configuration. Raises TargetError where no server answers, or there is no such model."""
        from harness.clients.triton.grpc import inspect_model_over

        return inspect_model_over(self.client.channel, self.client.address, name, _INSPECTION_TIMEOUT_S)

    def tokenizer_for(self, model: TritonModel) -> Any | None:
        """The tokenizer, where the model takes token ids: the given one, or the deployment's if it is on this machine."""
        from bench_cli.tokenizers import open_tokenizer
        from harness.clients.triton.model import deployed_tokenizer_dir

        if not model.takes_token_ids:
            return None
        tokenizer_dir = self.tokenizer_dir or deployed_tokenizer_dir(model, self.inspect)
        return None if tokenizer_dir is None else open_tokenizer(tokenizer_dir)


@contextmanager
def open_server(target: TargetOptions) -> Iterator[GenerateServer]:
    """The server at --url, or the embedded pipeline."""
    from bench_cli.measurement.target_options import read_address
    from harness.protocols.triton_grpc import TritonGrpc
    from serving.client.triton import TritonClient

    if target.url is not None:
        origin = read_address(TritonGrpc(), target.url)
        with TritonClient(origin.address, _security(target, origin.is_encrypted)) as client:
            yield GenerateServer(client, target.tokenizer_dir)
        return
    import tempfile

    from serving.engines.openvino.folder import DEMO_ENGINE_DIR
    from serving.launch.addresses import choose_addresses
    from serving.launch.embedded import deploy
    from serving.repository.pipeline import RepositorySpec

    engine_dir = (target.engine_dir or DEMO_ENGINE_DIR).resolve()
    tokenizer_dir = (target.tokenizer_dir or engine_dir).resolve()
    spec = RepositorySpec(engine_dir=engine_dir, tokenizer_dir=tokenizer_dir, decoupled_mode=target.decoupled_mode)
    click.echo("Deploying the embedded pipeline …", err=True)
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as folder:
        log = Path(folder) / "server.log"
        with deploy(spec, choose_addresses(), log) as server, TritonClient(server.addresses.grpc) as client:
            yield GenerateServer(client, tokenizer_dir)


def _security(target: TargetOptions, tls: bool) -> ConnectionSecurity:
    import grpc

    from serving.client.triton import ConnectionSecurity

    compression = {"none": "NoCompression", "deflate": "Deflate", "gzip": "Gzip"}[target.grpc_compression_algorithm]
    return ConnectionSecurity(
        tls=tls or target.ssl,
        root_certificates=_content("root_certificates", target.root_certificates),
        private_key=_content("private_key", target.private_key),
        certificate_chain=_content("certificate_chain", target.certificate_chain),
        compression=grpc.Compression[compression],
    )


def _content(name: str, path: Path | None) -> bytes | None:
    """What the file of the option ``name`` has. Raises UsageError."""
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--{name}: {path} cannot be read: {error.strerror or error}") from error
