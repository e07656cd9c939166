"""Trained heads agree with their trunks as often as when they were trained."""

from __future__ import annotations

import pytest

from mtplx.forge.calibrate.agreement import measure_agreement
from mtplx.runtime.loading.folder import load
from tests.support.chat_prompts import CHAT_PROMPTS
from tests.support.chat_texts import library_chats, tool_chats
from tests.support.checkpoints import (
    CHAT_AGREEMENT,
    TRAINED,
    TrainedName,
    require_checkpoint,
    trained_wiring,
)

POINTS = 0.03
# One tool chat to six function chats, as in training.
CHATS = library_chats()[::20]
TOOL_CHATS = tool_chats(len(CHATS) // 6)


@pytest.mark.parametrize("family", TRAINED)
def test_depth_one_agreement_on_chat_is_that_of_training(family: TrainedName) -> None:
    model = load(require_checkpoint(family), wiring=trained_wiring(family))
    template = model.tokenizer.apply_chat_template
    texts = [template(messages) for messages in CHATS]
    texts += [template(chat.messages, tools=chat.tools) for chat in TOOL_CHATS]
    (found,) = measure_agreement(model, texts, depths=1)
    print(f"{family}: {found:.3f}, trained {CHAT_AGREEMENT[family]:.3f}")
    assert abs(found - CHAT_AGREEMENT[family]) <= POINTS


@pytest.mark.parametrize("family", TRAINED)
def test_decoding_accepts_at_least_what_the_head_agrees_on(family: TrainedName) -> None:
    # Greedy text of the model itself is easier to foresee than text by people.
    model = load(require_checkpoint(family))
    drafted = accepted = 0
    for prompt in CHAT_PROMPTS[::4]:
        stats = model.generate(prompt, temperature=0.0, depth=1, max_tokens=64).stats
        drafted += stats.drafted_by_depth[0]
        accepted += stats.accepted_by_depth[0]
    print(f"{family}: {accepted} of {drafted}, {accepted / drafted:.3f}")
    assert accepted / drafted >= CHAT_AGREEMENT[family] - POINTS


def test_wrong_concat_order_is_seen_in_agreement() -> None:
    import dataclasses

    wiring = dataclasses.replace(trained_wiring("mimo"), concat="embedding_hidden")
    model = load(require_checkpoint("mimo"), wiring=wiring)
    texts = [model.tokenizer.apply_chat_template(messages) for messages in CHATS[:10]]
    assert measure_agreement(model, texts, depths=1)[0] < 0.2
