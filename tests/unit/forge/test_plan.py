"""Plans: verdicts, reasons, warnings and steps of sound and unsound sources."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import (
    HeadMissingError,
    InvalidRequestError,
    TokenizerMissingError,
    UnsupportedModelError,
    UsageError,
)
from mtplx.contracts.source_format import SourceFormat
from mtplx.forge.plan import Plan, Verdict, make_plan
from mtplx.forge.recipe import PRESETS, load_recipe
from mtplx.forge.source import LocalSource, SourceFile
from tests.support import disk, header_models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory
    from tests.support.tiny_families import FamilyName


def plan_of(folder: Path, recipe: str = "lossless", **options: Any) -> Plan:
    return make_plan(LocalSource(str(folder), folder), folder, load_recipe(recipe), **options)


@dataclass(frozen=True)
class Repository(LocalSource):
    """A folder that passes for a repository."""

    files: tuple[SourceFile, ...] = (SourceFile("a", 700), SourceFile("b", 300))
    repo: str = "org/model"  # type: ignore[assignment]
    commit: str = field(default="c" * 40)  # type: ignore[assignment]


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "qwen3_next", "deepseek_v3", "mimo"])
@pytest.mark.parametrize("recipe", PRESETS)
def test_sound_sources_are_forgeable_by_every_preset(
    shared_tiny: TinyFactory, family: FamilyName, recipe: str
) -> None:
    plan = plan_of(shared_tiny(family, hidden=64), recipe)
    assert plan.verdict is Verdict.FORGEABLE, plan.reasons
    assert plan.exit_code == 0
    assert plan.format is SourceFormat.BF16_NATIVE
    assert [step.name for step in plan.steps] == ["convert", "head", "calibrate", "verify", "brand"]
    assert plan.reasons
    plan.require_forgeable()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"hidden": 128, "vocab": 128, "fp8": True}, SourceFormat.FP8_BLOCK),
        ({"hidden": 64, "pack": "awq"}, SourceFormat.AWQ),
        ({"hidden": 64, "pack": "gptq"}, SourceFormat.GPTQ),
        ({"hidden": 64, "pack": "compressed"}, SourceFormat.COMPRESSED_TENSORS_AWQ),
        (
            {"layout": "mlx", "hidden": 64, "quantize": {"bits": 4, "group_size": 32}},
            SourceFormat.MLX_AFFINE_WITH_MTP,
        ),
    ],
    ids=lambda value: str(value),
)
def test_packed_sources_say_what_is_done_with_them(
    shared_tiny: TinyFactory, options: dict[str, Any], expected: SourceFormat
) -> None:
    plan = plan_of(shared_tiny("qwen3_5", **options), "optimized-quality")
    assert plan.verdict is Verdict.FORGEABLE, plan.reasons
    assert plan.format is expected
    is_mlx = expected is SourceFormat.MLX_AFFINE_WITH_MTP
    assert plan.steps[0].description.startswith("Copy" if is_mlx else "Unpack")
    assert any("kept as it is" in warning for warning in plan.warnings) is is_mlx


def test_a_repository_is_fetched_first_and_counts_on_disk(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("mimo")
    plan = make_plan(Repository("org/model", folder), folder, load_recipe("lossless"))
    assert plan.steps[0].name == "fetch"
    assert plan.sizes.download_bytes == 1000
    assert plan.disk_bytes - plan_of(folder).disk_bytes == 1000
    shown = plan.to_json()
    assert (shown["hf_repo"], shown["source_sha"]) == ("org/model", "c" * 40)


def test_messages_about_a_repository_do_not_name_its_skeleton(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    disk.drop_shard(folder)
    plan = make_plan(Repository("org/model", folder), folder, load_recipe("lossless"))
    assert "org/model" in plan.reasons[0]
    assert str(folder) not in json.dumps([plan.to_json()["error"], plan.reasons])


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3", "mimo"])
def test_a_declared_head_without_tensors_is_no_head(tiny: TinyFactory, family: FamilyName) -> None:
    plan = plan_of(tiny(family, head=False))
    assert plan.verdict is Verdict.NO_MTP_HEADS
    assert plan.exit_code == 6
    assert "declared 1, found 0" in plan.reasons[0]
    assert plan.steps == ()
    with pytest.raises(HeadMissingError):
        plan.require_forgeable()


def test_a_family_without_heads_has_none(shared_tiny: TinyFactory) -> None:
    plan = plan_of(shared_tiny("llama"))
    assert plan.verdict is Verdict.NO_MTP_HEADS
    assert "announces none" in plan.reasons[0]


def test_a_head_that_has_no_backend_is_unsupported(tmp_path: Path) -> None:
    names = [*header_models.trunk_names(2), *header_models.nextn_names(2)]
    config = header_models.config_of("glm4_moe_lite", num_nextn_predict_layers=1)
    plan = plan_of(header_models.write_model(tmp_path / "m", config, names))
    assert plan.verdict is Verdict.UNSUPPORTED_SOURCE
    assert isinstance(plan.error, UnsupportedModelError)
    assert "no backend" in plan.reasons[0]


def test_an_artifact_is_recognised_and_not_forged_again(tiny: TinyFactory) -> None:
    folder = tiny("mimo", sidecar="mtp/head.safetensors")
    contract = {"mtplx_version": "2.12.2", "arch_id": "mimo-mtp", "mtp_depth_max": 1}
    (folder / "mtplx_runtime.json").write_text(json.dumps(contract))
    plan = plan_of(folder)
    assert plan.verdict is Verdict.ALREADY_MTPLX, plan.reasons
    assert plan.exit_code == 0
    assert plan.to_json()["supported"] is True
    with pytest.raises(UsageError, match="mtplx forge verify"):
        plan.require_forgeable()


def test_a_contract_beside_no_head_makes_no_artifact(tiny: TinyFactory) -> None:
    folder = tiny("mimo", head=False)
    contract = {"mtplx_version": "2.12.2", "arch_id": "mimo-mtp", "mtp_depth_max": 1}
    (folder / "mtplx_runtime.json").write_text(json.dumps(contract))
    assert plan_of(folder).verdict in (Verdict.NO_MTP_HEADS, Verdict.UNSUPPORTED_SOURCE)


def test_text_is_needed_to_calibrate_and_verify(tiny: TinyFactory) -> None:
    plan = plan_of(tiny("mimo", tokenizer=False))
    assert plan.verdict is Verdict.UNSUPPORTED_SOURCE
    assert isinstance(plan.error, TokenizerMissingError)
    assert plan.exit_code == 3


def test_a_trunk_that_cannot_be_built_is_seen(tiny: TinyFactory) -> None:
    folder = tiny("qwen3_5")
    removed = disk.remove_tensors(folder, lambda n: n.endswith("layers.1.self_attn.q_proj.weight"))
    plan = plan_of(folder)
    assert plan.verdict is Verdict.UNSUPPORTED_SOURCE
    assert plan.exit_code == 4
    assert removed
    assert "layers.1.self_attn.q_proj.weight" in plan.reasons[0]


def test_a_recipe_that_fits_no_matrix_is_refused(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("mimo", hidden=32)
    plan = plan_of(folder, '{"body_bits": 4, "body_group_size": 128}')
    assert isinstance(plan.error, InvalidRequestError)
    assert plan.error.key == "body_group_size"
    assert "32" in plan.reasons[0]


def test_a_degraded_head_has_to_be_allowed(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("mimo", hidden=64)
    recipe = '{"body_bits": 4, "mtp_policy": "requantize"}'
    with pytest.raises(UsageError, match="--allow-degraded-mtp"):
        plan_of(folder, recipe)
    plan = plan_of(folder, recipe, allow_degraded_mtp=True)
    assert plan.verdict is Verdict.FORGEABLE
    assert any("few accepted drafts" in warning for warning in plan.warnings)


def test_what_may_surprise_is_told(tiny: TinyFactory) -> None:
    folder = tiny("mimo", heads=2, hidden=64)
    disk.edit_json(folder / "config.json", {"auto_map": {"AutoModel": "x.y"}})
    disk.edit_json(folder / "config.json", {"num_nextn_predict_layers": ...})
    disk.add_stray_shard(folder)
    warnings = " ".join(
        plan_of(folder, '{"body_bits": 4, "module_overrides": {"*.qkv": "keep"}}').warnings
    )
    for words in (
        "Of 2 MTP layers the first is used",
        "announces no head",
        "auto_map",
        "model.safetensors is not part of the model",
        "*.qkv",
    ):
        assert words in warnings


def test_modules_that_stay_unquantised_are_named(tiny: TinyFactory) -> None:
    folder = tiny("mimo", hidden=64, config_overrides={"intermediate_size": 96})
    warnings = " ".join(plan_of(folder, "bare-speed").warnings)
    assert "model.layers.0.mlp.down_proj" in warnings
    assert "model.layers.0.mlp.up_proj" not in warnings


def test_json_holds_the_keys_of_the_public_tool(shared_tiny: TinyFactory) -> None:
    shown = json.loads(json.dumps(plan_of(shared_tiny("mimo")).to_json(), allow_nan=False))
    public = (
        "verdict forgeable supported already_mtplx source hf_repo source_format has_mtp_weights "
        "estimated_size_bytes estimated_peak_gib message diagnostic source_sha architecture_id "
        "recommended_backend runtime_compatibility support_level architecture_recognized "
        "backend_status"
    )
    assert shown.keys() >= set(public.split())
    assert shown["has_mtp_weights"] is True
    assert shown["estimated_size_bytes"] > 0
    assert shown["architecture_id"] == "mimo-mtp"
    assert shown["steps"]


_STRANGE: list[Any] = [None, "8", -1, 0, 2.5, [], {}, True, 10**12]


@pytest.mark.parametrize("family", ["qwen3_next", "deepseek_v3", "mimo"])
def test_no_value_of_a_config_breaks_planning(tiny: TinyFactory, family: FamilyName) -> None:
    folder = tiny(family)
    config = disk.read_json(folder / "config.json")
    for number, key in enumerate(config):
        strange = _STRANGE[number % len(_STRANGE)]
        (folder / "config.json").write_text(json.dumps({**config, key: strange}))
        assert plan_of(folder, "optimized-speed").reasons


def test_planning_works_without_mlx(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("qwen3_5")
    code = (
        "import sys\n"
        "for name in ('mlx', 'mlx.core', 'mlx_lm', 'transformers'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from mtplx.forge.plan import make_plan\n"
        "from mtplx.forge.recipe import load_recipe\n"
        "from mtplx.forge.source import LocalSource\n"
        "folder = Path(sys.argv[1])\n"
        "plan = make_plan(LocalSource(sys.argv[1], folder), folder, load_recipe('lossless'))\n"
        "print(plan.verdict)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "forgeable"
