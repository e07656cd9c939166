"""Talk to `mtplx serve` with OpenAI's client: stream an answer, compare it with plain decoding, and go on.

Usage: mtplx serve --model FOLDER
       python examples/openai_client.py [URL]

Needs `pip install openai`.
"""

import os
import sys

from openai import OpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

QUESTION = "Write a Python function that reverses a string."


def main(url: str) -> int:
    """Show the three of them."""
    # The server asks for a key only if it was started with a file of keys.
    key = os.environ.get("MTPLX_API_KEY", "none")
    client = OpenAI(base_url=f"{url}/v1", api_key=key)
    model = client.models.list().data[0].id
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
    text = stream_answer(client, model, messages)
    plain = client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=120,
        seed=1,
        # Extensions of this server; left out, its own settings hold.
        extra_body={"generation_mode": "ar"},
    )
    print(f"the same text without MTP: {plain.choices[0].message.content == text}\n")
    messages += [
        {"role": "assistant", "content": text},
        {"role": "user", "content": "Now with a loop."},
    ]
    stream_answer(client, model, messages)
    return 0


def stream_answer(client: OpenAI, model: str, messages: list[ChatCompletionMessageParam]) -> str:
    """Print an answer while it is made, and what it took; returns it."""
    text, usage = "", None
    for chunk in client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=120,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            piece = choice.delta.content or ""
            print(piece, end="", flush=True)
            text += piece
    print(f"\n\n{told(usage)}\n")
    return text


def told(usage: CompletionUsage | None) -> str:
    """The counts of tokens in words."""
    if usage is None or usage.prompt_tokens_details is None:
        return "no counts"
    details = usage.completion_tokens_details
    accepted = 0 if details is None else details.accepted_prediction_tokens
    return (
        f"{usage.completion_tokens} tokens, {accepted} of them drafted; {usage.prompt_tokens} of prompt, "
        f"{usage.prompt_tokens_details.cached_tokens} of them read before"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "http://127.0.0.1:8000"))
