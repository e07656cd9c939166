"""Norms of loaded heads by their published names, texts, and heads that can't be calibrated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import mlx.core as mx
import pytest

from mtplx.contracts.errors import (
    CalibrationError,
    HeadMissingError,
    TokenizerMissingError,
    UsageError,
)
from mtplx.forge.calibrate.agreement import measure_agreement, read_window, score_window
from mtplx.forge.calibrate.calibration import calibrate
from mtplx.forge.calibrate.norms import head_norms
from mtplx.forge.calibrate.significance import Reason
from mtplx.forge.calibrate.texts import calibration_texts, describe, texts_from_file
from mtplx.runtime.loading.arrays import named_parameters
from mtplx.runtime.loading.folder import Precision, load
from tests.conftest import TinyFactory
from tests.support.tiny_families import FamilyName

EIGHT = {"bits": 8, "group_size": 32}
TEXT = [[(7 * i + i // 5) % 60 for i in range(40)] for _ in range(2)]


@pytest.mark.parametrize(
    ("family", "some"),
    [
        ("qwen3_5", {"pre_fc_norm_embedding.weight", "layers.0.self_attn.q_norm.weight"}),
        ("deepseek_v3", {"0.enorm.weight", "0.self_attn.kv_a_layernorm.weight"}),
        ("glm4_moe", {"0.hnorm.weight", "0.shared_head.norm.weight"}),
        ("mimo", {"0.token_layernorm.weight", "0.final_layernorm.weight"}),
    ],
)
def test_norms_have_the_names_of_the_checkpoint(
    shared_tiny: TinyFactory, family: FamilyName, some: set[str]
) -> None:
    model = load(shared_tiny(family))
    assert model.head is not None
    assert model.inspection.head_tensors is not None
    norms = head_norms(model, model.head)
    published = set(model.inspection.head_tensors.names.values())
    assert some <= set(norms.names)
    assert set(norms.names) == {n for n in published if "norm" in n}
    assert norms.names[norms.output] in (
        "norm.weight",
        "0.shared_head.norm.weight",
        "0.final_layernorm.weight",
    )


def test_shifted_gains_come_back_as_the_same_arrays_after_an_error(
    shared_tiny: TinyFactory,
) -> None:
    model = load(shared_tiny("qwen3_5"))
    assert model.head is not None
    norms = head_norms(model, model.head)
    module = model.head.module
    before = named_parameters(module)
    gain = before["embedding_norm.weight"]

    def fail_inside() -> None:
        with norms.shifted([1] * len(norms)):
            shifted = named_parameters(module)["embedding_norm.weight"]
            assert mx.allclose(shifted, gain + 1).item()
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    after = named_parameters(module)
    assert all(after[path] is before[path] for path in before)


def test_argmax_in_parts_is_that_of_the_whole(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(shared_tiny("deepseek_v3"))
    assert model.head is not None
    whole = read_window(model.trunk, TEXT[0])
    scored = score_window(model.head, whole, model.trunk, 3)
    monkeypatch.setattr("mtplx.forge.calibrate.agreement._MOST_LOGITS", 3 * model.trunk.vocab_size)
    parts = read_window(model.trunk, TEXT[0])
    assert parts.best.tolist() == whole.best.tolist()
    rescored = score_window(model.head, parts, model.trunk, 3)
    assert [h.tolist() for h in rescored] == [h.tolist() for h in scored]
    assert [len(h) for h in scored] == [39, 38, 37]


def test_an_untrained_head_is_refused(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo"))
    steps: list[float] = []
    with pytest.raises(
        CalibrationError, match=r"ways to wire the head agrees with.*expected at least 90%"
    ):
        calibrate(model, TEXT, floor=0.9, on_progress=lambda _label, done: steps.append(done))
    assert steps == sorted(steps)


def test_a_model_without_its_head_is_refused(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo"), mtp=False)
    with pytest.raises(HeadMissingError, match="no MTP head to calibrate"):
        calibrate(model, TEXT)
    with pytest.raises(HeadMissingError, match="no MTP head to measure"):
        measure_agreement(model, TEXT)


def test_texts_too_short_to_measure_are_refused(shared_tiny: TinyFactory) -> None:
    with pytest.raises(UsageError, match="9 tokens in 3 texts"):
        calibrate(load(shared_tiny("mimo")), [[1, 2, 3]] * 3)


def test_shipped_texts_cover_code_prose_and_chat(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("qwen3_5"))
    texts = calibration_texts(model)
    found = describe(texts)
    assert found["domains"] == ["chat", "code", "prose"]
    assert found["tokens"] == sum(map(len, texts)) > 2000
    assert describe([list(text) for text in texts])["sha256"] == found["sha256"]
    assert describe(texts[1:])["sha256"] != found["sha256"]


def test_chats_are_plain_text_where_there_is_no_template(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("qwen3_5", chat_template=False))
    chat = calibration_texts(model)[-1]
    assert chat.domain == "chat"
    assert model.tokenizer.decode(chat).startswith("user")


def test_texts_need_a_tokenizer(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo", tokenizer=False))
    with pytest.raises(TokenizerMissingError, match="no tokenizer to calibrate with"):
        calibration_texts(model)


def test_text_of_the_user_is_named_by_its_file(shared_tiny: TinyFactory, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("some words of mine " * 50, encoding="utf-8")
    texts = texts_from_file(load(shared_tiny("mimo")), path)
    assert describe(texts)["domains"] == ["mine.txt"]


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe\x00"])
def test_a_file_without_text_is_refused_by_name(
    shared_tiny: TinyFactory, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"mine\.txt"):
        texts_from_file(load(shared_tiny("mimo")), path)


def test_an_absent_file_is_refused(shared_tiny: TinyFactory, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read as text"):
        texts_from_file(load(shared_tiny("mimo")), tmp_path / "none.txt")


def test_a_quantised_head_is_scored_as_stored_and_left_as_it_was(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU, where nothing is widened.
    monkeypatch.setattr(
        "mtplx.runtime.loading.folder.choose_precision",
        lambda *_: Precision(None, dequantize=False),
    )
    folder = shared_tiny(
        "qwen3_5", layout="mlx", hidden=64, quantize={"bits": 4, "group_size": 32, "head": EIGHT}
    )
    model = load(folder)
    assert model.head is not None
    before = named_parameters(model.head.module)
    assert {str(w.dtype) for w in before.values()} == {"mlx.core.bfloat16", "mlx.core.uint32"}
    found = calibrate(model, TEXT, floor=0.0)
    assert len(found.agreement) == 3
    assert found.scores[0].rows == 2 * 39
    after = named_parameters(model.head.module)
    assert all(after[path] is before[path] for path in before)


def test_a_result_is_plain_json(shared_tiny: TinyFactory) -> None:
    found = calibrate(load(shared_tiny("glm4_moe")), TEXT, floor=0.0)
    told = json.loads(json.dumps(found.to_json()))
    assert told["wiring"]["concat"] == found.wiring.concat
    assert told["decided_by"].keys() == told["p_values"].keys()
    assert {"concat", "feed", "norms", "recycle", "mask_position0"} <= told["decided_by"].keys()
    assert set(told["decided_by"].values()) <= set(get_args(Reason))
    assert told["text"]["tokens"] == 80
