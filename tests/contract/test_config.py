"""Settings: the order of their sources, and the words in which wrong ones are refused."""

import json
import os
from itertools import product
from pathlib import Path

import pytest
from pydantic import ValidationError

from mtplx.config import Config, Origin, config_file
from mtplx.contracts.errors import UsageError
from mtplx.profiles import PROFILES, Profile
from mtplx.runtime.scheduler.modes import SchedulerMode


def write(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")


def refusal(**explicit: object) -> str:
    with pytest.raises(UsageError) as caught:
        Config.load(**explicit)
    assert caught.value.hint
    return caught.value.message


def test_defaults_without_any_source() -> None:
    config = Config.load()
    assert config.scheduler_mode is SchedulerMode.SERIAL
    assert (config.model, config.depth, config.acceptance) == (None, "auto", "coupled")
    assert (config.max_tokens, config.prefill_chunk) == (256, 512)


def test_each_source_overrides_the_one_before(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, 'depth = 1\nmax_tokens = 11\nmodel = "from-file"\nscheduler_mode = "hyper"\n')
    monkeypatch.setenv("MTPLX_DEPTH", "2")
    monkeypatch.setenv("MTPLX_MAX_TOKENS", "22")
    config = Config.load(depth="3", prefill_chunk=None)
    assert config.scheduler_mode is SchedulerMode.HYPER
    assert (config.model, config.max_tokens, config.depth) == ("from-file", 22, 3)
    assert config.prefill_chunk == 512


# For every key one value a source, from the weakest to the strongest; no two neighbours are equal.
SOURCES = ("file", "environment", "flag")
VALUES: dict[str, tuple[object, object, object]] = {
    "profile": ("stable", "turbo", "exact"),
    "model": ("a", "b", "c"),
    "model_dirs": (("a",), ("b",), ("c",)),
    "host": ("localhost", "127.0.0.2", "::1"),
    "port": (1, 2, 3),
    "api_key_file": ("a", "b", "c"),
    "context_window": (1, 2, 3),
    "scheduler_mode": ("hyper", "solo_mtp", "serial"),
    "depth": (2, 4, 5),
    "acceptance": ("rejection", "block", "coupled"),
    "max_tokens": (1, 2, 3),
    "prefill_chunk": (1, 2, 3),
    "kv_bits": (2, 4, 6),
    "temperature": (0.1, 0.2, 0.3),
    "top_p": (0.1, 0.2, 0.3),
    "top_k": (1, 2, 3),
}


def test_the_law_of_precedence_knows_every_key() -> None:
    assert set(VALUES) == set(Config.model_fields)
    assert all(first != second != third for first, second, third in VALUES.values())


@pytest.mark.parametrize(
    ("key", "profile"),
    [("profile", None), *product(sorted(VALUES.keys() - {"profile"}), [None, *PROFILES])],
)
def test_of_any_sources_the_strongest_decides(
    home: Path, monkeypatch: pytest.MonkeyPatch, key: str, profile: str | None
) -> None:
    """Every subset of file, variable and flag, for each key, with and without each profile below them."""
    in_profile = {} if profile is None else PROFILES[profile].options
    for given in product((False, True), repeat=3):
        said = {
            source: value
            for source, value, is_given in zip(SOURCES, VALUES[key], given, strict=True)
            if is_given
        }
        lines = [] if profile is None else [f'profile = "{profile}"']
        if "file" in said:
            lines.append(f"{key} = {json.dumps(said['file'])}")
        write(home, "\n".join(lines))
        monkeypatch.delenv(f"MTPLX_{key.upper()}", raising=False)
        if "environment" in said:
            value = said["environment"]
            text = os.pathsep.join(value) if isinstance(value, tuple) else str(value)
            monkeypatch.setenv(f"MTPLX_{key.upper()}", text)
        explicit = {key: said["flag"]} if "flag" in said else {}
        config = Config.load(**explicit)
        strongest = next((source for source in reversed(SOURCES) if source in said), None)
        expected: object = getattr(Config.model_construct(), key)
        kind = "default"
        if strongest is not None:
            expected, kind = said[strongest], strongest
        elif key in in_profile:
            expected, kind = in_profile[key], "profile"
        assert getattr(config, key) == expected, (key, said, profile)
        assert config.origins(**explicit)[key].kind == kind


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config.load().depth = 3


def test_the_home_variable_moves_the_file(home: Path) -> None:
    assert config_file() == home / "config.toml"


def test_without_the_home_variable_the_platform_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTPLX_HOME")
    assert config_file().parts[-2:] == ("mtplx", "config.toml")


@pytest.mark.parametrize(
    ("line", "key", "found"),
    [
        ("depth = 9", "depth", "9"),
        ("depth = true", "depth", "True"),
        ('depth = "deep"', "depth", "'deep'"),
        ("max_tokens = 0", "max_tokens", "0"),
        ("model = 3", "model", "3"),
        ('scheduler_mode = "fast"', "scheduler_mode", "'fast'"),
        ('acceptance = "greedy"', "acceptance", "'greedy'"),
        ('profile = "fast"', "profile", "'fast'"),
        ('profile = ["turbo"]', "profile", "['turbo']"),
        ("kv_bits = 7", "kv_bits", "7"),
        ("kv_bits = true", "kv_bits", "True"),
        ("temperature = -0.1", "temperature", "-0.1"),
        ("temperature = inf", "temperature", "inf"),
        ("top_p = 0", "top_p", "0"),
        ("top_k = 1.5", "top_k", "1.5"),
        ("model_dirs = [1]", "model_dirs", "1"),
        ('model_dirs = ["a", ""]', "model_dirs", "''"),
    ],
)
def test_a_wrong_value_in_the_file_names_file_key_and_value(
    home: Path, line: str, key: str, found: str
) -> None:
    write(home, line)
    message = refusal()
    assert f"{key!r} in {home / 'config.toml'}" in message
    assert "expected" in message
    assert message.endswith(f"found {found}")


def test_a_wrong_value_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MTPLX_PREFILL_CHUNK", "many")
    assert "MTPLX_PREFILL_CHUNK" in refusal()


def test_a_wrong_explicit_value_names_the_flag() -> None:
    assert "--max-tokens" in refusal(max_tokens=0)


def test_an_unknown_key_in_the_file_is_refused(home: Path) -> None:
    write(home, "dept = 3")
    message = refusal()
    assert "unknown setting 'dept'" in message
    assert "depth" in message


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLX_DEPHT", "3")
    assert "MTPLX_DEPHT" in refusal()


def test_an_unknown_explicit_key_is_refused() -> None:
    assert "unknown setting 'deep'" in refusal(deep=3)


@pytest.mark.parametrize("content", [b"depth = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused(home: Path, content: bytes) -> None:
    (home / "config.toml").write_bytes(content)
    assert str(home / "config.toml") in refusal()


def test_a_profile_is_stronger_than_defaults_and_weaker_than_all_else(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 'profile = "burst"\nprefill_chunk = 99\n')
    assert (Config.load().depth, Config.load().prefill_chunk) == (3, 99)
    monkeypatch.setenv("MTPLX_DEPTH", "2")
    assert Config.load().depth == 2
    assert Config.load(depth="1").depth == 1


def test_the_strongest_source_chooses_the_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 'profile = "exact"')
    assert Config.load().depth == 0
    monkeypatch.setenv("MTPLX_PROFILE", "burst")
    assert Config.load().depth == 3
    assert Config.load(profile="stable").depth == 1
    assert Config.load(profile="none").depth == "auto"


def test_an_alias_is_the_profile_it_stands_for() -> None:
    assert Config.load(profile="performance-cold") == Config.load(profile="burst")
    assert Config.load(profile="performance-cold").profile == "burst"


def test_every_value_knows_its_origin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, 'profile = "sustained"\nmax_tokens = 9\ndepth = 4\n')
    monkeypatch.setenv("MTPLX_DEPTH", "2")
    monkeypatch.setenv("mtplx_top_k", "5")
    explicit = {"acceptance": "block", "model": None}
    config = Config.load(**explicit)
    origins = config.origins(**explicit)
    assert config.top_k == 5
    assert origins["kv_bits"] == Origin("profile", "sustained")
    assert origins["max_tokens"] == Origin("file", str(home / "config.toml"))
    assert origins["depth"] == Origin("environment", "MTPLX_DEPTH")
    assert origins["top_k"] == Origin("environment", "mtplx_top_k")
    assert origins["acceptance"] == Origin("flag", "--acceptance")
    assert origins["model"] == Origin("default", "")


def test_a_list_of_folders_is_an_array_in_the_file_and_like_path_in_a_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 'model_dirs = ["a", "b c"]')
    assert Config.load().model_dirs == ("a", "b c")
    monkeypatch.setenv("MTPLX_MODEL_DIRS", os.pathsep.join(["x", "y"]))
    assert Config.load().model_dirs == ("x", "y")


