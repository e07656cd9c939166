"""Whether the files of a folder are still those that a contract records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mtplx.contracts.identity import (
    FileRecord,
    Identity,
    NamedFile,
    Role,
    header_sha256,
    identity_files,
    record_file,
    unreadable,
)
from mtplx.contracts.paths import resolve_inside

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ContentCheck:
    """Names of the files that were changed, added or removed, sorted.

    `others` are small files: configuration, tokenizer, templates. `is_full` says that every byte
    of the weights was read; otherwise size and header stand for a weight file. `identity` is that
    of the recorded files, None when some differ.
    """

    weights: tuple[str, ...]
    others: tuple[str, ...]
    is_full: bool
    identity: str | None


def compare_content(
    folder: Path,
    weight_files: tuple[str, ...],
    recorded: Mapping[str, FileRecord],
    *,
    full: bool,
    on_progress: Progress | None = None,
) -> ContentCheck:
    """Compare `folder` with `recorded`; `weight_files` as in `TensorIndex.files`.

    Small files are always read whole, weights only when `full`. `on_progress` gets bytes done and
    bytes in all of what is read. Raises CorruptModelError when a file cannot be read,
    TensorFileError when it leads out of the folder.
    """
    named = identity_files(folder, weight_files)
    found = [name for _, name in named]
    try:
        sizes = {name: resolve_inside(folder, name).stat().st_size for name in found}
        whole = [name for name in found if full or name not in weight_files]
        advance = _counter(sum(sizes[name] for name in whole), on_progress)
        same = {
            name
            for name in found
            if (record := recorded.get(name)) is not None
            and sizes[name] == record.size
            and _is_same(folder / name, record, advance if name in whole else None)
        }
    except OSError as cause:
        raise unreadable(folder, cause) from cause
    differing = sorted((recorded.keys() | sizes.keys()) - same)
    return ContentCheck(
        weights=tuple(name for name in differing if _holds_weights(name)),
        others=tuple(name for name in differing if not _holds_weights(name)),
        is_full=full,
        identity=None if differing else _identity(named, recorded),
    )


def _identity(named: list[tuple[Role, str]], recorded: Mapping[str, FileRecord]) -> str:
    return Identity(tuple(NamedFile(role, name, recorded[name]) for role, name in named)).combined


def _is_same(path: Path, record: FileRecord, advance: Callable[[int], None] | None) -> bool:
    """Compare all bytes, telling `advance`, or, without one, the header only."""
    if advance is None:
        return record.header_sha256 == header_sha256(path)
    return record == record_file(path, on_bytes=advance)


def _holds_weights(name: str) -> bool:
    return name.endswith(".safetensors")


def _counter(total: int, on_progress: Progress | None) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, total)

    return advance
