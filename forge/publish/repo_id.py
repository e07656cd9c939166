"""Names of repositories to publish to."""

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from mtplx.contracts.errors import InvalidRequestError
from mtplx.contracts.tensor_header import shortened


def check_repo_id(repo: str) -> str:
    """What is right about the repository id `repo`: it names owner and model, as the hub allows.

    Raises InvalidRequestError.
    """
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
    return f"{repo} is well formed"
