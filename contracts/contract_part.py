"""The base of everything in a contract."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Immutable; types are not converted, numbers are finite, unknown keys are kept."""

    model_config = ConfigDict(
        extra="allow", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )
