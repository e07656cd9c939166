"""Contracts for model folders of the tests: complete evidence for the content as it is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mtplx.contracts.arch_ids import arch_id
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import inspect_folder

if TYPE_CHECKING:
    from pathlib import Path

EXACTNESS: dict[str, Any] = {"passed": True, "tokens": 6144, "differences": 0}
SPEED: dict[str, Any] = {"depth": 3, "gain": 1.4, "gain_interval": [1.3, 1.5]}


def content_of(folder: Path) -> dict[str, Any]:
    """The `content` of a contract for the files as they are now."""
    identity = inspect_folder(folder, check_content=False).identity
    files = {name: asdict(record) for name, record in identity.records().items()}
    return {"identity": identity.combined, "files": files}


def verified_contract(folder: Path, **changes: Any) -> dict[str, Any]:
    """A contract that makes the model in ``folder`` verified, with keys replaced as asked."""
    (folder / CONTRACT_NAME).unlink(missing_ok=True)
    found = inspect_folder(folder)
    assert found.family is not None
    wiring = found.family.wiring
    head = {
        "layout": found.family.layout,
        "feed": wiring.feed,
        "recycle": wiring.recycle,
        "concat": wiring.concat,
        "mask_position0": wiring.mask_position0,
        "norm_encoding": "absolute",
        "mtp_layers": found.head.found or 1,
    }
    return {
        "schema_version": 1,
        "arch_id": arch_id(found.family),
        "mtp_depth_max": 3,
        "head": head,
        "exactness": EXACTNESS,
        "speed_evidence": SPEED,
        "content": content_of(folder),
        **changes,
    }


def write_verified(folder: Path, **changes: Any) -> Path:
    """Put such a contract into ``folder``."""
    text = json.dumps(verified_contract(folder, **changes))
    (folder / CONTRACT_NAME).write_text(text)
    return folder
