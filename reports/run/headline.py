"""Findings and headings in words, for people."""

from __future__ import annotations

from typing import Any

from reports.findings.checks import Finding
from reports.metrics.client_calibration import client_calibration
from reports.render.plain_text import printable
from reports.run_report import RunReport


def describe(finding: Finding) -> str:
    """One sentence with the finding's evidence."""
    return printable(_describe(finding))


def _describe(finding: Finding) -> str:
    e = finding.evidence
    match finding.code:
        case "nothing_done":
            return f"None of {e['scheduled']:,} requests succeeded."
        case "errors":
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in e["by_kind"].items())
            return f"{e['failed']:,} requests failed ({e['share']:.1%}): {kinds}. The first error: {e['first_error']}"
        case "interrupted":
            if e["not_sent"] is None:
                return "The run was stopped before its end."
            return f"The run was stopped; {e['not_sent']:,} of {e['scheduled']:,} requests were not sent."
        case "schedule_slip":
            return (
                f"p99 schedule slip is {e['p99_slip_ms']:.1f} ms beside a median latency of "
                f"{e['p50_latency_from_sent_ms']:.1f} ms from the send."
            )
        case "achieved_below_offered":
            return f"{e['achieved_rate']:.2f} requests/s were sent where {e['offered_rate']:.2f} were offered."
        case "sample_too_small":
            return f"{e['n']:,} successes cannot support p99, which needs {e['needed_for_p99']:,}."
        case "output_shorter_than_asked":
            return (
                f"{e['requests']:,} answers ({e['share']:.0%}) were shorter than asked: "
                f"{e['got_tokens']:,.0f} of {e['asked_tokens']:,.0f} tokens in all."
            )
        case "prompt_echoed":
            return f"{e['requests']:,} answers begin with the prompt."
        case "warm_up_failed":
            return f"{e['failed']:,} warm-up requests failed. The first error: {e['first_error']}"
        case "prompts_dropped":
            return f"{e['dropped']:,} prompts were dropped as too long."
        case _:
            return _describe_load(finding)


def _describe_load(finding: Finding) -> str:
    e = finding.evidence
    match finding.code:
        case "queue_growing":
            return (
                f"The queue grew from {e['in_system_before']:,.0f} to {e['in_system_after']:,.0f} requests in the second half "
                f"of the run: {e['share_left_behind']:.0%} of {e['arrivals']:,} arrivals were left behind."
            )
        case "not_steady":
            return f"No steady state was found: {e['reason']}."
        case "waited_at_ceiling":
            return _describe_ceiling(e)
        case "requests_ran_out":
            return (
                f"All {e['prepared']:,} requests that were prepared were sent after {e['last_sent_s']:.1f} s "
                f"of {e['duration_s']:g} s; the run ended early."
            )
        case "arrivals_not_as_asked":
            return _describe_arrivals(e)
        case "token_counts_disagree":
            return (
                f"{e['requests']:,} answers ({e['share']:.0%}) came in responses of other lengths than were reported: "
                f"{e['in_responses']:,.0f} tokens against {e['reported']:,.0f} in all."
            )
        case "text_tokens_disagree":
            return (
                f"The server reported {e['reported']:,.0f} tokens for {e['requests']:,} answers whose text has "
                f"{e['in_text']:,.0f} by our tokenizer."
            )
        case "output_longer_than_asked":
            return (
                f"{e['requests']:,} answers were longer than asked: {e['tokens_beyond']:,.0f} tokens too many, "
                f"{e['share_of_tokens']:.1%} of all."
            )
        case "littles_law":
            expected = e["rate_per_s"] * e["mean_latency_s"]
            return (
                f"Little's law fails in the steady window: {e['mean_in_flight']:.1f} requests were in flight, where "
                f"{e['rate_per_s']:.1f} requests/s of {e['mean_latency_s']:.3f} s make {expected:.1f}."
            )
        case "beyond_calibration":
            return _describe_beyond_calibration(e)
        case _:
            return _describe_watched(finding)


def _describe_watched(finding: Finding) -> str:
    """What was seen of the client and the server beside the requests."""
    e = finding.evidence
    match finding.code:
        case "client_saturated":
            return _describe_client(e)
        case "clock_stepped" if finding.severity == "invalid":
            return f"The machine slept for {e['slept_s']:.1f} s during the run."
        case "clock_stepped":
            return f"The machine's wall clock was set by {e['stepped_s']:+.3f} s during the run."
        case "connection_limit_reached":
            return f"{e['requests']:,} requests waited because the server takes no more streams at once."
        case "counters_disagree":
            return _describe_counters(e)
        case "phases_exceed_latency":
            whole = f"where the whole took {e['client_ms']:.2f} ms as the client saw it"
            return f"{e['phase']}: {e['server_ms']:.2f} ms on average, {whole}."
        case "prefix_cache_warmed":
            repeated = (
                "" if e["repeated_share"] is None else f" {e['repeated_share']:.0%} of what was sent repeats an earlier prompt."
            )
            if e["reused_share"] is None:
                return f"A prefix cache may have helped:{repeated}"
            return f"The server found {e['reused_share']:.0%} of the prompts' {e['unit']} in its prefix cache.{repeated}"
        case _:
            return _describe_completeness(finding)


