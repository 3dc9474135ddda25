"""Which server a run measured, by its manifest, and whether two runs measured the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from bench_records.manifest import Manifest
from simulator.errors import SimulatorError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_DIGITS = 16  # of a SHA-256

Text = Annotated[str, Meta(max_length=1000)]


@dataclass(frozen=True)
class Deployed:
    """The measured server, as far as the requests that it gets depend on it; None where that is unknown.

    ``tokenizer`` is the fingerprint of the file in ``tokenizer_dir``, ``server`` the server's software with its version.
    ``template_tokens`` are those that the server adds to each prompt.
    """

    protocol: Text
    model: Text
    token_ids: bool
    tokenizer_dir: Text | None = None
    tokenizer: Text | None = None
    server: Text | None = None
    template_tokens: Annotated[int, Meta(ge=0, le=1 << 30)] = 0


def deployed(manifest: Manifest) -> Deployed | None:
    """The server of a run; None where the manifest names no protocol or model."""
    target, said = manifest.target, manifest.deployment
    if target.protocol is None or target.model is None:
        return None
    named = None if said is None or said.server is None else f"{said.server} {said.version or ''}".strip()
    folder = target.tokenizer_dir
    return Deployed(
        protocol=target.protocol,
        model=target.model,
        token_ids=bool(target.token_ids),
        tokenizer_dir=folder,
        tokenizer=None if folder is None else fingerprint(Path(folder)),
        server=named,
        template_tokens=target.template_tokens or 0,
    )


def fingerprint(tokenizer_dir: Path) -> str | None:
    """SHA-256 of the tokenizer's file; None where there is none."""
    for name in _TOKENIZER_FILES:
        try:
            return hashlib.sha256((tokenizer_dir / name).read_bytes()).hexdigest()[:_DIGITS]
        except OSError:
            continue
    return None


def one_deployment(names: Sequence[str], servers: Sequence[Deployed | None]) -> Deployed | None:
    """What all runs with these ``names`` measured; None where none of them says. Raises SimulatorError where two differ."""
    known = [(name, server) for name, server in zip(names, servers, strict=True) if server is not None]
    for name, server in known[1:]:
        found = difference(known[0][1], server)
        if found is not None:
            raise SimulatorError(f"{known[0][0]} and {name} measured different servers, {found}: fit runs of one deployment")
    return known[0][1] if known else None


def check_tokenizer(fitted: Deployed, tokenizer: str | None, what: str) -> None:
    """Raises SimulatorError where ``what`` has another ``tokenizer``, by its fingerprint, than the fitted runs: its lengths are
    in other units then.
    """
    if None not in (fitted.tokenizer, tokenizer) and fitted.tokenizer != tokenizer:
        raise SimulatorError(
            f"{what} has another tokenizer than the runs that the model was fitted to, that of {fitted.tokenizer_dir}, so its "
            "lengths are in other units: use that one, or fit runs with this one"
        )


def difference(one: Deployed, other: Deployed) -> str | None:
    """What two servers differ in that a model depends on, in words; None where nothing is known to differ."""
    if one.model != other.model:
        return f"the models {one.model} and {other.model}"
    if None not in (one.tokenizer, other.tokenizer) and one.tokenizer != other.tokenizer:
        return f"with the tokenizers in {one.tokenizer_dir} and {other.tokenizer_dir}"
    if None not in (one.server, other.server) and one.server != other.server:
        return f"{one.server} and {other.server}"
    return None
