"""A long drawing of prompts says how far it is."""

from __future__ import annotations

import pytest

from bench_cli.measurement.drawing_progress import DrawingProgress


def test_nothing_is_said_in_the_first_three_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = iter([0.0, 1.0, 2.9, 3.5])
    progress = DrawingProgress(4, lambda: next(now_s))
    for drawn in (1, 2, 3, 4):
        progress(drawn)
    assert capsys.readouterr().err == ""


def test_then_each_ten_seconds_have_a_line_with_the_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = iter([100.0, 104.0, 108.0, 120.0, 140.0])
    progress = DrawingProgress(20_000, lambda: next(now_s))
    for drawn in (1, 2_001, 4_001, 10_001, 20_000):
        progress(drawn)
    assert capsys.readouterr().err.splitlines() == [
        "Drawing prompts: 2,001 of 20,000, about 36 s left.",
        "Drawing prompts: 10,001 of 20,000, about 20 s left.",
    ]


def test_the_first_line_alone_says_how_to_draw_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = iter([0.0, 4.0, 14.0])
    progress = DrawingProgress(20_000, lambda: next(now_s), remedy="Draw fewer.")
    for drawn in (1, 2_001, 7_001):
        progress(drawn)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(" left. Draw fewer.")
    assert second.endswith(" left.")


def test_what_comes_before_the_first_prompt_is_not_expected_again_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = iter([4.0, 4.0, 4.1, 7.5])  # a tokenizer was loaded for 4 s
    progress = DrawingProgress(1_500, lambda: next(now_s))
    for drawn in (1, 4, 5, 501):
        progress(drawn)
    assert capsys.readouterr().err.splitlines() == ["Drawing prompts: 501 of 1,500, about 7 s left."]
