"""Memory by context and bits of the cache, on scripted measurers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.contracts.errors import InvalidRequestError, ResourceError, UnsupportedModelError
from mtplx.runtime.bench.memory import MemorySettings, measure_memory
from mtplx.runtime.bench.part import Options
from tests.support.benching import ScriptedMeasurer, use_measurers


def test_each_number_of_bits_has_a_process_of_its_own_that_ends(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    opened: list[tuple[int | None, ScriptedMeasurer]] = []

    def own(_folder: Path, bits: int | None) -> ScriptedMeasurer:
        opened.append((bits, ScriptedMeasurer(bits=bits)))
        return opened[-1][1]

    use_measurers(monkeypatch, own, ScriptedMeasurer())
    settings = MemorySettings(contexts=(100, 200))
    report = measure_memory(folder, settings, Options(kv_bits=8), with_stock=True)
    assert [bits for bits, _ in opened] == [None, 8, 4]
    assert not any(measurer.is_open for _, measurer in opened)
    found = [(row.name, row.kv_bits, row.context) for row in report.rows]
    assert found == [
        *(("mtplx", bits, context) for bits in (None, 8, 4) for context in (100, 200)),
        ("mlx-lm", None, 100),
        ("mlx-lm", None, 200),
    ]
    assert report.conditions.options.kv_bits is None
    assert (report.weights.trunk_bytes, report.weights.head_bytes) == (1000, 100)


def test_bits_that_the_model_refuses_are_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def own(_folder: Path, bits: int | None) -> ScriptedMeasurer:
        if bits is not None:
            raise UnsupportedModelError(f"latent attention refuses {bits}")
        return ScriptedMeasurer()

    use_measurers(monkeypatch, own)
    report = measure_memory(folder, MemorySettings(contexts=(100,)), Options(), with_stock=False)
    assert [row.kv_bits for row in report.rows] == [None]
    assert [(item.name, item.reason) for item in report.left_out] == [
        ("kv_bits 8", "latent attention refuses 8"),
        ("kv_bits 4", "latent attention refuses 4"),
    ]


def test_without_a_head_only_the_trunk_is_measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer(has_head=False)
    use_measurers(monkeypatch, lambda _folder, _bits: own)
    settings = MemorySettings(contexts=(100,), kv_bits=(None,))
    report = measure_memory(folder, settings, Options(), with_stock=False)
    assert report.depth == 0
    assert report.rows[0].head_cache_bytes is None
    assert "no MTP head" in report.left_out[0].reason


def test_contexts_that_memory_does_not_hold_are_refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    use_measurers(monkeypatch, lambda _folder, _bits: ScriptedMeasurer(bytes_per_token=2.0**20))
    report = measure_memory(folder, MemorySettings(kv_bits=(None,)), Options(), with_stock=False)
    assert [row.context for row in report.rows] == [128]
    assert [item.name for item in report.left_out] == ["1024 tokens", "4096 tokens"]
    with pytest.raises(ResourceError, match="1024 tokens"):
        measure_memory(folder, MemorySettings(contexts=(1024,)), Options(), with_stock=False)


@pytest.mark.parametrize(
    "settings", [{"contexts": (0,)}, {"depth": 9}, {"depth": -1}, {"max_tokens": 1}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        MemorySettings(**settings)  # type: ignore[arg-type]  # a table of wrong values
