"""`mtplx forge probe`: verdict, reasons and exit code of every source, and never a traceback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import typer

from mtplx.commands.forge.probe import probe
from mtplx.contracts.errors import MTPLXError
from tests.support import disk
from tests.support.tensorfile import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import TinyFactory

VERDICTS = {"forgeable", "already_mtplx", "no_mtp_heads", "unsupported_source"}

app = typer.Typer()
app.command()(probe)


def run(*arguments: str) -> int:
    """The command alone; errors of the request pass through, as the entry point reports them."""
    code = app(args=list(arguments), standalone_mode=False)
    assert isinstance(code, int)
    return code


@pytest.fixture
def folder(tiny: TinyFactory) -> Path:
    return tiny("mimo")


def tensor_twice(folder: Path) -> None:
    first, second = disk.shard_files(folder)
    name = next(iter(read_tensors(first)))
    write_tensors(second, {**read_tensors(second), name: read_tensors(first)[name]})


def without_weights(folder: Path) -> None:
    for path in [*disk.shard_files(folder), folder / disk.INDEX]:
        path.unlink()


def edited(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: disk.edit_json(folder / "config.json", changes)


def rewritten(text: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "config.json").write_bytes(text)

    return damage


def on_shard(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        change(disk.find_tensor(folder, r"lm_head\.weight")[0])

    return damage


def without(part: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        assert disk.remove_tensors(folder, lambda name: part in name)

    return damage


def odd_weight_map(folder: Path) -> None:
    disk.edit_weight_map(folder, lambda names: dict.fromkeys(names, "../x/model.safetensors"))


DAMAGES: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "missing shard": (disk.drop_shard, 4, "model-00002-of-00002"),
    "renamed shard": (disk.rename_shard, 4, "model-00002-of-00002"),
    "no weights": (without_weights, 4, "no weights"),
    "index leads out": (odd_weight_map, 4, "../x"),
    "tensor twice": (tensor_twice, 4, "held by both"),
    "truncated": (on_shard(disk.truncate), 4, "truncated"),
    "emptied": (on_shard(lambda path: path.write_bytes(b"")), 4, "too short"),
    "longer": (on_shard(disk.append_bytes), 4, "longer"),
    "overlap": (on_shard(disk.overlap_tensors), 4, "overlap"),
    "hole": (on_shard(disk.leave_hole), 4, "hole"),
    "header length": (on_shard(lambda path: disk.claim_header_size(path, 2**40)), 4, "header"),
    "dtype": (on_shard(lambda p: disk.claim_dtype(p, "lm_head.weight", "Q4_K")), 4, "Q4_K"),
    "empty config": (rewritten(b""), 4, "config.json"),
    "config is a list": (rewritten(b"[]"), 4, "config.json"),
    "no UTF-8": (rewritten(b"\xff\xfe{}"), 4, "config.json"),
    "no config": (lambda folder: (folder / "config.json").unlink(), 3, "no config.json"),
    "unknown type": (edited(model_type="new", architectures=["New"]), 5, "new"),
    "wants code": (edited(trust_remote_code=True), 5, "run code"),
    "quantised oddly": (edited(quantization_config={"quant_method": "aqlm"}), 5, "aqlm"),
    "no layer count": (edited(num_hidden_layers=...), 4, "num_hidden_layers"),
    "incomplete head": (without("input_proj"), 4, "input_proj"),
    "head without block": (without("mtp_layers.0.self_attn.q_proj"), 4, "q_proj"),
    "trunk with a gap": (without("model.layers.1.mlp.up_proj"), 4, "up_proj"),
    "no final norm": (without("model.norm."), 4, "model.norm.weight"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), 3, "tokenizer"),
    "no head": (without("mtp_layers"), 6, "found 0"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_broken_sources_have_a_verdict_and_a_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    change, exit_code, words = DAMAGES[damage]
    change(folder)
    verdict = "no_mtp_heads" if exit_code == 6 else "unsupported_source"
    assert run(str(folder)) == exit_code
    out, err = capsys.readouterr()
    assert verdict in out
    assert words in out
    assert "error: " in err
    assert "Traceback" not in out + err
    assert run(str(folder), "--json") == exit_code
    out, err = capsys.readouterr()
    assert err == ""
    shown = json.loads(out)
    assert shown["verdict"] == verdict
    assert shown["exit_code"] == exit_code
    assert words in shown["reasons"][0]


@pytest.mark.parametrize(
    "source", ["nowhere/at/all", "a b/c", "../x", "", "~nobody-here/x", "x" * 5000, "a\0b"]
)
def test_names_of_nothing_have_a_verdict(capsys: pytest.CaptureFixture[str], source: str) -> None:
    code = run(source, "--json")
    shown = json.loads(capsys.readouterr().out)
    assert code == shown["exit_code"] != 0
    assert shown["verdict"] == "unsupported_source"
    assert shown["error"]["message"]
    assert shown["steps"] == []


def test_a_file_and_an_empty_folder_are_no_models(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert run(str(tmp_path / "model.gguf")) == 3
    assert "GGUF" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert run(str(tmp_path / "empty")) == 3
    assert "no config.json" in capsys.readouterr().out


def test_a_sound_source_shows_sizes_and_steps(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert run(str(folder), "--recipe", "lossless") == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "forgeable",
        "bf16_native",
        "MiMo-7B",
        "disk needed",
        "peak memory",
        "calibrate:",
    ):
        assert words in out
    assert "MiB" in out


def test_quiet_shows_the_verdict_and_why(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(str(folder), "--recipe", "lossless", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "forgeable" in lines[1]


def test_json_is_one_object_on_one_line(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(str(folder), "--recipe", '{"body_bits": 8, "body_group_size": 32}', "--json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    shown = json.loads(out)
    assert shown["verdict"] in VERDICTS
    assert shown["recipe"]["body_bits"] == 8


def test_a_bad_recipe_is_an_error_of_the_request(folder: Path) -> None:
    for recipe in ("bare-sped", '{"body_bits": 9}', '{"body_bits": 4, "mtp_policy": "requantize"}'):
        with pytest.raises(MTPLXError) as caught:
            run(str(folder), "--recipe", recipe)
        assert caught.value.exit_code == 2
