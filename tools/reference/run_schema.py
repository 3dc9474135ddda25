"""The JSON schema of ``run.json``, made from the Structs of ``bench_records/manifest.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from bench_records.manifest import MANIFEST_SCHEMA, Manifest
from tools.reference.json_documents import SCHEMAS

RUN_SCHEMA = SCHEMAS / "run.schema.json"


def run_schema_text() -> str:
    """As the file has it: what bench writes, so that every key is required."""
    _, parts = msgspec.json.schema_components([Manifest], schema_hook=_any, ref_template="#/$defs/{name}")
    parts = {name: _written(part) for name, part in sorted(parts.items())}
    workload = parts["Workload"]
    del workload["properties"]["parameters"]  # they are further keys of the same object
    workload["required"].remove("parameters")
    root = parts.pop("Manifest")
    root["properties"]["schema"] = {"const": MANIFEST_SCHEMA, "description": "the version of this document"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "run.json"}
    return json.dumps(head | root | {"title": "run.json", "$defs": parts}, indent=2, ensure_ascii=False) + "\n"


def _any(_: type) -> dict[str, str]:
    return {"description": "any JSON value"}


def _written(part: Mapping[str, object]) -> Mapping[str, object]:
    """A part without defaults, which a reader of a written file has no use for, and its docstring in one line."""
    declared = part.get("properties")
    if not isinstance(declared, dict):
        return part
    properties = {name: _or_null(key) for name, key in declared.items()}
    description = " ".join(str(part.get("description", "")).split()).replace("``", "`")
    return {**part, "description": description, "properties": properties, "required": list(properties)}


def _or_null(key: Mapping[str, object]) -> Mapping[str, object]:
    """A type or null as one type of two names, as the other schemas have it."""
    kind = {name: value for name, value in key.items() if name != "default"}
    match kind.get("anyOf"):
        case [{"type": str(name), **further}, {"type": "null"}]:
            return {"type": [name, "null"], **{str(key): value for key, value in further.items()}}
    return kind
