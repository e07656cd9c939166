"""Names that a model folder's own files contain, turned into paths that stay inside it."""

from pathlib import Path, PurePosixPath

from mtplx.contracts.errors import TensorFileError


def resolve_inside(folder: Path, name: str) -> Path:
    """The path of the file `name` of `folder`, whether or not it exists.

    Refused with TensorFileError: absolute names, `..`, backslashes, control characters, and links
    whose target lies outside the folder. One kind of outside target is sound: a snapshot of the
    Hugging Face hub cache is a folder `models--ORG--NAME/snapshots/COMMIT` made of links into
    `blobs` of that same `models--ORG--NAME`. It is recognised by both ends after resolving every
    link: the folder must lie under such a `snapshots`, and the target directly in its `blobs`.
    """
    parts = PurePosixPath(name).parts
    if (
        not name
        or not name.isprintable()
        or "\\" in name
        or PurePosixPath(name).is_absolute()
        or ".." in parts
        or not parts
    ):
        raise TensorFileError(
            f"The file name {name!a} leads out of the model folder {folder}.",
            hint="Names must be relative and stay inside; get the model from its own source.",
        )
    path = folder / name
    root, target = folder.resolve(), path.resolve()
    if target.is_relative_to(root) or _is_hub_blob(root, target):
        return path
    raise TensorFileError(
        f"{name} is a link to {target}, outside the model folder {folder}.",
        hint="Put the file itself into the folder.",
    )


def _is_hub_blob(root: Path, target: Path) -> bool:
    for parent in (root, *root.parents):
        repository = parent.parent.parent
        if parent.parent.name == "snapshots" and repository.name.startswith("models--"):
            return target.parent == repository / "blobs"
    return False
