"""The reference of the JSON documents, as Markdown made from the schemas in ``docs/schemas``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.reference.markdown import plain, table

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
_DOCUMENTS = ("summary", "compare", "capacity", "ranking", "capacity-comparison", "sweep", "trend", "why")
_REF = "#/$defs/"


def json_documents_markdown() -> str:
    """One section for each document: its keys, then the parts that it defines."""
    return "\n".join(line for name in _DOCUMENTS for line in _document(name))


def _document(name: str) -> Iterator[str]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    yield from (f"## {name}.json", "", plain(schema["description"]), "")
    yield from _table(schema, name)
    for part, definition in schema.get("$defs", {}).items():
        yield from (f"({_target(name, part)})=", f"### {part} ({name}.json)", "")
        yield from (plain(definition.get("description", "")), "")
        if definition.get("type") != "object" or "properties" in definition:
            yield from _table(definition, name) if "properties" in definition else (_type(definition, name), "")


def _table(schema: dict[str, Any], document: str) -> Iterator[str]:
    rows = ((f"`{path}`", _type(key, document), plain(key.get("description", ""))) for path, key in _keys(schema))
    yield from table(("key", "type", "meaning"), rows)


def _keys(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each key with its dotted path; ``[]`` is an item of an array. Parts defined apart are not entered."""
    for name, key in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, key
        for inner, suffix in _inner(key):
            yield from _keys(inner, f"{path}{suffix}.")


def _inner(key: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for part in (key, *key.get("anyOf", ())):
        if "properties" in part:
            yield part, ""
        if "properties" in part.get("items", {}):
            yield part["items"], "[]"


def _type(key: dict[str, Any], document: str) -> str:
    """The type in words, with a link for a part that is defined apart."""
    if "$ref" in key:
        part = str(key["$ref"]).removeprefix(_REF)
        return f"[{part}](#{_target(document, part)})"
    if "anyOf" in key:
        return " or ".join(_type(part, document) for part in key["anyOf"])
    if "const" in key:
        return f"`{json.dumps(key['const'])}`"
    if "enum" in key:
        return ", ".join(f"`{json.dumps(value)}`" for value in key["enum"])
    if key.get("type") == "array":
        items = [_type(item, document) for item in key.get("prefixItems", ())] or [_type(key.get("items", {}), document)]
        return f"array of {', '.join(items)}"
    types = key.get("type", "any")
    return " or ".join(types) if isinstance(types, list) else str(types)


def _target(document: str, part: str) -> str:
    return f"json-{document}-{part}".replace("_", "-")
