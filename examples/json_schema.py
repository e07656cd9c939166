"""Get an answer in the form of a pydantic model: a grammar holds every token to the schema, with MTP on.

Usage: mtplx serve --model FOLDER
       python examples/json_schema.py [URL] [TEXT]

Needs `pip install openai`.
"""

import os
import sys
from typing import Annotated, Literal

from openai import OpenAI
from pydantic import BaseModel, Field


class Ticket(BaseModel):
    """What a message of a customer is about."""

    kind: Literal["bug", "question", "praise"]
    urgent: bool
    words: Annotated[list[Annotated[str, Field(max_length=12)]], Field(max_length=3)]


def main(url: str, text: str) -> int:
    """Print what was found in `text`."""
    client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("MTPLX_API_KEY", "none"))
    model = client.models.list().data[0].id
    answer = client.chat.completions.parse(
        model=model,
        messages=[
            {"role": "system", "content": "Sort the customer's message. Answer in JSON."},
            {"role": "user", "content": text},
        ],
        response_format=Ticket,
        max_tokens=400,
        temperature=0,
    )
    ticket = answer.choices[0].message.parsed
    if ticket is None:
        print("the answer is no ticket", file=sys.stderr)
        return 1
    print(ticket.model_dump_json(indent=2))
    return 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(
        main(
            given[0] if given else "http://127.0.0.1:8000",
            given[1] if given[1:] else "It crashes when I save a file. Please hurry!",
        )
    )
