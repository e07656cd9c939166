"""`mtplx forge build` and its neighbours: what they write, refuse, take up again and recognise."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mlx.utils import tree_flatten

from mtplx.contracts.errors import MTPLXError, UsageError
from mtplx.contracts.inspection import Tier, inspect_folder
from mtplx.contracts.runtime_contract import read_contract
from mtplx.demo import demo_model_path
from mtplx.forge.build import BuildResult, prepare_build, run_build
from mtplx.forge.job import BuildJob
from mtplx.forge.plan import make_plan
from mtplx.forge.recipe import load_recipe
from mtplx.forge.source import open_source
from mtplx.main import execute
from mtplx.runtime.loading.folder import load
from tests.contract.test_forge_probe import DAMAGES
from tests.support import disk
from tests.support.tensorfile import encode, read_tensors, read_values, write_tensors

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

NAME = "small"


def quiet(_phase: str, _label: str, _fraction: float) -> None:
    """No progress."""


def job_of(source: Path, out: Path, recipe: str = "lossless", **options: Any) -> BuildJob:
    """A build without measurements."""
    chosen = {"calibrate": False, "verify": "none", "name": NAME, **options}
    return prepare_build(str(source), load_recipe(recipe), out, **chosen)


def build(source: Path, out: Path, recipe: str = "lossless", **options: Any) -> BuildResult:
    return run_build(job_of(source, out, recipe, **options), quiet)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object on standard output."""
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("recipe", ["lossless", "optimized-quality", "optimized-speed"])
def test_stock_mlx_lm_answers_with_an_artifact(tmp_path: Path, recipe: str) -> None:
    assert_answers(build(demo_model_path(), tmp_path, recipe).path)


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next"])
def test_stock_mlx_lm_answers_with_an_artifact_of_experts(
    shared_tiny: TinyFactory, tmp_path: Path, family: Any
) -> None:
    folder = shared_tiny(family, vocab=512, hidden=64)
    assert_answers(build(folder, tmp_path, "optimized-speed").path)


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next"])
def test_stock_mlx_lm_loads_a_lossless_artifact_of_experts(
    shared_tiny: TinyFactory, tmp_path: Path, family: Any
) -> None:
    """Loads only: MLX multiplies 16-bit experts on GPUs alone."""
    from mlx_lm import load as stock_load

    model = stock_load(str(build(shared_tiny(family), tmp_path).path))[0]
    flat: Any = tree_flatten(model.parameters())
    assert not any("mtp" in name for name, _ in flat)


