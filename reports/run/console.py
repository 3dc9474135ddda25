"""The answer of a run in about twenty lines of a terminal: validity, the four numbers, objectives, findings with remedies."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from tabulate import tabulate

from reports.findings.finding import Finding
from reports.findings.outcomes import Errors
from reports.gates.gate import Gate
from reports.gates.words import percentage
from reports.metrics.catalogue import E2E, TPOT, TTFT
from reports.metrics.client_calibration import client_calibration
from reports.metrics.goodput import Goodput
from reports.metrics.host_energy import HostEnergy
from reports.metrics.metric import FROM_SEND, Anchored
from reports.metrics.run_metrics import Metrics
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import UNKNOWN, tenths, three_digits
from reports.run.class_table import probe_sentence
from reports.run.headline import describe_run, verdict
from reports.run.rows import three_digits_of
from reports.run.simulated import model_error
from reports.run.target_table import answer_target_table
from reports.run_report import RunReport
from reports.statistics.estimate import Cause, Correlated, Estimate, Interval, Reason
from reports.statistics.percentiles import Distribution, required_samples

WIDTH = 80
_COLUMNS = ("ms, from the schedule", "p50", "95 % interval", "p90", "p99", "95 % interval")
_UNSUPPORTED = "*"
_NOT_YET = "p99 not yet supported: "
_SAME_SHARE = 0.05  # of a percentile: anchors that differ by less are shown as one
_SAME_ATTAINMENT = 0.001  # anchors whose attainment differs by less are shown as one
_MOST_LINES = 23  # with the path of the report 24; findings beyond them are counted
_FEWEST_FINDINGS = 3
_LONGEST_ERROR = 200  # characters


def render_answer(report: RunReport) -> str:
    """The text, without a trailing newline; lines of at most ``WIDTH`` characters, except names from outside."""
    metrics = report.metrics
    rows = _latency_rows(report)
    head = f"{describe_run(report)}. {_requests(metrics)}"
    parts = [
        _wrapped(verdict(report)) + _wrapped(head),
        [*_table(rows), *_tail_notes(rows)],
        answer_target_table(report),
        _rates(metrics)
        + _wrapped(_gpus(report))
        + _wrapped(_host_energy(report.host_energy))
        + _wrapped(probe_sentence(report))
        + _wrapped(model_error(report)),
        [line for gate in report.gates for line in _gate(gate)],
    ]
    left = _MOST_LINES - sum(len(part) + 1 for part in parts[:-1] if part) - len(parts[-1])
    explained = _wrapped(verdict(report)) + _wrapped(head + _first_error(report.findings))
    if left - len(explained) + len(parts[0]) >= _FEWEST_FINDINGS:
        left -= len(explained) - len(parts[0])
        parts[0] = explained
    parts[-1] += _findings(report.findings, max(_FEWEST_FINDINGS, left))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _requests(metrics: Metrics) -> str:
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in metrics.failed_by_kind.items())
    parts = [f"{metrics.done:,} of {counted(metrics.scheduled, 'request')} succeeded"]
    parts[0] += "" if metrics.window_s is None else f" in {tenths(metrics.window_s)} s"
    parts += [f"cancelled as planned: {metrics.withdrawn:,}"] if metrics.withdrawn else []
    parts += [f"failed: {kinds}"] if kinds else []
    parts += [f"not sent: {metrics.not_sent:,}"] if metrics.not_sent else []
    return "; ".join(parts) + "."


def _first_error(findings: Iterable[Finding]) -> str:
    """The first error of the failed requests, or its beginning: without it nothing here says why they failed."""
    error = next((finding.first_error for finding in findings if isinstance(finding, Errors)), None)
    return "" if error is None else f" The first error: {textwrap.shorten(printable(error), _LONGEST_ERROR, placeholder=' …')}"


def _latency_rows(report: RunReport) -> list[tuple[str, Distribution]]:
    """TTFT, TPOT and E2E latency from the schedule, and from the send where that differs by more than the client's error."""
    latencies, rows = report.metrics.latencies, list[tuple[str, Distribution]]()
    for metric in (TTFT, TPOT, E2E):
        value = latencies.get(metric)
        if isinstance(value, Distribution):
            rows.append((metric.label, value))
        elif value is not None and value.scheduled is not None:
            rows.append((metric.label, value.scheduled))
            if value.sent is not None and _differ(value, _client_error_ms(report)):
                rows.append((f"{metric.label} ({FROM_SEND})", value.sent))
    return rows


