"""How large an artifact will be and what making it needs, told from shapes and the recipe."""

from dataclasses import dataclass

from mtplx.contracts.families import text_config
from mtplx.contracts.identity import identity_files
from mtplx.contracts.inspection_checks import positive
from mtplx.contracts.inspection_report import Inspection
from mtplx.forge.parameters import Parameter, Parts
from mtplx.forge.recipe import Recipe
from mtplx.forge.structure import is_vocabulary_copy

GIB = 2**30

_ITEM = 2
_FLOAT32 = 4
# Logits of one chunk of text, and what the sampler or the comparison makes of them.
_CHUNK_TOKENS = 512
_LOGIT_COPIES = 2
_ROUTERS = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of source and artifact, and the most that a build holds at once.

    `trunk_bytes` and `head_bytes` are the weights of the artifact, `artifact_bytes` these and its
    small files. `convert_peak_bytes` is the largest parameter with what it is made from and its
    result; `run_peak_bytes` the loaded artifact at work, in the artifact's own types.
    """

    source_bytes: int = 0
    download_bytes: int = 0
    artifact_bytes: int = 0
    trunk_bytes: int = 0
    head_bytes: int = 0
    convert_peak_bytes: int = 0
    run_peak_bytes: int = 0
    disk_bytes: int = 0

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory that any phase needs."""
        return max(self.convert_peak_bytes, self.run_peak_bytes)

    def to_json(self) -> dict[str, int]:
        """Every field by its name."""
        return {name: getattr(self, name) for name in self.__slots__}


def estimate(inspection: Inspection, parts: Parts, recipe: Recipe, *, download_bytes: int) -> Sizes:
    """The sizes of forging the inspected source by `recipe`; `download_bytes` is 0 for folders.

    Copies of the trunk's vocabulary in a head are taken to equal it, and so to be left out.
    """
    kept = [p for p in parts.head if not is_vocabulary_copy(p.name)]
    is_copied = parts.is_mlx
    written = [(p, trunk_bytes(p, recipe, is_copied=is_copied)) for p in parts.trunk]
    written_head = [(p, head_bytes(p, recipe)) for p in kept]
    trunk_total = sum(size for _, size in written)
    head_total = sum(size for _, size in written_head)
    weights = trunk_total + head_total
    artifact = weights + _small_files(inspection)
    vocabulary = positive(text_config(inspection.config).get("vocab_size")) or 0
    chunk = _CHUNK_TOKENS * vocabulary * _FLOAT32 * _LOGIT_COPIES
    shard = min(int(recipe.shard_size_gib * GIB), trunk_total)
    return Sizes(
        source_bytes=inspection.size_bytes,
        download_bytes=download_bytes,
        artifact_bytes=artifact,
        trunk_bytes=trunk_total,
        head_bytes=head_total,
        convert_peak_bytes=max(map(_working_set, (*written, *written_head)), default=0),
        run_peak_bytes=weights + chunk,
        disk_bytes=download_bytes + artifact + shard,
    )


def trunk_bytes(parameter: Parameter, recipe: Recipe, *, is_copied: bool) -> int:
    """Bytes the artifact has for a parameter of the trunk."""
    if is_copied:
        return parameter.nbytes
    if parameter.is_matrix and (how := recipe.applied_to(parameter.module, parameter.shape[-1])):
        return how.packed_bytes(parameter.shape, _ITEM)
    if recipe.body is None and not parameter.is_packed:
        return parameter.nbytes
    return parameter.count * _ITEM


def head_bytes(parameter: Parameter, recipe: Recipe) -> int:
    """Bytes the artifact has for a parameter of the head: norms are float32, matrices by policy."""
    if parameter.is_mlx:
        return parameter.nbytes
    if parameter.is_norm:
        return parameter.count * _FLOAT32
    how = recipe.head
    if how is not None and is_head_matrix(parameter) and how.fits(parameter.shape[-1]):
        return how.packed_bytes(parameter.shape, _ITEM)
    return parameter.count * _ITEM


def is_head_matrix(parameter: Parameter) -> bool:
    """Whether a policy that quantises the head concerns the parameter; routers are kept."""
    return parameter.is_matrix and not parameter.name.endswith(_ROUTERS)


def unfitting(parts: Parts, recipe: Recipe) -> list[str]:
    """Modules that the recipe quantises and whose rows do not divide into its groups."""
    if parts.is_mlx:
        return []
    return [
        p.module
        for p in parts.matrices
        if recipe.quantization_for(p.module) is not None
        and recipe.applied_to(p.module, p.shape[-1]) is None
    ]


def _working_set(item: tuple[Parameter, int]) -> int:
    """What is in memory while a parameter is made: what is read, the plain values, the result."""
    parameter, written = item
    is_copied = written == parameter.nbytes == parameter.read_bytes
    return parameter.read_bytes + written + (0 if is_copied else parameter.count * _ITEM)


def _small_files(inspection: Inspection) -> int:
    named = identity_files(inspection.path, ())
    return sum((inspection.path / name).stat().st_size for _, name in named)
