"""The model card: front matter that the hub requires, and a text that says what was measured."""

from typing import Any, Final

from huggingface_hub import ModelCard, ModelCardData

from mtplx.contracts.errors import UsageError
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.forge.publish import card_text
from mtplx.forge.publish.front_matter import body_of, read_front_matter
from mtplx.forge.publish.license import License

_TAGS: Final = ("mlx", "mtplx", "speculative-decoding", "multi-token-prediction")
_REQUIRED: Final = ("license", "library_name", "pipeline_tag", "tags")


def make_card(
    contract: RuntimeContract,
    repo: str,
    license_: License,
    labels: tuple[str, ...],
    *,
    body: str | None = None,
) -> str:
    """The card of the artifact that `contract` describes, to be published as `repo`.

    `body` is a card whose text takes the place of ours; what its front matter says besides is
    kept, and labels are said above it. The same arguments give the same text.
    """
    values = {**(read_front_matter(body) if body else {}), **_front_matter(contract, license_)}
    own = read_front_matter(body).get("tags") if body else None
    tags = [str(tag) for tag in own] if isinstance(own, list) else []
    values["tags"] = list(dict.fromkeys([*_TAGS, *labels, *tags]))
    warnings = card_text.warnings(contract, labels)
    text = body_of(body) if body is not None else card_text.text(contract, repo, license_)
    title, text = _split_title(text)
    parts = [part for part in (title, warnings, text) if part]
    data = ModelCardData(**values)
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts).rstrip() + "\n"


def validate_card(card: str) -> None:
    """Raise UsageError unless the card has all that the hub and its readers need."""
    values = read_front_matter(card)
    missing = [key for key in _REQUIRED if not values.get(key)]
    if values.get("license") == "other":
        missing += [key for key in ("license_name", "license_link") if not values.get(key)]
    if missing:
        raise UsageError(
            f"The front matter of the model card lacks {', '.join(missing)}.",
            hint="Add them to the block at the head of the file that --readme-path names.",
        )
    if not body_of(card).strip():
        raise UsageError(
            "The model card has no text.", hint="Write some into the file that --readme-path names."
        )
    try:
        ModelCard(card)
    except (ValueError, TypeError) as cause:
        raise UsageError(
            f"The hub's library cannot read the front matter of the model card: {cause}.",
            hint="Correct the file that --readme-path names.",
        ) from None


def _front_matter(contract: RuntimeContract, license_: License) -> dict[str, Any]:
    values: dict[str, Any] = {
        **license_.front_matter(),
        "library_name": "mlx",
        "pipeline_tag": "text-generation",
    }
    provenance = contract.forge_provenance
    if provenance is not None and provenance.source_repo:
        values["base_model"] = provenance.source_repo
        if card_text.is_quantised(contract):
            values["base_model_relation"] = "quantized"
    return values


def _split_title(text: str) -> tuple[str, str]:
    """The heading at the top, so that warnings can follow it, and the rest."""
    first, _, rest = text.partition("\n")
    return (first, rest.strip("\n")) if first.startswith("# ") else ("", text)
