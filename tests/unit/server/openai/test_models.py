"""The list of models: the served one under each of its names."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

from tests.unit.server.playing import NAME


def test_the_served_model_is_listed_and_found(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (NAME, "model", "mtplx")
    assert client.models.retrieve(NAME) == model


@pytest.mark.parametrize("name", ["gpt-4", "org/name"])
def test_another_is_404(client: OpenAI, name: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve(name)
    assert caught.value.code == "model_not_found"
