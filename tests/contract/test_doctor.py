"""`mtplx doctor`: its report, schema, exit codes, hints and bundle."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mtplx.contracts.errors import BackendError
from mtplx.contracts.folders import state_folder
from mtplx.demo import demo_model_path
from mtplx.main import execute
from mtplx.runtime.diagnostics import backend, hub, last_failure, machine, packages, schema
from mtplx.runtime.diagnostics.backend import BackendFacts
from mtplx.runtime.diagnostics.catalogue import CATALOGUE
from mtplx.runtime.diagnostics.hub import HubFacts
from mtplx.runtime.diagnostics.last_failure import NAME
from mtplx.runtime.diagnostics.machine import Platform, Python
from mtplx.runtime.diagnostics.packages import Executable
from mtplx.runtime.tuning.store import NAME as TUNING
from mtplx.version import __version__
from tests.support.contracts import write_verified
from tests.support.tiny import build_tiny

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"

SOUND_CPU = {
    "kind": "cpu",
    "device": "cpu",
    "mlx_version": "0.32.4",
    "blas": {"name": "mkl", "path": "libmkl_rt.so"},
    "notes": [],
}
SOUND = BackendFacts(
    backend=SOUND_CPU,
    products=[{"name": "float32", "error": 0.0, "bound": 1e-6}],
    kernels=[{"name": "few_rows", "error": 0.0, "bound": 1e-6}],
)


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which all that does not depend on the folders of the test is well."""
    monkeypatch.setattr(backend, "probe_backend", lambda: SOUND)
    monkeypatch.setattr(machine, "port_problem", lambda _port: None)
    this = [Executable(Path("/opt/bin/mtplx"), __version__)]
    monkeypatch.setattr(packages, "read_executables", lambda: this)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = execute(["doctor", "--json", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, schema.shipped_schema())
    assert found["exit_code"] == code
    return code, found


def failing(found: dict[str, Any], *, status: str = "fail") -> list[str]:
    return [check["id"] for check in found["checks"] if check["status"] == status]


def test_the_shipped_schema_is_current() -> None:
    path = Path(schema.__file__).with_name(schema.SCHEMA_NAME)
    assert path.read_text(encoding="utf-8") == schema.schema_text()
    assert "version 1" in schema.shipped_schema()["title"]


def test_the_schema_refuses_other_reports() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 2, "checks": []}, schema.shipped_schema())