def _client_error_ms(report: RunReport) -> float:
    calibration = client_calibration(report.manifest)
    return 0.0 if calibration is None else abs(calibration.ttft.mean_ms) + 2.0 * calibration.ttft.stdev_ms


def _differ(latency: Anchored, error_ms: float) -> bool:
    """Whether the two anchors of a latency differ in p50 or p99 by more than 5 % and the calibrated error of the client."""
    assert latency.scheduled is not None
    assert latency.sent is not None
    pairs = ((latency.scheduled.p50, latency.sent.p50), (latency.scheduled.p99, latency.sent.p99))
    return any(
        (scheduled is None) is not (sent is None)
        if scheduled is None or sent is None
        else scheduled - sent > max(error_ms, _SAME_SHARE * scheduled)
        for scheduled, sent in pairs
    )


def _table(rows: list[tuple[str, Distribution]]) -> list[str]:
    if not rows:
        return []
    cells = [(name, *_cells(d)) for name, d in rows]
    alignment = ("left", "right", "left", "right", "right", "left")
    return tabulate(cells, headers=_COLUMNS, tablefmt="plain", colalign=alignment, disable_numparse=True).splitlines()


def _cells(d: Distribution) -> tuple[str, ...]:
    p50, p99 = d.percentile(0.50), d.percentile(0.99)
    mark = "" if _is_supported(d) else _UNSUPPORTED
    return (three_digits_of(p50), _limits(p50), three_digits_of(d.percentile(0.90)), three_digits_of(p99) + mark, _limits(p99))


def _is_supported(d: Distribution) -> bool:
    return d.supports(0.99) and d.percentile(0.99).interval is not None


def _limits(percentile: Estimate) -> str:
    if percentile.interval is not None:
        return _between(percentile.interval)
    return UNKNOWN if percentile.at_least is None else f"≥ {three_digits(percentile.at_least)}"


def _between(interval: Interval) -> str:
    return " – ".join(map(three_digits, interval))


def _shares(interval: Interval) -> str:
    """Limits in per cent, without the sign."""
    return " – ".join(map(percentage, interval))


def _tail_notes(rows: list[tuple[str, Distribution]]) -> list[str]:
    """The reason of each mark, and what was needed. Where there are several reasons, the rows of each are named; the numbers of
    those that are worth too few independent requests follow each other.
    """
    worth: dict[Correlated, list[str]] = {}
    others: dict[str, list[str]] = {}
    short = [(name, d) for name, d in rows if not d.supports(0.99)]
    for name, d in rows:
        if not d.supports(0.99) or _is_supported(d):
            continue
        reason = d.percentile(0.99).reason
        if isinstance(reason, Correlated):
            worth.setdefault(reason, []).append(name)
        else:
            others.setdefault(_of_p99(reason), []).append(name)
    notes = [([name for name, _ in short], _NOT_YET + _too_few(short))] if short else []
    notes += [(names, text) for text, names in others.items()]
    if worth:
        (first, first_names), *more = worth.items()
        also = "".join(f"; {', '.join(names)}: to {reason.equivalent:,}" for reason, names in more)
        notes.append((first_names, f"{_NOT_YET}{first.sentence}{also}"))
    has_one = len(notes) == 1 and len(worth) < 2
    texts = (f"{'' if has_one else ', '.join(names) + ': '}{text}." for names, text in notes)
    return [line for text in texts for line in _wrapped(f"{_UNSUPPORTED} {text}", indent="  ")]


def _of_p99(reason: Reason | None) -> str:
    if reason is Cause.CUT_OFF:
        return "p99 is a lower bound: requests were cut off"
    if reason is Cause.AMONG_FAILURES:
        return "p99, or the end of its interval, falls among the failed requests"
    return f"{_NOT_YET}{reason}"


def _too_few(rows: list[tuple[str, Distribution]]) -> str:
    numbers = sorted({d.n + d.censored for _, d in rows})
    values = counted(numbers[0], "value") if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,} values"
    return f"{values}, {required_samples(0.99):,} needed (sample_too_small)"


