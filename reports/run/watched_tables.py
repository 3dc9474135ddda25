"""The tables of the client's health and the server's load, the same in every format."""

from __future__ import annotations

from reports.metrics.catalogue import E2E, ITL, TPOT, TTFT
from reports.metrics.distribution import distribution_of
from reports.metrics.engine_latencies import Between
from reports.metrics.host_energy import HostEnergy
from reports.metrics.prefix_cache import PrefixCache
from reports.metrics.server_series import Level
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import Table, three_digits
from reports.run.target_table import server_level_table
from reports.run_report import RunReport

_MORE = "docs/explanation/observation.md describes the measurement."


def client_tables(report: RunReport) -> tuple[Table, ...]:
    """The client's health; no table where it is not known."""
    client = report.client
    if client is None:
        return ()
    lag, busiest = client.lag, client.busiest
    rows = (
        ("CPU of the busiest worker (% of a core)", None if busiest is None else busiest.cpu_share * 100),
        ("CPU of the whole client (% of a core)", _percent(client.cpu_cores)),
        ("Event loop woke late, mean (ms)", None if lag is None else lag.mean_ms),
        ("Event loop woke late, p99 (ms)", None if lag is None else lag.p99_ms),
        ("Event loop woke late, max (ms)", None if lag is None else lag.max_ms),
        ("Waited for a core (% of the time)", _percent(client.run_queue_wait_share)),
        ("Longest garbage collection (ms)", client.gc_longest_ms),
        ("Machine: busy (% of a core)", _percent(client.busy_cores)),
        ("Machine: steal (% of a core)", _percent(client.steal_cores)),
    )
    known = tuple((name, value) for name, value in rows if value is not None)
    note = f"A late wake-up of the event loop delays sends; times of arrival are the kernel's. {_MORE}"
    return (Table("client", "The client", ("Client", "value"), known, note),) if known else ()


def worker_tables(report: RunReport) -> tuple[Table, ...]:
    """The workers of a run over several hosts; no table for one of the measuring host's own processes."""
    found = distribution_of(report.manifest)
    if found is None:
        return ()
    rows = tuple(
        (
            f"{worker.number}: {printable(worker.host)}",
            worker.offset_ms,
            worker.uncertainty_ms,
            worker.drift_ppm,
            "lost" if worker.lost is not None else "yes" if worker.stopped is None else "stopped",
        )
        for worker in found.workers
    )
    columns = ("Worker", "clock ahead (ms)", "within ± (ms)", "drift (ppm)", "to the end")
    note = "Each worker measures by its own clock; the offset sets its start. docs/explanation/distribution.md has the method."
    return (Table("workers", "The workers' hosts", columns, rows, note),)


def times_tables(report: RunReport) -> tuple[Table, ...]:
    """The benchmark's own times, for formats that are files: the console has them in its last line. None where unrecorded."""
    times = report.manifest.times
    if times is None:
        return ()
    rows = (
        ("Set-up, from the command to the run (s)", times.set_up_s),
        ("Run (s)", times.run_s),
        ("End of the embedded server or the connection (s)", times.close_target_s),
        ("Records and report (s)", times.report_s),
        ("Total (s)", times.total_s),
        ("CPU of set-up and run, with the workers here (s)", times.set_up_and_run_cpu_s),
        ("CPU of records and report (s)", times.report_cpu_s),
    )
    known = tuple((name, value) for name, value in rows if value is not None)
    started = printable(str(times.command_started_at)[:19].replace("T", " "))
    note = f"Started {started} UTC. What the report took is known once it is written: bench report shows it."
    return (Table("times", "The benchmark", ("Benchmark", "value"), known, note),) if known else ()


def server_tables(report: RunReport) -> tuple[Table, ...]:
    """The server's gauges, its engine's view, Triton's statistics of its models, and the phases of a request."""
    tables = (
        server_level_table(report),
        _levels(report),
        _gpus(report),
        _host_energy(report.host_energy),
        _engine(report),
        _latencies(report),
        _prefix_cache(report.prefix_cache),
        _models(report),
        _phases(report),
    )
    return tuple(table for table in tables if table.rows)


