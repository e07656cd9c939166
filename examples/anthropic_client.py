"""Talk to `mtplx serve` with Anthropic's client: count a prompt, stream an answer, and let the model use a tool.

Usage: mtplx serve --model FOLDER
       python examples/anthropic_client.py [URL] [MODEL]

Needs `pip install anthropic`. MODEL is the id that `/v1/messages` is asked for; left out, it is the one served.
"""

import os
import sys
from typing import Any

import anthropic
from anthropic.types import Message, MessageParam, ToolParam, ToolUseBlock

ADD: ToolParam = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def main(url: str, model: str | None) -> int:
    """Show the three of them."""
    # The server asks for a key only if it was started with a file of keys.
    client = anthropic.Anthropic(base_url=url, api_key=os.environ.get("MTPLX_API_KEY", "none"))
    model = model or served_model(client)
    question: MessageParam = {"role": "user", "content": "Say hello in three languages."}
    counted = client.messages.count_tokens(model=model, messages=[question])
    print(f"{model}: the question has {counted.input_tokens} tokens\n")
    stream_answer(client, model, question)
    use_tool(client, model)
    return 0


def served_model(client: anthropic.Anthropic) -> str:
    """The id of the model that the server has."""
    health = client.get("/health/ready", cast_to=dict[str, Any])
    return str(health["model"])


def stream_answer(client: anthropic.Anthropic, model: str, question: MessageParam) -> None:
    """Print an answer while it is made, and what it took."""
    with client.messages.stream(
        model=model,
        max_tokens=200,
        messages=[question],
        # Extensions of this server; left out, its own settings hold.
        extra_body={"generation_mode": "mtp", "seed": 1},
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
        usage = stream.get_final_message().usage
    print(
        f"\n\n{usage.output_tokens} tokens, stopped by {stream.get_final_message().stop_reason}\n"
    )


def use_tool(client: anthropic.Anthropic, model: str) -> None:
    """Answer with the result of a tool that the model must call."""
    messages: list[MessageParam] = [{"role": "user", "content": "What is 17 plus 25?"}]
    answer = client.messages.create(
        model=model,
        max_tokens=200,
        messages=messages,
        tools=[ADD],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    call = next(block for block in answer.content if isinstance(block, ToolUseBlock))
    print(f"the model calls {call.name}({call.input})")
    messages += [
        {"role": "assistant", "content": answer.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": add(call)}],
        },
    ]
    final = client.messages.create(model=model, max_tokens=200, messages=messages, tools=[ADD])
    print(text_of(final))
    print(f"{final.usage.cache_read_input_tokens} tokens of its prompt had been read before")


def add(call: ToolUseBlock) -> str:
    """Run the tool."""
    values: dict[str, Any] = dict(call.input)
    return str(int(values["a"]) + int(values["b"]))


def text_of(message: Message) -> str:
    """The text of an answer."""
    return "".join(block.text for block in message.content if block.type == "text").strip()


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(given[0] if given else "http://127.0.0.1:8000", given[1] if given[1:] else None))
