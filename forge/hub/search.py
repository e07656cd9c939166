"""Finding repositories that may have an MTP head."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from huggingface_hub import HfApi, ModelInfo
from huggingface_hub.hf_api import ExpandModelProperty_T

from mtplx.contracts.errors import UsageError
from mtplx.contracts.families import FAMILIES, declared_heads, find_family
from mtplx.contracts.family import Family
from mtplx.contracts.tensor_header import shortened
from mtplx.forge.hub.errors import hub_errors
from mtplx.forge.source_files import is_head_file

MAX_RESULTS: Final = 100

_FIELDS: Final[list[ExpandModelProperty_T]] = [
    "config",
    "downloads",
    "gated",
    "lastModified",
    "likes",
    "pipeline_tag",
    "siblings",
    "tags",
]
# Tools that make these often drop the head.
_CONVERSION_TAGS: Final = frozenset({"gguf", "mlx", "awq", "gptq", "compressed-tensors"})


@dataclass(frozen=True, slots=True)
class Found:
    """A repository. `has_mtp` is a guess from its description (None: cannot be told); why, in `why`.

    Only `forge probe` reads the weights' headers and knows.
    """

    repo: str
    family: str | None
    model_type: str | None
    has_mtp: bool | None
    why: str
    downloads: int
    likes: int
    updated: str | None
    gated: bool
    pipeline: str | None
    tags: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Every field by its name."""
        return {**asdict(self), "tags": list(self.tags)}


def discover(query: str | None = None, *, limit: int = 20, offset: int = 0) -> list[Found]:
    """Repositories with safetensors, most downloaded first.

    With a `query` those whose name contains it; without, those of the families that run with MTP.
    Raises UsageError for a limit out of range, DownloadError when the hub fails.
    """
    if not 1 <= limit <= MAX_RESULTS:
        raise UsageError(
            f"The limit is {limit}, expected 1 to {MAX_RESULTS}.", hint="Page with an offset."
        )
    if offset < 0:
        raise UsageError(f"The offset is {offset}, expected 0 or more.")
    with hub_errors("discover", "searching"):
        rows = _search(query, offset + limit) if query else _search_families(offset + limit)
        return [describe(info) for info in islice(rows, offset, offset + limit)]


def describe(info: ModelInfo) -> Found:
    """What the hub's description of a repository tells."""
    config = info.config if isinstance(info.config, dict) else {}
    family = find_family(config)
    has_mtp, why = _guess(info, config, family)
    model_type = config.get("model_type")
    return Found(
        repo=info.id,
        family=family.name if family else None,
        model_type=model_type if isinstance(model_type, str) else None,
        has_mtp=has_mtp,
        why=why,
        downloads=info.downloads or 0,
        likes=info.likes or 0,
        updated=info.last_modified.isoformat() if info.last_modified else None,
        gated=bool(info.gated),
        pipeline=info.pipeline_tag,
        tags=tuple(info.tags or ()),
    )


def _search(query: str, limit: int) -> Iterable[ModelInfo]:
    return HfApi().list_models(
        filter="safetensors", search=query, sort="downloads", limit=limit, expand=_FIELDS
    )


def _search_families(limit: int) -> Iterable[ModelInfo]:
    """The hub tags models with their `model_type` and cannot be asked for one of several tags."""
    found: dict[str, ModelInfo] = {}
    for model_type in (t for family in FAMILIES if family.runnable for t in family.model_types):
        for info in HfApi().list_models(
            filter=["safetensors", model_type], sort="downloads", limit=limit, expand=_FIELDS
        ):
            found[info.id] = info
    return sorted(found.values(), key=lambda info: (-(info.downloads or 0), info.id))


def _guess(
    info: ModelInfo, config: dict[str, Any], family: Family | None
) -> tuple[bool | None, str]:
    """Whether there is a head, as far as names and description tell."""
    if family is None:
        model_type = config.get("model_type")
        if model_type is None:
            return None, "the hub tells no model_type"
        return None, f"mtplx does not know the model_type {shortened(ascii(model_type))}"
    if family.ar_only:
        return False, f"{family.title} has no MTP heads"
    names = [sibling.rfilename for sibling in info.siblings or ()]
    head = next((name for name in names if is_head_file(name)), None)
    if head is not None:
        return True, f"{head} is there"
    declared = declared_heads(config, family)
    if declared is not None:
        return declared > 0, f"its config announces {declared} MTP layers"
    conversion = sorted(_CONVERSION_TAGS.intersection(info.tags or ()))
    if conversion:
        return None, f"{family.title} has heads; {conversion[0]} conversions often drop them"
    return None, f"{family.title} has heads; whether this release has is in its weights"