def _levels(report: RunReport) -> Table:
    server = report.server
    levels = (
        ("Active requests", None if server is None else server.active_requests, 1),
        ("Requests in the batch", None if server is None else server.scheduled_requests, 1),
        ("Requests waiting", None if server is None else server.waiting_requests, 1),
        ("KV cache used (%)", None if server is None else server.kv_cache_used_fraction, 100),
        ("GPU busy (%)", None if server is None else server.gpu_utilization, 100),
        ("CPU busy (%)", None if server is None else server.cpu_utilization, 100),
    )
    rows = tuple((name, *_scaled(level, scale)) for name, level, scale in levels if level is not None)
    return Table("levels", "The server's gauges", ("Server", "mean", "max"), rows, f"Over the readings of the run. {_MORE}")


def _gpus(report: RunReport) -> Table:
    use, telemetry = report.gpus, report.manifest.gpu_telemetry
    columns = ("GPU", "power W", "idle W", "energy J", "busy %", "memory GB", "SM clock MHz", "clocks limited")
    if use is None:
        return Table("gpus", "GPUs", columns, ())
    rows = tuple(
        (
            printable(gpu.gpu),
            gpu.power_w,
            gpu.idle_power_w,
            gpu.energy_j,
            _percent(gpu.busy_share),
            None if gpu.memory_used_bytes is None else gpu.memory_used_bytes / 1e9,
            gpu.sm_clock_mhz,
            "; ".join(f"{limit.reason} {limit.seconds:,.1f} s" for limit in gpu.limits) or None,
        )
        for gpu in use.gpus
    )
    note = f"From {use.start_s:,.1f} to {use.end_s:,.1f} s of the run, read every {use.period_s:,.2g} s. "
    if use.joules_per_token is not None:
        error = (
            ""
            if use.joules_per_token_error is None
            else f" ± {three_digits(use.joules_per_token_error)} by the readings' period"
        )
        note += f"{three_digits(use.joules_per_token)} J per output token{error}, idle power included. "
    if telemetry is not None and not telemetry.of_target:
        note += "These are all GPUs of the machine: on which of them the target computes is not known. "
    return Table("gpus", "GPUs", columns, rows, note + _MORE)


def _host_energy(energy: HostEnergy | None) -> Table:
    """A row of all packages together, and one of each where there are several; the same of their DRAM."""
    columns = ("Energy", "power W", "energy J", "J per output token", "± J")
    if energy is None:
        return Table("host_energy", "CPU and DRAM energy", columns, ())
    rows: list[tuple[str | float | None, ...]] = []
    for name, drawn in (("CPU", energy.cpu), ("DRAM", energy.dram)):
        if drawn is None:
            continue
        rows.append((name, drawn.power_w, drawn.energy_j, drawn.joules_per_token, drawn.joules_per_token_error))
        if len(drawn.zones) > 1:
            rows += [(f"{name}, {printable(zone.zone)}", zone.power_w, zone.energy_j, None, None) for zone in drawn.zones]
    note = (
        f"From {energy.start_s:,.1f} to {energy.end_s:,.1f} s of the run, read every {energy.period_s:,.2g} s. All that this "
        f"machine used, the client included; ± by the readings' period. {_MORE}"
    )
    return Table("host_energy", "CPU and DRAM energy", columns, tuple(rows), note)


def _engine(report: RunReport) -> Table:
    server = report.server
    speculation = None if server is None else server.speculation
    rows = (
        ("Preemptions", None if server is None or server.preemptions is None else round(server.preemptions)),
        ("Draft tokens accepted (%)", None if speculation is None else speculation.accepted_share * 100),
        ("Draft tokens accepted, each step", None if speculation is None else speculation.accepted_tokens / speculation.drafts),
    )
    known = tuple((name, value) for name, value in rows if value is not None)
    return Table("engine", "The engine's counters", ("Engine", "value"), known, f"What they grew by during the run. {_MORE}")


