"""Sampling flags as a value."""

from typing import TYPE_CHECKING

from mtplx.contracts.errors import InvalidRequestError

if TYPE_CHECKING:
    from mtplx.runtime.bench.part import Sampling


def make_sampling(temperature: float, top_p: float, top_k: int, seed: int) -> "Sampling":
    """The sampling that was asked for. Raises InvalidRequestError with the flag that is out of its range."""
    from pydantic import ValidationError

    from mtplx.runtime.bench.part import Sampling

    try:
        return Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        flag = key.replace("_", "-")
        reason = first["msg"].replace("Input should be", "expected", 1)
        raise InvalidRequestError(f"--{flag} is {first['input']}, {reason}", key=key) from error
