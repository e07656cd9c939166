"""The model card: front matter that the hub requires, and a text that says what was measured."""

from typing import Any, Final

from huggingface_hub import CardData, ModelCardData

from mtplx.contracts.errors import UsageError
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.forge.publish import card_text
from mtplx.forge.publish.front_matter import read_card
from mtplx.forge.publish.license import License

_TAGS: Final = ("mlx", "mtplx", "speculative-decoding", "multi-token-prediction")
_REQUIRED: Final = ("license", "library_name", "pipeline_tag", "tags")
_TEXTS: Final = ("base_model", "datasets", "language", "metrics", "tags")


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
    kept, and warnings are put below its title. The same arguments give the same text.

    Raises UsageError when `body` has no text or a front matter that cannot be read.
    """
    data: CardData = ModelCardData()
    if body is None:
        text = card_text.text(contract, repo, license_)
    else:
        card = read_card(body)
        data, text = card.data, card.text.strip()
    if not text:
        raise UsageError(
            "The model card has no text.",
            hint="Write some into the file that --readme-path names, or leave the flag out.",
        )
    for key, value in _front_matter(contract, license_).items():
        data[key] = value
    own = data.get("tags", [])
    data["tags"] = list(dict.fromkeys([*_TAGS, *labels, *(own if isinstance(own, list) else [])]))
    title, rest = _split_title(text)
    parts = [part for part in (title, card_text.warnings(contract, labels), rest) if part]
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts).rstrip() + "\n"


def validate_card(card: str) -> None:
    """Raise UsageError unless the hub's library reads the card, with all that the hub needs."""
    data = read_card(card).data
    wanted = [
        *_REQUIRED,
        *(("license_name", "license_link") if data.get("license") == "other" else ()),
    ]
    wrong = [key for key in wanted if not data.get(key)]
    wrong += [key for key in _TEXTS if not _is_text(data.get(key, []))]
    if wrong:
        raise UsageError(
            f"The front matter of the model card has no usable {', '.join(wrong)}.",
            hint="Each is a text, or a list of texts, in the block at the head of the card.",
        )


def _front_matter(contract: RuntimeContract, license_: License) -> dict[str, Any]:
    values: dict[str, Any] = {
        **license_.front_matter(),
        "library_name": "mlx",
        "pipeline_tag": "text-generation",
    }
    source = card_text.source_repo(contract)
    if source is not None:
        values["base_model"] = source
        if card_text.is_quantised(contract):
            values["base_model_relation"] = "quantized"
    return values


def _is_text(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(item, str) for item in values)


def _split_title(text: str) -> tuple[str, str]:
    """The heading at the top, so that warnings can follow it, and the rest."""
    first, _, rest = text.partition("\n")
    return (first, rest.strip("\n")) if first.startswith("# ") else ("", text)
