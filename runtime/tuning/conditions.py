"""What a tuning result holds for: the machine, the versions and the options that change numbers or speed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import astuple
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from mtplx.contracts.inspection import Inspection

Conditions = dict[str, str | int | None]

VERSIONS = ("mtplx", "mlx", "mlx-lm")


def chip_name() -> str:
    """What MLX calls the device that it computes on; imports mlx."""
    mx = importlib.import_module("mlx.core")
    return str(mx.device_info().get("device_name", mx.default_device()))


def read_conditions(
    inspection: Inspection, device: Mapping[str, Any], chip: str, kv_bits: int | None
) -> Conditions:
    """The conditions of this process: `device` as `Model.device` has it, `chip` by `chip_name`."""
    return {
        **device_conditions(device["device"], device["back_end"], device["blas"]),
        "chip": chip,
        "number types": "/".join(device["dtypes"]),
        **conditions_without_mlx(inspection, kv_bits),
    }


def device_conditions(device: str, back_end: str, blas: str | None) -> Conditions:
    """Where MLX computes, with which back end, and the name of the BLAS library on the CPU."""
    return {"device": device, "back end": back_end, "blas": blas}


def conditions_without_mlx(inspection: Inspection, kv_bits: int | None) -> Conditions:
    """The part of the conditions that is known before MLX is started.

    Memory counts in whole GiB. The wiring of the head is in the contract, which the content identity leaves out.
    """
    contract = inspection.contract
    wiring = None if contract is None or contract.wiring is None else astuple(contract.wiring)
    return {
        "cores": psutil.cpu_count(logical=True),
        "memory (GiB)": round(psutil.virtual_memory().total / 2**30),
        **{name: _version(name) for name in VERSIONS},
        "kv_bits": kv_bits,
        "head wiring": None if wiring is None else "/".join(map(str, wiring)),
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of the conditions in `now` was otherwise, in words: `mlx 0.31 then, 0.32 now`."""
    return [
        f"{name} {_shown(then.get(name))} then, {_shown(value)} now"
        for name, value in now.items()
        if then.get(name) != value
    ]


def _version(name: str) -> str | None:
    """None for what runs without being installed as a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
