"""The manifest of a run (``run.json``): everything needed to repeat it, typed. The harness makes it, and the reports read it.

A run folder may come from elsewhere, so types and ranges are checked once, where the file is read. None is unknown, and a key
that is missing in the file is None. Keys that are not here are shown and compared as texts alone (``Document``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

MANIFEST_SCHEMA = 1
_MOST_LEVELS = 32
_LARGEST = 1 << 64

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Ns = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
Positive = Annotated[float, Meta(ge=0.0, le=1e18)]

Document = Mapping[str, object]
"""``run.json`` as it was read or will be written, with all its keys."""


class RunState(StrEnum):
    """The state of a run, by its manifest."""

    NOT_STARTED = "not_started"  # it ended before its first request
    RUNNING = "running"  # its records are not made yet: it is running, or was cut
    DONE = "done"


class RepeatedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the prompts, as they were sent, repeats the beginning of an earlier one: shares of ``unit``."""

    share: Positive | None = None
    unit: str | None = None
    block_tokens: Count | None = None
    block_share: Positive | None = None
    most_share: Positive | None = None
    whole_prompts: Count | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent. ``parameters`` are further keys of the same object: those of one kind of workload.

    What is made may have some of the keys here among its parameters; what is read has each in its place.
    """

    description: str | None = None
    parameters: Document = msgspec.field(default_factory=dict)
    whole_dataset: bool | None = None
    requests: Count | None = None
    dropped_too_long: Count | None = None
    shared_prefix_limit: Positive | None = None
    shared_prefix_limit_unscaled: Positive | None = None
    repeated_prefix: RepeatedPrefix | None = None


class MixtureClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of requests, its weight among them, and the variant of the model that it asks."""

    name: str
    weight: Positive | None = None
    model: str | None = None
    lora_task_id: int | None = None


class PlannedCancellation(msgspec.Struct, frozen=True, kw_only=True):
    """The share of requests to cancel, after a time or a number of tokens, and how many requests that are."""

    percent: Positive | None = None
    after_ns: Ns | None = None
    after_tokens: Count | None = None
    requests: Count = 0


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that are sent beside the load, and are no part of its numbers."""

    rate_per_s: Positive | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    requests: Count | None = None


class Mixture(msgspec.Struct, frozen=True, kw_only=True):
    """What is mixed into the load. ``objectives`` are those of each class that has its own, as --slo takes them."""

    classes: tuple[MixtureClass, ...] | None = None
    objectives: dict[str, tuple[str, ...]] | None = None
    cancellation: PlannedCancellation | None = None
    probe: Probes | None = None


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """The law of one length, and the mean and standard deviation of what it draws, in tokens."""

    law: str | None = None
    mean: Number | None = None
    stdev: Number | None = None


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """The laws of prompts and of answers."""

    input: Length | None = None
    output: Length | None = None


class DrawnSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the schedule."""

    digest: str
    seed: int | None


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The server that was measured. ``address`` is without secrets.

    ``template_tokens`` are those that the server adds to each prompt. ``retokenised_ratio`` is the number of tokens, by the
    run's tokenizer, of the text of a random token of its vocabulary. ``token_ids``: prompts were sent as token ids, and not as
    text. ``sends_finish_reason``: the trial request before the run had one; None for a protocol without.
    ``server_timings``: requests ask for the server's times of them, which costs; else None.

    With several servers ``address`` has all, with commas, ``servers`` is their number, and ``balance`` how requests were spread
    over them, as --balance takes it; both are None of one. What is not the same of all is that of the first.
    """

    address: str | None = None
    protocol: str | None = None
    model: str | None = None
    decoupled: bool | None = None
    streaming: bool | None = None
    embedded: bool | None = None
    tokenizer_dir: str | None = None
    model_parameters: Document | None = None
    continuous_usage: bool | None = None
    sends_finish_reason: bool | None = None
    template_tokens: Count | None = None
    token_ids: bool | None = None
    retokenised_ratio: Positive | None = None
    server_timings: bool | None = None
    servers: Count | None = None
    balance: str | None = None


class EmbeddedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the engine that bench deployed for the run, and size and hash of each file of the engine by its path."""

    engine: Document | None = None
    engine_files: dict[str, str] | None = None


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says of itself before the run: name and version of its software, and each model's configuration by name.

    A configuration is Triton's ``ModelConfig`` without the fields at protobuf's defaults, with the parameters as texts; of a
    server of OpenAI's protocol it is the entry in the list of models. What the server does not say is None.
    """

    server: str | None = None
    version: str | None = None
    extensions: tuple[str, ...] | None = None
    models: dict[str, Document] | None = None


class OneTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One of several servers that were measured together: what a run of one server has under ``target``, ``deployment`` and
    ``server_statistics``.
    """

    address: str | None = None
    model_parameters: Document | None = None
    continuous_usage: bool | None = None
    sends_finish_reason: bool | None = None
    template_tokens: Count | None = None
    deployment: Deployment | None = None
    server_statistics: ServerStatistics | None = None


class Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """What the run is judged by, as --slo, --fail_if and --until take it."""

    slo: tuple[str, ...] | None = None
    fail_if: tuple[str, ...] | None = None
    until: str | None = None


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """The requests before the measurement, and the errors of those that failed."""

    requests: Count | None = None
    failures: tuple[str, ...] = ()


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The client's machine, operating system and software, without the names of machine and user.

    ``gpus`` are the names of NVIDIA GPUs, and ``gpu_driver`` is the version of their driver; None where the kernel lists none.
    """

    cpu: str | None = None
    cores: Count | None = None
    memory_bytes: Count | None = None
    os: str | None = None
    kernel: str = ""
    python: str = ""
    event_reader: str = ""
    packages: dict[str, str] | None = None
    gpus: tuple[str, ...] | None = None
    gpu_driver: str | None = None


class AddedError(msgspec.Struct, frozen=True, kw_only=True):
    """What the client adds to a duration: mean and standard deviation of ``n`` errors, and the size of them without sign."""

    mean_ms: Number
    stdev_ms: Number
    n: Count | None = None
    size_mean_ms: Number | None = None
    size_p50_ms: Number | None = None
    size_p99_ms: Number | None = None


class HeldRate(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate that was held, the lowest above it that was not, and why the search ended."""

    held_per_s: Positive | None
    failed_per_s: Positive | None
    why: str | None = None


class WorkersLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of ``workers`` client processes: requests/s, and streamed responses/s."""

    workers: Count
    requests: HeldRate
    responses: HeldRate


class CalibrationFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `bench calibrate` for the run's machine and transport. ``made_at`` is ISO 8601, UTC."""

    made_at: str
    quick: bool | None = None
    busy_cores: Positive | None = None
    transport: str | None = None
    quiet_requests_per_s: Positive | None = None
    quiet_responses_per_s: Positive | None = None
    ttft: AddedError
    icl: AddedError
    e2e: AddedError | None = None
    limits: tuple[WorkersLimits, ...] = ()
    cpu_us_per_request: Positive | None = None
    cpu_us_per_response: Positive | None = None


class LoadStage(msgspec.Struct, frozen=True, kw_only=True):
    """A time of the run with a rate of its own."""

    begin_s: Positive
    end_s: Positive
    rate_per_s: Positive

    def __post_init__(self) -> None:
        if self.end_s <= self.begin_s:
            raise ValueError("a stage ends after its beginning")


class LawOfArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Rate and variation of the gaps of the law, before chance, of ``unit``: requests, or sessions, which are first turns.

    ``law_gap_cv`` is that of the gaps at a rate that stays, as within a stage.
    """

    law: str
    unit: str
    rate_per_s: Positive
    gap_cv: Positive | None
    law_gap_cv: Positive | None


class GapLaw(msgspec.Struct, frozen=True, kw_only=True):
    """The family of the gaps and its parameter, and both as --arrival takes them."""

    name: str | None = None
    parameter: Positive | None = None
    text: str | None = None


class LoadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """When requests were sent. ``mode`` is "open", "closed" or "sessions".

    ``max_concurrency`` is a ceiling on requests in flight, ``duration_s`` an end by the clock; None where there is none.
    ``prepared`` is the number of requests that could be sent, ``ran_out`` whether they were too few for the duration.
    ``own_arrivals``: those of a trace or a rate profile, without a rate that all of them have.
    """

    mode: str | None = None
    max_concurrency: Count | None = None
    concurrency: Count | None = None
    duration_s: Positive | None = None
    ramp_up_s: Positive | None = None
    prepared: Count | None = None
    ran_out: bool | None = None
    own_arrivals: bool | None = None
    stages: tuple[LoadStage, ...] | None = None
    asked_arrivals: LawOfArrivals | None = None
    law: GapLaw | None = None


class EarlyEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run by a ``rule``, an option as it was given, at ``at_s``: nothing was due later. ``reason`` is in words.

    ``gave_up``: the rule ends runs that go badly, so that their numbers are not those of a usual run. ``requests`` were sent,
    of ``planned`` ones; None where the clock would have decided how many.
    """

    rule: str
    reason: str
    gave_up: bool
    at_s: Positive
    requests: Count
    planned: Count | None = None


class WorkersFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The client's processes, and the reason for their number."""

    count: Count | None = None
    why: str | None = None
    pinned_cores: tuple[Count, ...] | None = None


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the connections of all workers that reported any: ``workers_told`` of them.

    ``limit_reached`` counts the requests that waited because the server's limit of concurrent streams was reached.
    """

    per_worker: Count | None = None
    opened: Count | None = None
    limit_reached: Count | None = None
    longest_wait_ms: Number | None = None
    total_wait_ms: Number | None = None
    unstamped_reads: Count | None = None
    workers_told: Count | None = None


class ClockOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of clocks, in ns. They show whether a clock was set, or the machine slept, between two readings.

    Time servers slew the wall clock and the monotonic clock alike, so their difference changes only when the wall clock is
    set. The boot-time clock runs while the machine sleeps, the monotonic clock does not (clock_gettime(2)).
    """

    realtime_minus_monotonic_ns: Ns
    boottime_minus_monotonic_ns: Ns


class ClockReadings(msgspec.Struct, frozen=True, kw_only=True):
    """The client's clocks before and after the run."""

    before: ClockOffsets | None = None
    after: ClockOffsets | None = None


class PhaseTotal(msgspec.Struct, frozen=True):
    """How often a phase took place since the server started, and its time in all."""

    count: Count = 0
    ns: Count = 0


class ModelStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A model's counts and times since its server started, as Triton's statistics extension defines them."""

    inference_count: Count = 0
    execution_count: Count = 0
    success: PhaseTotal = PhaseTotal()
    fail: PhaseTotal = PhaseTotal()
    queue: PhaseTotal = PhaseTotal()
    compute_input: PhaseTotal = PhaseTotal()
    compute_infer: PhaseTotal = PhaseTotal()
    compute_output: PhaseTotal = PhaseTotal()
    cache_hit: PhaseTotal = PhaseTotal()
    cache_miss: PhaseTotal = PhaseTotal()

    @property
    def requests(self) -> int:
        """Those that ended, failures included."""
        return self.success.count + self.fail.count


class ServerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of each model, by name, before and after the run."""

    before: dict[str, ModelStatistics] | None = None
    after: dict[str, ModelStatistics] | None = None


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server's metrics were read, how often, and how many scrapes failed. ``url`` is without secrets.

    With several pages ``url`` has all, with commas, the numbers are sums, and ``pages`` has each, in the order of --metrics_url
    or else of --url; one without any scrape had no metrics. None for one page.
    """

    url: str | None = None
    period_s: Positive | None = None
    scrapes: Count | None = None
    failed: Count | None = None
    first_failure: str | None = None
    pages: tuple[Telemetry, ...] | None = None


class PolledTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server's times of single requests were polled, how often, how many polls failed, and how many records came."""

    url: str | None = None
    period_s: Positive | None = None
    polls: Count | None = None
    failed: Count | None = None
    first_failure: str | None = None
    records: Count | None = None


class GpuTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of this machine that were read, by name, and how often.

    ``of_target``: the target's processes computed on them. Else that is not known, and they are all GPUs of the machine.
    """

    gpus: list[str]
    of_target: bool
    period_s: Positive
    samples: Count


class MachineUse(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a run in cores: of the ``cores`` of the machine all processes used ``busy_cores``."""

    cores: Annotated[int, Meta(ge=1, le=1 << 20)]
    seconds: Number
    busy_cores: Number
    client_cores: Number
    target_cores: Number


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """The command's own times. Set-up lasts until the run's clock starts. CPU is without an embedded server's.

    What follows the run is known at the end of the command.
    """

    command_started_at: str | None = None
    set_up_s: Number | None = None
    run_s: Number | None = None
    set_up_and_run_cpu_s: Number | None = None
    close_target_s: Number | None = None
    report_s: Number | None = None
    report_cpu_s: Number | None = None
    total_s: Number | None = None
    cpu_s: Number | None = None
    command_ended_at: str | None = None


