"""What ``bench simulate run`` does where a measuring verb would measure: the same schedule, simulated, into a run's folder."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click
import msgspec

from bench_cli.declared import Concern
from bench_cli.engine_options import EngineSettings
from bench_cli.measurement.client_options import ClientOptions
from bench_cli.measurement.distribution_options import DistributionOptions
from bench_cli.measurement.embedded_options import EmbeddedOptions
from bench_cli.measurement.manifest import after_run, make_manifest
from bench_cli.measurement.measure import concluded, reference_of, status_of
from bench_cli.measurement.mixture import mix
from bench_cli.measurement.mixture_options import check_mixture_options
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.output_options import announce_too_few, check_given, check_objectives
from bench_cli.measurement.prepare import PreparedRun, PrepareRequests, make_schedule
from bench_cli.measurement.run_folder import open_run_folder
from bench_cli.measurement.target_options import TargetOptions
from bench_cli.measurement.telemetry_options import TelemetryOptions
from bench_cli.signals import signals_as_interrupt
from bench_cli.simulate.changing_replicas import fleet_facts, fleet_sentences
from bench_cli.simulate.deployment import Simulated, replica_facts, simulated_target
from bench_cli.simulate.deployment_options import BLOCK_TOKENS
from bench_cli.simulate.records import simulated_result
from bench_cli.simulate.traffic import SimulatedTraffic, simulated_traffic, with_prefixes
from bench_records.manifest import Manifest, Simulation, WarmUp
from bench_records.run_folder import RunFolder
from harness.recording.recorder import Recorder
from harness.recording.run_lifecycle import finish_run
from harness.recording.run_result import RunResult
from harness.recording.schedule_summary import summarise_schedule
from harness.run.worker_count import Workers
from reports.render.counts import counted
from reports.render.plain_text import printable
from simulator.answers import Answers
from simulator.figures import Ranges, figures_of, predicted_ranges
from simulator.hull import beyond, extents_of_deployment
from simulator.recorded import Responses
from simulator.simulation import check_room, simulate_deployment
from workloads.schedule.load import Load

_KEPT = ("tokenizer_dir", "streaming", "protocol", "model")  # options of the target that a simulation reads or may ignore
_OF_A_SERVER: tuple[type[Concern], ...] = (
    *(TargetOptions, EmbeddedOptions, EngineSettings, DistributionOptions, TelemetryOptions, ClientOptions),
)
_REPEATED = 0.05  # the share of repeated prompt tokens from which on it is said that no cache is simulated
_KEYS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms"}


@dataclass(frozen=True)
class Simulating:
    """Carries out the measurements of its deployment."""

    simulated: Simulated

    def carry_out(self, verb: str, options: MeasureOptions, load: Load, prepare_requests: PrepareRequests) -> int:
        """Simulate, record and report; returns the exit status of a run."""
        check_options(options)
        reference = reference_of(options)
        prepared, traffic = prepared_traffic(self.simulated, options, load, prepare_requests)
        with open_run_folder(f"simulated-{verb}", options.output.run_dir, options.output.shared_results) as folder:
            with signals_as_interrupt():
                self._run(verb, options, prepared, traffic, folder)
            report, passed = concluded(folder, options, reference)
            click.echo(f"Report: {folder.html}")
            simulated = RunResult((), None, 0.0, interrupted=False, warm_up_failures=())
            return status_of(report, simulated, passed, options.criteria.fail_if)

    def _run(
        self, verb: str, options: MeasureOptions, prepared: PreparedRun, traffic: SimulatedTraffic, folder: RunFolder
    ) -> None:
        simulated, schedule = self.simulated, prepared.schedule
        manifest = _manifest(verb, options, prepared)
        announce_too_few(options.criteria.slo, options.criteria.fail_if, prepared.load_requests, "--num_requests {}")
        click.echo(f"Simulating {counted(prepared.load_requests, 'request')}, {prepared.load}; nothing is sent.", err=True)
        responses = Responses(len(schedule), simulated.deployment.server.front_end.response)
        seed = schedule.seed
        answers = simulate_deployment(simulated.deployment, traffic.traffic, traffic.clients(), seed, responses.add)
        extents = extents_of_deployment(simulated.deployment, traffic.traffic, answers)
        outside = (*simulated.changes, *beyond(simulated.model.hull, extents))
        if outside:
            click.echo(printable(f"This lies beyond what the model was fitted to: {'; '.join(outside)}."), err=True)
        for sentence in () if answers.fleet is None else fleet_sentences(answers.fleet):
            click.echo(sentence, err=True)
        recorder = Recorder(summarise_schedule(schedule, None), prepared.target.client)
        result = simulated_result(traffic, answers, responses, recorder)
        ended = msgspec.structs.replace(
            after_run(manifest, prepared, result),
            simulation=self._facts(outside, answers, self._ranges(traffic, answers, seed)),
        )
        if traffic.traffic.prefixes is None:
            _say_what_repeats(ended)
        finish_run(folder, ended, result)

    def _ranges(self, traffic: SimulatedTraffic, answers: Answers, seed: int) -> Ranges:
        simulated = self.simulated
        if simulated.draws:
            click.echo(f"Simulating them with {counted(simulated.draws, 'draw')} of the model's constants.", err=True)
        return predicted_ranges(
            simulated.model,
            simulated.deployment,
            traffic.traffic,
            traffic.clients,
            lambda of: figures_of(*traffic.of_load(of)),
            answers,
            simulated.draws,
            seed,
        )

    def _facts(self, outside: tuple[str, ...], answers: Answers, ranges: Ranges) -> Simulation:
        simulated, deployment = self.simulated, self.simulated.deployment
        blocks = deployment.cache_blocks
        return Simulation(
            model=printable(simulated.name),
            digest=simulated.digest,
            fitted_to=tuple(source.name for source in simulated.model.sources),
            **replica_facts(deployment),
            fleet=None if answers.fleet is None else fleet_facts(deployment, answers.fleet),
            prefix_cache_tokens=None if blocks is None else blocks * BLOCK_TOKENS,
            beyond=outside,
            doubts=tuple(map(printable, (*simulated.model.unfit, *simulated.model.doubts))),
            draws=simulated.draws,
            ranges=_by_key(ranges),
        )


def check_options(options: MeasureOptions, *others: type[Concern]) -> None:
    """Raises UsageError for options that a simulation cannot follow; says on stderr which ones have no effect: those that only
    matter to a real server or its client, and those of ``others``.
    """
    check_mixture_options(options.mixture, options.load, options.client, options.target)
    check_objectives(options.criteria.slo, options.criteria.fail_if)
    for name in options.given("stop_if", "until"):
        raise click.UsageError(f"--{name}: a simulation has no early end; leave it out")
    check_given(options.criteria)
    unused = [name for part in (*_OF_A_SERVER, *others) for name in options.given(*part.names()) if name not in _KEPT]
    if unused:
        click.echo(f"Without effect in a simulation: {', '.join(f'--{name}' for name in unused)}.", err=True)


def prepared_traffic(
    simulated: Simulated, options: MeasureOptions, load: Load, prepare_requests: PrepareRequests
) -> tuple[PreparedRun, SimulatedTraffic]:
    """The requests and schedule of a measurement, as the fitted server would get them. Raises UsageError and SimulatorError."""
    target = simulated_target(simulated, options)
    workload = prepare_requests(options.traffic, load, target)
    own_load = workload.load or load
    schedule = make_schedule(workload, own_load, options.traffic, target)
    mixed = mix(schedule, options.mixture, options.traffic, target, workload.vocab_size)
    prepared = PreparedRun(target, workload, own_load, mixed, Workers(1, "simulated"))
    traffic = simulated_traffic(prepared.schedule, target.template_tokens or 0)
    check_room(simulated.deployment.server.admission, traffic.traffic)
    return prepared, traffic if simulated.deployment.cache_blocks is None else with_prefixes(traffic)


def _manifest(verb: str, options: MeasureOptions, prepared: PreparedRun) -> Manifest:
    """The manifest of a measurement, without what a simulation has not: an address, warm-up and a client of its own."""
    client = replace(options.client, warmup_requests=0)
    made = make_manifest(verb, replace(options, client=client), prepared)
    return msgspec.structs.replace(
        made, target=msgspec.structs.replace(made.target, address=None), warm_up=WarmUp(requests=0), calibration=None
    )


def _say_what_repeats(manifest: Manifest) -> None:
    repeated = manifest.workload.repeated_prefix
    share = None if repeated is None else repeated.share
    if share is not None and share > _REPEATED:
        click.echo(
            f"{share:.0%} of the prompts, by length, repeat the beginnings of earlier ones: no prefix cache is simulated, so a "
            "server with one is faster than this; --prefix_cache simulates one.",
            err=True,
        )


def _by_key(ranges: Ranges) -> dict[str, dict[str, tuple[float, float]]]:
    """The ranges by the keys of ``summary.json``."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for (metric, figure), limits in ranges.items():
        key, name = (_KEYS[metric], figure) if metric in _KEYS else ("request_throughput", "value")
        found.setdefault(key, {})[name] = limits
    return found
