"""Parser of Prometheus's text format: values by name and labels. OpenMetrics' exemplars, which some servers write into it, are
left out.

The same series repeat in every scrape of a run. ``prometheus-client`` parses a series' name and labels once; after that the
series is looked up by its text. Parsing all of a server's text each time takes a hundred times as long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

# Triton with its backends, this project's engine, servers of the OpenAI protocol. Others describe the server's own runtime.
_KEPT = ("nv_", "inflight_bench_", "vllm:", "sglang:", "trtllm_", "tgi_", "llamacpp:", "dynamo_", "DCGM_FI_DEV_")
_LEFT_OUT = ("_bucket", "_created")  # of most histograms _sum and _count are enough, in a hundredth of the rows
# The histograms whose buckets are kept, by the ends of their names: percentiles of latencies by the engine's own clock.
_LATENCIES = (
    "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket",
    "time_per_output_token_seconds_bucket",
    "e2e_request_latency_seconds_bucket",
    "dynamo_frontend_request_duration_seconds_bucket",
    "tgi_request_duration_bucket",
    "tgi_request_mean_time_per_token_duration_bucket",
)

# A name, perhaps with labels, of which a value may contain any character; what follows is the value, and perhaps more.
_SERIES = re.compile(r'[^\s{]*+(?:\s*+\{(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+\})?')
_EXEMPLAR = " # "

_PROCESS_START = "process_start_time_seconds"  # of every official client library, where the page is one process's
_LATEST = 1e11  # in the year 5138

Series = tuple[str, str]


class ExpositionReader:
    """Parses the texts of one server, with a cache of its series."""

    def __init__(self) -> None:
        self._known: dict[str, Series | None] = {}

    def read(self, text: str) -> Iterator[tuple[Series, float]]:
        """Each kept series (name, labels as a JSON object of texts with sorted keys) and its value. Raises ValueError."""
        for written_line in text.split("\n"):  # no other character ends a line
            line = written_line.strip()
            if not line or line.startswith("#"):
                continue
            found = _SERIES.match(line)
            written = "" if found is None else found[0]
            if not written:
                raise ValueError(f"no series and value: {line[:80]!r}")
            if written not in self._known:
                self._known[written] = _series(written)
            series = self._known[written]
            if series is not None:
                yield series, _value(line[len(written) :])


def process_began_at(text: str) -> float | None:
    """When the process of a page began, as Unix time in s; None where the page does not say so, or is no page."""
    lines = (line.split() for line in text.split("\n"))
    written = [words[1] for words in lines if len(words) > 1 and words[0] == _PROCESS_START]
    if len(written) != 1:
        return None
    try:
        began_at = float(written[0])
    except ValueError:
        return None
    return began_at if 0.0 < began_at < _LATEST else None


def _series(written: str) -> Series | None:
    [family] = text_string_to_metric_families(f"{written} 0\n")
    [sample] = family.samples
    if not sample.name.startswith(_KEPT) or (sample.name.endswith(_LEFT_OUT) and not sample.name.endswith(_LATENCIES)):
        return None
    return sample.name, json.dumps(sample.labels, sort_keys=True, ensure_ascii=False)


def _value(written: str) -> float:
    """The value, which a time stamp and an exemplar may follow."""
    words = written.partition(_EXEMPLAR)[0].split()
    if not 1 <= len(words) <= 2:
        raise ValueError(f"no value: {written[:80]!r}")
    return float(words[0])
