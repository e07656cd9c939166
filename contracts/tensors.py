"""Which tensors a model folder holds, read from headers and the index only.

Weight files are those named by `model.safetensors.index.json`, else `model.safetensors`, else a
complete `model-XXXXX-of-YYYYY.safetensors` set; and the sidecars an MTP head may come in.
"""

import re
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from mtplx.contracts.errors import ShardMissingError, TensorFileError
from mtplx.contracts.json_object import read_object
from mtplx.contracts.paths import resolve_inside
from mtplx.contracts.tensor_header import TensorInfo, read_header, shortened

__all__ = [
    "INDEX_NAME",
    "SINGLE_NAME",
    "TensorIndex",
    "TensorInfo",
    "read_header",
    "read_tensor_index",
]

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

_NUMBERED = re.compile(r"model-(\d{1,9})-of-(\d{1,9})\.safetensors")
_REPAIR = (
    "Incomplete download? Fetch the missing files with `hf download REPO --local-dir {folder}`."
)


@dataclass(frozen=True, slots=True)
class TensorIndex:
    """Every tensor of a model folder and the file it is read from.

    `files` holds the weight files in reading order, sidecars last; `sidecars` is the part of it
    that neither the index nor the shard pattern names. `ignored_files` are weight files that are
    not part of the model. `metadata` is each file's own (`format` is "pt" or "mlx").
    """

    folder: Path
    tensors: dict[str, TensorInfo]
    files: tuple[str, ...]
    ignored_files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sidecars: tuple[str, ...] = ()
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of tensor data in all files read."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(slots=True)
class _Plan:
    """The files that make up the model, before their headers are compared with the index."""

    files: list[str]
    weight_map: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_tensor_index(folder: Path) -> TensorIndex:
    """The tensors of `folder`. No tensor data is read.

    Raises ShardMissingError when files the model needs are absent, TensorFileError when a file
    breaks the format or contradicts the index, and when a name leads out of the folder.
    """
    plan = _plan(folder)
    sidecars = [name for name in _sidecars(folder) if name not in plan.files]
    headers = {
        name: read_header(resolve_inside(folder, name), file=name)
        for name in (*plan.files, *sidecars)
    }
    tensors = _merge({name: header for name, (header, _) in headers.items()}, plan)
    ignored = _ignored(folder, headers)
    for name in ignored:
        plan.warnings.append(f"{name} is not part of the model and is ignored.")
    return TensorIndex(
        folder=folder,
        tensors=tensors,
        files=(*plan.files, *sidecars),
        ignored_files=tuple(ignored),
        warnings=tuple(plan.warnings),
        sidecars=tuple(sidecars),
        metadata={name: metadata for name, (_, metadata) in headers.items()},
    )


def _plan(folder: Path) -> _Plan:
    if resolve_inside(folder, INDEX_NAME).is_file():
        return _plan_from_index(folder)
    numbered = [p.name for p in sorted(folder.glob("model-*.safetensors"))]
    numbered = [name for name in numbered if _NUMBERED.fullmatch(name)]
    single = (folder / SINGLE_NAME).is_file()
    if single and numbered:
        raise TensorFileError(
            f"{folder} holds {SINGLE_NAME} and {numbered[0]}, and no {INDEX_NAME} that says which "
            "of them is the model.",
            hint="Remove the set that does not belong to it.",
        )
    if single:
        return _Plan([SINGLE_NAME])
    if numbered:
        return _Plan(_complete_set(folder, numbered))
    raise ShardMissingError(
        f"{folder} has no weights: expected {SINGLE_NAME} or {INDEX_NAME} with its shards.",
        missing=(SINGLE_NAME,),
        hint="Only safetensors are read; convert other formats first. "
        + _REPAIR.format(folder=folder),
    )


