"""Artifacts made by the conversion alone, with a drafted contract, and what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx
import numpy as np

from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.forge.brand import Evidence, brand
from mtplx.forge.convert.head import HeadRecord, convert_head
from mtplx.forge.convert.side_files import copy_side_files
from mtplx.forge.convert.trunk import convert_trunk
from mtplx.forge.recipe import Recipe
from mtplx.runtime.loading.folder import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from mtplx.contracts.identity import FileRecord

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
MTP_DEPTH = 3


class Forged(NamedTuple):
    """A converted folder, the records of its trunk and side files, and that of its head."""

    folder: Path
    files: dict[str, FileRecord]
    head: HeadRecord


def recipe(bits: int | None = None, **values: Any) -> Recipe:
    """A recipe with ``bits`` for the body, routers kept; ``values`` replace fields."""
    overrides = {} if bits is None else {"router": "keep"}
    return Recipe.model_validate(
        {"name": "test", "body_bits": bits, "module_overrides": overrides, **values}
    )


def inspected(source: Path) -> Inspection:
    """The inspection of a folder that can be run."""
    found = inspect_folder(source)
    found.raise_if_unrunnable()
    return found


def write_trunk(
    source: Path,
    out: Path,
    how: Recipe,
    *,
    finished: Mapping[str, FileRecord] | None = None,
    on_shard: Callable[[str, FileRecord], None] = lambda _name, _record: None,
    on_progress: Callable[[str, float], None] = lambda _label, _fraction: None,
) -> dict[str, FileRecord]:
    """`convert_trunk` into ``out``, which is made."""
    out.mkdir(parents=True, exist_ok=True)
    return convert_trunk(
        source,
        inspected(source),
        how,
        out,
        finished=finished or {},
        on_shard=on_shard,
        on_progress=on_progress,
    )


def write_head(source: Path, out: Path, how: Recipe, *, allow: bool = False) -> HeadRecord:
    """`convert_head` into ``out``, doubts about norms left to calibration."""
    return convert_head(
        source, inspected(source), how, out, allow_degraded_mtp=allow, is_calibrated_next=True
    )


def forge(source: Path, out: Path, how: Recipe, *, allow: bool = False) -> Forged:
    """Trunk, head, side files and a contract without evidence."""
    files = write_trunk(source, out, how)
    head = write_head(source, out, how, allow=allow)
    files |= copy_side_files(source, inspected(source), how, out)
    brand(out, Evidence(head=head.to_json()), with_content=False)
    return Forged(out, files, head)


def all_logits(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Logits of the trunk [T, V], and of the head at each depth [T - 1, V], in float32."""
    model = load(folder)
    trunk, head = model.trunk, model.head
    assert head is not None
    ids = mx.array([TOKENS])
    hidden = trunk.forward(ids, trunk.make_caches())
    found = {"trunk": np.array(trunk.logits(hidden.after_norm)[0])}
    rows = head.feed(hidden)[:, :-1]
    for depth in range(1, MTP_DEPTH + 1):
        step = head.step(rows, ids[:, 1:], head.make_caches())
        found[f"depth {depth}"] = np.array(head.logits(step.output)[0])
        rows = step.recycled
    return found


def assert_same_logits(folder: Path, other: Path) -> None:
    """Both folders compute the same bits."""
    mine, theirs = all_logits(folder), all_logits(other)
    for name, expected in theirs.items():
        np.testing.assert_array_equal(mine[name], expected, err_msg=name)


def assert_close_logits(folder: Path, other: Path, bound: float) -> None:
    """Logits differ by at most ``bound`` of their spread, root mean square."""
    mine, theirs = all_logits(folder), all_logits(other)
    for name, expected in theirs.items():
        error = float(np.sqrt(np.mean((mine[name] - expected) ** 2)) / expected.std())
        assert error <= bound, f"{name}: {error:.4f} of the spread, expected {bound} at most"
