"""Let a model call Python functions until it has an answer, through the Responses API.

Usage: mtplx serve --model FOLDER
       python examples/tool_loop.py [URL] [QUESTION]

Needs `pip install openai`, and a model that was trained to call tools.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from openai import OpenAI
from openai.types.responses import FunctionToolParam, Response, ResponseFunctionToolCall

MAX_TURNS = 5


def add(a: int, b: int) -> str:
    """Sum of two integers."""
    return str(a + b)


def get_weather(city: str) -> str:
    """Current weather of a city."""
    return {"Paris": "21 C", "Oslo": "4 C"}.get(city, "18 C")


FUNCTIONS: dict[str, Callable[..., str]] = {"add": add, "get_weather": get_weather}
PARAMETERS: dict[str, dict[str, str]] = {
    "add": {"a": "integer", "b": "integer"},
    "get_weather": {"city": "string"},
}


def tool(name: str) -> FunctionToolParam:
    """A function as the model is told of it; `strict` holds its arguments to the schema by a grammar."""
    properties = {key: {"type": kind} for key, kind in PARAMETERS[name].items()}
    return {
        "type": "function",
        "name": name,
        "description": FUNCTIONS[name].__doc__ or "",
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        "strict": True,
    }


def main(url: str, question: str) -> int:
    """Ask, run what the model calls, and tell it, until it calls nothing more."""
    client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("MTPLX_API_KEY", "none"))
    model = client.models.list().data[0].id
    items: list[Any] = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        response = client.responses.create(
            model=model,
            input=items,
            tools=[tool(name) for name in FUNCTIONS],
            max_output_tokens=200,
            temperature=0,
        )
        calls = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
        if not calls:
            print(told(response))
            return 0
        # What the model wrote goes back as it came, with the results behind it.
        items += [item.model_dump(exclude_none=True) for item in response.output]
        items += [
            {"type": "function_call_output", "call_id": call.call_id, "output": run(call)}
            for call in calls
        ]
    print(f"no answer after {MAX_TURNS} turns", file=sys.stderr)
    return 1


def run(call: ResponseFunctionToolCall) -> str:
    """The result of a call, or what is wrong with it, which the model is told too."""
    print(f"{call.name}({call.arguments})")
    try:
        return FUNCTIONS[call.name](**json.loads(call.arguments))
    except (KeyError, TypeError, ValueError) as error:
        return f"error: {error}"


def told(response: Response) -> str:
    """The answer, and how much of the last prompt was new."""
    usage = response.usage
    if usage is None:
        return response.output_text
    cached = usage.input_tokens_details.cached_tokens
    return f"{response.output_text}\n({cached} of {usage.input_tokens} tokens of the prompt were read before)"


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(
        main(
            given[0] if given else "http://127.0.0.1:8000",
            given[1] if given[1:] else "What is the weather in Paris?",
        )
    )
