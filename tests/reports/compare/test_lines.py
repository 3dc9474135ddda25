"""What differs between settings, in lines: values of each side, sections that one side lacks, and advice once."""

from __future__ import annotations

import pytest

from reports.compare.comparable import Disagreement, Weight
from reports.compare.lines import groups, lines

_DIGESTS = tuple(f"{k:012x}{'0' * 52}" for k in range(10))
_SENTENCES = tuple(f"Other programs used 0.{k} of the 2 cores of the machine on average." for k in range(1, 6))


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (("a",), ("b",), "a | b"),
        (("a", "a", "b", "a"), ("b", "b"), "a (× 3); b | b (× 2)"),
        (("100", "101"), ("200", "201"), "100; 101 | 200; 201"),
        (_DIGESTS[:1] * 2, _DIGESTS[1:2] * 2, "000000000000 (× 2) | 000000000001 (× 2)"),
        (_DIGESTS[:5], _DIGESTS[5:], "5 different | 5 different, none in common"),
        (_DIGESTS[:5], _DIGESTS[3:], "5 different | 7 different, 2 in common"),
        (_DIGESTS[:5], _DIGESTS[4:5] * 3, "5 different | 000000000004 (× 3), 1 in common"),
        (_SENTENCES[:1], ("–",), f"{_SENTENCES[0]} | –"),
        # 60 and 61 characters of three values; values of 20 characters are counted, and of 21 not
        (("a" * 18, "b" * 18, "c" * 20), ("d",), f"{'a' * 18}; {'b' * 18}; {'c' * 20} | d"),
        (("a" * 18, "b" * 19, "c" * 20), ("d",), "3 different | d, none in common"),
        (("a" * 21, "b" * 21, "c" * 21, "a" * 21), ("d",), f"{'a' * 21}; 2 other values | d"),
        (("x" * 40, "y" * 40, "x" * 40), ("d",), f"{'x' * 40} (× 2); {'y' * 40} | d"),
        (("f" * 39,), ("f" * 40,), f"{'f' * 39} | {'f' * 12}"),
        (("–", *_SENTENCES), ("–",) * 6, f"{_SENTENCES[0]}; 5 other values | – (× 6)"),
    ],
)
def test_the_values_of_each_side_are_listed_or_counted(a: tuple[str, ...], b: tuple[str, ...], text: str) -> None:
    (line,) = lines([Disagreement("key", Weight.WARN, (a, b), "advice")])
    assert str(line) == f"key: {text}"


def _parameters(weight: Weight, section: str = "target.model_parameters") -> list[Disagreement]:
    values = (("–", "–"), ("1", "1")), (("–", "–"), ("1", "–"))
    return [Disagreement(f"{section}.{key}", weight, sides, "advice", section) for key, sides in zip("xy", values, strict=True)]


@pytest.mark.parametrize(("weight", "absent"), [(Weight.CHANGED, "not known"), (Weight.REFUSE, "none")])
def test_a_section_that_one_side_lacks_has_one_line(weight: Weight, absent: str) -> None:
    found = _parameters(weight)
    assert list(map(str, lines(found))) == [f"target.model_parameters: {absent} (× 2) | 2 values; 1 value"]
    assert list(map(str, lines(found[:1]))) == ["target.model_parameters.x: – (× 2) | 1 (× 2)"]


def test_advice_is_given_once_for_all_that_have_it() -> None:
    found = [
        Disagreement("schedule.digest", Weight.WARN, (("a",), ("b",)), "seeds"),
        Disagreement("schedule.seed", Weight.WARN, (("1",), ("2",)), "keep"),
        Disagreement("target.protocol", Weight.WARN, (("grpc",), ("openai",)), "keep"),
        *_parameters(Weight.CHANGED),
    ]
    assert [(group.weight, [line.what for line in group.lines], group.advice) for group in groups(found)] == [
        (Weight.WARN, ["schedule.digest"], "seeds"),
        (Weight.WARN, ["schedule.seed", "target.protocol"], "keep"),
        (Weight.CHANGED, ["target.model_parameters"], "advice"),
    ]