def test_a_real_run_passes_and_never_imports_mlx() -> None:
    code = (
        "import sys; from mtplx.main import execute\n"
        f"code = execute(['doctor', '--json', '--model', {str(demo_model_path())!r}])\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(code, sorted(names & {'mlx', 'mlx_lm', 'transformers'}))"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds = time.monotonic() - start
    text, end = done.stdout.splitlines()
    found = json.loads(text)
    jsonschema.validate(found, schema.shipped_schema())
    assert end == "0 []"
    assert found["overall"] in ("pass", "warn")
    assert [check["id"] for check in found["checks"]] == [entry.id for entry in CATALOGUE]
    assert seconds < 15


@pytest.mark.usefixtures("sound")
def test_a_sound_machine_passes_even_strictly(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, "--strict")
    assert (code, found["overall"]) == (0, "pass")


WRONG = [{"name": "float32", "error": 0.5, "bound": 1e-6}]
MIB = 2**20


class Machine:
    """The sound machine, to be harmed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.home = home
        self.patch = monkeypatch.setattr
        self.setenv = monkeypatch.setenv

    def mlx(self, **facts: Any) -> None:
        """What the probe of MLX finds."""
        self.patch(backend, "probe_backend", lambda: replace(SOUND, **facts))

    def packages(self, **versions: str) -> None:
        """Versions of installed packages, beside the real ones."""
        found = {
            **packages.read_installed(),
            **{k.replace("_", "-"): versions[k] for k in versions},
        }
        self.patch(packages, "read_installed", lambda: found)

    def model(self, damage: Callable[[Path], object]) -> None:
        """A damaged copy of the demo model as the configured one."""
        folder = Path(shutil.copytree(demo_model_path(), self.home / "model"))
        damage(folder)
        self.setenv("MTPLX_MODEL", str(folder))

    def hub(self, **facts: Any) -> None:
        """What the hub answers."""
        self.patch(hub, "read_hub", lambda: HubFacts("https://hub", **facts))


def other_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "no_such_model"}))


def without_head(harmed: Machine) -> None:
    folder = build_tiny(harmed.home / "tiny", "qwen3_5", head=False)
    harmed.setenv("MTPLX_MODEL", str(folder))


def damaged_tuning(_harmed: Machine) -> None:
    state_folder().mkdir(mode=0o700)
    file = state_folder() / TUNING
    file.touch(mode=0o600)
    file.write_text("{")


def case_name(value: object) -> str:
    return "" if callable(value) else str(value)


Harm = Callable[[Machine], object]

FAILURES: list[tuple[str, int, Harm]] = [
    (
        "python.version",
        7,
        lambda m: m.patch(machine, "read_python", lambda: Python((3, 10, 1), "CPython", True)),
    ),
    (
        "os.platform",
        7,
        lambda m: m.patch(machine, "read_platform", lambda: Platform("Windows", "AMD64", "")),
    ),
    ("mlx.conflict", 7, lambda m: m.packages(mlx_cpu="0.32.4", mlx_cuda_13="0.32.4")),
    ("packages.versions", 7, lambda m: m.packages(numpy="1.26.4")),
    ("mlx.import", 7, lambda m: m.mlx(backend=None, ending="was killed by SIGSEGV")),
    ("mlx.compute", 7, lambda m: m.mlx(products=WRONG)),
    ("kernels.self_check", 7, lambda m: m.mlx(kernels=WRONG)),
    ("config.file", 2, lambda m: (m.home / "config.toml").write_text("depth = 99\n")),
    ("state.folder", 2, lambda m: (m.home / "state").touch()),
    ("resource.memory", 8, lambda m: m.patch(machine, "read_memory", lambda: (99 * MIB, 2**34))),
    ("resource.disk", 8, lambda m: m.patch(machine, "read_disks", lambda _: {"records": 9 * MIB})),
    ("model.integrity", 3, lambda m: m.setenv("MTPLX_MODEL", str(m.home / "none"))),
    (
        "model.integrity",
        4,
        lambda m: m.model(lambda f: (f / "model-00002-of-00002.safetensors").unlink()),
    ),
    ("model.integrity", 5, lambda m: m.model(other_type)),
    ("model.memory", 8, lambda m: m.mlx(gpu_memory={"free": 1, "total": MIB})),
    ("hub.access", 11, lambda m: m.hub(problem="ConnectError")),
    ("hub.login", 11, lambda m: m.hub(login_status=401)),
]

WARNINGS: list[tuple[str, int, Harm]] = [
    ("cpu.blas", 7, lambda m: m.mlx(backend={**SOUND_CPU, "blas": None})),
    ("cpu.compiler", 7, lambda m: m.mlx(has_compiler=False)),
    ("model.contract", 4, lambda m: m.model(lambda f: write_verified(f, exactness=None))),
    ("model.tier", 5, without_head),
    ("tuning.record", 2, damaged_tuning),
    ("port.mtplx_server", 2, lambda m: m.patch(machine, "port_problem", lambda _: "in use")),
    (
        "runtime.identity",
        2,
        lambda m: m.patch(packages, "read_executables", lambda: [Executable(Path("/m"), "0.0.1")]),
    ),
    (
        "app.last_failed_start",
        1,
        lambda _: last_failure.record_failure("run", (), BackendError("MLX went away")),
    ),
]


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(("check_id", "code", "harm"), FAILURES, ids=case_name)
def test_each_failure_ends_with_its_code(
    check_id: str,
    code: int,
    harm: Harm,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harmed = Machine(monkeypatch, home)
    harmed.hub(login_status=200)
    harm(harmed)
    found_code, found = report(capsys, "--deep")
    assert (found_code, failing(found), found["overall"]) == (code, [check_id], "fail")


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(("check_id", "code", "harm"), WARNINGS, ids=case_name)
def test_each_warning_fails_strictly_with_its_code(
    check_id: str,
    code: int,
    harm: Harm,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harm(Machine(monkeypatch, home))
    lenient_code, found = report(capsys)
    assert (lenient_code, failing(found), found["overall"]) == (0, [], "warn")
    assert failing(found, status="warn") == [check_id]
    strict_code, found = report(capsys, "--strict")
    assert (strict_code, found["overall"]) == (code, "fail")


def test_every_check_has_been_seen_to_fail_or_to_warn() -> None:
    seen = [check_id for check_id, *_ in (*FAILURES, *WARNINGS)]
    assert set(seen) == {entry.id for entry in CATALOGUE}


@pytest.mark.usefixtures("sound")
def test_a_reader_sees_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "port_problem", lambda _port: "in use")
    assert execute(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "warn: port 8000: in use" in text
    assert "fix: End the program" in text
    assert "pass: CPython" in text
    assert execute(["doctor", "--quiet"]) == 0
    assert "pass: CPython" not in capsys.readouterr().out


@pytest.mark.usefixtures("sound")
def test_the_port_is_that_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MTPLX_PORT", "8123")
    monkeypatch.setattr(machine, "port_problem", lambda port: f"in use by {port}")
    assert execute(["doctor"]) == 0
    assert "warn: port 8123: in use by 8123" in capsys.readouterr().out


@pytest.mark.usefixtures("sound")
def test_hints_are_commands_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "port_problem", lambda _port: "in use")
    monkeypatch.setattr(machine, "read_disks", lambda _folders: {"records": 1000})
    assert execute(["doctor", "--fix-hints"]) == 8
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "df -h"
    assert out.splitlines()[1].endswith("8000'")


def test_json_and_hints_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["doctor", "--json", "--fix-hints"]) == 2
    assert "contradict" in capsys.readouterr().out


@pytest.mark.usefixtures("sound")
def test_a_failed_start_is_reported_until_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise BackendError("MLX went away while reading What is love?")

    command = ["run", "What is love?", "--max-tokens", "2", "--depth", "0"]
    assert execute(command, load=broken) == 7
    capsys.readouterr()
    _, found = report(capsys)
    (check,) = [row for row in found["checks"] if row["id"] == "app.last_failed_start"]
    assert check["status"] == "warn"
    assert "MLX went away" in check["observed"]
    assert "love" not in check["observed"]
    assert execute(command) == 0
    capsys.readouterr()
    assert not (state_folder() / NAME).exists()


def test_a_failure_that_cannot_be_recorded_is_still_told(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    (home / "state").touch()
    assert execute(["run", "x", "--model", str(home / "none")]) == 3
    assert "error: " in capsys.readouterr().err


@pytest.mark.usefixtures("sound")
def test_a_bundle_holds_no_secret(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    secrets = {
        "HF_TOKEN": "hf_plantedtokenplantedtoken",
        "SOME_API_KEY": "planted-key-value",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/home/planteduser")
    monkeypatch.setenv("LOGNAME", "planteduser")
    monkeypatch.setattr("socket.gethostname", lambda: "plantedhost.lan")

    def broken(*_: object, **__: object) -> Any:
        raise BackendError(
            "planted prompt: hf_plantedtokenplantedtoken planted-key-value at "
            "/home/planteduser/x on plantedhost 10.11.12.13 fe80::77:88 Bearer plantedbearer1 "
            "/srv/plantedproject/x '/srv/planted corp/x' https://plantedhub.corp/plantedorg/x?k=1 "
            "https://huggingface.co/plantedorg/x plantedmodel plantedmodel/config.json"
        )

    command = ["run", "planted prompt", "--max-tokens", "4", "--model", "plantedmodel"]
    monkeypatch.setattr("mtplx.opening.resolve_model", Path)
    assert execute(command, load=broken) == 7
    (home / "config.toml").write_text('max_tokens = "planted-setting"\nplanted_name = 1\n')
    file = tmp_path / "bundle.json"
    model = "/home/plantedhome/10.11.12.13/fe80::77:88/model"
    assert execute(["doctor", "--model", model, "--bundle", str(file)]) == 2
    data = file.read_bytes()
    assert b"10.11.12.13" not in data
    assert b"fe80::77" not in data
    assert re.findall(rb"planted[\w-]*", data) == []
    bundle = json.loads(data)
    jsonschema.validate(bundle["report"], schema.shipped_schema())
    assert bundle["config"] == {"keys": ["max_tokens"], "unknown": 1}
    assert bundle["last_failure"]["code"] == "backend"
    assert bundle["versions"]["mlx"]
    assert file.stat().st_mode & 0o077 == 0
    assert "bundle.json" in capsys.readouterr().err


def test_the_documented_checks_are_those_that_are_run() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\w+) \| (\d+)", DOCS.read_text("utf-8"), re.MULTILINE)
    expected = [(e.id, str(e.severity), str(e.error.exit_code)) for e in CATALOGUE]
    assert rows == expected
