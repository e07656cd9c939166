"""Whatever a stranger writes into one field of a contract, it is judged and never a traceback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.contracts.errors import CorruptModelError, MTPLXError, UnsupportedModelError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Tier, inspect_folder
from mtplx.contracts.runtime_contract import read_contract, write_contract
from tests.support.contracts import verified_contract
from tests.support.header_models import (
    config_of,
    mimo_head_names,
    trunk_names,
    write_model,
)

if TYPE_CHECKING:
    from pathlib import Path

Steps = tuple[str | int, ...]

words = st.text(max_size=6) | st.sampled_from(
    ["pre", "mimo-mtp", "\ud800", "a" * 64, "1.0", "../x"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [*trunk_names(2), *mimo_head_names()]
    return write_model(tmp_path_factory.mktemp("model"), config_of("mimo"), names)


@pytest.fixture(scope="module")
def contract(folder: Path) -> dict[str, Any]:
    """A verified contract with something in every part."""
    complete = verified_contract(
        folder,
        mtplx_version="0.1.0",
        min_engine_version="0.1.0",
        labels=["label"],
        recommended_generation_mode="mtp",
        recommended_profile="sustained",
        sampler={"temperature": 0.6, "top_p": 0.9, "top_k": 20},
        mtp_contract={"base_hidden_variant": "post_norm", "hidden_variant": "post_norm"},
        calibration={"wiring": {"feed": "post"}, "norm_shift": {"0.norm.weight": 1}, "scores": []},
        exactness_baseline={"tokens": 1},
        verified_on={"device": "cpu"},
        forge_provenance={"source_repo": "a/b", "versions": {"mlx": "1"}, "forged_locally": True},
        vision=None,
        unknown={"key": [1, {"a": None}]},
    )
    (folder / CONTRACT_NAME).write_text(json.dumps(complete))
    assert inspect_folder(folder).tier is Tier.VERIFIED
    return complete


def places(value: Any, steps: Steps = ()) -> list[Steps]:
    """Where every value inside ``value`` is."""
    found = [steps] if steps else []
    if isinstance(value, dict):
        return found + [place for k, v in value.items() for place in places(v, (*steps, k))]
    if isinstance(value, list):
        return found + [place for k, v in enumerate(value) for place in places(v, (*steps, k))]
    return found


def judge(folder: Path, contract: Any) -> None:
    """Inspection answers, its account is JSON, and what was read can be written."""
    (folder / CONTRACT_NAME).write_text(json.dumps(contract))
    found = inspect_folder(folder)
    json.dumps(found.to_json(), allow_nan=False).encode()
    assert found.error is None or isinstance(found.error, CorruptModelError | UnsupportedModelError)
    str(found.error).encode()
    try:
        read = read_contract(folder)
    except MTPLXError:
        return
    assert read is not None
    write_contract(folder, read)
    assert read_contract(folder) == read


@given(data=st.data(), value=values)
@settings(max_examples=400)
def test_any_value_in_any_field(
    folder: Path, contract: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    changed = json.loads(json.dumps(contract))
    *steps, last = data.draw(st.sampled_from(places(contract)))
    target = changed
    for step in steps:
        target = target[step]
    if data.draw(st.booleans()):
        target[last] = value
    else:
        del target[last]
    judge(folder, changed)


@given(extra=st.dictionaries(words, values, max_size=3), data=st.data())
@settings(max_examples=100)
def test_any_key_in_any_part(
    folder: Path, contract: dict[str, Any], extra: dict[str, Any], data: st.DataObject
) -> None:
    parts = [name for name, part in contract.items() if isinstance(part, dict)]
    part = data.draw(st.sampled_from(parts))
    judge(folder, {**contract, part: {**contract[part], **extra}})


@given(content=st.binary(max_size=60))
def test_any_bytes(folder: Path, content: bytes) -> None:
    (folder / CONTRACT_NAME).write_bytes(content)
    assert isinstance(inspect_folder(folder).error, MTPLXError) or content.strip().startswith(b"{")
