"""What an artifact is: a plain model for mlx-lm, the source's numbers, and a head beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx
import pytest

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.contracts.inspection import inspect_folder
from mtplx.contracts.runtime_contract import read_contract
from mtplx.demo import demo_model_path
from mtplx.forge.build import prepare_build, run_build
from mtplx.forge.plan import Verdict, make_plan
from mtplx.forge.recipe import load_recipe
from mtplx.forge.source import open_source
from mtplx.runtime.loading.folder import load
from tests.support.chat_prompts import CHAT_PROMPTS
from tests.support.checkpoints import require_checkpoint
from tests.support.forged import assert_same_logits
from tests.support.stock_answers import Stock
from tests.support.tensorfile import Tensor, read_tensors
from tests.support.tiny_mlx import to_mlx

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mtplx.runtime.decode.result import Generation
    from tests.support.checkpoints import TrainedName

HEAD = "mtp/head.safetensors"
RECIPES = ("lossless", "optimized-quality", "optimized-speed")
QUICK = ("demo", "deepseek_v3")
SLOW = ("glm4_moe", "qwen3_next", "qwen3_5")
MODELS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
ANSWER_TOKENS = 48

every_model = pytest.mark.parametrize("model", MODELS)
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


class Builder(Protocol):
    """Builds an artifact without measurements."""

    def __call__(self, model: str, recipe: str, **options: Any) -> Path: ...


def source_of(model: str) -> Path:
    """The demo model, or a trained checkpoint."""
    if model == "demo":
        return demo_model_path()
    name: TrainedName = model  # type: ignore[assignment]  # parametrised with these names only
    return require_checkpoint(name)


def build(source: Path, out: Path, recipe: str, **options: Any) -> Path:
    chosen = {"calibrate": False, "verify": "none", "name": "artifact", **options}
    job = prepare_build(str(source), load_recipe(recipe), out, **chosen)
    return run_build(job, lambda _phase, _label, _fraction: None).path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """One artifact for each model and recipe in this module: read it, do not change it."""
    built: dict[str, Path] = {}

    def make(model: str, recipe: str, **options: Any) -> Path:
        key = f"{model} {recipe} {sorted(options.items())}"
        if key not in built:
            out = tmp_path_factory.mktemp("built")
            built[key] = build(source_of(model), out, recipe, **options)
        return built[key]

    return make


@pytest.fixture(scope="module")
def stock() -> Iterator[Stock]:
    with Stock() as process:
        yield process


def trunk_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor that mlx-lm reads of a folder."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors |= read_tensors(path)
    return tensors


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@every_recipe
@every_model
def test_stock_mlx_lm_answers_as_mtplx_decodes(
    artifact: Builder, stock: Stock, model: str, recipe: str
) -> None:
    folder = artifact(model, recipe)
    own = load(folder, mtp=False)
    expected = [
        own.generate(prompt, depth=0, temperature=0.0, max_tokens=ANSWER_TOKENS)
        for prompt in CHAT_PROMPTS[:2]
    ]
    prompts = [generation.prompt_token_ids for generation in expected]
    found = stock.answers(folder, prompts, ANSWER_TOKENS)
    assert [answer.token_ids for answer in found] == [list(g.token_ids) for g in expected]
    assert [answer.text for answer in found] == [g.text for g in expected]
    assert all(len(g.token_ids) > ANSWER_TOKENS // 4 for g in expected)


@every_recipe
@every_model
def test_no_file_that_mlx_lm_reads_holds_a_tensor_of_the_head(
    artifact: Builder, model: str, recipe: str
) -> None:
    folder = artifact(model, recipe)
    head = inspect_folder(source_of(model)).head_tensors
    assert head is not None
    assert not head.names.keys() & trunk_tensors(folder).keys()
    assert not any(name.startswith(head.prefix) for name in trunk_tensors(folder))
    weights = {p.relative_to(folder).as_posix() for p in folder.rglob("*.safetensors")}
    assert {name for name in weights if not name.startswith("model")} == {HEAD}
    found = inspect_folder(folder).head_tensors
    assert found is not None
    assert set(found.names) == set(read_tensors(folder / HEAD))


@every_model
def test_a_lossless_artifact_computes_and_drafts_as_its_source(
    artifact: Builder, model: str
) -> None:
    folder, source = artifact(model, "lossless"), source_of(model)
    assert_same_logits(folder, source)
    found, expected = drafted(folder), drafted(source)
    assert found.token_ids == expected.token_ids
    for name in ("drafted_by_depth", "accepted_by_depth"):
        assert getattr(found.stats, name) == getattr(expected.stats, name)
    assert sum(expected.stats.accepted_by_depth) > 0


def drafted(folder: Path) -> Generation:
    return load(folder).generate(CHAT_PROMPTS[0], depth=3, temperature=0.0, max_tokens=48)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    "model", ["demo", *(pytest.param(m, marks=pytest.mark.slow) for m in ("glm4_moe", "qwen3_5"))]
)
def test_the_trunk_is_what_mlx_lm_converts_the_source_to(
    tmp_path: Path, model: str, bits: int
) -> None:
    """Gains of Qwen apart, which mlx-lm shifts in bfloat16 and we in float32."""
    source = source_of(model)
    recipe = json.dumps({"name": "plain", "body_bits": bits})
    found_folder = build(source, tmp_path / "ours", recipe)
    command = ["convert", "--hf-path", str(source), "--mlx-path", str(tmp_path / "stock")]
    subprocess.run(
        [sys.executable, "-m", "mlx_lm", *command, "--quantize", "--q-bits", str(bits)],
        capture_output=True,
        check=True,
    )
    found, expected = trunk_tensors(found_folder), trunk_tensors(tmp_path / "stock")
    assert found.keys() == expected.keys()
    differing = {name for name, tensor in expected.items() if found[name] != tensor}
    if model == "qwen3_5":
        assert all(name.endswith("norm.weight") for name in differing)
    else:
        assert not differing
    blocks = [
        json.loads((folder / "config.json").read_text())["quantization"]
        for folder in (found_folder, tmp_path / "stock")
    ]
    assert blocks[0] == blocks[1]


@every_recipe
@pytest.mark.parametrize("model", ["demo", pytest.param("qwen3_5", marks=pytest.mark.slow)])
def test_the_head_keeps_every_bit_of_its_matrices(
    artifact: Builder, model: str, recipe: str
) -> None:
    published = head_of_source(model)
    found = read_tensors(artifact(model, recipe) / HEAD)
    assert found.keys() == published.keys()
    matrices = [name for name, tensor in published.items() if len(tensor.shape) > 1]
    assert len(matrices) >= 8
    for name in matrices:
        assert found[name] == published[name], name


def test_the_head_is_packed_as_mlx_packs_it_with_8_bits(artifact: Builder) -> None:
    recipe = json.dumps({"name": "small-head", "body_bits": 4, "mtp_policy": "q8"})
    folder = artifact("demo", recipe)
    found: Any = mx.load(str(folder / HEAD))
    source = {name: to_mlx(tensor) for name, tensor in head_of_source("demo").items()}
    packed = [name.removesuffix(".scales") for name in found if name.endswith(".scales")]
    assert len(packed) == 7
    for stem in packed:
        expected = mx.quantize(source[f"{stem}.weight"], group_size=64, bits=8)
        for part, value in zip(("weight", "scales", "biases"), expected, strict=True):
            assert mx.array_equal(found[f"{stem}.{part}"], value), stem
    contract = read_contract(folder)
    assert contract is not None
    assert contract.head is not None
    assert contract.head.policy == "q8"


def test_a_degraded_head_is_refused_or_labelled(artifact: Builder) -> None:
    recipe = json.dumps({"name": "worse", "body_bits": 4, "mtp_policy": "requantize"})
    with pytest.raises(UsageError, match="--allow-degraded-mtp"):
        artifact("demo", recipe)
    folder = artifact("demo", recipe, allow_degraded_mtp=True)
    contract = read_contract(folder)
    assert contract is not None
    assert "degraded-mtp" in contract.labels
    assert contract.head is not None
    assert contract.head.policy == "requantize"
    bits = [module["bits"] for module in json_of(folder)["head"]["quantization"].values()]
    assert bits
    assert set(bits) == {4}


@every_recipe
@pytest.mark.parametrize(
    "model", ["deepseek_v3", *(pytest.param(m, marks=pytest.mark.slow) for m in SLOW)]
)
def test_building_again_makes_the_same_bytes(
    artifact: Builder, tmp_path: Path, model: str, recipe: str
) -> None:
    again = build(source_of(model), tmp_path, recipe)
    assert contents(again) == contents(artifact(model, recipe))


@every_recipe
@every_model
def test_an_artifact_is_recognised(
    artifact: Builder, tmp_path: Path, model: str, recipe: str
) -> None:
    folder = artifact(model, recipe)
    plan = make_plan(open_source(str(folder)), folder, load_recipe("lossless"))
    assert plan.verdict is Verdict.ALREADY_MTPLX
    assert plan.exit_code == 0
    with pytest.raises(UsageError, match="artifact already"):
        build(folder, tmp_path / "again", "lossless")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "key", ["body_bit", "mtp_polcy", "contract_calibration", "module_overides", "ngram"]
)
def test_a_recipe_with_an_unknown_key_is_refused_by_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidRequestError, match=key):
        build(demo_model_path(), tmp_path / "out", json.dumps({"body_bits": 4, key: 4}))
    assert not (tmp_path / "out").exists()


def head_of_source(model: str) -> dict[str, Tensor]:
    """The head's tensors as published."""
    head = inspect_folder(source_of(model)).head_tensors
    assert head is not None
    return {
        name: tensor
        for path in sorted(source_of(model).glob("model*.safetensors"))
        for name, tensor in read_tensors(path).items()
        if name in head.names
    }


def json_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "mtplx_runtime.json").read_text())
    return found