def _rates(metrics: Metrics) -> list[str]:
    rates = metrics.rates
    rows = [
        (metric.label, f"{_rate(rates[metric])} {metric.table_unit}", _rate_limits(rates[metric]))
        for metric in rates
        if metric.better is not None
    ]
    rows += [] if metrics.goodput is None else _goodput_rows(metrics.goodput)
    lines = tabulate(rows, tablefmt="plain").splitlines()
    if metrics.goodput is not None:
        lines += _wrapped(_objectives(metrics.goodput))
    return lines


def _gpus(report: RunReport) -> str:
    use, telemetry = report.gpus, report.manifest.gpu_telemetry
    if use is None:
        return ""
    count = "GPU" if len(use.gpus) == 1 else f"{len(use.gpus)} GPUs"
    count += " of this machine, perhaps not the target's" if telemetry is not None and not telemetry.of_target else ""
    parts = [f"{three_digits(use.joules_per_token)} J a token"] if use.joules_per_token is not None else []
    parts += [f"{use.power_w:,.0f} W"] if use.power_w is not None else []
    parts += [f"busy {use.busy_share:.0%}"] if use.busy_share is not None else []
    return f"{count}: {', '.join(parts)}." if parts else ""


def _host_energy(energy: HostEnergy | None) -> str:
    """What is known of the CPU's and the DRAM's power; the former with J a token."""
    if energy is None:
        return ""
    cpu, dram = energy.cpu, energy.dram
    parts = [] if cpu is None or cpu.joules_per_token is None else [f"{three_digits(cpu.joules_per_token)} J a token"]
    parts += [] if cpu is None or cpu.power_w is None else [f"{cpu.power_w:,.0f} W"]
    sentences = [f"CPU: {', '.join(parts)}"] if parts else []
    sentences += [] if dram is None or dram.power_w is None else [f"DRAM {dram.power_w:,.0f} W"]
    return f"{'; '.join(sentences)}." if sentences else ""


def _goodput_rows(goodput: Goodput) -> list[tuple[str, str, str]]:
    limits = goodput.attainment_interval
    beside = "" if limits is None else f"95 %: {_shares(limits)}"
    return [
        ("Goodput", f"{_rate(goodput.rate)} requests/s", _rate_limits(goodput.rate)),
        ("Attainment", f"{percentage(goodput.attainment)} % of {goodput.judged_text}", beside),
    ]


def _objectives(goodput: Goodput) -> str:
    """The objectives, what attainment can have been with the requests that were cut off before that was decided, and that from
    the send where it is another; in the table these would be too long.
    """
    text = f"Objectives: {' and '.join(map(str, goodput.objectives))}."
    if goodput.undetermined:
        limits = _shares(goodput.attainment_limits)
        cut = counted(goodput.undetermined, "request was", "requests were")
        text += f" {cut} cut off before that was decided, with which attainment is {limits} %."
    if goodput.attainment_from_send - goodput.attainment < _SAME_ATTAINMENT:
        return text
    return f"{text} Attainment {FROM_SEND}: {percentage(goodput.attainment_from_send)} %."


def _rate(rate: Estimate) -> str:
    return UNKNOWN if rate.value is None else three_digits(rate.value)


def _rate_limits(rate: Estimate) -> str:
    if rate.value is None:
        return ""
    if rate.interval is not None:
        return f"95 %: {_between(rate.interval)}"
    return f"95 %: {UNKNOWN}" + ("" if rate.reason is None else f" ({rate.reason!s})")


def _gate(gate: Gate) -> list[str]:
    return _wrapped(f"{gate.status.value:>9}  {gate.requirement}: {gate.why}", indent=" " * 11)


def _findings(findings: Iterable[Finding], most_lines: int) -> list[str]:
    """A line each with the remedy, the most severe first; findings with the same remedy share one, and those beyond
    ``most_lines`` lines are counted in the last.
    """
    by_remedy: dict[str, Finding] = {}
    for finding in findings:
        by_remedy.setdefault(finding.brief, finding)
    lines = [f"{finding.severity.value:>9}  {finding.brief}" for finding in by_remedy.values()]
    if len(lines) <= most_lines:
        return lines
    return [*lines[: most_lines - 1], f"{'':9}  and {len(lines) - most_lines + 1} more: --full"]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
