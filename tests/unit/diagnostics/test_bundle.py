"""What a bundle says of models, and what it does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mtplx.contracts.errors import ModelNotFoundError, MTPLXError, UsageError
from mtplx.runtime.diagnostics import model
from mtplx.runtime.diagnostics.bundle import make_bundle, read_config_keys
from mtplx.runtime.diagnostics.catalogue import passed
from mtplx.runtime.diagnostics.last_failure import LastFailure
from mtplx.runtime.diagnostics.redaction import Redactor
from mtplx.runtime.diagnostics.report import Check, Report

REDACTOR = Redactor(home="", users=(), hosts=(), secrets=())


def bundled(*checks: Check, models: tuple[str, ...] = (), failed: str | None = None) -> Any:
    failure = LastFailure(
        time=datetime(2026, 1, 2, tzinfo=UTC),
        command="run",
        code="corrupt_model",
        exit_code=4,
        message=f"{failed}/config.json is damaged",
        model=failed,
    )
    return make_bundle(
        Report.of(checks, version="1", deep=False, strict=False),
        installed={"mlx": "0.32.4", "acme-tools": "1"},
        config_keys={},
        last_failure=None if failed is None else failure,
        models=models,
        redactor=REDACTOR,
    )


@pytest.mark.parametrize(
    "error",
    [
        ModelNotFoundError("acme/secret does not exist, and acme/secret is no model here"),
        UsageError("secret can mean acme/secret or other/secret.", hint="Say acme/secret."),
    ],
)
def test_names_of_models_are_left_out(error: MTPLXError) -> None:
    bundle = bundled(*model.unusable(error), models=("acme/secret",), failed="acme/older secret")
    text = json.dumps(bundle)
    assert "acme" not in text
    assert "secret" not in text
    assert bundle["last_failure"]["message"] == "<model>/config.json is damaged"


def test_a_model_named_like_a_word_leaves_other_checks_alone() -> None:
    bundle = bundled(
        passed("model.tier", "CPython of mlx"), passed("mlx.import", "mlx"), models=("mlx",)
    )
    observed = [check["observed"] for check in bundle["report"]["checks"]]
    assert observed == ["CPython of <model>", "mlx"]


@pytest.mark.parametrize("name", ["~nobody-has-this-name/acme", "", ".", "/"])
def test_any_name_of_a_model_can_be_bundled(name: str) -> None:
    bundle = bundled(passed("model.tier", "all is well."), models=(name,))
    assert bundle["report"]["checks"][0]["observed"] == "all is well."


def test_packages_that_are_not_ours_are_left_out() -> None:
    assert "acme-tools" not in bundled()["versions"]
    assert bundled()["versions"]["mlx"] == "0.32.4"


@pytest.mark.parametrize("text", ["depth = ", "\x00"])
def test_settings_that_cannot_be_read_have_no_names(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert read_config_keys(file, {"depth"}) == {"keys": None, "unknown": None}


def test_settings_are_counted_without_values(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert read_config_keys(file, {"depth"}) == {"keys": [], "unknown": 0}
    file.write_text("depth = 2\nsecret_name = 1\n")
    assert read_config_keys(file, {"depth", "model"}) == {"keys": ["depth"], "unknown": 1}
