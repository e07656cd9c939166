"""What lies in a folder: regular files, links, and things that are neither."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mtplx.contracts.errors import NotAModelError


@dataclass(frozen=True, slots=True)
class Listing:
    """Names relative to the folder, with `/`, sorted; `files` has sizes in bytes."""

    files: dict[str, int]
    links: tuple[str, ...] = ()
    special: tuple[str, ...] = ()


def list_folder(folder: Path) -> Listing:
    """Everything below `folder`; no link is followed and nothing is opened.

    Raises NotAModelError when the folder cannot be listed.
    """
    files: dict[str, int] = {}
    links: list[str] = []
    special: list[str] = []
    waiting = [folder]
    try:
        while waiting:
            for entry in os.scandir(waiting.pop()):
                name = Path(entry.path).relative_to(folder).as_posix()
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    links.append(name)
                elif stat.S_ISDIR(status.st_mode):
                    waiting.append(Path(entry.path))
                elif stat.S_ISREG(status.st_mode):
                    files[name] = status.st_size
                else:
                    special.append(name)
    except OSError as cause:
        raise NotAModelError(
            f"{cause.filename or folder} cannot be listed: {cause.strerror or cause}.",
            hint="Give the folder of an artifact that you may read.",
        ) from cause
    return Listing(dict(sorted(files.items())), tuple(sorted(links)), tuple(sorted(special)))
