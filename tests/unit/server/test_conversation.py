"""Conversations become the prompt that the model's own template writes, or are refused by the name of what is wrong."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import ChatTemplateMissingError, InvalidRequestError
from mtplx.runtime.loading.tokenizer import load_tokenizer
from mtplx.runtime.server import chat_template
from mtplx.runtime.server.conversation import Conversation, Rendered, render
from tests.support.checkpoints import require_checkpoint
from tests.unit.server.chat_models import ADD, QWEN3, TEMPLATES, TOOLS, WEATHER, make_model

if TYPE_CHECKING:
    from mtplx.runtime.server.served import ServedModel

THINKING = ("qwen3", "glm", "deepseek")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ServedModel]:
    """A model for each template."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: make_model(
            folder / name, text, special=("<think>", "</think>") if name in THINKING else ()
        )
        for name, text in TEMPLATES.items()
    }


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def call(arguments: Any, name: str = "get_weather") -> dict[str, Any]:
    return {
        "id": "abc123def",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "abc123def", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def prompt_of(model: ServedModel, *messages: dict[str, Any], **more: Any) -> str:
    """The prompt as text."""
    return decoded(model, render(Conversation(messages=messages, **more), model).ids)


def decoded(model: ServedModel, ids: list[int]) -> str:
    return str(model.tokenizer.decode(ids))


def refusal(model: ServedModel, *messages: dict[str, Any], **more: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        render(Conversation(messages=messages, **more), model)
    assert caught.value.key.removesuffix(".type") in str(caught.value)
    return caught.value


LONG_RESULT = "\n".join(
    f"{n:4}: def f_{n}(x): return x * {n}  # </think> “ü” \t" for n in range(300)
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_prompt_is_what_the_template_writes_for_what_was_sent(
    name: str, models: dict[str, ServedModel]
) -> None:
    model = models[name]
    tools = None if name == "chatml" else TOOLS
    arguments: Any = {"city": "Oslo"}
    if name == "deepseek":
        arguments = json.dumps(arguments)
    messages = [
        system("Be brief."),
        user("Weather?\n"),
        assistant("", tool_calls=[call(arguments)]),
        result(LONG_RESULT),
        assistant("Sunny."),
        user("And <b>now</b>?"),
    ]
    if name == "chatml":
        del messages[2:4]
    got = render(Conversation(messages=messages, tools=tools or ()), model)
    wanted = model.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True)
    assert got.ids == wanted
    if name != "chatml":
        lines = decoded(model, got.ids)
        assert LONG_RESULT in lines or json.dumps(LONG_RESULT, ensure_ascii=False) in lines


def test_a_trained_checkpoint_gets_the_same_prompt_as_from_its_tokenizer(
    models: dict[str, ServedModel],
) -> None:
    tokenizer = load_tokenizer(require_checkpoint("qwen3_5"), ())
    model = dataclasses.replace(models["qwen3"], tokenizer=tokenizer)
    sent = '{"city":"Oslo"}'
    messages = [
        system("Be brief."),
        user("Weather?"),
        assistant(None, tool_calls=[call(sent)]),
        result(LONG_RESULT),
    ]
    got = render(Conversation(messages=messages, tools=[WEATHER]), model)
    wanted = tokenizer.apply_chat_template(messages, tools=[WEATHER], add_generation_prompt=True)
    assert got.ids == wanted
    assert sent in decoded(model, got.ids)
    assert len(got.checkpoints) == 2
    # Its tokenizer knows the markers of reasoning, and its template does not use them.
    assert not got.may_reason


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"chatml"}))
def test_arguments_sent_as_text_are_rendered_as_the_template_wants_them(
    name: str, models: dict[str, ServedModel]
) -> None:
    def rendered(arguments: Any) -> Rendered:
        messages = [user("Weather?"), assistant(None, tool_calls=[call(arguments)]), result("ok")]
        return render(Conversation(messages=messages, tools=TOOLS), models[name])

    as_text, as_object = rendered('{"city": "Oslo"}'), rendered({"city": "Oslo"})
    assert as_text.ids == as_object.ids
    text = decoded(models[name], as_text.ids)
    assert "Oslo" in text
    assert '\\"city\\"' not in text
    changed = any("arguments of tool calls are an object" in note for note in as_text.notes)
    assert changed == (name not in ("qwen3", "deepseek"))


