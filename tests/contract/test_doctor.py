"""`mtplx doctor`: its report, schema, exit codes, hints and bundle."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mtplx.contracts.errors import BackendError
from mtplx.contracts.folders import state_folder
from mtplx.demo import demo_model_path
from mtplx.main import execute
from mtplx.runtime.diagnostics import backend, machine, schema
from mtplx.runtime.diagnostics.backend import BackendFacts
from mtplx.runtime.diagnostics.catalogue import CATALOGUE
from mtplx.runtime.diagnostics.last_failure import NAME

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"

SOUND = BackendFacts(
    backend={
        "kind": "cpu",
        "device": "cpu",
        "mlx_version": "0.32.4",
        "blas": {"name": "mkl", "path": "libmkl_rt.so"},
        "notes": [],
    },
    products=[{"name": "float32", "error": 0.0, "bound": 1e-6}],
    kernels=[{"name": "few_rows", "error": 0.0, "bound": 1e-6}],
)


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which all that does not depend on the folders of the test is well."""
    monkeypatch.setattr(backend, "probe_backend", lambda: SOUND)
    monkeypatch.setattr(machine, "port_problem", lambda _port: None)
    monkeypatch.setattr("mtplx.runtime.diagnostics.packages.read_executables", _only_this_one)


def _only_this_one() -> list[Any]:
    from mtplx.runtime.diagnostics.packages import Executable
    from mtplx.version import __version__

    return [Executable(Path("/opt/bin/mtplx"), __version__)]


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


def no_mlx(monkeypatch: pytest.MonkeyPatch, _home: Path) -> None:
    facts = BackendFacts(ending="killed by SIGSEGV")
    monkeypatch.setattr(backend, "probe_backend", lambda: facts)


def bad_config(_monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "config.toml").write_text("depth = 99\n")


def bad_state(_monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "state").touch()


def no_memory(monkeypatch: pytest.MonkeyPatch, _home: Path) -> None:
    monkeypatch.setattr(machine, "read_memory", lambda: (1000, 2**34))


def no_disk(monkeypatch: pytest.MonkeyPatch, _home: Path) -> None:
    monkeypatch.setattr(machine, "read_disks", lambda _folders: {"records": 1000})


def no_model(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("MTPLX_MODEL", str(home / "none"))


def two_back_ends(monkeypatch: pytest.MonkeyPatch, _home: Path) -> None:
    from mtplx.runtime.diagnostics import packages

    both = {**packages.read_installed(), "mlx-cpu": "0.32.4", "mlx-cuda-13": "0.32.4"}
    monkeypatch.setattr(packages, "read_installed", lambda: both)


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    ("harm", "check_id", "code"),
    [
        (two_back_ends, "mlx.conflict", 7),
        (no_mlx, "mlx.import", 7),
        (bad_config, "config.file", 2),
        (bad_state, "state.folder", 2),
        (no_memory, "resource.memory", 8),
        (no_disk, "resource.disk", 8),
        (no_model, "model.integrity", 3),
    ],
)
def test_each_failure_ends_with_its_code(
    harm: Callable[[pytest.MonkeyPatch, Path], None],
    check_id: str,
    code: int,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harm(monkeypatch, home)
    found_code, found = report(capsys)
    assert (found_code, failing(found), found["overall"]) == (code, [check_id], "fail")


@pytest.mark.usefixtures("sound")
def test_strict_lets_a_warning_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "port_problem", lambda _port: "in use")
    assert report(capsys)[0] == 0
    code, found = report(capsys, "--strict")
    assert (code, found["overall"]) == (2, "fail")
    assert failing(found, status="warn") == ["port.mtplx_server"]


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
            "/home/planteduser/x on plantedhost 10.11.12.13 fe80::77:88 Bearer plantedbearer1"
        )

    assert execute(["run", "planted prompt", "--max-tokens", "4"], load=broken) == 7
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
