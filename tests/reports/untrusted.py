"""Text from outside that some reader would interpret: pages, terminals, spreadsheets, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from tests.reports.watched import metric, statistics

TEXTS = {
    "script": "<script>alert(1)</script>",
    "attribute": "\"'><img src=x onerror=alert(1)>",
    "end-of-script": "</script><script>alert(1)</script>\u2028<!--",
    "template": "{{ 7 * 7 }}{% raw %}$$x$$${7 * 7}\\alpha$_a$",
    "nul": "a\x00b",
    "bidi": "\u202egnp.exe\u2066x",
    "escape": "\x1b[2J\x1b]0;owned\x07\x9b31mred",
    "markdown": "| a | `b` **c** [d](javascript:e) ![f](g) <!-- @team <b>h</b> ~~i~~ \\",
    "lines": "one\r\n\n# two\n- three\n| four | five |",
    "formula-equals": "=HYPERLINK(1)",
    "formula-plus": "+1+1",
    "formula-minus": "-1+1",
    "formula-at": "@SUM(A1)",
    "formula-tab": "\t=1+1",
    "formula-wide": "\uff1d1+1",
    "underscore": "_hidden",
    "percent": "%s %(name)s {0} {name!r}",
}


def run_named(make_run: Callable[..., RunFolder], failed: Callable[..., Record], records: list[Record], text: str) -> RunFolder:
    """A run with ``text`` wherever a run folder holds text from outside: manifest, messages, labels of metrics."""
    changed = list(records)
    k = len(records) // 2
    changed[k] = failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 9, error=text)
    zero, counted = statistics(**{text: (0, 1.0)}), statistics(**{text: (len(records), 1.0)})
    named: dict[str, Any] = {
        "bench_version": text,
        "workload": {"description": text, "dataset": text, "dropped_too_long": 0},
        "arrivals": text,
        "target": {"model": text, "protocol": text, "streaming": True, "address": text, "model_parameters": {text: text}},
        "options": {"extra_body": {text: text}},
        "warm_up": {"requests": 1, "failures": [text]},
        "environment": {"cpu": text},
        "server_statistics": {"before": zero, "after": counted},
    }
    server = [
        *metric("nv_inference_pending_request_count", {0.0: 1.0, 0.2: 2.0, 0.6: 1.0}, model=text, version="1"),
        *metric("nv_inference_pending_request_count", {0.0: 0.0, 0.2: 0.0, 0.6: 1.0}, model="other", version="1"),
        *metric("nv_inference_request_success", {0.0: 0.0, 0.2: 9.0, 0.6: 50.0}, model=text, version="1"),
    ]
    return make_run(changed, server=server, **named)


def unprintable(text: str, but: str = "\n") -> set[str]:
    """What of ``text`` is neither printable nor one of ``but``."""
    return {json.dumps(character) for character in text if not character.isprintable() and character not in but}


def shown(text: str) -> str:
    """How ``text`` looks where it is shown on one line."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
