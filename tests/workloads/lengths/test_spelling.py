"""Laws of lengths as text: what a law spells reads back as the law, and what is no law is refused in one sentence."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.workloads.lengths.strategies import histograms, spelled
from workloads.elements.errors import WorkloadError
from workloads.lengths.families import Constant, Lognormal, Normal, Uniform, Zipf
from workloads.lengths.law import Lengths, Side
from workloads.lengths.samples import Bucket, Histogram
from workloads.lengths.spelling import LAWS, parse


@given(spelled)
@example(Normal(128.0, 1e-5))
@example(Normal(1e7, 0.0))
@example(Lognormal(1e7, 1e-300))
def test_a_law_reads_back_from_its_spelling(law: Lengths) -> None:
    assert parse(law.spelling, Side.INPUT) == law


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("128", Normal(128, 0)),
        ("128±5", Normal(128, 5)),
        ("128:5", Normal(128, 5)),
        (" 128 +- 5 ", Normal(128, 5)),
        ("128+/-5", Normal(128, 5)),
        ("1.5e2±.5", Normal(150, 0.5)),
        ("normal:mean=128,stdev=40", Normal(128, 40)),
        ("normal:mean=128,stdev=40,min=10,max=400", Normal(128, 40, 10, 400)),
        ("normal: max=400, stdev=40 , mean = 128", Normal(128, 40, None, 400)),
        ("lognormal:mean=512,stdev=300", Lognormal(512, 300)),
        ("lognormal:mean=512,stdev=300,min=9", Lognormal(512, 300, 9)),
        ("uniform:min=10,max=200", Uniform(10, 200)),
        ("zipf:exponent=1.2,min=1,max=4096", Zipf(1.2, 1, 4096)),
        ("constant:tokens=9", Constant(9)),
    ],
)
def test_the_spellings_of_the_documentation(text: str, law: Lengths) -> None:
    assert parse(text, Side.INPUT) == law


@pytest.mark.parametrize("text", ["uniform:min=10,max=200", "constant:tokens=9", "normal:mean=1.5,stdev=40,min=10,max=400"])
def test_whole_numbers_are_spelt_as_they_were_read(text: str) -> None:
    assert parse(text, Side.INPUT).spelling == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write a mean, as 128"),
        ("128x", "128±5 or 128:5"),
        ("-5", "128±5"),
        ("128±-5", "128±5"),
        ("128±", "128±5"),
        ("1_000", "128±5"),
        ("nan", "128±5"),
        ("١٢٨", "128±5"),
        ("uniform", "uniform:min=10,max=200"),
        ("unifrm:min=1,max=2", "none of the laws normal, lognormal, uniform"),
        ("uniform:", "'' does not belong there; write uniform:min=MIN,max=MAX"),
        ("uniform:min=1", "max is missing; write uniform:min=MIN,max=MAX"),
        ("uniform:min=1,max=2,max=3", "'max=3' does not belong there"),
        ("uniform:min=1,max=2,mean=3", "'mean=3' does not belong there"),
        ("uniform:1,2", "'1' does not belong there"),
        ("uniform:min=1.5,max=2", "min=1.5 is no whole number"),
        ("uniform:min=-1,max=2", "min=-1 is no whole number"),
        ("uniform:min=1,max=" + "9" * 5_000, "no whole number"),
        ("normal:mean=nan,stdev=1", "mean=nan is no number"),
        ("normal:mean=١٢٨,stdev=1", "mean=١٢٨ is no number"),
        ("normal:mean=1;stdev=1", "no number"),
        ("zipf:exponent=,min=1,max=2", "exponent= is no number"),
        ("lognormal:mean=5", "stdev is missing; write lognormal:mean=MEAN,stdev=STDEV[,min=MIN][,max=MAX]"),
        ("lognormal:min=5", "mean and stdev are missing; write lognormal:mean=MEAN,stdev=STDEV[,min=MIN][,max=MAX]"),
        ("histogram:", "neither a file nor one of the histograms example"),
        ("histogram:nosuch", "'nosuch' is neither a file"),
    ],
)
def test_what_is_no_law_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        parse(text, Side.INPUT)
    assert words in str(raised.value)


_PIECES = st.sampled_from(
    [*LAWS, ":", ",", "=", "min", "max", "mean", "stdev", "exponent", "tokens", "128", "±", "-", "1e9", " "]
)


@given(st.one_of(st.text(max_size=40), st.lists(_PIECES, max_size=12).map("".join)))
def test_any_text_is_a_law_or_refused(text: str) -> None:
    assume("/" not in text and "\0" not in text)  # no files
    law: Lengths | None = None
    with suppress(WorkloadError):
        law = parse(text, Side.OUTPUT)
    if law is not None and law.fault() is None:
        assert parse(law.spelling, Side.OUTPUT) == law


def test_a_shipped_histogram_has_both_sides() -> None:
    inputs, outputs = parse("histogram:example", Side.INPUT), parse("histogram:example", Side.OUTPUT)
    assert (inputs.spelling, outputs.spelling) == ("histogram:example", "histogram:example")
    assert inputs != outputs


@given(histograms, histograms)
def test_a_histogram_reads_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, inputs: Histogram, other: Histogram
) -> None:
    path = tmp_path_factory.mktemp("h") / "h.json"
    sides = {"input": inputs, "output": other}
    path.write_text(
        json.dumps({side: [[b.low, b.high, b.count] for b in law.buckets] for side, law in sides.items()}), encoding="utf-8"
    )
    for side in Side:
        law = parse(f"histogram:{path}", side)
        assert isinstance(law, Histogram)
        assert law.buckets == sides[side].buckets
        assert parse(law.spelling, side) == law


def test_the_file_of_a_histogram_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "of: May.json"
    path.write_text('{"input": [[1, 2, 3]]}', encoding="utf-8")
    assert parse(f"histogram:{path}", Side.INPUT) == Histogram((Bucket(1, 2, 3),), str(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is no JSON"),
        ("[]", 'has no "input"'),
        ('{"output": [[1, 2, 3]]}', 'has no "input"'),
        ('{"input": [[1, 2]]}', "input, bucket 1: must be three whole numbers"),
        ('{"input": [[1, 2, 3], [1, 2, 3.5]]}', "input, bucket 2"),
        ('{"input": [[1, 2, true]]}', "input, bucket 1"),
        ('{"input": {"1": 2}}', 'has no "input"'),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_damaged_histogram_is_named_by_file_and_bucket(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "h.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WorkloadError) as raised:
        parse(f"histogram:{path}", Side.INPUT)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)
