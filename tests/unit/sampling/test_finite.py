"""NaN and infinite logits are told from sound ones."""

import math

import mlx.core as mx
import pytest

from mtplx.runtime.sampling import describe_nonfinite, finite_rows

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("place", [0, 3, 40])
def test_unsound_rows_are_flagged_wherever_the_fault_is(dtype: mx.Dtype, place: int) -> None:
    rows = [[float(i % 7) for i in range(41)] for _ in range(5)]
    rows[1][place] = NAN
    rows[2][place] = INF
    rows[3] = [-INF] * 41
    rows[4] = [NAN] * 41
    assert finite_rows(mx.array(rows).astype(dtype)).tolist() == [True, False, False, False, False]


def test_masked_tokens_are_no_fault() -> None:
    assert finite_rows(mx.array([[-INF, 1.0, -INF], [-3e38, -INF, -INF]])).tolist() == [True, True]


def test_nan_next_to_infinity_is_flagged() -> None:
    assert finite_rows(mx.array([[-INF, NAN, -INF], [INF, NAN, 0.0]])).tolist() == [False, False]


def test_counts_name_every_kind() -> None:
    found = describe_nonfinite(mx.array([NAN, 1.0, INF, -INF, NAN, -INF, -INF, 0.0]))
    assert found == (2, 1, 3, 8)
    assert str(found) == "2 NaN, 1 +inf and 3 -inf of 8 logits"