def test_numbers_of_variables_are_read_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLX_KV_BITS", "4")
    monkeypatch.setenv("MTPLX_TEMPERATURE", "0.7")
    assert (Config.load().kv_cache_bits, Config.load().temperature) == (4, 0.7)
    assert Config.load(kv_bits="off").kv_cache_bits is None


def test_the_limits_of_settings_are_those_of_the_engine() -> None:
    from mtplx.runtime.caches.quantized import KV_BITS
    from mtplx.runtime.decode.depth import MAX_DEPTH
    from mtplx.runtime.decode.options import GenerationOptions
    from mtplx.runtime.sampling.acceptance import ACCEPTANCE_NAMES

    assert [Config.load(kv_bits=bits).kv_bits for bits in KV_BITS] == list(KV_BITS)
    assert Config.load(depth=MAX_DEPTH).depth == MAX_DEPTH
    refusal(depth=MAX_DEPTH + 1)
    assert all(Config.load(acceptance=name).acceptance == name for name in ACCEPTANCE_NAMES)
    for key in ("depth", "acceptance", "max_tokens", "prefill_chunk"):
        assert getattr(Config.load(), key) == getattr(GenerationOptions(), key)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_a_profile_sets_nothing_but_settings_and_values_they_take(profile: Profile) -> None:
    config = Config.load(profile=profile.name)
    assert profile.options
    assert not profile.options.keys() & {"profile", "model", "model_dirs"}
    assert {key: getattr(config, key) for key in profile.options} == dict(profile.options)
    assert config.model_copy(update=Config().model_dump()) == Config()


def test_no_two_profiles_are_the_same() -> None:
    resolved = [Config.load(profile=name).model_dump(exclude={"profile"}) for name in PROFILES]
    assert all(resolved.count(values) == 1 for values in resolved)
