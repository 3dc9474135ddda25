"""The reuse of a prefix cache: by the answers, by the counters, and the limits beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from bench_records.record import Outcome, Record
from reports.metrics.prefix_cache import CachedTokens, PrefixCache, prefix_cache
from reports.metrics.server_load import CacheReuse, EngineTimes, ServerLoad
from reports.run_report import RunReport

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]

_REPEATED = {"share": 0.7, "unit": "tokens", "block_tokens": 32, "block_share": 0.6, "whole_prompts": 0}
_LOAD = ServerLoad(0, True, *(None,) * 12, EngineTimes(None, None, None, None), ())
_UNKNOWN = PrefixCache(None, None, None, None, None, None, None)


def _records(steady_run: SteadyRun, cached: list[int | None], **fields: Any) -> list[Record]:
    counted = {"input_tokens": 10, "server_counted_input": True, **fields}
    return [
        with_fields(record, cached_input_tokens=tokens, **counted)
        for record, tokens in zip(steady_run(len(cached)), cached, strict=True)
    ]


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        ([8, 0, 4], CachedTokens(12, 30, 3, 3)),
        ([8, None, None, 4], CachedTokens(12, 40, 4, 2)),  # one without a count counts as 0
        ([0, 0], CachedTokens(0, 20, 2, 2)),
        ([None, None], None),
    ],
)
def test_cached_tokens_are_a_share_of_all_prompt_tokens_that_the_server_counted(
    make_report: MakeReport, steady_run: SteadyRun, cached: list[int | None], expected: CachedTokens | None
) -> None:
    assert make_report(_records(steady_run, cached)).prefix_cache.usage == expected


def test_failed_requests_and_prompts_that_the_server_did_not_count_are_left_out(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    records = _records(steady_run, [8, 4, 2, 6])
    records[1] = with_fields(records[1], server_counted_input=False)
    records[3] = with_fields(records[3], outcome=Outcome.STREAM_CUT)
    assert make_report(records).prefix_cache.usage == CachedTokens(10, 20, 2, 2)


def test_a_server_that_counts_no_token_of_any_prompt_says_nothing_of_its_cache(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    records = [with_fields(record, input_tokens=0) for record in _records(steady_run, [0, 0])]
    assert make_report(records).prefix_cache.usage is None


def test_what_nothing_reports_is_unknown(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert make_report(steady_run(5)).prefix_cache == _UNKNOWN


def test_limits_in_blocks_are_of_a_server_that_counts_blocks(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(5), workload={"shared_prefix_limit": 0.8, "repeated_prefix": _REPEATED})

    def with_reuse(reuse: CacheReuse | None) -> PrefixCache:
        return prefix_cache(report.manifest, report.requests, replace(_LOAD, cache_reuse=reuse))

    assert with_reuse(None) == replace(_UNKNOWN, limit_share=0.8)
    assert with_reuse(CacheReuse(1, 4, "tokens")) == replace(_UNKNOWN, limit_share=0.8, server_share=0.25, server_unit="tokens")
    assert with_reuse(CacheReuse(1, 4, "blocks")) == PrefixCache(0.8, 0.7, 0.6, 32, 0.25, "blocks", None)


def test_the_limit_of_a_trace_is_beside_that_of_its_scaled_lengths(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(5), workload={"shared_prefix_limit": 0.8, "shared_prefix_limit_unscaled": 0.4})
    assert report.prefix_cache == replace(_UNKNOWN, limit_share=0.8, unscaled_limit_share=0.4)


@pytest.mark.parametrize(
    "workload",
    [
        {},
        {"repeated_prefix": None},
        {"shared_prefix_limit": None},
        {"repeated_prefix": {"share": 0.7, "unit": "bytes"}},
        {"repeated_prefix": {"block_tokens": None, "unit": "tokens"}},
    ],
)
def test_manifests_of_other_versions_have_unknown_limits(
    make_report: MakeReport, steady_run: SteadyRun, workload: dict[str, Any]
) -> None:
    report = make_report(steady_run(5), workload=workload)
    server = replace(_LOAD, cache_reuse=CacheReuse(1, 4, "blocks"))
    expected = replace(_UNKNOWN, server_share=0.25, server_unit="blocks")
    assert prefix_cache(report.manifest, report.requests, server) == expected
