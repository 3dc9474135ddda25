"""The manifests of ``deploy/`` against the schemas of what reads them, and what they promise in their comments.

Kubernetes' own kinds are validated with its published schemas (kubernetes-validate), the Compose file with the specification's
(check-jsonschema). A JobSet's jobs are validated as Jobs, which they become. The fields of JobSet and LocustTest themselves are
compared with the lists below, written from their definitions: jobset.x-k8s.io/v1alpha2 of
github.com/kubernetes-sigs/jobset, and charts/locust-operator/crds/locusttest.yaml of github.com/locustio/k8s-operator.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from jsonschema import Draft202012Validator

from bench_cli.bench import bench
from harness.clients.openai_server import API_KEY_VARIABLE
from harness.distribution.admission import TOKEN_VARIABLE

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
_VERSION = "1.34"
_PART_OF, _COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"

_NAMES = {"type": "array", "items": {"type": "string"}}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_ROLE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"labels": _TEXTS, "annotations": _TEXTS, "resources": {"type": "object"}},
}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "JobSet": {
        "type": "object",
        "additionalProperties": False,
        "required": ["replicatedJobs"],
        "properties": {
            "successPolicy": {
                "type": "object",
                "additionalProperties": False,
                "required": ["operator"],
                "properties": {"operator": {"enum": ["All", "Any"]}, "targetReplicatedJobs": _NAMES},
            },
            "failurePolicy": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"maxRestarts": {"type": "integer"}},
            },
            "network": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "enableDNSHostnames": {"type": "boolean"},
                    "publishNotReadyAddresses": {"type": "boolean"},
                    "subdomain": {"type": "string"},
                },
            },
            "replicatedJobs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name", "template"],
                    "properties": {"name": {"type": "string"}, "replicas": {"type": "integer"}, "template": {"type": "object"}},
                },
            },
        },
    },
    "LocustTest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["workers"],
        "properties": {
            "image": {"type": "string"},
            "workers": {"type": "integer", "minimum": 1},
            "args": {"type": "string"},
            "env": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                },
            },
            "labels": _TEXTS,
            "annotations": _TEXTS,
            "master": _ROLE,
            "worker": _ROLE,
        },
    },
}


def _documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def _all_documents() -> Iterator[dict[str, Any]]:
    for path in KUBERNETES:
        yield from _documents(path)


def _jobs_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The Jobs that a JobSet makes."""
    return [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]}
        for job in document["spec"]["replicatedJobs"]
    ]


def _pods() -> Iterator[dict[str, Any]]:
    """The pod templates of all manifests."""
    for document in _all_documents():
        if document["kind"] == "JobSet":
            yield from (job["spec"]["template"] for job in _jobs_of(document))
        elif document["kind"] in ("Job", "Deployment"):
            yield document["spec"]["template"]


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_accepts_each_manifest(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in _documents(path):
        if document["kind"] in _SCHEMAS:
            Draft202012Validator(_SCHEMAS[document["kind"]]).validate(document["spec"])
        for each in _jobs_of(document) if document["kind"] == "JobSet" else [document]:
            if each["kind"] not in _SCHEMAS:
                validator.validate(each, _VERSION, strict=True)


def test_a_wrong_field_is_found() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    job = next(document for document in _all_documents() if document["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(validator.ValidationError, match="resource"):
        validator.validate(job, _VERSION, strict=True)


def test_the_compose_file_has_the_fields_of_the_specification() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    vendored = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text(encoding="utf-8"))
    (compose,) = _documents(DEPLOY / "compose.yaml")
    validator = Draft202012Validator(schema)
    validator.validate(compose)
    compose["services"]["master"]["comand"] = []
    assert not validator.is_valid(compose)


def test_pods_have_whole_cores_of_their_own_and_no_rights() -> None:
    pods = list(_pods())
    assert len(pods) == 4
    for pod in pods:
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["automountServiceAccountToken"] is False
        for container in pod["spec"]["containers"]:
            resources = container["resources"]
            assert resources["requests"] == resources["limits"]
            assert int(resources["limits"]["cpu"]) >= 1
            assert "memory" in resources["limits"]
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}


def test_only_workers_reach_the_masters_port() -> None:
    policies = {
        document["metadata"]["name"]: document["spec"] for document in _documents(DEPLOY / "kubernetes" / "network-policy.yaml")
    }
    roles = {pod["metadata"]["labels"][_COMPONENT] for pod in _pods()}
    assert roles == {"master", "worker"}
    assert {pod["metadata"]["labels"][_PART_OF] for pod in _pods()} == {"inflight-bench"}
    (rule,) = policies["bench-master"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 5557}]
    assert [peer["podSelector"]["matchLabels"][_COMPONENT] for peer in rule["from"]] == ["worker"]
    assert policies["bench-worker"]["ingress"] == []
    assert policies["bench-egress"]["podSelector"]["matchLabels"] == {_PART_OF: "inflight-bench"}


