"""On a GPU, in the stored types: MTP text is plain text apart from numeric ties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtplx.demo import demo_model_path
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.support.checkpoints import TRAINED, require_checkpoint
from tests.support.prompts import CHAT, CODE
from tests.support.ties import first_difference, top_two_gap
from tests.support.tiny import build_tiny

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(mx.default_device() != mx.gpu, reason="no GPU"),
]

DEPTHS = (1, 2, 3, 5)
TOKENS = 64
# Steps of bfloat16 by which sums of another order may move two logits apart.
ROUNDINGS = 6


def _tolerance(model: Model, prompt: list[int]) -> float:
    hidden = model.trunk.forward(mx.array([prompt]), model.trunk.make_caches())
    logits = model.trunk.logits(hidden.after_norm[:, -1:])
    largest = float(mx.abs(logits.astype(mx.float32)).max().item())  # type: ignore[arg-type]
    return ROUNDINGS * 2**-8 * largest


def _check(model: Model, prompts: list[list[int]], **options: Any) -> int:
    ties = 0
    for prompt in prompts:
        common = {"max_tokens": TOKENS, "ignore_end_tokens": True, **options}
        plain = model.generate(prompt, depth=0, **common)
        for depth in DEPTHS:
            found = model.generate(prompt, depth=depth, **common)
            index = first_difference(plain.token_ids, found.token_ids)
            if index is not None:
                gap = top_two_gap(model, prompt, plain.token_ids[:index], **common)
                print(f"{model.name} depth {depth}: token {index}, gap {gap:.4f}")
                assert gap <= _tolerance(model, prompt)
                ties += 1
    return ties


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 0.7, "seed": 3}])
def test_demo_model(options: dict[str, Any]) -> None:
    model = load(demo_model_path())
    prompts = [model.encode_prompt(text, raw=True) for text in CODE[:3]]
    prompts += [model.encode_prompt(text) for text in CHAT[:3]]
    print("ties:", _check(model, prompts, **options))


@pytest.mark.parametrize("family", TRAINED)
def test_trained_checkpoints(family: Any) -> None:
    model = load(require_checkpoint(family))
    prompts = [model.encode_prompt(text) for text in CHAT[:3]]
    print("ties:", _check(model, prompts, temperature=0.0))


@pytest.mark.parametrize(
    "family", ["qwen3_5", "qwen3_5_moe", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo"]
)
def test_tiny_families_in_float32(tmp_path: Path, family: Any) -> None:
    model = load(build_tiny(tmp_path / family, family, dtype="F32"))
    print("ties:", _check(model, [[3, 1, 4, 1, 5]], temperature=0.0))
