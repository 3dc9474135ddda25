"""Two runs in Python: numbers and findings, requests and chunks, and a comparison."""

from reports import open_run
from reports.compare import compare

before, after = open_run("runs/before"), open_run("runs/after")
print(before)

# Numbers and findings are those of the report.
metric, latency = before.summary.latency
if latency.scheduled is not None:
    p99 = latency.scheduled.percentile(0.99)
    print(f"\n{metric.label} p99: {p99.value} ms, 95 % interval: {p99.interval_text}")
for finding in before.findings:
    print(f"{finding.severity}, {finding.code}: {finding.sentence}")

# One row for each request ...
slowest = before.requests.nlargest(3, "ttft_ms")
print()
print(slowest[["index", "input_tokens", "output_tokens", "slip_ms", "ttft_ms", "e2e_ms"]].round(2).to_string(index=False))

# ... and one for each response with tokens.
gaps_ms = before.chunks.groupby("index")["time_ns"].diff() / 1e6
print(f"\nlongest wait for the next tokens: {gaps_ms.max():.2f} ms")

compared = compare(before, after)
print(f"\nafter against before: {compared.verdict}")
for difference in compared.differences:
    if difference.change is not None and difference.measure.relative:
        print(f"{difference.measure.title:>24}: {difference.change:+7.1%}, {difference.verdict}")
