"""Reading model cards: the YAML block at the head, and the text below it."""

import yaml
from huggingface_hub import ModelCard

from mtplx.contracts.errors import UsageError


def read_card(text: str) -> ModelCard:
    """The card that `text` is, with `data` (empty without a block) and `text`.

    Raises UsageError when the hub's library cannot read the block.
    """
    try:
        return ModelCard(text)
    except (yaml.YAMLError, ValueError, TypeError) as cause:
        reason = " ".join(str(cause).split()).removesuffix(".")
        raise UsageError(
            f"The front matter of the model card cannot be read: {reason}.",
            hint="Correct the YAML between the lines `---` at the head of the card.",
        ) from None