class ClockOffset(msgspec.Struct, frozen=True):
    """The worker's clock less the master's at ``at_ns`` of the master's, ``uncertainty_ns`` to either side."""

    offset_ns: Ns
    uncertainty_ns: Ns
    at_ns: Ns


class WorkerClock(msgspec.Struct, frozen=True):
    """The difference at a run's start and end, its change in parts per million, and the largest jump between exchanges that
    drift does not explain, in ns; None where there was none.
    """

    start: ClockOffset | None = None
    end: ClockOffset | None = None
    drift_ppm: Number | None = None
    drift_uncertainty_ppm: Number | None = None
    jump_ns: Ns | None = None
    exchanges: Count | None = None


class DistributedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker on another host; ``lost`` is the reason why it did not come to the end, None where it did. ``stopped`` is why it
    stopped sending before the end of the run, without the master's command; None where it did not.
    """

    number: Count
    host: str
    cores: Positive | None = None
    lost: str | None = None
    stopped: str | None = None
    clock: WorkerClock | None = None


class TurnedAway(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that took no part."""

    host: str | None = None
    reason: str | None = None


class DroppedFrom(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one sender that were dropped."""

    sender: str | None = msgspec.field(default=None, name="from")
    reason: str | None = None
    count: Count | None = None


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a run over several hosts."""

    workers: tuple[DistributedWorker, ...] | None = None
    turned_away: tuple[TurnedAway, ...] | None = None
    dropped_messages: Count | None = None
    dropped: tuple[DroppedFrom, ...] | None = None


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What `bench recover` found in the journals of a run that was cut: numbers of requests, of journals, and of lost bytes."""

    scheduled: Count
    written_down: Count
    lost: Count
    not_sent: Count
    journals: Count
    torn_bytes: Count


class SimulatedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of a simulation in which some came and went: the fewest and the most that there were, in whatever state, the
    mean over time, and their time in all, in s. ``autoscaler`` has the settings of its file, None without one, and ``failures``
    the planned ones, as --fail spells them.
    """

    least: Count
    most: Count
    mean: Number
    replica_s: Number
    autoscaler: dict[str, Number] | None = None
    failures: tuple[str, ...] = ()


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated server of a run that was not measured: the ``model`` by its file's name and digest, the runs that it was
    fitted to, and how many ``replicas`` there were, with the ``router`` in front, None for one replica, and the tokens that
    the prefix cache of each holds, None without one.

    ``prefill_replicas`` are those of the ``replicas`` that prefill alone, while the others decode, and a prompt's KV cache goes
    to one of these in ``transfer_ms`` and the time of its tokens at ``transfer_tokens_per_s``, None where they take none. Where
    those that decode fetch the caches, the host takes ``transfer_post_ms`` and the time of the tokens at
    ``transfer_post_tokens_per_s`` to post each transfer. All five are None where each replica does both. ``fleet`` is what
    ``replicas``, those at first, came to where some came and went.

    ``beyond`` is what the run holds more of than those runs, a phrase each; ``doubts`` is what its fit found doubtful in them,
    and why it called the model unfit, a sentence each without its full stop. ``ranges`` are 5 and 95 % of each number, by
    the keys of ``summary.json``, over ``draws`` of the model's constants and the error of its fit.
    """

    model: str
    digest: str
    fitted_to: tuple[str, ...] = ()
    replicas: Count = 1
    router: str | None = None
    prefix_cache_tokens: Count | None = None
    prefill_replicas: Count | None = None
    transfer_ms: Number | None = None
    transfer_tokens_per_s: Number | None = None
    transfer_post_ms: Number | None = None
    transfer_post_tokens_per_s: Number | None = None
    fleet: SimulatedFleet | None = None
    beyond: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    draws: Count = 0
    ranges: dict[str, dict[str, tuple[Number, Number]]] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        words = self.words_of_replicas
        replicas = "" if words == "one replica" else f", {words}"
        replicas += "" if self.router is None else f", router {self.router}"
        cache = "" if self.prefix_cache_tokens is None else f", prefix cache of {self.prefix_cache_tokens:,} tokens"
        return f"simulated by {self.model}{replicas}{cache}"

    @property
    def words_of_replicas(self) -> str:
        """How many there were, by their kinds."""
        if self.prefill_replicas is not None:
            return f"{self.prefill_replicas:,} prefill and {self.replicas - self.prefill_replicas:,} decode replicas"
        if self.fleet is not None and self.fleet.least < self.fleet.most:
            return f"{self.fleet.least:,} to {self.fleet.most:,} replicas"
        replicas = self.replicas if self.fleet is None else self.fleet.most
        return "one replica" if replicas == 1 else f"{replicas:,} replicas"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A run. ``options`` are the values of the command's options, to be repeated: no report interprets them.

    ``started_at`` is ISO 8601. ``problem`` is why the client stopped sending, ``early_end`` the rule that ended the run.
    ``server_began_at`` is when the server's process began, as Unix time in s, to about 1 s: the same for all runs of one start.
    ``recovered`` is None for a run that was not cut, ``distribution`` for one of the measuring host's own processes,
    ``simulation`` for one that was measured. ``targets`` are the servers of a run of several, in the order of --url, None for
    one; ``server_statistics`` are then the sums over all, None where one of them has none.
    """

    schema: int = MANIFEST_SCHEMA
    bench_version: str | None = None
    run_id: str | None = None
    verb: str | None = None
    workload: Workload = Workload()
    mixture: Mixture | None = None
    lengths: Lengths | None = None
    arrivals: str | None = None
    schedule: DrawnSchedule | None = None
    target: TargetFacts = TargetFacts()
    server: EmbeddedServer | None = None
    deployment: Deployment | None = None
    server_began_at: Positive | None = None
    targets: tuple[OneTarget, ...] | None = None
    options: Document = msgspec.field(default_factory=dict)
    criteria: Criteria = Criteria()
    warm_up: WarmUp = WarmUp()
    prefix_cache_reset: str | None = None
    environment: Environment | None = None
    calibration: CalibrationFacts | None = None
    load: LoadFacts | None = None
    workers: WorkersFacts | None = None
    connections: Connections | None = None
    clock: ClockReadings | None = None
    server_statistics: ServerStatistics | None = None
    telemetry: Telemetry | None = None
    polled_times: PolledTimes | None = None
    gpu_telemetry: GpuTelemetry | None = None
    machine_use: MachineUse | None = None
    times: Times | None = None
    distribution: Distribution | None = None
    recovered: Recovered | None = None
    simulation: Simulation | None = None
    state: RunState = RunState.DONE
    started_at: str | None = None
    duration_s: Positive | None = None
    interrupted: bool | None = None
    early_end: EarlyEnd | None = None
    problem: str | None = None


class _OptionsOnly(msgspec.Struct):
    options: Criteria = Criteria()


def manifest_of(document: Document) -> Manifest:
    """The manifest in ``document``. Raises ValueError, which names the key, where it is not of the types and ranges here.

    Runs recorded before ``criteria`` was a key have it among their options.
    """
    _check_extent(document)
    try:
        manifest = msgspec.convert(document, Manifest)
        criteria = manifest.criteria if "criteria" in document else msgspec.convert(document, _OptionsOnly).options
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("$.", "")) from error
    workload = document.get("workload", {})
    assert isinstance(workload, Mapping)
    further = {key: value for key, value in workload.items() if key not in _WORKLOAD_KEYS}
    return msgspec.structs.replace(
        manifest, workload=msgspec.structs.replace(manifest.workload, parameters=further), criteria=criteria
    )


def document_of(manifest: Manifest) -> Document:
    """``manifest`` as JSON has it: every key, null for what is unknown, and the workload's parameters among its keys."""
    document: dict[str, object] = msgspec.to_builtins(manifest)
    workload: dict[str, object] = msgspec.to_builtins(manifest.workload)
    del workload["parameters"]
    further = manifest.workload.parameters
    known = {key: value for key, value in workload.items() if value is not None or key not in further}
    return document | {"workload": {"description": known.pop("description", None), **further, **known}}


_WORKLOAD_KEYS = {*Workload.__struct_fields__} - {"parameters"}


def _check_extent(document: object) -> None:
    """Depth and numbers of all keys, also of those that are only shown."""
    level = [document]
    for _ in range(_MOST_LEVELS):
        for value in level:
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise ValueError("a whole number of it is longer than 64 bits")
        level = [child for value in level for child in _children(value)]
    if level:
        raise ValueError(f"it is nested deeper than {_MOST_LEVELS} levels")


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