def _latencies(report: RunReport) -> Table:
    """The engine's latencies beside the client's, which are from the send."""
    metrics = report.metrics
    ttft, e2e = metrics.ttft_ms, metrics.e2e_ms
    ours = {
        "ttft": (TTFT, None if ttft is None else ttft.sent),
        "tpot": (TPOT, metrics.tpot_ms),
        "itl": (ITL, metrics.itl_ms),
        "e2e": (E2E, e2e.sent),
    }
    rows = []
    for theirs in () if report.server is None else report.server.latencies:
        metric, client = ours[theirs.metric]
        known = (None, None, None) if client is None else (client.mean.value, client.p50, client.p99)
        rows.append((metric.label, known[0], theirs.mean_ms, known[1], _within(theirs.p50), known[2], _within(theirs.p99)))
    return Table(
        "engine_latencies",
        "The engine's latencies beside the client's",
        ("Latency, ms", "mean", "engine's mean", "p50", "engine's p50", "p99", "engine's p99"),
        tuple(rows),
        "The client's are from the send. The engine's are its own histograms: their sums over their counts, and the bounds of "
        f"the buckets that hold its percentiles. It counts all its requests, also others'. {_MORE}",
        sides="lrrrrrr",
    )


def _within(value: Between | None) -> str | None:
    if value is None:
        return None
    return f"above {value.low_ms:g}" if value.high_ms is None else f"{value.low_ms:g} to {value.high_ms:g}"


def _prefix_cache(reuse: PrefixCache) -> Table:
    """No rows where the server reported nothing and the prompts were not made to share prefixes."""
    usage, unit = reuse.usage, reuse.server_unit
    blocks = "" if reuse.block_tokens is None else f"whole blocks of {reuse.block_tokens}"
    rows = (
        (f"Found by the server, of {unit} (%)", reuse.server_share),
        ("Found by the server, by its answers, of tokens (%)", None if usage is None else usage.share),
        ("An infinite cache, of tokens (%)", reuse.limit_share),
        ("The same before the trace was scaled (%)", reuse.unscaled_limit_share),
        (f"An infinite cache, {blocks}, of tokens (%)", reuse.limit_block_tokens_share),
        (f"An infinite cache, {blocks}, of blocks (%)", reuse.limit_block_share),
    )
    has_reuse = not (reuse.server_share is None and usage is None and reuse.limit_share is None)
    known = tuple((name, share * 100) for name, share in rows if share is not None) if has_reuse else ()
    missing = 0 if usage is None else usage.requests - usage.reporting
    note = "Prompt tokens or blocks that were in the prefix cache, beside the most that prompts in this order could find there."
    if missing:
        note += f" {counted(missing, 'answer')} had no count, which some servers leave out where it is 0: it counts as 0."
    return Table("prefix_cache", "The prefix cache", ("Prefix cache", "value"), known, note)


def _models(report: RunReport) -> Table:
    rows = tuple(
        (model.name, model.succeeded, model.failed, model.queue_ms, model.compute_ms, model.request_ms)
        for model in (() if report.server is None else report.server.models)
    )
    return Table(
        "models",
        "Triton's statistics",
        ("Model, by Triton (means)", "requests", "failed", "queue ms", "compute ms", "request ms"),
        rows,
        "Triton's counts of each model during the run. The times of a decoupled model end when it has accepted a request.",
    )


def _phases(report: RunReport) -> Table:
    return Table(
        "phases",
        "Where a request's time went",
        ("Mean of a request, ms", "server", "client", "between"),
        tuple((phase.name, phase.server_ms, phase.client_ms, phase.unexplained_ms) for phase in report.phases),
        "The server's own time, the client's time from the send to the same end, and the difference. A part that the client "
        "cannot see, such as a queue, has no time of the client.",
    )


def _scaled(level: Level, scale: float) -> tuple[float, float]:
    return level.mean * scale, level.max * scale


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100
