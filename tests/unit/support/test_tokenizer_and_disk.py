from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from mlx_lm.utils import load_tokenizer
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tests.support import disk
from tests.support.prompts import CHAT, CODE, PROMPTS, PROSE
from tests.support.scripted import END_IDS, ScriptedTokenizer, bursts, byte_tokens, scripted_logits
from tests.support.tensorfile import read_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import TinyFactory

# transformers says so about every published configuration that holds the key.
pytestmark = pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")

HARD_TEXT = "é 漢 👩‍💻 \ufffd\n\tplain\x00"


@pytest.mark.parametrize("vocab", [64, 128, 260, 512])
def test_tokenizer_stays_inside_the_vocabulary(tiny: TinyFactory, vocab: int) -> None:
    tokenizer = load_tokenizer(tiny("mimo", vocab=vocab))
    assert len(tokenizer.get_vocab()) == vocab
    for prompt in PROMPTS:
        if isinstance(prompt, str):
            ids = tokenizer.encode(prompt)
            assert tokenizer.decode(ids).lower() == prompt.lower() or vocab < 260
        else:
            ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True)
            assert vocab - 3 in ids
        assert ids
        assert 0 <= min(ids) <= max(ids) < vocab


def test_end_tokens_come_from_all_three_places(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == 62
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [62, 60]
    assert load_tokenizer(folder).eos_token_id == 62


def test_chat_template_may_be_absent_or_in_its_own_file(tiny: TinyFactory) -> None:
    assert load_tokenizer(tiny("mimo", chat_template=False)).chat_template is None
    folder = tiny("mimo", chat_template="jinja")
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text())
    assert load_tokenizer(folder).chat_template
    assert not (tiny("mimo", tokenizer=False) / "tokenizer.json").exists()


def test_scripted_tokens_are_the_bytes_of_the_text() -> None:
    tokenizer = ScriptedTokenizer()
    ids = byte_tokens(HARD_TEXT)
    assert tokenizer.encode(HARD_TEXT) == ids
    assert tokenizer.decode(ids) == HARD_TEXT
    assert tokenizer.eos_token_id == END_IDS[0] == 258
    assert tokenizer.encode("a<|im_end|>") == [97, 258]
    for width in range(1, 5):
        groups = list(bursts(ids, width))
        assert [i for group in groups for i in group] == ids
        assert {len(group) for group in groups[:-1]} <= {width}


def test_scripted_logits_choose_the_script() -> None:
    assert scripted_logits([5, 0, 63], 64).argmax(-1).tolist() == [5, 0, 63]


def test_there_are_twenty_different_prompts() -> None:
    assert len(PROMPTS) == len({str(prompt) for prompt in PROMPTS}) == 20
    assert len(CODE) + len(PROSE) + len(CHAT) == 20


@pytest.mark.parametrize(
    "damage",
    [
        disk.truncate,
        disk.append_bytes,
        disk.overlap_tensors,
        disk.leave_hole,
        lambda path: disk.claim_header_size(path, 2**40),
        lambda path: disk.claim_shape(path, disk.find_tensor(path.parent, "norm")[1], (3, 5)),
        lambda path: disk.claim_dtype(path, disk.find_tensor(path.parent, "norm")[1], "F32"),
    ],
)
def test_damaged_files_are_refused_by_the_safetensors_library(
    tiny: TinyFactory, damage: Callable[[Path], object]
) -> None:
    path = disk.shard_files(tiny("mimo"))[0]
    damage(path)
    with pytest.raises(SafetensorError):
        load_file(path)


def test_removed_tensors_leave_files_and_index_consistent(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    removed = disk.remove_tensors(folder, lambda name: ".mtp_layers." in name)
    assert len(removed) == 16
    left = {name for path in disk.shard_files(folder) for name in read_values(path)}
    assert not any("mtp" in name for name in left)
    assert set(disk.read_json(folder / disk.INDEX)["weight_map"]) == left


def test_poison_reaches_exactly_the_named_tensor(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    name = disk.poison_with_nan(folder, r"lm_head\.weight")
    values = {n: v for path in disk.shard_files(folder) for n, v in read_values(path).items()}
    assert [n for n, v in values.items() if np.isnan(v).any()] == [name]
    with pytest.raises(LookupError):
        disk.poison_with_nan(folder, "no_such_tensor")


def test_shards_can_be_dropped_renamed_and_added(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    assert disk.drop_shard(folder).name == "model-00002-of-00002.safetensors"
    assert disk.rename_shard(folder, 1).name == "model-00001-of-00002.safetensors"
    assert (folder / "weights-b.safetensors").exists()
    whole = tiny("mimo")
    assert disk.add_stray_shard(whole) in disk.shard_files(whole)
    disk.edit_json(whole / "config.json", {"vocab_size": 65, "hidden_act": ...})
    config = disk.read_json(whole / "config.json")
    assert config["vocab_size"] == 65
    assert "hidden_act" not in config
