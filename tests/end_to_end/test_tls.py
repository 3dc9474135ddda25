"""The real Triton over gRPC with TLS: whole runs, with a client's certificate too, and one sentence for each problem."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness.clients.transport.certificates import CLIENT_CERTIFICATE
from harness.run import local_pool
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import embedded_plan
from serving.launch.run import running
from serving.repository.pipeline import RepositorySpec, write_repository
from tests.certificates import Certificates, Flaw, make_certificates
from tests.faults.bench_program import run_bench

_SENTENCES = {
    "name": "is for another name",
    "expired": "has expired",
    "self-signed": "is not trusted",
    "early": "is not valid yet",
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def _triton(certificates: Certificates, folder: Path, flaw: Flaw, *, models: bool) -> Iterator[str]:
    """The URL of a Triton with the certificate; with ``models`` it has the pipeline, and requires a client's certificate."""
    repository = folder / "repository"
    certificate, key = certificates.server(flaw)
    options = ["--grpc-use-ssl=1", f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}"]
    if models:
        spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR)
        write_repository(spec, repository)
        options += ["--grpc-use-ssl-mutual=1", f"--grpc-root-cert={certificates.authority}"]
    else:
        repository.mkdir()
    plan = embedded_plan(repository, choose_addresses(), folder / "server.log", models=spec.model_names if models else ())
    with running(replace(plan, command=(*plan.command, *options))) as server:
        yield f"grpcs://{server.addresses.grpc}"


def _client_pem(certificates: Certificates, folder: Path, flaw: Flaw) -> Path:
    pem = folder / f"client-{flaw}.pem"
    pem.write_bytes(b"".join(file.read_bytes() for file in certificates.server(flaw)))
    return pem


@pytest.mark.parametrize("flaw", _SENTENCES)
def test_a_certificate_that_is_refused_has_one_sentence(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flaw: Flaw
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    with _triton(certificates, tmp_path, flaw, models=False) as url:
        result = run_bench("dataset", "--url", url, "--run_dir", str(tmp_path / "run"))
    assert result.returncode == 1
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"Error: --url {url}: the server's certificate {_SENTENCES[flaw]}")


def test_a_run_with_a_certificate_of_the_client(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    monkeypatch.setattr(local_pool, "multiprocessing", multiprocessing)  # forks have the environment of their server
    with _triton(certificates, tmp_path, "none", models=True) as url:
        load = ("--num_requests", "8", "--concurrency", "4", "--warmup_requests", "1")
        words = ("dataset", "--model", "ensemble", "--url", url, *load)
        for pem in (None, _client_pem(certificates, tmp_path, "self-signed")):
            if pem is not None:
                monkeypatch.setenv(CLIENT_CERTIFICATE, str(pem))
            refused = run_bench(*words, "--run_dir", str(tmp_path / "refused"))
            assert refused.returncode == 1
            [sentence] = refused.stderr.splitlines()
            assert sentence.startswith(f"Error: --url {url}: the server ")
            assert CLIENT_CERTIFICATE in sentence
        monkeypatch.setenv(CLIENT_CERTIFICATE, str(_client_pem(certificates, tmp_path, "none")))
        result = run_bench(*words, "--run_dir", str(tmp_path / "run"))
    assert result.returncode in (0, 3), result.stderr
    requests = json.loads((tmp_path / "run" / "summary.json").read_text())["requests"]
    assert (requests["done"], requests["failed"]) == (8, 0)
    for file in (tmp_path / "run").iterdir():
        assert b"PRIVATE KEY" not in file.read_bytes(), file


def test_a_client_certificate_that_cannot_be_read_is_named(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_key = tmp_path / "certificate.pem"
    without_key.write_bytes(certificates.server("none")[0].read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    for file in (without_key, tmp_path / "missing.pem"):
        monkeypatch.setenv(CLIENT_CERTIFICATE, str(file))
        for url in (("--url", "grpcs://127.0.0.1:1"), ("-i", "openai", "--url", "https://127.0.0.1:1")):
            result = run_bench("dataset", *url, "--run_dir", str(tmp_path / "run"))
            assert result.returncode == 1
            assert f"{CLIENT_CERTIFICATE} {file}: no PEM file with a certificate and its key" in result.stderr
            assert "Traceback" not in result.stderr
