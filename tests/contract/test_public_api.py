"""What `import mtplx` promises."""

import subprocess
import sys

import pytest

import mtplx
from mtplx.demo import demo_model_path


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_the_declared_names_are_sorted_and_there() -> None:
    assert list(mtplx.__all__) == sorted(mtplx.__all__)
    for name in mtplx.__all__:
        assert getattr(mtplx, name) is not None
    assert set(mtplx.__all__) <= set(dir(mtplx))


def test_each_name_comes_from_where_it_is_declared() -> None:
    assert mtplx.load.__module__ == "mtplx.runtime.loading.folder"
    assert mtplx.MTPLXError.__module__ == "mtplx.contracts.errors"


def test_an_undeclared_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        mtplx.lode  # noqa: B018


@pytest.mark.parametrize(
    "module",
    ["mtplx", "mtplx.main", "mtplx.config", "mtplx.contracts.errors", "mtplx.contracts.inspection"],
)
def test_importing_loads_no_mlx(module: str) -> None:
    heavy = "('mlx', 'mlx_lm', 'transformers', 'numpy')"
    code = f"import sys, {module}; print(*[m for m in {heavy} if m in sys.modules])"
    assert run_python(code) == ""


def test_help_needs_neither_settings_nor_progress_bars() -> None:
    code = "import sys, mtplx.main; print('pydantic_settings' in sys.modules)"
    assert run_python(code) == "False"


def test_the_demo_model_is_bundled() -> None:
    names = {file.name for file in demo_model_path().iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors.index.json"} <= names
    assert "reference.safetensors" not in names
