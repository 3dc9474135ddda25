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
        *((text, "write a mean, as 128, or 128±5 or 128:5, or a law, as uniform:min=10,max=200")
          for text in ("", "128x", "-5", "128±-5", "128±", "1_000", "nan", "١٢٨", "uniform", "uni form:min=1,max=2")),
        (
            "unifrm:min=1,max=2",
            "'unifrm' is none of the laws normal, lognormal, uniform, zipf, constant, histogram, empirical",
        ),
        ("uniform:", "'' does not belong there; write uniform:min=MIN,max=MAX"),
        ("uniform:min=1", "max is missing; write uniform:min=MIN,max=MAX"),
        ("uniform:min=1,max=2,max=3", "'max=3' does not belong there; write uniform:min=MIN,max=MAX"),
        ("uniform:min=1,max=2,mean=3", "'mean=3' does not belong there; write uniform:min=MIN,max=MAX"),
        ("uniform:1,2", "'1' does not belong there; write uniform:min=MIN,max=MAX"),
        ("uniform:min=1.5,max=2", "min=1.5 is no whole number"),
        ("uniform:min=-1,max=2", "min=-1 is no whole number"),
        ("uniform:min=1,max=" + "9" * 19, "max=9999999999999999999 is no whole number"),
        ("normal:mean=nan,stdev=1", "mean=nan is no number"),
        ("normal:mean=١٢٨,stdev=1", "mean=١٢٨ is no number"),
        ("normal:mean=1;stdev=1", "mean=1;stdev=1 is no number"),
        ("zipf:exponent=,min=1,max=2", "exponent= is no number"),
        ("lognormal:mean=5", "stdev is missing; write lognormal:mean=MEAN,stdev=STDEV[,min=MIN][,max=MAX]"),
        ("lognormal:min=5", "mean and stdev are missing; write lognormal:mean=MEAN,stdev=STDEV[,min=MIN][,max=MAX]"),
        ("histogram:", "'' is neither a file nor one of the histograms example"),
        ("histogram:nosuch", "'nosuch' is neither a file nor one of the histograms example"),
    ],
)  # fmt: skip
def test_what_is_no_law_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        parse(text, Side.INPUT)
    assert str(raised.value) == words


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
        ("", ": is no JSON that can be read: Expecting value: line 1 column 1 (char 0)"),
        *((content, ': has no "input", a list of buckets [min, max, count]')
          for content in ("[]", '{"output": [[1, 2, 3]]}', '{"input": {"1": 2}}')),
        *((f'{{"input": [[1, 2, 3], {row}]}}', ", input, bucket 2: must be three whole numbers [min, max, count]")
          for row in ("[1, 2]", "[1, 2, 3, 4]", "[1, 2, 3.5]", "[1, 2, true]", "{}")),
    ],
)  # fmt: skip
def test_a_damaged_histogram_is_named_by_file_and_bucket(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "h.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WorkloadError) as raised:
        parse(f"histogram:{path}", Side.INPUT)
    assert str(raised.value) == f"{path}{words}"


def test_a_histogram_of_too_many_levels_is_no_histogram(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(WorkloadError, match="is no JSON that can be read: "):
        parse(f"histogram:{path}", Side.INPUT)
