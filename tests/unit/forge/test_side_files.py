"""The small files: a config that says what the artifact is, and everything that text needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mtplx.contracts.errors import TensorFileError
from mtplx.contracts.identity import record_file
from mtplx.contracts.inspection import inspect_folder
from mtplx.forge.convert.side_files import copy_side_files
from mtplx.forge.recipe import Recipe
from tests.support.forged import forge, inspected, recipe
from tests.support.tensorfile import encode, read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def copied(source: Path, out: Path, how: Recipe | None = None) -> dict[str, Any]:
    """Copy, check the records, and return the artifact's config."""
    out.mkdir()
    records = copy_side_files(source, inspected(source), how or recipe(), out)
    assert records == {
        path.relative_to(out).as_posix(): record_file(path)
        for path in out.rglob("*")
        if path.is_file()
    }
    config: dict[str, Any] = json.loads((out / "config.json").read_text())
    return config


def names(folder: Path) -> set[str]:
    """Names of all files below a folder."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_tokenizer_templates_and_licences_are_copied_and_nothing_else(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    source = tiny("mimo")
    (source / "additional_chat_templates").mkdir()
    kept = {
        "chat_template.jinja": TEMPLATE,
        "additional_chat_templates/tools.jinja": TEMPLATE,
        "chat_template.json": json.dumps({"chat_template": TEMPLATE}),
        "special_tokens_map.json": "{}",
        "LICENSE": "free",
        "LICENSE.txt": "free",
    }
    other = {
        "modeling_mimo.py": "raise SystemExit",
        "hf_quant_config.json": "{}",
        "preprocessor_config.json": "{}",
        "README.md": "card",
        ".gitattributes": "",
    }
    inspection = inspected(source)
    for name, text in {**kept, **other}.items():
        (source / name).write_text(text)
    out = tmp_path / "out"
    out.mkdir()
    copy_side_files(source, inspection, recipe(), out)
    usual = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert names(out) == usual | kept.keys()
    for name in kept.keys() | usual - {"config.json"}:
        assert (out / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("place", ["jinja", "additional", "config", "none"])
def test_the_template_is_found_where_the_source_has_it(
    tiny: TinyFactory, place: str, tmp_path: Path
) -> None:
    source = tiny("mimo", chat_template="jinja" if place == "jinja" else place == "config")
    if place == "additional":
        (source / "additional_chat_templates").mkdir()
        (source / "additional_chat_templates" / "default.jinja").write_text(TEMPLATE)
    made = forge(source, tmp_path / "out", recipe())
    found = inspect_folder(made.folder)
    assert found.chat_template_source == inspect_folder(source).chat_template_source
    assert found.has_chat_template == (place != "none")


def test_an_artifact_of_a_vision_model_is_text_only(tiny: TinyFactory, tmp_path: Path) -> None:
    senses = {
        "vision_config": {"depth": 2},
        "image_token_id": 5,
        "vision_start_token_id": 6,
        "video_token_id": 7,
    }
    source = tiny("qwen3_5", single_file=True, config_overrides=senses)
    tensors = read_tensors(source / "model.safetensors")
    tower = encode(np.ones((2, 2), np.float32), "BF16")
    tensors |= {f"vision_tower.blocks.{n}.weight": tower for n in range(3)}
    write_tensors(source / "model.safetensors", tensors)
    (source / "preprocessor_config.json").write_text("{}")
    assert inspect_folder(source).vision is not None

    made = forge(source, tmp_path / "out", recipe(8, body_group_size=32))
    config = json.loads((made.folder / "config.json").read_text())
    assert not senses.keys() & config.keys()
    assert config["text_config"]["mtp_num_hidden_layers"] == 1
    assert "preprocessor_config.json" not in names(made.folder)
    found = inspect_folder(made.folder)
    assert found.vision is None
    assert not any("vision" in warning for warning in found.warnings)
    from mlx_lm.utils import load_model

    load_model(made.folder, lazy=True)


@pytest.mark.parametrize("bits", [None, 4])
def test_the_packing_of_the_source_is_forgotten(
    tiny: TinyFactory, bits: int | None, tmp_path: Path
) -> None:
    source = tiny("qwen3_5", fp8=True, hidden=64)
    config = json.loads((source / "config.json").read_text())
    config["text_config"]["quantization_config"] = config["quantization_config"]
    (source / "config.json").write_text(json.dumps(config))
    found = copied(source, tmp_path / "out", recipe(bits))
    assert "quantization_config" not in found["text_config"]
    if bits is None:
        assert "quantization_config" not in found
    else:
        assert found["quantization"] == found["quantization_config"]
        assert found["quantization"]["bits"] == 4


def test_the_quantisation_of_an_mlx_source_stays(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("glm4_moe", layout="mlx", hidden=64, quantize={"bits": 4, "group_size": 32})
    before = json.loads((source / "config.json").read_text())
    found = copied(source, tmp_path / "out", recipe(8))
    assert found["quantization"] == before["quantization"]


def test_nothing_of_the_authors_machine_or_code_is_left(tiny: TinyFactory, tmp_path: Path) -> None:
    extra = {"_name_or_path": "/home/someone/model", "auto_map": {"AutoConfig": "code.Config"}}
    found = copied(tiny("mimo", config_overrides=extra), tmp_path / "out")
    assert not extra.keys() & found.keys()
    assert found["num_nextn_predict_layers"] == 1


@pytest.mark.parametrize(("given", "written"), [(..., "mimo"), ("mimo", "mimo")])
def test_the_model_type_is_one_that_mlx_lm_knows(
    tiny: TinyFactory, given: Any, written: str, tmp_path: Path
) -> None:
    source = tiny("mimo", config_overrides={"model_type": given})
    assert copied(source, tmp_path / "out")["model_type"] == written


def test_types_are_named_as_they_are_written(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("mimo", hidden=64, config_overrides={"torch_dtype": "bfloat16"})
    half = copied(source, tmp_path / "out", recipe(4, body_dtype="float16"))
    assert half["torch_dtype"] == "float16"
    as_is = copied(source, tmp_path / "plain", recipe(body_dtype="float16"))
    assert as_is["torch_dtype"] == "bfloat16"


def test_links_become_files_and_those_that_lead_out_are_refused(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    source = tiny("mimo")
    (source / "vocab.json").symlink_to("tokenizer.json")
    copied(source, tmp_path / "out")
    assert not (tmp_path / "out" / "vocab.json").is_symlink()
    secret = tmp_path / "secret"
    secret.write_text("key")
    (source / "LICENSE").symlink_to(secret)
    (tmp_path / "other").mkdir()
    with pytest.raises(TensorFileError, match="LICENSE is a link"):
        copy_side_files(source, inspected(source), recipe(), tmp_path / "other")


def test_the_same_source_makes_the_same_bytes(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("deepseek_v3", hidden=64)
    for name in ("a", "b"):
        copied(source, tmp_path / name, recipe(4))
    first = {n: (tmp_path / "a" / n).read_bytes() for n in names(tmp_path / "a")}
    assert first == {n: (tmp_path / "b" / n).read_bytes() for n in names(tmp_path / "b")}