def test_text_arguments_keep_their_bytes_where_the_template_takes_text(
    models: dict[str, ServedModel],
) -> None:
    sent = '{ "city":"Oslo" }'
    assert sent in prompt_of(
        models["qwen3"], user("a"), assistant("", tool_calls=[call(sent)]), tools=TOOLS
    )


def test_text_parts_are_joined_and_a_note_says_so(models: dict[str, ServedModel]) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    got = render(Conversation(messages=[user(parts), user(parts)]), models["chatml"])
    assert decoded(models["chatml"], got.ids).count("one two<|im_end|>") == 2
    assert got.notes == ("text parts are joined (messages 0, 1)",)


def test_null_content_beside_a_call_is_empty_text(models: dict[str, ServedModel]) -> None:
    messages = [user("a"), assistant(None, tool_calls=[call("{}")]), result("b")]
    got = render(Conversation(messages=messages, tools=TOOLS), models["qwen3"])
    assert got.notes == ("missing content is empty text (messages 1)",)
    assert "None" not in decoded(models["qwen3"], got.ids)


def test_a_developer_is_the_system_where_the_template_has_none(
    models: dict[str, ServedModel],
) -> None:
    message = {"role": "developer", "content": "Be brief."}
    got = render(Conversation(messages=[message, user("a")]), models["qwen3"])
    assert decoded(models["qwen3"], got.ids).startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert got.notes == ("developer is read as system (messages 0)",)
    assert "Be brief." in prompt_of(models["llama"], message, user("a"))
    assert render(Conversation(messages=[message, user("a")]), models["llama"]).notes == ()


@pytest.mark.parametrize(
    ("name", "messages", "key", "reason"),
    [
        ("qwen3", [user("a"), system("b"), user("c")], "messages[1]", "at the beginning"),
        ("qwen3", [system("a"), system("b"), user("c")], "messages[1]", "at the beginning"),
        ("mistral", [user("a"), user("b")], "messages[1]", "must alternate"),
        ("llama", [user("a"), system("b"), user("c")], "", ""),
        ("deepseek", [user("a"), system("b"), user("c")], "", ""),
    ],
)
def test_an_order_that_a_template_refuses_is_named_by_its_message(
    name: str,
    messages: list[dict[str, Any]],
    key: str,
    reason: str,
    models: dict[str, ServedModel],
) -> None:
    if not key:
        assert "b" in prompt_of(models[name], *messages)
        return
    error = refusal(models[name], *messages)
    assert error.key == key
    assert reason in error.message


@pytest.mark.parametrize(
    "messages",
    [
        [user("a"), system("Only French."), user("b")],
        [system("a"), system("Only French."), user("b")],
    ],
)
def test_a_message_that_the_template_leaves_out_is_refused(
    messages: list[dict[str, Any]], tmp_path: Path
) -> None:
    silent = QWEN3.replace("{{- raise_exception('System message must be at the beginning.') }}", "")
    error = refusal(make_model(tmp_path / "silent", silent), *messages)
    assert error.key == "messages[1].content"
    assert "leaves out a system message" in error.message


def test_a_message_is_missed_even_where_its_words_stand_elsewhere(tmp_path: Path) -> None:
    silent = QWEN3.replace("{{- raise_exception('System message must be at the beginning.') }}", "")
    messages = [user("a"), system("b"), user("b")]
    assert refusal(make_model(tmp_path / "m", silent), *messages).key == "messages[1].content"


