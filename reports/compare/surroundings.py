"""What differs between the surroundings of two runs: server, engine, models, machine and versions, from their manifests.

Unlike a comparison of runs it weighs nothing, and has every setting of every model that the server names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bench_records.manifest import Deployment, Document, Manifest

ABSENT = "–"
_OF_TARGET = ("protocol", "model", "decoupled", "tokenizer_dir", "servers", "balance")
_OF_MACHINE = ("cpu", "cores", "memory_bytes", "gpus", "gpu_driver", "os", "kernel")
_OF_SOFTWARE = ("python", "event_reader")
_OF_SERVER = ("server", "version", "extensions")
_TITLES = {
    "server": "the server's name and version",
    "model": "the configuration of the models",
    "engine": "the settings of the engine that bench deploys",
    "file": "the files of the engine that bench deploys",
    "machine": "this machine",
    "version": "the versions of the software",
}
_GROWING = ("server", "engine", "target", "machine")  # what the first side lacks, a later release of bench has added

Facts = dict[str, str]
"""Texts by dotted names."""


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact that is not the same; ABSENT where a side has it not."""

    what: str
    before: str
    now: str


@dataclass(frozen=True, slots=True)
class SurroundingsDifference:
    """The ``changed`` facts of ``compared`` ones. ``unknown`` names the parts of which a side has nothing, in words."""

    compared: int
    changed: tuple[ChangedFact, ...]
    unknown: tuple[str, ...]


def surroundings_difference(before: Manifest, now: Manifest) -> SurroundingsDifference:
    """The facts of ``before`` against those of ``now``, of which each part is compared that both have.

    The parameters of the measured model count where a side has not the configuration of all models.
    """
    several = any(manifest.targets is not None for manifest in (before, now))
    sides = (_parts(before, several), _parts(now, several))
    known = [part for part in sides[0] if part in sides[1]]
    compared, changed = 0, list[ChangedFact]()
    for part in known:
        if part == "parameters" and "model" in known:
            continue
        first, second = sides[0][part], sides[1][part]
        for name in sorted(first.keys() if part in _GROWING else first.keys() | second.keys()):
            compared += 1
            if first.get(name) != second.get(name):
                changed.append(ChangedFact(f"{part} {name}", first.get(name, ABSENT), second.get(name, ABSENT)))
    own_server = "engine" in sides[0] or "engine" in sides[1]
    unknown = [title for part, title in _TITLES.items() if part not in known and (part not in ("engine", "file") or own_server)]
    return SurroundingsDifference(compared, tuple(changed), tuple(unknown))


def _parts(manifest: Manifest, several: bool) -> dict[str, Facts]:
    """The facts of each part that the manifest has, in the order of a table. With ``several`` servers on a side, a single one
    on the other counts as the first.
    """
    environment = manifest.environment
    parts: dict[str, Facts] = {}
    servers = [(manifest.deployment, manifest.target.model_parameters)]
    if manifest.targets is not None:
        servers = [(target.deployment, target.model_parameters) for target in manifest.targets]
    if several:
        _add_servers(parts, servers)
    else:
        parts |= _of_server(*servers[0])
    if manifest.server is not None and manifest.server.engine is not None:
        parts["engine"] = _flat(manifest.server.engine)
    if manifest.server is not None and manifest.server.engine_files is not None:
        parts["file"] = dict(manifest.server.engine_files)
    parts["target"] = _of_struct(manifest.target, _OF_TARGET)
    if environment is not None:
        parts["machine"] = _of_struct(environment, _OF_MACHINE)
        parts["version"] = _of_struct(environment, _OF_SOFTWARE) | _flat(environment.packages or {})
    return parts


def _add_servers(parts: dict[str, Facts], servers: Sequence[tuple[Deployment | None, Document | None]]) -> None:
    """The facts of each server of several, by its place among --url: its address may change without a change of the server."""
    for number, server in enumerate(servers, start=1):
        for part, facts in _of_server(*server).items():
            named = {f"{name} of --url {number}": text for name, text in facts.items()}
            parts[part] = {**parts.get(part, {}), **named}


def _of_server(deployment: Deployment | None, parameters: Document | None) -> dict[str, Facts]:
    """What one server says of itself."""
    said = deployment or Deployment()
    parts: dict[str, Facts] = {}
    if said.server is not None or said.version is not None:
        parts["server"] = _of_struct(said, _OF_SERVER)
    if said.models is not None:
        parts["model"] = dict.fromkeys(said.models, "ready") | _flat(said.models)
    if parameters is not None:
        parts["parameters"] = _flat(parameters)
    return parts


def _of_struct(struct: msgspec.Struct, names: tuple[str, ...]) -> Facts:
    """Some fields, without those that are unknown or empty."""
    values = {name: getattr(struct, name) for name in names}
    return {name: _text(value) for name, value in values.items() if value not in (None, "", ())}


def _flat(document: Mapping[str, Any]) -> Facts:
    return dict(_leaves(document, ""))


def _leaves(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """The leaves of a document by their dotted names. An object in a list has its own name where it has one, else its place."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            name = item.get("name", place) if isinstance(item, Mapping) else place
            yield from _leaves(item, f"{prefix}.{name}")
    else:
        yield prefix, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