def test_a_manifest_is_applied_to_the_namespace_that_it_names() -> None:
    """kubectl refuses an object that names another namespace than --namespace does."""
    guide = DEPLOY.parent / "docs" / "how-to" / "distribute-the-load.md"
    text = "\n".join(path.read_text(encoding="utf-8") for path in (guide, *KUBERNETES))
    commands = re.findall(r"kubectl apply ?(?:--namespace (\S+))? -f (\S+)$", text, re.MULTILINE)
    assert len(commands) == text.count("kubectl apply ")
    assert {Path(file).name for _, file in commands} == {path.name for path in KUBERNETES}
    for namespace, file in commands:
        named = {document["metadata"].get("namespace") for document in _documents(DEPLOY.parent / file)}
        assert named == {None} if namespace else None not in named


def _commands() -> list[list[str]]:
    (compose,) = _documents(DEPLOY / "compose.yaml")
    services = [service["command"] for service in compose["services"].values()]
    of_pods = [container["args"] for pod in _pods() for container in pod["spec"]["containers"]]
    values = {"${TARGET:?the gRPC address of the server, as triton.example:8001}": "127.0.0.1:8001", "$(POD_IP)": "10.0.0.1"}
    return [[_filled(word, values) for word in command] for command in (*services, *of_pods)]


def _filled(word: str, values: dict[str, str]) -> str:
    """A word of a command with its variables replaced by their defaults."""
    for name, value in values.items():
        word = word.replace(name, value)
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word)


def test_as_many_workers_are_expected_as_there_are() -> None:
    for path in ("deployment.yaml", "jobset.yaml"):
        text = (DEPLOY / "kubernetes" / path).read_text(encoding="utf-8")
        (expected,) = re.findall(r"--expect_workers=(\d+)", text)
        assert re.search(rf"(replicas|parallelism): {expected}\b", text)


@pytest.mark.parametrize("command", _commands(), ids=lambda command: command[0])
def test_the_commands_of_the_containers_are_commands_of_bench(command: list[str]) -> None:
    group = click.Context(bench, info_name="bench", **bench.context_settings)
    verb = bench.get_command(group, command[0])
    assert verb is not None
    with verb.make_context(command[0], command[1:], parent=group):
        pass


def test_the_operators_arguments_are_those_of_the_locustfile() -> None:
    (test,) = _documents(DEPLOY / "kubernetes" / "locust-test.yaml")
    words = shlex.split(test["spec"]["args"])
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    installed = words[words.index("-f") + 1]
    assert f"LOCUST_LOCUSTFILE={installed}" in dockerfile
    assert (DEPLOY.parent / installed.removeprefix("/opt/bench/")).is_file()


def test_the_image_has_a_pinned_base_and_a_user_without_rights() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = {line.split()[1] for line in lines if line.startswith("FROM")}
    assert bases == {"${BASE}", "client"}
    (base,) = [line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG")]
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]


def test_the_user_of_the_image_owns_the_folders_that_compose_mounts_volumes_at() -> None:
    """Docker gives a new volume the owner of the folder in the image, and root where there is none."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (made,), (owned,) = re.findall(r"mkdir ((?:/\w+ ?)+)", text), re.findall(r"chown bench:bench ((?:/\w+ ?)+)", text)
    (compose,) = _documents(DEPLOY / "compose.yaml")
    mounted = {volume.rpartition(":")[2] for service in compose["services"].values() for volume in service["volumes"]}
    assert mounted == {"/work", "/runs"}
    assert mounted <= set(made.split()) & set(owned.split())


def test_a_worker_that_has_ended_does_not_stop_the_master_of_compose() -> None:
    commands = [
        line
        for path in (DEPLOY / "compose.yaml", DEPLOY.parent / "docs" / "how-to" / "distribute-the-load.md")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "compose.yaml up" in line
    ]
    assert len(commands) == 2
    assert all(line.endswith(" up --abort-on-container-failure") for line in commands)


def test_the_images_context_has_what_the_installation_needs() -> None:
    kept = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((DEPLOY.parent / path).exists() for path in kept)
    built = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert set(built["targets"]["wheel"]["packages"]) <= set(kept)
    assert {built["hooks"]["custom"]["path"], *built["targets"]["wheel"]["force-include"]} <= set(kept)


def test_the_image_installs_by_hashes_and_builds_with_the_locked_tools() -> None:
    installs = re.findall(r"pip install (.*?)(?: \\\\)?\n", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert len(installs) == 2
    assert "--require-hashes --requirement requirements-image.lock" in installs[0]
    assert "--no-deps --no-build-isolation" in installs[1]


@pytest.mark.parametrize(
    "path", [path for path in KUBERNETES if path.stem in ("deployment", "jobset")], ids=lambda path: path.stem
)
def test_the_target_s_key_and_the_workers_token_come_from_secrets(path: Path) -> None:
    found = re.findall(r"name: (\w+).*\n\s+valueFrom: \{secretKeyRef: \{name: ([\w-]+)", path.read_text(encoding="utf-8"))
    of_both = (TOKEN_VARIABLE, "bench-workers")
    assert found == [(API_KEY_VARIABLE, "bench-target"), of_both, of_both]
