"""The reference of the JSON documents, as Markdown made from the schemas in ``docs/schemas``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tools.reference.markdown import plain, table

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
_DOCUMENTS = ("summary", "compare", "capacity", "ranking", "capacity-comparison", "sweep", "trend", "why", "validation")
_REF = "#/$defs/"


class _Schema(msgspec.Struct, rename={"any_of": "anyOf", "prefix_items": "prefixItems", "ref": "$ref", "definitions": "$defs"}):
    """What the reference says of a schema, or of a key of one. ``properties`` is None where the schema names no keys."""

    description: str = ""
    type: str | list[str] = "any"
    ref: str | None = None
    const: object = msgspec.UNSET
    enum: list[object] | None = None
    any_of: list[_Schema] | None = None
    items: _Schema | None = None
    prefix_items: list[_Schema] | None = None
    properties: dict[str, _Schema] | None = None
    definitions: dict[str, _Schema] = {}


_decode = msgspec.json.Decoder(_Schema).decode
_ANY = _Schema()


def json_documents_markdown() -> str:
    """One section for each document: its keys, then the parts that it defines."""
    return "\n".join(line for name in _DOCUMENTS for line in _document(name))


def _document(name: str) -> Iterator[str]:
    schema = _decode((SCHEMAS / f"{name}.schema.json").read_bytes())
    yield from (f"## {name}.json", "", plain(schema.description), "")
    yield from _table(schema, name)
    for part, definition in schema.definitions.items():
        yield from (f"({_target(name, part)})=", f"### {part} ({name}.json)", "")
        yield from (plain(definition.description), "")
        if definition.properties is not None:
            yield from _table(definition, name)
        elif definition.type != "object":
            yield from (_type(definition, name), "")


def _table(schema: _Schema, document: str) -> Iterator[str]:
    rows = ((f"`{path}`", _type(key, document), plain(key.description)) for path, key in _keys(schema))
    yield from table(("key", "type", "meaning"), rows)


def _keys(schema: _Schema, prefix: str = "") -> Iterator[tuple[str, _Schema]]:
    """Each key with its dotted path; ``[]`` is an item of an array. Parts defined apart are not entered."""
    for name, key in (schema.properties or {}).items():
        path = f"{prefix}{name}"
        yield path, key
        for inner, suffix in _inner(key):
            yield from _keys(inner, f"{path}{suffix}.")


def _inner(key: _Schema) -> Iterator[tuple[_Schema, str]]:
    for part in (key, *(key.any_of or ())):
        if part.properties is not None:
            yield part, ""
        if part.items is not None and part.items.properties is not None:
            yield part.items, "[]"


def _type(key: _Schema, document: str) -> str:
    """The type in words, with a link for a part that is defined apart."""
    if key.ref is not None:
        part = key.ref.removeprefix(_REF)
        return f"[{part}](#{_target(document, part)})"
    if key.any_of is not None:
        return " or ".join(_type(part, document) for part in key.any_of)
    if key.const is not msgspec.UNSET:
        return f"`{json.dumps(key.const)}`"
    if key.enum is not None:
        return ", ".join(f"`{json.dumps(value)}`" for value in key.enum)
    if key.type == "array":
        items = [_type(item, document) for item in key.prefix_items or (key.items or _ANY,)]
        return f"array of {', '.join(items)}"
    return " or ".join(key.type) if isinstance(key.type, list) else key.type


def _target(document: str, part: str) -> str:
    return f"json-{document}-{part}".replace("_", "-")
