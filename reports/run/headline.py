"""The lines above the tables of a run's report: what was run, whether it is valid, and what the client adds to the numbers."""

from __future__ import annotations

from reports.findings.calibration import workers_text
from reports.findings.finding import Severity
from reports.metrics.client_calibration import ClientCalibration, client_calibration
from reports.metrics.distribution import workers_elsewhere
from reports.render.plain_text import printable
from reports.run_report import RunReport


def describe_run(report: RunReport) -> str:
    """Workload, arrivals and target in one line."""
    manifest = report.manifest
    return printable(f"{manifest.workload.description or 'unknown workload'}; {manifest.arrivals or ''}; {report.target}")


def verdict(report: RunReport) -> str:
    """The run's validity in one line, with the codes of the findings that make it invalid; first that it was simulated."""
    invalid = [finding.code for finding in report.findings if finding.severity is Severity.INVALID]
    text = "This run is valid." if report.valid else f"THIS RUN IS NOT VALID: {', '.join(invalid)}."
    simulation = report.manifest.simulation
    if simulation is None:
        return text
    beyond = f" BEYOND WHAT ITS MODEL WAS FITTED TO ({'; '.join(simulation.beyond)})" if simulation.beyond else ""
    return printable(f"SIMULATED{beyond}: no server was measured. {text}")


def describe_calibration(report: RunReport) -> str:
    """The client's own share in latencies, in one sentence; without a calibration, how to measure it."""
    calibration = client_calibration(report.manifest)
    if calibration is None and workers_elsewhere(report.manifest):
        return "What the client adds is not known: `bench calibrate` covers the workers of its own machine alone."
    if calibration is None:
        return "What the client adds is not known: this machine was not calibrated. Run `bench calibrate` on it, then measure."
    disturbed = f", while other processes kept {calibration.busy_cores:.1f} cores busy" if calibration.was_disturbed else ""
    when = f"calibrated {calibration.made_on}{disturbed}, {_calibrated_load(calibration)}"
    return printable(f"The client adds {calibration.ttft} to TTFT and {calibration.icl} to inter-chunk latency ({when}).")


def _calibrated_load(calibration: ClientCalibration) -> str:
    limits = ((calibration.requests_per_s, "requests"), (calibration.responses_per_s, "streamed responses"))
    rates = [f"{limit:,.0f} {unit}/s" for limit, unit in limits if limit]
    return f"up to {' and '.join(rates)} with {workers_text(calibration.workers)}" if rates else "at a quiet rate only"
