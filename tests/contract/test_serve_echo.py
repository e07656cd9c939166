"""What reaches the model is what the client sent, written by the model's own chat template and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.inspection import inspect_folder
from mtplx.runtime.bench.endpoint.server_process import served_without_weights
from mtplx.runtime.server.app import build_app
from tests.support.checkpoints import TRAINED, TrainedName, require_checkpoint
from tests.support.scripted_owner import ScriptedBackend, scripted_owner
from tests.support.scripted_service import client_of, scripted_service

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from mtplx.runtime.server.served import ServedModel

RESULT = "\n".join(
    f"{n:3d}\tdef f{n}(x):  return x + {n}  # é 漢 <|im_end|> \t" for n in range(300)
)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "read_file", "description": "Read a text file.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "a b.py"}'},
}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be  brief.\n\n\tAlways. "},
    {"role": "user", "content": "Show me the file a b.py. \u200b"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
    {"role": "assistant", "content": "Here it is."},
    {"role": "user", "content": "Thanks"},
]
PLAIN = [TALK[0], TALK[1], TALK[4], TALK[5]]


class Echo:
    """A server that keeps the prompts it is asked to answer."""

    def __init__(self, model: ServedModel, backend: ScriptedBackend, http: TestClient) -> None:
        self.model = model
        self._backend = backend
        self._http = http

    def ids(self, path: str, **body: Any) -> list[int]:
        """The prompt that a request makes."""
        answer = self._http.post(path, json={"model": self.model.name, **body})
        assert answer.status_code == 200, answer.text
        return self._backend.jobs[-1].prompt

    def rendered(self, messages: list[dict[str, Any]], tools: Any = None) -> list[int]:
        """What the tokenizer itself makes of these messages."""
        text = self.model.tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=False
        )
        return list(self.model.tokenizer.encode(text, add_special_tokens=False))


@pytest.fixture(params=TRAINED)
def echo(request: pytest.FixtureRequest) -> Any:
    name: TrainedName = request.param
    model = served_without_weights(inspect_folder(require_checkpoint(name)))
    backend = ScriptedBackend(lambda _job: ["fine"])
    with (
        scripted_service(owner=scripted_owner(backend), model=model) as service,
        client_of(build_app(service)) as http,
    ):
        yield Echo(model, backend, http)


def as_object(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the arguments of calls as templates take them, that write them out themselves."""
    copied: list[dict[str, Any]] = json.loads(json.dumps(messages))
    for message in copied:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return copied


def test_a_conversation_is_read_as_it_was_sent(echo: Echo) -> None:
    expected = echo.rendered(PLAIN)
    assert echo.ids("/v1/chat/completions", messages=PLAIN) == expected
    instructions, *rest = PLAIN
    items = [{"role": one["role"], "content": one["content"]} for one in rest]
    told = instructions["content"]
    assert echo.ids("/v1/responses", instructions=told, input=items) == expected
    assert echo.ids("/v1/messages", system=told, messages=rest, max_tokens=9) == expected


def test_results_of_tools_are_read_line_by_line(echo: Echo) -> None:
    has_tools = "tool_calls" in str(echo.model.tokenizer.chat_template)
    if not has_tools:
        pytest.skip("this template knows no tools")
    found = echo.ids("/v1/chat/completions", messages=TALK, tools=[TOOL])
    assert found in (echo.rendered(TALK, [TOOL]), echo.rendered(as_object(TALK), [TOOL]))
    text = echo.model.tokenizer.decode(found)
    assert RESULT.strip() in text
    assert text.count("def f299(x):") == 1


def test_a_prompt_without_a_template_is_encoded_as_it_is(echo: Echo) -> None:
    text = f"  {RESULT[:400]}\n\n"
    assert echo.ids("/v1/completions", prompt=text) == list(echo.model.tokenizer.encode(text))
