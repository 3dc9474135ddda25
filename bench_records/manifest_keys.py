"""The keys of ``run.json`` that programs read, with their types and ranges: what a manifest is checked against.

A run folder may come from elsewhere, so its manifest is checked once, where it is read. Keys that are not here are shown and
compared as texts alone. A key with a default may be missing, as it is in the runs of older versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

_MOST_LEVELS = 32
_LARGEST = 1 << 64

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Ns = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
Positive = Annotated[float, Meta(ge=0.0, le=1e18)]


class _RepeatedPrefix(msgspec.Struct):
    share: Positive | None = None
    unit: str | None = None
    block_tokens: Count | None = None
    block_share: Positive | None = None
    most_share: Positive | None = None


class _Workload(msgspec.Struct):
    description: str | None = None
    dropped_too_long: Count | None = None
    whole_dataset: bool | None = None
    repeated_prefix: _RepeatedPrefix | None = None
    shared_prefix_limit: Positive | None = None
    shared_prefix_limit_unscaled: Positive | None = None


class _Mixture(msgspec.Struct):
    objectives: dict[str, list[str]] | None = None


class _Length(msgspec.Struct):
    law: str | None = None
    mean: Number | None = None
    stdev: Number | None = None


class _Lengths(msgspec.Struct):
    input: _Length | None = None
    output: _Length | None = None


class _Schedule(msgspec.Struct):
    digest: str
    seed: int | None


class _Target(msgspec.Struct):
    model: str | None = None
    protocol: str | None = None
    address: str | None = None
    streaming: bool | None = None
    embedded: bool | None = None
    template_tokens: Count | None = None
    retokenised_ratio: Positive | None = None
    sends_finish_reason: bool | None = None


class _Options(msgspec.Struct):
    slo: list[str] | None = None
    fail_if: list[str] | None = None
    request_rate: Number | None = None
    burstiness: Positive | None = None
    time_delay_dist: str | None = None
    num_requests: Count | None = None
    workers: Count | None = None
    engine_settings: dict[str, Any] | None = None


class _WarmUp(msgspec.Struct):
    requests: Count | None = None
    failures: list[str] = []


class _Stage(msgspec.Struct):
    begin_s: Positive
    end_s: Positive
    rate_per_s: Positive

    def __post_init__(self) -> None:
        if self.end_s <= self.begin_s:
            raise ValueError("a stage ends after its beginning")


class _AskedArrivals(msgspec.Struct):
    law: str
    unit: str
    rate_per_s: Positive
    gap_cv: Positive | None
    law_gap_cv: Positive | None


class _Law(msgspec.Struct):
    name: str | None = None
    parameter: Positive | None = None


class _Load(msgspec.Struct):
    mode: str | None = None
    max_concurrency: Count | None = None
    concurrency: Count | None = None
    duration_s: Positive | None = None
    ramp_up_s: Positive | None = None
    prepared: Count | None = None
    ran_out: bool | None = None
    own_arrivals: bool | None = None
    stages: list[_Stage] | None = None
    asked_arrivals: _AskedArrivals | None = None
    law: _Law | None = None


class _Workers(msgspec.Struct):
    count: Count | None = None


class _MachineUse(msgspec.Struct):
    cores: Annotated[int, Meta(ge=1, le=1 << 20)]
    seconds: Number
    client_cores: Number
    target_cores: Number
    busy_cores: Number


class _ClockStart(msgspec.Struct):
    offset_ns: Ns | None = None
    uncertainty_ns: Ns | None = None


class _WorkerClock(msgspec.Struct):
    start: _ClockStart | None = None
    drift_ppm: Number | None = None
    jump_ns: Number | None = None


class _WorkerHost(msgspec.Struct):
    number: Count
    host: str
    lost: str | None = None
    clock: _WorkerClock | None = None


class _TurnedAway(msgspec.Struct):
    host: str | None = None
    reason: str | None = None


class _Distribution(msgspec.Struct):
    workers: list[_WorkerHost] | None = None
    turned_away: list[_TurnedAway] | None = None


class _Phase(msgspec.Struct):
    count: Count
    ns: Count


class _ModelStatistics(msgspec.Struct):
    execution_count: Count
    success: _Phase
    fail: _Phase
    queue: _Phase
    compute_input: _Phase
    compute_infer: _Phase
    compute_output: _Phase


class _ServerStatistics(msgspec.Struct):
    before: dict[str, _ModelStatistics] | None = None
    after: dict[str, _ModelStatistics] | None = None


class _ClockReading(msgspec.Struct):
    realtime_minus_monotonic_ns: Ns
    boottime_minus_monotonic_ns: Ns


class _Clock(msgspec.Struct):
    before: _ClockReading | None = None
    after: _ClockReading | None = None


class _Connections(msgspec.Struct):
    per_worker: Count | None = None
    opened: Count | None = None
    limit_reached: Count | None = None
    longest_wait_ms: Number | None = None
    total_wait_ms: Number | None = None
    unstamped_reads: Count | None = None
    workers_told: Count | None = None


class _Recovered(msgspec.Struct):
    scheduled: Count
    written_down: Count
    lost: Count
    not_sent: Count
    journals: Count
    torn_bytes: Count


class _Telemetry(msgspec.Struct):
    url: str | None = None


class _Manifest(msgspec.Struct):
    schedule: _Schedule | None = None
    started_at: str | None = None
    bench_version: str | None = None
    run_id: str | None = None
    verb: str | None = None
    workload: _Workload = msgspec.field(default_factory=_Workload)
    mixture: _Mixture | None = None
    lengths: _Lengths | None = None
    arrivals: str | None = None
    target: _Target = msgspec.field(default_factory=_Target)
    options: _Options = msgspec.field(default_factory=_Options)
    warm_up: _WarmUp = msgspec.field(default_factory=_WarmUp)
    load: _Load | None = None
    workers: _Workers | None = None
    machine_use: _MachineUse | None = None
    distribution: _Distribution | None = None
    server_statistics: _ServerStatistics | None = None
    clock: _Clock | None = None
    connections: _Connections | None = None
    recovered: _Recovered | None = None
    telemetry: _Telemetry | None = None
    problem: str | None = None
    interrupted: bool | None = None


def check_manifest(document: Mapping[str, Any]) -> None:
    """Raises ValueError, which names the key, where a manifest is not of the types and ranges that programs read."""
    _check_extent(document)
    try:
        msgspec.convert(document, _Manifest)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("$.", "")) from error


def _check_extent(document: Any) -> None:
    """Depth and numbers of all keys, also of those that are only shown."""
    level = [document]
    for _ in range(_MOST_LEVELS):
        for value in level:
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise ValueError("a whole number of it is longer than 64 bits")
        level = [child for value in level for child in _children(value)]
    if level:
        raise ValueError(f"it is nested deeper than {_MOST_LEVELS} levels")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
