"""The rows of a report's tables about the client and the server, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence

from reports.client import ClientHealth
from reports.phases import Phase
from reports.run_report import RunReport
from reports.server import ServerLoad
from reports.tables import Table
from reports.telemetry import Level

Rows = Sequence[tuple[str, tuple[float | None, ...]]]


def client_table(report: RunReport) -> Table:
    """What was seen of the client."""
    return _table("client", "Client", ("client", "value"), client_rows(report.client))


def server_tables(report: RunReport) -> tuple[Table, ...]:
    """What was seen of the server, and where requests spent their time."""
    model_columns = ("model", "requests", "failed", "queue ms", "compute ms", "request ms")
    return (
        _table("server", "Server", ("server", "mean", "max"), level_rows(report.server)),
        _table("models", "Model, by Triton (means)", model_columns, model_rows(report.server)),
        _table("phases", "Mean of a request, ms", ("ms", "server", "client", "between"), phase_rows(report.phases)),
    )


def watched_tables(report: RunReport) -> tuple[Table, ...]:
    """All of them; a table without rows is left out."""
    return tuple(table for table in (client_table(report), *server_tables(report)) if table.rows)


def _table(name: str, title: str, columns: tuple[str, ...], rows: Rows) -> Table:
    return Table(name, title, columns, tuple((row, *cells) for row, cells in rows))


def client_rows(client: ClientHealth | None) -> Rows:
    """What is known of the client."""
    if client is None:
        return []
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
    return [(name, (value,)) for name, value in rows if value is not None]


def level_rows(server: ServerLoad | None) -> Rows:
    """The server's gauges through the run."""
    if server is None:
        return []
    rows = (
        ("Active requests", server.active_requests, 1),
        ("Requests in the batch", server.scheduled_requests, 1),
        ("Requests waiting", server.waiting_requests, 1),
        ("KV cache used (%)", server.kv_cache_used_fraction, 100),
        ("GPU busy (%)", server.gpu_utilization, 100),
        ("CPU busy (%)", server.cpu_utilization, 100),
    )
    return [(name, _scaled(level, scale)) for name, level, scale in rows if level is not None]


def model_rows(server: ServerLoad | None) -> Rows:
    """Triton's statistics of each model that had requests."""
    return [
        (model.name, (model.succeeded, model.failed, model.queue_ms, model.compute_ms, model.request_ms))
        for model in (() if server is None else server.models)
    ]


def phase_rows(phases: tuple[Phase, ...]) -> Rows:
    """What the server counts of a mean request, what the client saw, and what lies between."""
    return [(phase.name, (phase.server_ms, phase.client_ms, phase.unexplained_ms)) for phase in phases]


def _scaled(level: Level, scale: float) -> tuple[float, float]:
    return level.mean * scale, level.max * scale


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100