def test_a_note_says_what_the_template_leaves_out_of_an_answer(
    models: dict[str, ServedModel],
) -> None:
    messages = [user("a"), assistant("I look.", tool_calls=[call("{}")]), result("c")]
    got = render(Conversation(messages=messages, tools=TOOLS), models["mistral"])
    assert "the chat template leaves out what the assistant said (messages 1)" in got.notes


def test_the_message_is_named_though_the_beginning_is_refused_for_another_reason(
    tmp_path: Path,
) -> None:
    asking = (
        "{%- if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
        "{{- raise_exception('No user query found.') }}{%- endif %}" + QWEN3
    )
    model = make_model(tmp_path / "m", asking)
    for late, messages in (
        (2, [system("a"), user("b"), system("c")]),
        (1, [system("a"), system("b"), user("c")]),
        (1, [system("a"), system("b"), system("c"), user("d")]),
        (3, [system("a"), user("b"), user("c"), system("d"), user("e")]),
    ):
        error = refusal(model, *messages)
        assert error.key == f"messages[{late}]"
        assert "at the beginning" in error.message


def test_a_template_has_the_variables_that_its_tokenizer_gives_it(tmp_path: Path) -> None:
    text = "{{- [bos_token, eos_token, enable_thinking, documents, messages[0].content] }}"
    for special in ((), ("<think>", "</think>")):
        model = make_model(tmp_path / f"m{len(special)}", text, special=special)
        wanted = model.tokenizer.apply_chat_template([user("a")], add_generation_prompt=True)
        assert render(Conversation(messages=[user("a")]), model).ids == wanted


def test_words_that_a_template_takes_as_a_switch_are_not_left_out(tmp_path: Path) -> None:
    switched = QWEN3.replace("m.content", "m.content.replace('/no_think', '')")
    model = make_model(tmp_path / "switched", switched)
    assert "/no_think" not in prompt_of(
        model, user("/no_think"), assistant("b"), user("c /no_think")
    )


def test_a_tool_result_needs_no_id(models: dict[str, ServedModel]) -> None:
    messages = [
        user("a"),
        assistant("", tool_calls=[call("{}")]),
        {"role": "tool", "content": "x1"},
    ]
    assert "x1" in prompt_of(models["qwen3"], *messages, tools=TOOLS)


@pytest.mark.parametrize("template", ["{% if %}", "{{ messages | no_such_filter }}"])
def test_a_template_that_is_no_template_refuses_everything(template: str, tmp_path: Path) -> None:
    assert refusal(make_model(tmp_path / "m", template), user("a")).key.startswith("messages")


def test_several_templates_without_a_default_are_none(tmp_path: Path) -> None:
    model = make_model(tmp_path / "m", None)
    path = tmp_path / "m" / "tokenizer_config.json"
    named = [{"name": "one", "template": "1"}, {"name": "two", "template": "2"}]
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": named}))
    model = dataclasses.replace(model, tokenizer=load_tokenizer(tmp_path / "m", ()))
    with pytest.raises(ChatTemplateMissingError, match="no chat template can be chosen"):
        render(Conversation(messages=[user("a")]), model)


def test_calls_that_the_template_leaves_out_are_refused(models: dict[str, ServedModel]) -> None:
    messages = [user("a"), assistant("b", tool_calls=[call("{}")]), result("c")]
    assert refusal(models["chatml"], *messages).key == "messages[1].tool_calls[0]"


def test_tools_that_the_template_has_no_place_for_are_refused(
    models: dict[str, ServedModel],
) -> None:
    assert refusal(models["chatml"], user("a"), tools=[ADD]).key == "tools"


