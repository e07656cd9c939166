"""Noise depends on seed, position, stream and token, and on nothing else."""

import mlx.core as mx
import numpy as np
import pytest
from scipy import stats

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.sampling import MAX_SEED, Noise, Stream

FALSE_FAIL = 1e-9


def rows_of(noise: Noise, first: int, rows: int, stream: Stream = Stream.TOKEN) -> np.ndarray:
    return np.array(noise.gumbel(first, rows, stream))


@pytest.mark.parametrize("vocab_size", [1, 7, 64, 501])
def test_a_row_is_the_same_in_any_block(vocab_size: int) -> None:
    whole = rows_of(Noise(11, vocab_size), 100, 40)
    for first, rows in [(100, 1), (100, 9), (103, 2), (117, 20), (139, 1)]:
        block = rows_of(Noise(11, vocab_size), first, rows)
        np.testing.assert_array_equal(block, whole[first - 100 : first - 100 + rows])


def test_a_row_asked_for_again_is_the_same() -> None:
    noise = Noise(5, 32)
    row = rows_of(noise, 7, 1)
    rows_of(noise, 0, 60)
    np.testing.assert_array_equal(rows_of(noise, 7, 1), row)


def test_uniform_is_the_same_in_any_block() -> None:
    whole = np.array(Noise(3, 8).uniform(50, 20))
    np.testing.assert_array_equal(np.array(Noise(3, 8).uniform(57, 4)), whole[7:11])


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, MAX_SEED])
def test_every_64_bit_seed_has_noise_of_its_own(seed: int) -> None:
    row = rows_of(Noise(seed, 16), 0, 1)
    assert np.isfinite(row).all()
    others = [other for other in (0, 1, 2**32, 2**63, MAX_SEED) if other != seed]
    assert all(not np.array_equal(row, rows_of(Noise(other, 16), 0, 1)) for other in others)


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, 1.5, True, None, "7"])
def test_other_seeds_are_refused(seed: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Noise(seed, 16)  # type: ignore[arg-type]
    assert caught.value.key == "seed"


def test_gumbel_rows_have_the_gumbel_law() -> None:
    sample = rows_of(Noise(1, 4000), 0, 50).ravel()
    assert stats.kstest(sample, "gumbel_r").pvalue > FALSE_FAIL


def test_each_token_has_the_gumbel_law_over_positions() -> None:
    columns = rows_of(Noise(2, 5), 0, 5000)
    for column in columns.T:
        assert stats.kstest(column, "gumbel_r").pvalue > FALSE_FAIL


def test_the_upper_tail_is_finer_than_float32_near_one() -> None:
    exponentials = np.exp(-rows_of(Noise(4, 2**20), 0, 1).ravel().astype(np.float64))
    smallest = np.sort(exponentials)[:20] * 2**24
    assert np.abs(smallest - np.round(smallest)).max() > 0.1


def test_uniforms_are_uniform_and_below_one() -> None:
    sample = np.array(Noise(6, 8).uniform(0, 20000), dtype=np.float64)
    assert sample.min() >= 0.0
    assert sample.max() < 1.0
    assert stats.kstest(sample, "uniform").pvalue > FALSE_FAIL


def test_positions_streams_seeds_and_forks_are_independent() -> None:
    n, noise = 20000, Noise(9, 20000)
    rows = [
        *rows_of(noise, 0, 3),
        rows_of(noise, 0, 1, Stream.ACCEPT)[0],
        rows_of(Noise(10, n), 0, 1)[0],
        rows_of(noise.fork(0), 0, 1)[0],
        rows_of(noise.fork(1), 0, 1)[0],
    ]
    for i, a in enumerate(rows):
        for b in rows[:i]:
            assert stats.pearsonr(a, b).pvalue > FALSE_FAIL
            ranks = np.histogram2d(a.argsort().argsort(), b.argsort().argsort(), bins=8)[0]
            assert stats.chisquare(ranks.ravel()).pvalue > FALSE_FAIL


def test_uniforms_of_neighbouring_positions_and_streams_are_independent() -> None:
    noise = Noise(12, 8)
    accept = np.array(noise.uniform(0, 20001, Stream.ACCEPT), dtype=np.float64)
    token = np.array(noise.uniform(0, 20001, Stream.TOKEN), dtype=np.float64)
    for a, b in [(accept[:-1], accept[1:]), (accept, token)]:
        assert stats.chisquare(np.histogram2d(a, b, bins=8)[0].ravel()).pvalue > FALSE_FAIL


def test_noise_is_lazy_and_leaves_the_global_generator_alone() -> None:
    mx.random.seed(3)
    expected = mx.random.uniform(shape=(4,)).tolist()
    mx.random.seed(3)
    mx.eval(Noise(1, 16).gumbel(0, 3), Noise(1, 16).uniform(0, 3))
    assert mx.random.uniform(shape=(4,)).tolist() == expected
