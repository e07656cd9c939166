"""Names of repositories to publish to."""

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from mtplx.contracts.errors import InvalidRequestError
from mtplx.contracts.tensor_header import shortened


def check_repo_id(repo: str) -> None:
    """Raise InvalidRequestError unless `repo` names an owner and a model, as the hub allows."""
    try:
        validate_repo_id(repo)
        reason = "" if repo.count("/") == 1 else "the owner is missing"
    except HFValidationError as cause:
        reason = str(cause).partition(":")[0].removesuffix(".")
    if reason:
        raise InvalidRequestError(
            f"{shortened(repo)!a} is no repository id ({reason}).",
            key="repo",
            hint="Expected ORG/NAME with letters, digits, dots, dashes and underscores.",
        )
