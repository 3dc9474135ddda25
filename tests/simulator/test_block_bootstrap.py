"""The bootstrap over blocks of rows, against a fit to the rows that were drawn, and a spread that is known."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.block_bootstrap import block_products, drawn_products


def test_a_draw_is_the_weighted_fit_to_the_rows_of_its_blocks() -> None:
    random = np.random.default_rng(1)
    columns, values, weights = random.normal(size=(90, 3)), random.normal(size=90), random.uniform(0.5, 2.0, 90)
    blocks = np.array_split(np.arange(90), 7)
    products = block_products(columns, values, weights, blocks)
    [summed] = drawn_products([products], 1, np.random.default_rng(5))
    chosen = np.concatenate([blocks[number] for number in np.random.default_rng(5).integers(7, size=7)])
    root = np.sqrt(weights[chosen])
    expected = np.linalg.lstsq(columns[chosen] * root[:, None], values[chosen] * root, rcond=None)[0]
    assert np.linalg.solve(summed[:, :-1], summed[:, -1]) == pytest.approx(expected)


def test_blocks_are_drawn_within_their_group() -> None:
    groups = [np.full((4, 1, 2), 1.0), np.full((3, 1, 2), 10.0)]
    assert [summed.tolist() for summed in drawn_products(groups, 5, np.random.default_rng(0))] == [[[34.0, 34.0]]] * 5


def test_the_spread_of_the_draws_is_that_of_a_mean_whose_neighbours_are_alike() -> None:
    """Runs of 20 equal values: the error of the mean is √20 times that of as many that are independent."""
    random = np.random.default_rng(2)
    values = np.repeat(random.normal(size=400), 20)
    products = block_products(np.ones((8000, 1)), values, np.ones(8000), np.array_split(np.arange(8000), 200))
    means = [summed[0, 1] / summed[0, 0] for summed in drawn_products([products], 2000, random)]
    assert np.std(means) == pytest.approx(1 / np.sqrt(400), rel=0.15)
