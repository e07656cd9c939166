"""What an inspection of a model folder finds: values only, see `mtplx.contracts.inspection`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mtplx.contracts import quantization as quant
from mtplx.contracts.errors import InternalError, MTPLXError, exit_code_for_tier
from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.identity import Identity, content_identity
from mtplx.contracts.norms import NormEncoding
from mtplx.contracts.tensors import TensorIndex

if TYPE_CHECKING:
    from mtplx.contracts.runtime_contract import RuntimeContract

HeadState = Literal["declared+present", "declared+missing", "undeclared+present", "none"]


class Tier(StrEnum):
    """How far a model folder can be trusted to run with MTP.

    verified: exactness passed, speed gain significant, and the content hashes match.
    family-compatible-unverified: a runnable family with a head; nothing was proven of this copy.
    architecture-compatible-unverified: the trunk runs, its head has no backend yet.
    ar-only: a family without heads; runs plain.
    no-mtp-heads: a family with heads, but this copy has none; runs plain.
    incompatible: nothing mtplx can run.
    corrupt: files are missing or contradict each other.
    """

    VERIFIED = "verified"
    FAMILY_COMPATIBLE_UNVERIFIED = "family-compatible-unverified"
    ARCHITECTURE_COMPATIBLE_UNVERIFIED = "architecture-compatible-unverified"
    AR_ONLY = "ar-only"
    NO_MTP_HEADS = "no-mtp-heads"
    INCOMPATIBLE = "incompatible"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The MTP head as announced and as found.

    `declared` and `found` count MTP layers; `nbytes` and `dtypes` (tensors by dtype) cover what
    was found. `is_usable`: mtplx has a backend for it.
    """

    declared: int | None = None
    found: int = 0
    tensor_names: tuple[str, ...] = ()
    prefix: str | None = None
    dtypes: dict[str, int] = field(default_factory=dict)
    nbytes: int = 0
    is_usable: bool = False

    @property
    def state(self) -> HeadState:
        """Announced against found; a model that announces 0 layers announces none."""
        if self.found:
            return "declared+present" if self.declared else "undeclared+present"
        return "declared+missing" if self.declared else "none"


@dataclass(frozen=True)
class Inspection:
    """What `inspect_folder` found. Fields are as far as it came before `error`."""

    path: Path
    tier: Tier
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: MTPLXError | None = None
    config: dict[str, Any] = field(default_factory=dict)
    family: Family | None = None
    num_layers: int | None = None
    index: TensorIndex | None = None
    head: HeadReport = HeadReport()
    head_tensors: HeadTensors | None = None
    quantization: dict[str, Any] | None = None
    norm_encoding: NormEncoding | None = None
    eos_token_ids: tuple[int, ...] = ()
    has_tokenizer: bool = False
    chat_template_source: str | None = None
    context_length: int | None = None
    size_bytes: int = 0
    vision: dict[str, Any] | None = None
    contract: "RuntimeContract | None" = None

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be rendered."""
        return self.chat_template_source is not None

    @property
    def can_run(self) -> bool:
        """Whether the model can be loaded, if only to decode plainly."""
        return self.error is None

    @property
    def can_use_head(self) -> bool:
        """Whether MTP decoding is possible."""
        return self.can_run and self.head.is_usable

    @property
    def exit_code(self) -> int:
        """The exit code of an inspection, by the table in `mtplx.contracts.errors`."""
        return self.error.exit_code if self.error else exit_code_for_tier(self.tier)

    @cached_property
    def identity(self) -> Identity:
        """Hashes of the content; reads every weight on first use."""
        return self.compute_identity()

    def compute_identity(self, on_progress: Callable[[int, int], None] | None = None) -> Identity:
        """`identity`, reporting bytes done and bytes in all, and not kept."""
        if self.index is None:
            raise self.error or InternalError("An inspection without an index has no identity.")
        return content_identity(self.path, self.index.files, on_progress=on_progress)

    def raise_if_unrunnable(self) -> None:
        """Raise `error`, if there is one."""
        if self.error is not None:
            raise self.error

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account; keys are stable, unknown values are null.

        path, tier, can_run, can_use_head, exit_code; reasons, warnings (texts);
        error {code, title, message, hint, exit_code, ...};
        family {name, title, runnable, ar_only, notes}; model_type; num_layers;
        head {state, declared, found, usable, prefix, tensors (count), dtypes, bytes};
        quantization {scheme, bits, ...} (see `quantization.summary`); norm_encoding;
        eos_token_ids; tokenizer (bool); chat_template (where it comes from); context_length;
        size_bytes; weight_files, ignored_files (names);
        vision {tensors, prefix, preprocessor};
        contract {schema_version, mtplx_version, arch_id, mtp_depth_max, unknown_keys}.
        """
        family, index, contract = self.family, self.index, self.contract
        return {
            "path": str(self.path),
            "tier": self.tier.value,
            "can_run": self.can_run,
            "can_use_head": self.can_use_head,
            "exit_code": self.exit_code,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "error": self.error.to_json() if self.error else None,
            "family": family and {k: getattr(family, k) for k in _FAMILY_KEYS},
            "model_type": _text_or_none(self.config.get("model_type")),
            "num_layers": self.num_layers,
            "head": _head_json(self.head),
            "quantization": quant.summary(self.quantization),
            "norm_encoding": self.norm_encoding,
            "eos_token_ids": list(self.eos_token_ids),
            "tokenizer": self.has_tokenizer,
            "chat_template": self.chat_template_source,
            "context_length": self.context_length,
            "size_bytes": self.size_bytes,
            "weight_files": list(index.files) if index else [],
            "ignored_files": list(index.ignored_files) if index else [],
            "vision": self.vision,
            "contract": contract and {k: _listed(getattr(contract, k)) for k in _CONTRACT_KEYS},
        }


_FAMILY_KEYS = ("name", "title", "runnable", "ar_only", "notes")
_CONTRACT_KEYS = ("schema_version", "mtplx_version", "arch_id", "mtp_depth_max", "unknown_keys")


def head_report(
    declared: int | None, head: HeadTensors | None, index: TensorIndex, *, has_backend: bool
) -> HeadReport:
    """The report of a head found as `head` in `index`."""
    if head is None:
        return HeadReport(declared)
    tensors = [index.tensors[name] for name in head.names]
    return HeadReport(
        declared=declared,
        found=head.num_layers,
        tensor_names=tuple(sorted(head.names)),
        prefix=head.prefix,
        dtypes=dict(sorted(Counter(tensor.dtype for tensor in tensors).items())),
        nbytes=sum(tensor.nbytes for tensor in tensors),
        is_usable=has_backend,
    )


def _head_json(head: HeadReport) -> dict[str, Any]:
    return {
        "state": head.state,
        "declared": head.declared,
        "found": head.found,
        "usable": head.is_usable,
        "prefix": head.prefix,
        "tensors": len(head.tensor_names),
        "dtypes": head.dtypes,
        "bytes": head.nbytes,
    }


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