def _describe_completeness(finding: Finding) -> str:
    e = finding.evidence
    match finding.code:
        case "recovered":
            return (
                f"The run was cut: of {e['scheduled']:,} requests {e['written_down']:,} were written down, "
                f"{e['lost']:,} are lost, {e['not_sent']:,} were not sent"
                + (", and a record was torn." if e["torn_bytes"] else ".")
            )
        case "recording_failed":
            return f"Sending stopped, for the client could not write its journal: {e['problem']}."
        case _:
            return f"{finding.code}: {e}"


def _describe_ceiling(e: dict[str, Any]) -> str:
    def shown(ms: float | None) -> str:
        return "failed" if ms is None else f"{ms:,.1f} ms"

    return (
        f"{e['waited']:,} requests ({e['share']:.0%}) waited in the client because {e['max_concurrency']:,} were in flight, "
        f"p99 {e['p99_wait_ms']:,.1f} ms. p99 {e['latency']} is {shown(e['p99_from_schedule_ms'])} from the schedule, "
        f"where the wait counts, and {shown(e['p99_from_send_ms'])} from the send, where it does not."
    )


def _describe_client(e: dict[str, Any]) -> str:
    lag = (
        ""
        if e["lag_p99_ms"] is None
        else f"it woke {e['lag_mean_ms']:.1f} ms late on average, {e['lag_p99_ms']:.1f} ms at p99, "
    )
    known = {
        "cpu_share": "{:.0%} of a core used",
        "run_queue_wait_share": "{:.0%} of the time spent waiting for one",
        "gc_longest_ms": "longest garbage collection {:.1f} ms",
        "steal_cores": "{:.0%} of a core taken by the hypervisor",
    }
    seen = ", ".join(text.format(e[key]) for key, text in known.items() if e[key] is not None)
    late = "its sends are late" if e["unstamped_reads"] == 0 else "its sends and times of arrival are late"
    return (
        f"The client was kept from running, and {late}: {lag}beside a median latency of "
        f"{e['p50_latency_from_sent_ms']:.1f} ms from the send ({seen})."
    )


def _describe_counters(e: dict[str, Any]) -> str:
    match e["counter"]:
        case "requests":
            ours = f"{e['ours_least']:,}" if e["ours_least"] == e["ours_most"] else f"{e['ours_least']:,} to {e['ours_most']:,}"
            return f"The server counted {e['server']:,.0f} requests; {ours} of ours reached it."
        case "metrics":
            return f"The metrics at {e['url']} count {e['metrics']:,.0f} requests; the server's statistics {e['statistics']:,}."
        case _:
            return f"The server counted {e['server']:,.0f} output tokens; {e['ours']:,.0f} arrived."


def _describe_arrivals(e: dict[str, Any]) -> str:
    asked = f"{e['law']} gaps at {e['rate_per_s']:g} requests/s"
    if e["p_value"] is None:
        return f"{e['statistic']:.1%} of {e['gaps']:,} gaps between sends were off, where {asked} were asked for."
    return (
        f"{e['gaps']:,} gaps between sends are not {asked}: Kolmogorov-Smirnov distance {e['statistic']:.3f}, "
        f"p = {e['p_value']:.1g}."
    )


def _describe_beyond_calibration(e: dict[str, Any]) -> str:
    pairs = [
        f"{e[rate]:,.0f} {what}/s where {e[f'calibrated_{rate}']:,.0f} are calibrated"
        for rate, what in (("requests_per_s", "requests"), ("responses_per_s", "responses"))
        if e[f"calibrated_{rate}"] is not None and e[rate] > e[f"calibrated_{rate}"]
    ]
    return f"In its busiest seconds the client handled {' and '.join(pairs)} (with {_workers(e['workers'])})."


def describe_calibration(report: RunReport) -> str:
    """What the client itself adds to the numbers, in one sentence; how to find out where that is not known."""
    found = client_calibration(report.manifest)
    if found is None:
        return "What the client adds is not known: this machine was not calibrated. Run `bench calibrate` on it, then measure."
    held = [
        f"{limit:,.0f} {what}/s"
        for limit, what in ((found.requests_per_s, "requests"), (found.responses_per_s, "streamed responses"))
        if limit
    ]
    reach = f"up to {' and '.join(held)} with {_workers(found.workers)}" if held else "at a quiet rate only"
    disturbed = f", while others kept {found.busy_cores:.1f} cores busy" if found.was_disturbed else ""
    when = f"calibrated {found.made_on}{disturbed}, {reach}"
    return printable(f"The client adds {found.ttft} to TTFT and {found.icl} to inter-chunk latency ({when}).")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def verdict(report: RunReport) -> str:
    """The run's validity in one line."""
    worst = [finding.code for finding in report.findings if finding.severity == "invalid"]
    return "This run is valid." if report.valid else f"THIS RUN IS NOT VALID: {', '.join(worst)}."


def describe_run(report: RunReport) -> str:
    """What was run, in one line."""
    workload, target = report.manifest.get("workload", {}), report.manifest.get("target", {})
    streamed = "streamed" if target.get("streaming") else "unstreamed"
    return printable(
        f"{workload.get('description', 'unknown workload')}; {report.manifest.get('arrivals', '')}; "
        f"{target.get('model', 'unknown model')} over {target.get('protocol', '?')}, {streamed}"
    )