def test_a_tool_that_the_template_can_not_write_is_named(models: dict[str, ServedModel]) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": {"properties": [1]}}}
    assert refusal(models["qwen3_coder"], user("a"), tools=[ADD, odd]).key == "tools[1]"


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"role": "narrator", "content": "a"}, "messages[0].role"),
        ({"content": "a"}, "messages[0].role"),
        (user(7), "messages[0].content"),
        (user([{"type": "text"}]), "messages[0].content[0].text"),
        (user([{"text": "a"}]), "messages[0].content[0]"),
        (
            user([{"type": "text", "text": "a"}, {"type": "image_url"}]),
            "messages[0].content[1].type",
        ),
        (user([{"type": "input_audio"}]), "messages[0].content[0].type"),
        (user([{"type": "hologram"}]), "messages[0].content[0].type"),
        (user("half \ud83d"), "messages[0]"),
        (assistant("a", tool_calls="b"), "messages[0].tool_calls"),
        (assistant("a", tool_calls=[7]), "messages[0].tool_calls[0]"),
        (assistant("a", tool_calls=[{"function": {}}]), "messages[0].tool_calls[0].function.name"),
        (
            assistant("a", tool_calls=[{"function": {"name": "f"}}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            assistant("a", tool_calls=[call("{not json")]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (assistant("a", tool_calls=[call("[1]")]), "messages[0].tool_calls[0].function.arguments"),
        (assistant("a", reasoning_content=7), "messages[0].reasoning_content"),
    ],
)
def test_what_is_wrong_with_a_message_is_named(
    message: dict[str, Any], key: str, models: dict[str, ServedModel]
) -> None:
    assert refusal(models["qwen3_coder"], message).key == key


def test_an_empty_conversation_is_refused(models: dict[str, ServedModel]) -> None:
    assert refusal(models["qwen3"]).key == "messages"


@pytest.mark.parametrize(
    ("tools", "key"),
    [
        ([{"type": "web_search"}], "tools[0].type"),
        ([{"type": "function"}], "tools[0].type"),
        ([ADD, {"type": "function", "function": {"name": "a b"}}], "tools[1].function.name"),
        ([ADD, ADD], "tools[1].function.name"),
    ],
)
def test_what_is_wrong_with_a_tool_is_named(
    tools: list[dict[str, Any]], key: str, models: dict[str, ServedModel]
) -> None:
    assert refusal(models["qwen3"], user("a"), tools=tools).key == key


def test_a_model_without_a_template_takes_no_messages(tmp_path: Path) -> None:
    model = make_model(tmp_path / "bare", None)
    with pytest.raises(ChatTemplateMissingError, match="/v1/completions"):
        render(Conversation(messages=[user("a")]), model)


@pytest.mark.parametrize(
    ("name", "wanted", "starts", "may"),
    [
        ("qwen3", None, True, False),
        ("qwen3", True, True, False),
        ("qwen3", False, False, False),
        ("glm", None, False, True),
        ("glm", False, False, False),
        ("deepseek", None, False, False),
        ("deepseek", True, True, False),
        ("chatml", None, False, False),
        ("chatml", False, False, False),
    ],
)
def test_whether_the_prompt_ends_in_reasoning_is_told(
    name: str, wanted: bool | None, starts: bool, may: bool, models: dict[str, ServedModel]
) -> None:
    got = render(
        Conversation(messages=[user("<think> is a tag")], enable_thinking=wanted), models[name]
    )
    assert (got.starts_in_reasoning, got.may_reason) == (starts, may)


def test_thinking_can_be_turned_off_by_a_template_option(models: dict[str, ServedModel]) -> None:
    asked = Conversation(messages=[user("a")], template_options={"enable_thinking": False})
    assert not render(asked, models["glm"]).may_reason
    assert not render(asked, models["qwen3"]).starts_in_reasoning


def test_a_note_says_that_calls_will_not_be_recognised(tmp_path: Path) -> None:
    template = TEMPLATES["chatml"] + "{{ tools | tojson }}"
    got = render(
        Conversation(messages=[user("a")], tools=[ADD]), make_model(tmp_path / "m", template)
    )
    assert got.notes == ("nothing says how m writes tool calls: they will come as text",)


def test_a_question_about_the_marker_begins_no_reasoning(tmp_path: Path) -> None:
    magistral = TEMPLATES["mistral"] + "{#- #}{%- set markers = '[THINK][/THINK]' %}"
    model = make_model(tmp_path / "m", magistral)
    got = render(Conversation(messages=[user("What is [THINK]")]), model)
    assert (got.starts_in_reasoning, got.may_reason) == (False, True)


def test_thinking_that_the_template_has_no_switch_for_is_refused(
    models: dict[str, ServedModel],
) -> None:
    assert refusal(models["chatml"], user("a"), enable_thinking=True).key == "enable_thinking"


def test_template_options_reach_the_template_or_are_refused(
    models: dict[str, ServedModel],
) -> None:
    model = models["deepseek"]
    assert prompt_of(model, user("a"), template_options={"thinking": True}).endswith("<think>")
    error = refusal(model, user("a"), template_options={"thinkng": True})
    assert error.key == "chat_template_kwargs.thinkng"
    assert "thinking" in error.message
    for name in ("messages", "tools", "add_generation_prompt"):
        error = refusal(model, user("a"), template_options={name: []})
        assert error.key == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_checkpoints_are_prefixes_that_later_turns_share(
    name: str, models: dict[str, ServedModel]
) -> None:
    model = models[name]
    tools = () if name == "chatml" else TOOLS
    first = [system("Be brief."), user("One?")]
    got = render(Conversation(messages=first, tools=tools), model)
    others = [
        [*first, assistant("Yes."), user("Two?")],
        [system("Be brief."), user("Another thing.")],
    ]
    prompts = [render(Conversation(messages=m, tools=tools), model).ids for m in others]
    assert list(got.checkpoints) == sorted(set(got.checkpoints))
    assert all(0 < size < len(got.ids) for size in got.checkpoints)
    early = got.checkpoints[0]
    assert all(ids[:early] == got.ids[:early] for ids in prompts)
    assert "Be brief." in decoded(model, got.ids[:early])
    assert "One?" not in decoded(model, got.ids[:early])
    if name == "mistral":
        # Its prompt ends with the message itself.
        return
    late = got.checkpoints[-1]
    assert prompts[0][:late] == got.ids[:late]
    assert "One?" in decoded(model, got.ids[:late])


def test_a_place_inside_a_token_is_no_checkpoint(models: dict[str, ServedModel]) -> None:
    tokenizer = load_tokenizer(require_checkpoint("qwen3_5"), ())
    # `return` is one token there.
    tokenizer.chat_template = (
        "{{- '<|im_start|>' + messages[0].content }}"
        "{%- if add_generation_prompt %}{{- 'urn' }}{%- endif %}"
    )
    model = dataclasses.replace(models["chatml"], tokenizer=tokenizer)
    got = render(Conversation(messages=[user("x = ret")]), model)
    assert tokenizer.decode(got.ids[-1:]) == " return"
    assert got.checkpoints == (1,)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{{ messages.__class__.__mro__ }}", "sandbox"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "sandbox"),
        ("{{ messages.append(1) }}", "sandbox"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "sandbox"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "did not end within",
        ),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 999 }}{% endfor %}{% endfor %}",
            "more than 100000 characters",
        ),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[7].content }}", "has no element 7"),
    ],
)
def test_a_hostile_template_is_stopped_and_the_request_is_refused(
    body: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "RENDER_SECONDS", 1.0)
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 100_000)
    # Only this message sets it off, so that finding out what the template takes costs nothing.
    model = make_model(
        tmp_path / "m", "{% if messages[0].content == 'go' %}" + body + "{% endif %}"
    )
    began = time.monotonic()
    assert reason in refusal(model, user("go")).message
    assert time.monotonic() - began < 5.0
    assert not [thread for thread in threading.enumerate() if thread.name == "mtplx-bounded"]
