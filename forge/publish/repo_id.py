"""Names of repositories to publish to."""

from huggingface_hub.errors import HFValidationError

# Public, but the package exports it in a way that type checkers cannot see.
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]


def repo_id_fault(repo: str) -> str:
    """Why `repo` does not name an owner and a model as the hub allows; empty when it does."""
    try:
        validate_repo_id(repo)
    except HFValidationError as cause:
        return str(cause).partition(":")[0].removesuffix(".")
    return "" if repo.count("/") == 1 else "the owner is missing"
