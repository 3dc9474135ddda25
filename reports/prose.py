"""Findings and headings in words, for people."""

from __future__ import annotations

from reports.findings import Finding
from reports.run_report import RunReport


def printable(text: str) -> str:
    """Text from outside without control, escape and direction characters, which a terminal or page would obey."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


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
            return f"{finding.code}: {e}"


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
