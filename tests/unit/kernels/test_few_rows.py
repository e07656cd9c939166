"""Products of few rows equal the plain product, in whatever form they are computed."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels.few_rows import few_rows, product_form

SHAPES = [(24, 40), (40, 24), (32, 32), (2048, 64), (64, 2048)]


@pytest.mark.parametrize(("out", "width"), SHAPES)
@pytest.mark.parametrize("num_rows", range(1, 10))
def test_every_form_equals_float64(num_rows: int, out: int, width: int) -> None:
    rng = np.random.default_rng(num_rows)
    x, weight = rng.standard_normal((1, num_rows, width)), rng.standard_normal((out, width))
    found = few_rows(mx.array(x.astype(np.float32)), mx.array(weight.astype(np.float32)))
    assert found.shape == (1, num_rows, out)
    np.testing.assert_allclose(np.array(found), x @ weight.T, rtol=1e-4, atol=1e-4)


def test_all_forms_are_used() -> None:
    forms = {product_form(rows, width, out) for rows in range(1, 9) for out, width in SHAPES}
    assert forms == {"left", "right", "twice"}


def test_leading_axes_are_kept() -> None:
    x, weight = mx.random.normal((2, 3, 16)), mx.random.normal((8, 16))
    assert few_rows(x, weight).shape == (2, 3, 8)
