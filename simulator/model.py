"""A fitted model and its file, ``model.json``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bench_records.regular_file import read_bounded, regular
from bench_records.whole_file import written_whole
from simulator.deployed import Deployed, Text
from simulator.errors import SimulatorError
from simulator.server import FrontEnd, Server, StepLaw

MODEL_SCHEMA = 2  # since 2, a request takes all its intake in its last round
_MOST_BYTES = 64 << 20
_MOST_CHARACTERS = 200  # of a library's message
_ROUNDING_S = 1e-12  # of a cost for a unit of work, which no runs resolve

MOST_SOURCES = 1000
Texts = Annotated[tuple[Text, ...], Meta(max_length=100)]
Findings = Annotated[tuple[Text, ...], Meta(max_length=10 * MOST_SOURCES)]  # some belong to a single run
UNFIT = "this model is unfit for use"
MOST_HELD_OUT = 10.0  # of a logarithm: a factor of 22,000
MOST_SPREAD = 1.0  # of a logarithm, between runs: steps that take e times as long
Share = Annotated[float, Meta(ge=0, le=MOST_HELD_OUT)]


@dataclass(frozen=True)
class Parameter:
    """A constant in s with its range, 95 % of the draws. ``identified`` is whether the fitted runs show it."""

    name: Text
    value: float
    low: float
    high: float
    identified: bool

    @property
    def has_range(self) -> bool:
        """False where all draws are 0, or nearly 0 by rounding: no cost is below 0, so that is no knowledge of it."""
        return self.identified or self.high > _ROUNDING_S


@dataclass(frozen=True)
class Source:
    """A fitted run: its name, requests, users of its closed loop (None: open), and its steps: recovered from the arrivals of
    tokens, or ``logged``, those of the step log of the engine.
    """

    name: Text
    requests: int
    users: int | None
    steps: int
    logged: bool = False


@dataclass(frozen=True)
class Extent:
    """The most of something that the fitted runs held; nothing is known beyond."""

    what: Text
    most: float


@dataclass(frozen=True)
class Draw:
    """The constants fitted to a resample of the runs: the model's uncertainty is what these differ in."""

    law: StepLaw
    front_end: FrontEnd


@dataclass(frozen=True)
class BetweenRuns:
    """How far the speed of the server moved between the fitted ``runs``: ``spread`` is the standard deviation of the logarithm
    of the time that the engine takes for the same step, with its degrees of freedom; None is one fewer than the runs.
    """

    spread: Share = 0.0
    runs: Annotated[int, Meta(ge=1, le=MOST_SOURCES)] = 1
    degrees: Annotated[float, Meta(ge=1)] | None = None


@dataclass(frozen=True)
class Model:
    """A server that was fitted, with what is known of its truth. ``structure`` says why its structure was chosen, ``findings``
    what the runs do not show, or where the law does not hold, ``doubts`` what is doubtful in the runs themselves.

    ``deployed`` is the server that was measured, None where no run says. ``held_out`` is the error of each latency on halves of
    the runs that were not fitted: the root mean square of the differences of the logarithms of its quantiles.
    ``between_runs`` is what these halves cannot show, since they belong to the same runs.
    """

    schema: int
    server: Server
    parameters: Annotated[tuple[Parameter, ...], Meta(max_length=100)]
    draws: Annotated[tuple[Draw, ...], Meta(max_length=1000)]
    hull: Annotated[tuple[Extent, ...], Meta(max_length=100)]
    sources: Annotated[tuple[Source, ...], Meta(max_length=MOST_SOURCES)]
    structure: Texts
    findings: Findings
    deployed: Deployed | None = None
    held_out: Annotated[dict[Text, Share], Meta(max_length=100)] = field(default_factory=dict)
    doubts: Findings = ()
    between_runs: BetweenRuns = BetweenRuns()

    @property
    def unfit(self) -> tuple[str, ...]:
        """The findings by which the model is unfit for use."""
        return tuple(finding for finding in self.findings if UNFIT in finding)


def write_model(model: Model, path: Path) -> None:
    """Write ``model`` whole or not at all. Raises OSError."""
    with written_whole(path) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")


def copy_model(path: Path, to: Path) -> None:
    """Copy the file of a model whole or not at all, byte for byte, so that the copy has its digest. Raises OSError."""
    with written_whole(to) as temporary:
        temporary.write_bytes(path.read_bytes())


def model_digest(path: Path) -> str:
    """By which the file of a model is known again: SHA-256 of its bytes, in hexadecimal. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_model(path: Path) -> Model:
    """Read what ``write_model`` wrote. Raises SimulatorError where it is absent, damaged or of another schema."""
    try:
        text = read_bounded(regular(path), _MOST_BYTES)
        if (schema := msgspec.json.decode(text, type=_Versioned).schema) != MODEL_SCHEMA:
            raise SimulatorError(f"{path} is a model of schema {schema}, and this bench reads {MODEL_SCHEMA}: fit it again")
        return msgspec.json.decode(text, type=Model)
    except FileNotFoundError as error:
        raise SimulatorError(f"{path} does not exist: 'bench simulate fit RUN -o {path}' makes it") from error
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        reason = " ".join(str(error).split())[:_MOST_CHARACTERS]
        raise SimulatorError(f"{path} is no model of 'bench simulate fit': {reason}") from error


class _Versioned(msgspec.Struct):
    schema: int
