"""Options of replicas that come and go: planned failures, and the file of an autoscaler."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import click
import msgspec

from bench_records.manifest import SimulatedFleet
from reports.render.counts import counted
from simulator.answers import Deployment
from simulator.fleet import Autoscaler, Failure, FleetUse
from workloads.elements.spelling import number_text, parse_spelt

_FORMS = "2:at=30s or 2:at=30s,for=60s: the second replica fails at 30 s, and another takes its place 60 s later"


def parse_failure(text: str) -> Failure:
    """The failure that ``text`` spells. Raises WorkloadError."""
    spelt = parse_spelt(text, "fail", _FORMS, ())
    spelt.check_names(("at", "for") if "for" in spelt.numbers else ("at",))
    if not spelt.name.isdecimal() or int(spelt.name) < 1:
        raise spelt.error(f"{spelt.name!r} is not the number of a replica, from 1 on")
    return Failure(int(spelt.name) - 1, spelt.numbers["at"], spelt.numbers.get("for"))


def failure_text(failure: Failure) -> str:
    """The spelling that ``parse_failure`` reads."""
    later = "" if failure.for_s is None else f",for={number_text(failure.for_s)}s"
    return f"{failure.replica + 1}:at={number_text(failure.at_s)}s{later}"


def read_autoscaler(path: Path) -> Autoscaler:
    """The autoscaler of a TOML file. Raises UsageError."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        scaler = msgspec.convert(found, Autoscaler)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise click.UsageError(f"--autoscale {path}: {error}") from error
    known = [field.name for field in fields(Autoscaler)]
    for name in found:
        if name not in known:
            raise click.UsageError(f"--autoscale {path}: it has no {name!r}; known are {', '.join(known)}")
    if scaler.min_replicas > scaler.max_replicas:
        raise click.UsageError(
            f"--autoscale {path}: min_replicas, {scaler.min_replicas}, is above max_replicas, {scaler.max_replicas}"
        )
    return scaler


def fleet_facts(deployment: Deployment, use: FleetUse) -> SimulatedFleet:
    """What the manifest says of the replicas that there were."""
    scaler = deployment.autoscaler
    return SimulatedFleet(
        least=use.least,
        most=use.most,
        mean=use.mean,
        replica_s=use.replica_s,
        autoscaler=None if scaler is None else {name: float(value) for name, value in asdict(scaler).items()},
        failures=tuple(map(failure_text, deployment.failures)),
    )


def fleet_sentences(use: FleetUse) -> list[str]:
    """What there was, and which failures met no replica or came too late."""
    there = counted(use.least, "replica") if use.least == use.most else f"{use.least:,} to {use.most:,} replicas"
    were = "was" if use.least == use.most == 1 else "were"
    return [
        f"There {were} {there}, {use.mean:.3g} in the mean over time, {use.replica_s / 3600:.3g} replica-hours in all.",
        *(f"--fail {failure_text(each)}: no such replica was there then." for each in use.idle),
        *(f"--fail {failure_text(each)}: the simulation had ended before." for each in use.late),
    ]