def assert_answers(artifact: Path) -> None:
    """The stock command, unpatched, in a process of its own."""
    flags = ["--ignore-chat-template", "--prompt", "def f(x):", "--temp", "0", "--max-tokens", "8"]
    done = subprocess.run(
        [sys.executable, "-m", "mlx_lm", "generate", "--model", str(artifact), *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Generation: 8 tokens" in done.stdout


@pytest.mark.parametrize("recipe", ["lossless", "optimized-quality", "optimized-speed"])
def test_forging_twice_makes_the_same_bytes(tmp_path: Path, recipe: str) -> None:
    first = build(demo_model_path(), tmp_path / "a", recipe)
    copied = shutil.copytree(demo_model_path(), tmp_path / "elsewhere")
    second = build(copied, tmp_path / "b", recipe)
    assert contents(first.path) == contents(second.path)


@pytest.mark.slow
def test_calibrating_and_verifying_twice_makes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    measured: dict[str, Any] = {"calibrate": True, "verify": "exactness"}
    first = build(demo_model_path(), tmp_path / "a", "optimized-speed", **measured)
    second = build(demo_model_path(), tmp_path / "b", "optimized-speed", **measured)
    assert contents(first.path) == contents(second.path)


def test_an_artifact_is_recognised_and_not_forged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = build(demo_model_path(), tmp_path).path
    assert execute(["forge", "probe", str(artifact), "--json"]) == 0
    assert told(capsys)["verdict"] == "already_mtplx"
    with pytest.raises(MTPLXError, match="already"):
        job_of(artifact, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_the_run_folder_has_the_files_and_keys_of_the_public_format(tmp_path: Path) -> None:
    result = build(demo_model_path(), tmp_path, verify="exactness", run_id="r1")
    run = tmp_path / "r1"
    found = {path.stem: json.loads(path.read_text()) for path in run.glob("*.json")}
    assert {"bytes_on_disk", "total_bytes", "mb_per_s", "eta_s", "label", "finished"} <= (
        found["download"].keys()
    )
    assert {"progress", "label", "finished"} <= found["convert"].keys()
    assert {"rows", "verdict", "failure_reasons"} <= found["verify"].keys()
    assert found["verify"]["verdict"] == "exactness_passed"
    assert {"branded_name", "runtime_metadata"} <= found["brand"].keys()
    assert found["forge"]["local_path"] == str(result.path)
    assert found["forge"]["runtime_metadata"] == json.loads(
        (result.path / "mtplx_runtime.json").read_text()
    )
    wanted = "converted_path phase verdict failure_reasons message diagnostic verify_rows "
    wanted += "speed_evidence ar_tok_s best_mtp_depth best_mtp_tok_s best_mtp_multiplier_vs_ar "
    assert set((wanted + "architecture_id").split()) <= found["build_outcome"].keys()


def test_what_was_not_measured_is_labelled_and_not_verified(tmp_path: Path) -> None:
    found = inspect_folder(build(demo_model_path(), tmp_path).path)
    assert found.tier is not Tier.VERIFIED
    assert found.contract is not None
    assert set(found.contract.labels) == {"uncalibrated", "unverified"}
    assert found.contract.exactness is None


def test_a_requantised_head_is_forced_and_labelled(tmp_path: Path) -> None:
    recipe = json.dumps({"name": "worse", "body_bits": 4, "mtp_policy": "requantize"})
    with pytest.raises(UsageError, match="degraded"):
        job_of(demo_model_path(), tmp_path, recipe)
    artifact = build(demo_model_path(), tmp_path, recipe, allow_degraded_mtp=True).path
    contract = read_contract(artifact)
    assert contract is not None
    assert "degraded-mtp" in contract.labels
    assert load(artifact).has_head


@pytest.mark.parametrize("damage", DAMAGES)
def test_build_refuses_what_probe_refuses_and_for_the_same_reason(
    tiny: TinyFactory, tmp_path: Path, damage: str
) -> None:
    folder = tiny("mimo")
    DAMAGES[damage][0](folder)
    recipe = load_recipe("lossless")
    out = tmp_path / "out"
    with pytest.raises(MTPLXError) as refused:
        prepare_build(str(folder), recipe, out)
    assert refused.value.exit_code == DAMAGES[damage][1]
    assert not out.exists()
    try:
        source = open_source(str(folder))
        with source.skeleton() as skeleton:
            plan = make_plan(source, skeleton, recipe)
    except MTPLXError as error:
        reason = error.message
    else:
        assert plan.error is not None
        reason = plan.error.message
    assert refused.value.message == reason


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "x" * 97, "with space", "/abs"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    for options in ({"name": name or "../x"}, {"run_id": name or ".."}):
        with pytest.raises(UsageError, match="expected letters, digits"):
            job_of(demo_model_path(), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_build_replaces_nothing(tmp_path: Path) -> None:
    build(demo_model_path(), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="was started before"):
        job_of(demo_model_path(), tmp_path)
    with pytest.raises(UsageError, match="a build replaces nothing"):
        job_of(demo_model_path(), tmp_path, run_id="other")
    with pytest.raises(UsageError, match="lie side by side"):
        job_of(demo_model_path(), tmp_path, name="same", run_id="same")
    assert contents(tmp_path) == before


def test_a_finished_build_resumed_is_finished(tmp_path: Path) -> None:
    first = build(demo_model_path(), tmp_path)
    before = contents(first.path)
    assert build(demo_model_path(), tmp_path, resume=True).path == first.path
    assert contents(first.path) == before


@pytest.mark.parametrize(
    ("recipe", "options", "key"),
    [("optimized-speed", {}, "recipe"), ("lossless", {"verify": "exactness"}, "verify")],
)
def test_a_run_goes_on_only_with_what_it_was_started_for(
    tmp_path: Path, recipe: str, options: dict[str, Any], key: str
) -> None:
    build(demo_model_path(), tmp_path)
    with pytest.raises(UsageError, match=f"was started with {key}"):
        job_of(demo_model_path(), tmp_path, recipe, resume=True, **options)


def test_a_source_that_changed_is_another_source(tmp_path: Path) -> None:
    source = shutil.copytree(demo_model_path(), tmp_path / "source")
    build(source, tmp_path / "out")
    disk.edit_json(source / "generation_config.json", {"temperature": 0.123})
    with pytest.raises(UsageError, match="was started with source_digest"):
        job_of(source, tmp_path / "out", resume=True)


def test_a_cancelled_build_stops_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_of(demo_model_path(), tmp_path, "optimized-quality", run_id="stop-me")

    def cancel_at_convert(phase: str, _label: str, _fraction: float) -> None:
        if phase == "convert" and not (job.run.path / "cancel").exists():
            assert execute(["forge", "cancel", "stop-me"]) == 0

    with pytest.raises(KeyboardInterrupt, match="cancelled"):
        run_build(job, cancel_at_convert)
    assert not job.target.exists()
    outcome = json.loads((job.run.path / "build_outcome.json").read_text())
    assert outcome["verdict"] == "cancelled"
    capsys.readouterr()
    again = build(demo_model_path(), tmp_path, "optimized-quality", run_id="stop-me", resume=True)
    assert again.path.is_dir()


def test_cancelling_an_unknown_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["forge", "cancel", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_no_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(MTPLXError, match="free") as refused:
        build(demo_model_path(), tmp_path)
    assert refused.value.exit_code == 8
    assert not (tmp_path / NAME).exists()


def test_an_artifact_of_a_vision_model_says_that_it_is_text_only(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    folder = tiny("qwen3_5")
    disk.edit_json(folder / "config.json", {"vision_config": {"hidden_size": 8}})
    (folder / "preprocessor_config.json").write_text("{}")
    artifact = build(folder, tmp_path).path
    contract = json.loads((artifact / "mtplx_runtime.json").read_text())
    assert contract["vision"] is None
    assert "vision_config" not in json.loads((artifact / "config.json").read_text())
    assert not (artifact / "preprocessor_config.json").exists()


def test_a_template_file_is_copied_and_hashed(tiny: TinyFactory, tmp_path: Path) -> None:
    folder = tiny("mimo")
    template = json.loads((folder / "tokenizer_config.json").read_text()).get("chat_template")
    disk.edit_json(folder / "tokenizer_config.json", {"chat_template": ...})
    (folder / "chat_template.jinja").write_text(template or "{{ messages[0].content }}")
    more = folder / "additional_chat_templates"
    more.mkdir()
    (more / "tools.jinja").write_text("{{ tools }}")
    artifact = build(folder, tmp_path).path
    contract = read_contract(artifact)
    assert contract is not None
    assert contract.content is not None
    assert {"chat_template.jinja", "additional_chat_templates/tools.jinja"} <= (
        contract.content.files.keys()
    )
    assert load(artifact).encode_prompt("hello")


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_norms_stored_in_another_convention_are_found_and_corrected(tmp_path: Path) -> None:
    sound = build(demo_model_path(), tmp_path / "sound", calibrate=True).path
    source = shutil.copytree(demo_model_path(), tmp_path / "source")
    moved = shift_head_norms(source, -1.0)
    assert len(moved) >= 4
    artifact = build(source, tmp_path / "out", calibrate=True).path
    contract = read_contract(artifact)
    assert contract is not None
    assert contract.calibration is not None
    assert set((contract.calibration.norm_shift or {}).values()) == {1}
    assert len(contract.calibration.norm_shift or {}) == len(moved)
    expected = read_values(sound / "mtp" / "head.safetensors")
    found = read_values(artifact / "mtp" / "head.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # A gain stored minus one keeps fewer digits after the point.
        assert abs(found[name] - value).max() <= 2**-7, name


def shift_head_norms(folder: Path, step: float) -> list[str]:
    """Store the gains of the head's norms `step` higher; the names of those that were."""
    moved = []
    for shard in disk.shard_files(folder):
        tensors, stored = read_tensors(shard), read_values(shard)
        for name, tensor in tensors.items():
            if ".mtp_layers." in name and "norm" in name and len(tensor.shape) == 1:
                tensors[name] = encode(stored[name] + step, "BF16")
                moved.append(name)
        write_tensors(shard, tensors)
    return moved


def test_the_command_shows_the_plan_and_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ["--out", str(out), "--no-calibrate", "--verify", "none", "--name", NAME]
    command = ["forge", "build", str(demo_model_path()), "--recipe", "lossless", *flags]
    assert execute([*command, "--dry-run", "--json"]) == 0
    assert told(capsys)["verdict"] == "forgeable"
    assert not out.exists()
    assert execute([*command, "--json"]) == 0
    outcome = told(capsys)
    assert outcome["converted_path"] == str(out / NAME)
    assert execute(["forge", "inspect", str(out / NAME), "--verify-hashes"]) == 0
    shown = capsys.readouterr().out
    assert "unverified" in shown
    assert "uncalibrated" in shown
    assert execute(["forge", "build", str(demo_model_path()), *flags, "--yes"]) == 2
    assert "--resume" in capsys.readouterr().err
