"""Prometheus's text format."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from harness.observation.prometheus_text import ExpositionReader, process_began_at

_TRITON = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="ensemble",version="1"} 50
nv_inference_request_success{model="tensorrt_llm",version="1"} 100
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.925
nv_trt_llm_request_metrics{request_type="active",model="tensorrt_llm",version="1"} 4 1395066363000

python_gc_objects_collected_total{generation="0"} 7
vllm:time_to_first_token_seconds_bucket{le="0.5"} 3
vllm:time_to_first_token_seconds_sum 1.5e-3
vllm:time_to_first_token_seconds_created 1.7e9
vllm:request_prompt_tokens_bucket{le="0.5"} 3
trtllm_kv_cache_utilization NaN
"""
_ESCAPED = st.text(max_size=8)
_LABELS = st.dictionaries(st.sampled_from(["model", "a", "b_c"]), _ESCAPED, max_size=3)


def test_values_by_name_and_labels_as_they_were_served() -> None:
    read = list(ExpositionReader().read(_TRITON))
    assert [(name, json.loads(labels)) for (name, labels), _ in read] == [
        ("nv_inference_request_success", {"model": "ensemble", "version": "1"}),
        ("nv_inference_request_success", {"model": "tensorrt_llm", "version": "1"}),
        ("nv_cpu_utilization", {}),
        ("nv_trt_llm_request_metrics", {"request_type": "active", "model": "tensorrt_llm", "version": "1"}),
        ("vllm:time_to_first_token_seconds_bucket", {"le": "0.5"}),
        ("vllm:time_to_first_token_seconds_sum", {}),
        ("trtllm_kv_cache_utilization", {}),
    ]
    assert [value for _, value in read][:-1] == [50, 100, 0.925, 4, 3, 1.5e-3]
    assert math.isnan(read[-1][1])


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ('nv_x 5 # {trace_id="a"} 0.67 1.5e9', {}, 5.0),
        ('nv_x{b="1"} 5 # {trace_id="a"} 0.67', {"b": "1"}, 5.0),
        ('nv_x{b="1"} 5 1395066363.5 # {} 0.67', {"b": "1"}, 5.0),
        ('nv_x{b="1 # {c}} 2"} 5 # {trace_id="} 9"} 0.67', {"b": "1 # {c}} 2"}, 5.0),
        ("nv_x\t5", {}, 5.0),
        ('nv_x {b="1"}\t5', {"b": "1"}, 5.0),
    ],
)
def test_the_value_is_the_series_own_and_not_that_of_its_exemplar(line: str, labels: dict[str, str], value: float) -> None:
    ((series, found),) = ExpositionReader().read(f"{line}\n")
    assert (series[0], json.loads(series[1]), found) == ("nv_x", labels, value)


def test_labels_in_another_order_are_the_same_series() -> None:
    text = 'nv_x{a="1",b="2"} 1\nnv_x{b="2",a="1"} 2\n'
    assert len({series for series, _ in ExpositionReader().read(text)}) == 1


@given(st.lists(st.tuples(_LABELS, st.floats()), max_size=6))
def test_any_labels_are_read_as_the_library_reads_the_whole_text(written: list[tuple[dict[str, str], float]]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

    def line(labels: dict[str, str], value: float) -> str:
        inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        return f"nv_x{{{inside}}} {value!r}\n" if inside else f"nv_x {value!r}\n"

    text = "".join(line(labels, value) for labels, value in written)
    reader = ExpositionReader()
    for _ in range(2):  # anew, and known
        ours = [(name, labels, repr(value)) for (name, labels), value in reader.read(text)]
        theirs = [
            (sample.name, json.dumps(sample.labels, sort_keys=True, ensure_ascii=False), repr(float(sample.value)))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
        assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize(
    "text",
    ["<html>\n", "nv_x\n", "nv_x one\n", 'nv_x{a="1" 3\n', "nv_x{a=1} 3\n", 'nv_x{a="1"}\n', "nv_x 1 2 3\n", " \x00 1\n"],
)
def test_what_is_no_such_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        list(ExpositionReader().read(text))


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.79e+09\nvllm:x 1\n", 1.79e9),
        ("process_start_time_seconds 1790000000.25 1395066363000\n", 1_790_000_000.25),
        ("vllm:x 1\n", None),
        ("process_start_time_seconds 1.7e9\nprocess_start_time_seconds 1.8e9\n", None),  # of which of two processes?
        ("process_start_time_seconds NaN\n", None),
        ("process_start_time_seconds +Inf\n", None),
        ("process_start_time_seconds 0\n", None),
        ("process_start_time_seconds yesterday\n", None),
        ('{"started": 1.7e9}', None),
        ("", None),
    ],
)
def test_a_page_says_when_its_process_began_or_nothing(page: str, expected: float | None) -> None:
    assert process_began_at(page) == expected
