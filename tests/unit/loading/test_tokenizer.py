"""Tokenizer, chat template and end tokens come from every place they may be in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import ChatTemplateMissingError, TokenizerMissingError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.loading.folder import load, read_sampler_defaults
from mtplx.runtime.request import sampling_params
from tests.support import disk as damage
from tests.support.tiny_tokenizer import CHAT_TEMPLATE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

HELLO = [{"role": "user", "content": "hello"}]


def test_a_template_in_its_own_file_is_used(tiny: TinyFactory) -> None:
    inside, beside = load(tiny("mimo")), load(tiny("mimo", chat_template="jinja"))
    assert beside.encode_prompt(HELLO) == inside.encode_prompt(HELLO)
    assert len(inside.encode_prompt(HELLO)) > len(inside.encode_prompt("hello", raw=True))


def test_the_file_goes_before_the_entry_in_the_config(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "a")
    with_file = load(folder).encode_prompt(HELLO)
    (folder / "chat_template.jinja").unlink()
    assert len(with_file) == len(load(folder).encode_prompt(HELLO)) + 1


def test_without_a_template_raw_prompts_work_and_chats_are_refused(tiny: TinyFactory) -> None:
    folder = tiny("mimo", chat_template=False)
    model = load(folder)
    assert model.generate("hello", raw=True, max_tokens=3, depth=1).token_ids
    for prompt in ("hello", HELLO):
        with pytest.raises(ChatTemplateMissingError, match="chat_template") as caught:
            model.generate(prompt, max_tokens=3)
        assert caught.value.exit_code == 3
        assert "--raw" in caught.value.hint
        assert str(folder) in caught.value.message


def test_a_template_that_refuses_messages_says_why(tiny: TinyFactory) -> None:
    folder = tiny("mimo", chat_template="jinja")
    refusal = "{{ raise_exception('roles must alternate') }}"
    (folder / "chat_template.jinja").write_text(refusal)
    with pytest.raises(ChatTemplateMissingError, match="roles must alternate"):
        load(folder).encode_prompt(HELLO)


def test_without_a_tokenizer_token_ids_work_and_text_is_refused(tiny: TinyFactory) -> None:
    model = load(tiny("mimo", tokenizer=False))
    done = model.generate([1, 2, 3], max_tokens=5, depth=2, ignore_end_tokens=True)
    assert len(done.token_ids) == 5
    assert done.text == ""
    for prompt, raw in (("hello", False), ("hello", True), (HELLO, False)):
        with pytest.raises(TokenizerMissingError, match="no tokenizer") as caught:
            model.generate(prompt, raw=raw)
        assert caught.value.exit_code == 3
        assert "tokenizer.json" in caught.value.hint


def test_an_unreadable_tokenizer_is_named(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerMissingError, match="tokenizer"):
        load(folder)


def test_end_tokens_of_all_sources_end_an_answer(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    damage.edit_json(folder / "config.json", {"eos_token_id": 1})
    damage.edit_json(folder / "generation_config.json", {"eos_token_id": [1, 5]})
    model = load(folder)
    in_tokenizer = model.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert set(model.eos_token_ids) == {1, 5, in_tokenizer}
    for end in model.eos_token_ids:
        done = model.generate("hi", max_tokens=9, temperature=0, depth=2, logit_bias={end: 60.0})
        assert done.token_ids == (end,)
        assert done.finish_reason == "stop"
        assert done.text == ""


def test_sampling_defaults_come_from_the_folder(tiny: TinyFactory) -> None:
    folder: Path = tiny("mimo")
    assert read_sampler_defaults(folder) == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    damage.edit_json(folder / "generation_config.json", {"repetition_penalty": 1.2})
    model = load(folder)
    assert sampling_params(model, GenerationOptions()).repetition_penalty == 1.2
    chosen = GenerationOptions(repetition_penalty=1.0, temperature=0.0)
    assert sampling_params(model, chosen).repetition_penalty == 1.0
    assert sampling_params(model, chosen).temperature == 0.0
    assert sampling_params(model, chosen).top_k == 20
    damage.edit_json(folder / "generation_config.json", {"do_sample": False})
    assert read_sampler_defaults(folder) == {}
    (folder / "generation_config.json").unlink()
    assert read_sampler_defaults(folder) == {}