def _plan_from_index(folder: Path) -> _Plan:
    """The files an index names; a stale index beside one whole file is put aside, with a warning.

    When not one file of the index exists it describes another folder than this one.
    """
    weight_map = _weight_map(folder / INDEX_NAME)
    files = sorted(set(weight_map.values()))
    missing = tuple(name for name in files if not resolve_inside(folder, name).is_file())
    if not missing:
        return _Plan(files, weight_map)
    if len(missing) == len(files) and (folder / SINGLE_NAME).is_file():
        warning = (
            f"{INDEX_NAME} names {len(files)} files that do not exist, {SINGLE_NAME} is read "
            f"instead. Repair: delete {folder / INDEX_NAME}."
        )
        return _Plan([SINGLE_NAME], {}, [warning])
    others = [
        p.name
        for p in sorted(folder.glob("model*.safetensors"))
        if p.name not in weight_map.values()
    ]
    renamed = f" Renamed? Found and not named by the index: {_listed(others)}." if others else ""
    raise ShardMissingError(
        f"{INDEX_NAME} in {folder} names {len(files)} weight files and {len(missing)} of them do "
        f"not exist: {_listed(missing)}.{renamed}",
        missing=missing,
        hint=_REPAIR.format(folder=folder),
    )


def _weight_map(path: Path) -> dict[str, str]:
    index = read_object(path, unique_keys=True, error=TensorFileError)
    weight_map = index.get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(file, str) for file in weight_map.values())
    ):
        raise TensorFileError(
            f"{path} has no weight_map from tensor names to file names.",
            hint="Fetch the file again.",
        )
    return weight_map


def _complete_set(folder: Path, numbered: list[str]) -> list[str]:
    """`numbered` when it is shards 1..n of n, in order."""
    totals = {int(match[2]) for name in numbered if (match := _NUMBERED.fullmatch(name))}
    if len(totals) > 1:
        raise TensorFileError(
            f"{folder} mixes shards of different sets: {_listed(numbered)}.",
            hint="Remove the set that does not belong to the model.",
        )
    total = totals.pop()
    by_number = {int(m[1]): name for name in numbered if (m := _NUMBERED.fullmatch(name))}
    absent = sorted(set(range(1, min(total, 100_000) + 1)) - set(by_number))
    if absent or len(by_number) != len(numbered) or len(numbered) != total:
        missing = tuple(f"model-{i:05}-of-{total:05}.safetensors" for i in absent)
        raise ShardMissingError(
            f"{folder} has no {INDEX_NAME} and holds {len(numbered)} of {total} shards; missing: "
            f"{_listed(missing)}.",
            missing=missing,
            hint=_REPAIR.format(folder=folder),
        )
    return [by_number[i] for i in range(1, total + 1)]


def _sidecars(folder: Path) -> list[str]:
    """Files an MTP head may come in beside the trunk, in a fixed order."""
    patterns = ("mtp.safetensors", "mtp/*.safetensors", "model-mtp*.safetensors")
    found = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
    return [path.relative_to(folder).as_posix() for path in found]


def _merge(headers: dict[str, dict[str, TensorInfo]], plan: _Plan) -> dict[str, TensorInfo]:
    """One map of all headers, checked against the index."""
    _check_index(headers, plan.weight_map)
    tensors = {name: headers[file][name] for name, file in plan.weight_map.items()}
    extra: list[str] = []
    for file, header in headers.items():
        for name, tensor in header.items():
            held = tensors.get(name)
            if held is None:
                tensors[name] = tensor
                if plan.weight_map and file in plan.files:
                    extra.append(name)
            elif held.file != file:
                raise TensorFileError(
                    f"Tensor '{shortened(name)}' is held by both {held.file} and {file}.",
                    hint="Remove the file that does not belong to the model.",
                )
    if extra:
        plan.warnings.append(
            f"{len(extra)} tensors are in the weight files and not in {INDEX_NAME}, and are read "
            f"all the same: {_listed(extra)}."
        )
    return tensors


def _check_index(headers: dict[str, dict[str, TensorInfo]], weight_map: dict[str, str]) -> None:
    absent = [name for name, file in weight_map.items() if name not in headers[file]]
    if absent:
        raise TensorFileError(
            f"{INDEX_NAME} names {len(absent)} tensors that are not in the file it gives for them: "
            + _listed([f"{name} ({weight_map[name]})" for name in absent])
            + ".",
            hint="The index belongs to other files. Fetch index and weights again, together.",
        )


def _ignored(folder: Path, read: Container[str]) -> list[str]:
    return [p.name for p in sorted(folder.glob("model*.safetensors")) if p.name not in read]


def _listed(names: list[str] | tuple[str, ...], limit: int = 8) -> str:
    """Names joined for a message, the tail counted."""
    shown = ", ".join(shortened(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
