"""``summary.json``: the contract that other programs read. It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import msgspec

from reports.metrics.arrival_law import check_arrivals
from reports.metrics.asked_arrivals import AskedArrivals
from reports.metrics.catalogue import (
    ARRIVAL_RATES,
    ATTAINMENT,
    DISPERSION,
    E2E,
    GOODPUT,
    LATENCIES,
    THROUGHPUTS,
    TTFT,
    WINDOW,
)  # fmt: skip
from reports.metrics.client_calibration import client_calibration, peak_rates
from reports.metrics.configuration import configured_law, configured_load
from reports.metrics.goodput import Goodput
from reports.metrics.gpu_use import GpuUse
from reports.metrics.length_laws import LengthLaw
from reports.metrics.lengths import Lengths
from reports.metrics.metric import Anchored
from reports.metrics.mser import RULE
from reports.metrics.prefix_cache import PrefixCache
from reports.metrics.run_metrics import Metrics
from reports.metrics.stages import Stage
from reports.metrics.target_numbers import TargetNumbers
from reports.metrics.traffic_classes import ClassNumbers
from reports.metrics.windows import Window
from reports.render.plain_text import json_text
from reports.run_report import RunReport
from reports.statistics.estimate import Estimate, reason_text
from reports.statistics.percentiles import WITH_INTERVAL, Distribution, percentile_key

SCHEMA = 1


def summary(report: RunReport) -> dict[str, object]:
    """The document; what is unknown or does not exist is null."""
    metrics = report.metrics
    return {
        "schema": SCHEMA,
        "validity": "valid" if report.valid else "invalid",
        "findings": [
            {"code": f.code, "severity": f.severity.value, "evidence": f.evidence, "advice": f.advice} for f in report.findings
        ],
        "gates": [
            {
                "requirement": str(gate.requirement),
                "status": gate.status.value.lower(),
                "value": gate.evidence.value,
                "low": gate.evidence.low,
                "high": gate.evidence.high,
                "beyond": None if gate.evidence.beyond is None else asdict(gate.evidence.beyond),
                "why": gate.why,
            }
            for gate in report.gates
        ],
        "requests": _requests(report),
        "metrics": _metrics(metrics),
        "windows": {
            "whole": _window(metrics.windows.whole),
            "steady": _window(metrics.windows.steady),
            "steady_rule": RULE,
            "steady_reason": metrics.windows.not_steady,
        },
        "arrivals": _arrivals(report),
        "slip_by_worker": [{"worker": worker} | asdict(slip) for worker, slip in sorted(metrics.slip_by_worker.items())],
        "slip_over_time": [
            {"start_s": part.start_s, "end_s": part.end_s} | asdict(part.slip) for part in metrics.slip_over_time
        ],
        "output_tokens_sources": list(report.requests.output_tokens_sources),
        "client": None if report.client is None else asdict(report.client),
        "server": None if report.server is None else asdict(report.server),
        "gpus": None if report.gpus is None else _gpus(report.gpus),
        "host_energy": None if report.host_energy is None else asdict(report.host_energy),
        "lengths": {"input": _lengths(report.input_lengths), "output": _lengths(report.output_lengths)},
        "length_laws": {"input": _length_law(report.input_law), "output": _length_law(report.output_law)},
        "arrival_laws": [_arrival_law(arrivals) for arrivals in report.asked_arrivals],
        "prefix_cache": _prefix_cache(report.prefix_cache),
        "classes": [_class(numbers) for numbers in report.classes],
        "targets": [_target(numbers) for numbers in report.targets],
        "servers": [{"url": server} | asdict(load) for server, load in report.servers.items()],
        "stages": [_stage(stage) for stage in report.stages],
        "phases": [
            {
                "name": phase.name,
                "server_ms": phase.server_ms,
                "client_ms": phase.client_ms,
                "unexplained_ms": phase.unexplained_ms,
            }
            for phase in report.phases
        ],
        "calibration": _calibration(report),
        "schedule": {"digest": report.schedule.digest, "seed": report.schedule.seed},
        "simulation": None if report.manifest.simulation is None else msgspec.to_builtins(report.manifest.simulation),
    }


def write_summary(report: RunReport, path: Path) -> None:
    path.write_text(json_text(summary(report)), encoding="utf-8")


def _gpus(use: GpuUse) -> dict[str, object]:
    return {
        **asdict(use),
        "power_w": use.power_w,
        "idle_power_w": use.idle_power_w,
        "busy_share": use.busy_share,
        "joules_per_token": use.joules_per_token,
        "joules_per_token_error": use.joules_per_token_error,
    }


def _lengths(lengths: Lengths | None) -> dict[str, object] | None:
    return None if lengths is None else asdict(lengths)


def _length_law(length: LengthLaw) -> dict[str, object]:
    return {
        "law": length.law,
        "asked": None if length.asked_mean is None else {"mean": length.asked_mean, "stdev": length.asked_stdev},
        "sent": None if length.sent is None else asdict(length.sent),
        "actual": None if length.actual is None else asdict(length.actual),
    }


def _arrival_law(arrivals: AskedArrivals) -> dict[str, object]:
    return {
        "law": arrivals.law,
        "unit": arrivals.unit,
        "stage": arrivals.stage,
        "asked": {"rate_per_s": arrivals.asked_rate, "gap_cv": arrivals.asked_gap_cv},
        "scheduled": None if arrivals.scheduled is None else asdict(arrivals.scheduled),
        "sent": None if arrivals.sent is None else asdict(arrivals.sent),
    }


def _prefix_cache(reuse: PrefixCache) -> dict[str, object]:
    usage = reuse.usage
    return {
        **asdict(reuse),
        "usage": None
        if usage is None
        else {
            "share": usage.share,
            "cached_tokens": usage.cached,
            "prompt_tokens": usage.prompt,
            "requests": usage.requests,
            "reporting_requests": usage.reporting,
        },
    }


def _stage(stage: Stage) -> dict[str, object]:
    return {
        "begin_s": stage.begin_s,
        "end_s": stage.end_s,
        "asked_rate": stage.asked_rate,
        "scheduled": stage.scheduled,
        "failed": stage.failed,
        "sent_rate": stage.sent_rate,
        "ttft_ms": _distribution(stage.ttft_ms),
        "e2e_ms": _distribution(stage.e2e_ms),
    }


def _class(numbers: ClassNumbers) -> dict[str, object]:
    return {
        "name": numbers.name,
        "is_probe": numbers.is_probe,
        "scheduled": numbers.scheduled,
        "done": numbers.done,
        "withdrawn": numbers.withdrawn,
        "failed": numbers.failed,
        "ttft_ms": _distribution(numbers.ttft_ms),
        "e2e_ms": _distribution(numbers.e2e_ms),
        "goodput": numbers.goodput_rate,
        "attainment": None if numbers.goodput is None else _attainment(numbers.goodput),
    }


def _target(numbers: TargetNumbers) -> dict[str, object]:
    return {
        "number": numbers.number,
        "address": numbers.address,
        "sent": numbers.sent,
        "done": numbers.done,
        "withdrawn": numbers.withdrawn,
        "failed": numbers.failed,
        "by_kind": dict(numbers.failed_by_kind),
        "output_tokens": numbers.output_tokens,
        "ttft_ms": _distribution(numbers.ttft_ms),
        "e2e_ms": _distribution(numbers.e2e_ms),
        "counted_by_server": asdict(numbers.counted),
    }


def _requests(report: RunReport) -> dict[str, object]:
    metrics = report.metrics
    return {
        "prepared": configured_load(report.manifest).prepared or metrics.scheduled,
        "scheduled": metrics.scheduled,
        "done": metrics.done,
        "failed": metrics.failed,
        "withdrawn": metrics.withdrawn,
        "not_sent": metrics.not_sent,
        "by_kind": metrics.failed_by_kind,
    }


def _metrics(metrics: Metrics) -> dict[str, object]:
    """Every metric under its key."""
    latencies, rates, goodput = metrics.latencies, metrics.rates, metrics.goodput
    return {
        **{metric.key: _latency(latencies.get(metric)) for metric in LATENCIES},
        **{metric.key: _value_of(rates[metric]) for metric in (*THROUGHPUTS, *ARRIVAL_RATES)},
        WINDOW.key: None if metrics.window_s is None else {"value": metrics.window_s, "interval": None},
        GOODPUT.key: None if goodput is None else _value_of(goodput.rate),
        ATTAINMENT.key: None if goodput is None else _attainment(goodput),
    }


def _latency(value: Anchored | Distribution | None) -> dict[str, object] | None:
    if isinstance(value, Anchored):
        return {"scheduled": _distribution(value.scheduled), "sent": _distribution(value.sent)}
    return _distribution(value)


def _distribution(d: Distribution | None) -> dict[str, object] | None:
    if d is None:
        return None
    with_interval = {"mean": d.mean} | {percentile_key(q): d.percentile(q) for q in WITH_INTERVAL}
    return {
        "mean": d.mean.value,
        **{percentile_key(q): percentile.value for q, percentile in d.percentiles.items()},
        "max": d.max,
        "n": d.n,
        "failed": d.failed,
        "censored": d.censored,
        "lower_bounds": d.bounds,
        **{f"{key}_interval": estimate.interval for key, estimate in with_interval.items()},
        "interval_reasons": {
            key: str(estimate.reason) for key, estimate in with_interval.items() if estimate.reason is not None
        },
        "at_least": {key: estimate.at_least for key, estimate in with_interval.items() if estimate.at_least is not None},
        "p99_supported": d.supports(0.99),
    }


def _rate(rate: Estimate) -> dict[str, object] | None:
    value = _value_of(rate)
    return None if value is None else value | {"interval_reason": reason_text(rate.reason)}


def _value_of(rate: Estimate) -> dict[str, object] | None:
    return None if rate.value is None else {"value": rate.value, "interval": rate.interval}


def _attainment(goodput: Goodput) -> dict[str, object]:
    objectives = [
        {"objective": str(objective), "attainment": met / judged if judged else None}
        for objective, met, judged in zip(goodput.objectives, goodput.met, goodput.judged, strict=True)
    ]
    return {
        "value": goodput.attainment,
        "undetermined": goodput.undetermined,
        "limits": goodput.attainment_limits,
        "interval": goodput.attainment_interval,
        "from_send": {"value": goodput.attainment_from_send, "interval": goodput.from_send_interval},
        "objectives": objectives,
    }


def _window(window: Window | None) -> dict[str, object] | None:
    if window is None:
        return None
    return {
        "start_s": window.start_s,
        "end_s": window.end_s,
        **{metric.key: _rate(rate) for metric, rate in window.throughputs.items()},
        TTFT.key: _distribution(window.ttft_ms),
        E2E.key: _distribution(window.e2e_ms),
    }


def _arrivals(report: RunReport) -> dict[str, object]:
    """The configured law, the test of the sends against it, and the burstiness of arrivals."""
    law = configured_law(report.manifest)
    test = None if law is None else check_arrivals(report.requests, law)
    return {
        "scheduled_index_of_dispersion": report.metrics.scheduled_dispersion,
        DISPERSION.key: report.metrics.sent_dispersion,
        "law": None if law is None else {"name": law.name, "rate_per_s": law.rate_per_s, "shape": law.shape},
        "test": None
        if test is None
        else {"gaps": test.gaps, "statistic": test.statistic, "p_value": test.p_value, "rejected": test.rejected},
    }


def _calibration(report: RunReport) -> dict[str, object] | None:
    """What the client adds to durations, and its peak rates beside the calibrated ones."""
    calibration = client_calibration(report.manifest)
    if calibration is None:
        return None
    peak = peak_rates(report.all_requests)
    return {
        "made_on": calibration.made_on,
        "client_adds_ttft_ms": {"mean": calibration.ttft.mean_ms, "stdev": calibration.ttft.stdev_ms},
        "client_adds_icl_ms": {"mean": calibration.icl.mean_ms, "stdev": calibration.icl.stdev_ms},
        "workers": calibration.workers,
        "requests_per_s": {"peak": peak.requests_per_s, "calibrated": calibration.requests_per_s},
        "responses_per_s": {"peak": peak.responses_per_s, "calibrated": calibration.responses_per_s},
    }
