"""Where mtplx keeps what is its own on this machine; `MTPLX_HOME` replaces the platform's folders."""

import os
from pathlib import Path

import platformdirs


def config_folder() -> Path:
    """Where `config.toml` is looked for."""
    return _home() or platformdirs.user_config_path("mtplx", False)


def state_folder() -> Path:
    """Where records of runs and measurements are kept."""
    home = _home()
    return home / "state" if home else platformdirs.user_state_path("mtplx", False)


def models_folder() -> Path:
    """Where model folders are found by their name."""
    home = _home()
    return home / "models" if home else platformdirs.user_data_path("mtplx", False) / "models"


def _home() -> Path | None:
    home = os.environ.get("MTPLX_HOME")
    return Path(home).expanduser() if home else None
