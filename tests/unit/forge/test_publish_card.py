"""Model cards say what was measured and nothing else, and the hub's library reads them."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import ModelCard

from mtplx.contracts.errors import UsageError
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.forge.publish.card import make_card, validate_card
from mtplx.forge.publish.license import License
from tests.support.published import PROVENANCE, SPEED, make_artifact, read_contract

REPO = "org/Model-1B"
APACHE = License("apache-2.0", "Apache-2.0")


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The contract of an artifact with all evidence."""
    return read_contract(make_artifact(tmp_path_factory.mktemp("card") / "artifact"))


def card_of(contract: dict[str, Any], *labels: str, **options: Any) -> str:
    card = make_card(RuntimeContract.model_validate(contract), REPO, APACHE, labels, **options)
    validate_card(card)
    return card


def row_of(card: str, name: str) -> list[str]:
    line = next(line for line in card.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def losing(contract: dict[str, Any], verdict: str = "no_mtp_depth_beat_ar") -> dict[str, Any]:
    row = {"depth": 1, "tok_s": 28.5, "multiplier_vs_ar": 0.95, "gain_interval": [0.93, 0.97]}
    rows = [{"depth": 0, "tok_s": 30.0}, {**row, "acceptance_by_position": [0.4]}]
    speed = {"depth": 1, "gain": 0.95, "gain_interval": [0.93, 0.97], "verdict": verdict}
    return {**contract, "speed_evidence": {**speed, "forge_verify_rows": rows}}


def test_front_matter_is_read_back_by_the_library(contract: dict[str, Any]) -> None:
    data = ModelCard(card_of(contract)).data
    assert data["license"] == "apache-2.0"
    assert data["library_name"] == "mlx"
    assert data["pipeline_tag"] == "text-generation"
    assert data["base_model"] == PROVENANCE["source_repo"]
    assert data["base_model_relation"] == "quantized"
    assert {"mlx", "mtplx"} <= set(data["tags"])


def test_a_verified_artifact_has_a_table_of_every_row_and_no_warning(
    contract: dict[str, Any],
) -> None:
    card = card_of(contract)
    assert row_of(card, "plain") == ["plain", "30.0", "1", "-", "-"]
    assert row_of(card, "MTP, depth 1")[1:] == ["50.1", "1.67", "1.60 to 1.74", "0.900"]
    assert row_of(card, "MTP, depth 2")[1:] == ["61.5", "2.05", "1.96 to 2.11", "0.900, 0.720"]
    assert "> **" not in card
    assert "6144 tokens compared, 0 differed" in card
    assert f'mtplx run "Why is the sky blue?" --model {REPO.split("/")[1]}' in card
    assert f"mlx_lm.generate --model {REPO}" in card
    assert "0.910, 0.740 by depth over 4096 tokens" in card
    assert contract["content"]["identity"] in card


def test_the_same_contract_gives_the_same_card(contract: dict[str, Any]) -> None:
    assert card_of(contract, "unverified") == card_of(contract, "unverified")


def test_losing_rows_are_shown_with_a_warning_above_the_table(contract: dict[str, Any]) -> None:
    card = card_of(losing(contract), "unverified")
    assert row_of(card, "MTP, depth 1")[1:] == ["28.5", "0.95", "0.93 to 0.97", "0.400"]
    assert card.index("**not faster** than plain decoding") < card.index("## Measured speed")
    assert "**Unverified.** " in card
    assert "no significant speed gain" in card
    assert "unverified" in ModelCard(card).data["tags"]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("mtp_acceptance_collapsed", "Hardly any draft"),
        ("exactness_failed", "**differed** from plain decoding"),
        ("exactness_passed", "speed was not measured"),
        ("something_new", "something_new"),
    ],
)
def test_every_losing_verdict_is_told(contract: dict[str, Any], verdict: str, words: str) -> None:
    assert words in card_of(losing(contract, verdict), "unverified")


def test_a_summary_without_rows_is_a_table_too(contract: dict[str, Any]) -> None:
    speed = {key: value for key, value in SPEED.items() if key != "forge_verify_rows"}
    card = card_of({**contract, "speed_evidence": speed})
    assert row_of(card, "plain")[1] == "30.0"
    assert row_of(card, "MTP, depth 2")[1:] == ["61.5", "2.05", "1.96 to 2.11", "0.900, 0.720"]


def test_what_was_not_measured_is_not_mentioned(contract: dict[str, Any]) -> None:
    bare = {key: contract[key] for key in ("schema_version", "arch_id", "head", "content")}
    card = card_of(bare, "unverified", "uncalibrated")
    for words in ("Measured speed", "## Exactness", "tok/s", "what plain decoding gives", "None"):
        assert words not in card
    assert "no passed exactness test" in card
    assert "The wiring of the MTP head was not measured" in card
    assert "base_model" not in card


def test_exactness_that_failed_is_not_called_equal(contract: dict[str, Any]) -> None:
    failed = {"passed": False, "tokens": 500, "differences": 3, "law": {"passed": False}}
    card = card_of({**contract, "exactness": failed}, "unverified")
    assert "**not** shown equal to plain decoding: 500 tokens compared, 3 differed" in card
    assert "rejection sampling **failed**" in card
    assert "the output was what plain decoding gives" not in card


def test_values_of_a_contract_cannot_break_the_card(contract: dict[str, Any]) -> None:
    odd = "a | b\n\n# <script>x</script>" + "y" * 500
    provenance = {**PROVENANCE, "source_repo": odd, "source_format": odd}
    card = card_of(
        {**contract, "verified_on": {odd: odd}, "forge_provenance": provenance}, "unverified", odd
    )
    assert "<script" not in card.partition("\n---\n")[2]
    assert "\n# a" not in card
    assert max(len(line) for line in card.splitlines() if line.startswith("- ")) < 300
    assert "base_model" not in card


def test_text_of_the_user_replaces_ours_and_warnings_follow_its_title(
    contract: dict[str, Any],
) -> None:
    body = "---\nlanguage: de\ntags: [chat, mlx]\nlicense: mit\n---\n\n# Mine\n\nHello.\n"
    card = card_of(contract, "unverified", body=body)
    data = ModelCard(card).data
    assert (data["language"], data["license"]) == ("de", "apache-2.0")
    assert data["tags"].count("mlx") == 1
    assert "chat" in data["tags"]
    text = card.partition("\n---\n\n")[2]
    assert text.startswith("# Mine\n\n> **Unverified.**")
    assert text.endswith("Hello.\n")
    assert "## Measured speed" not in text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("---\nlanguage: de\n---\n\n", "no text"),
        ("", "no text"),
        ("---\na: [\n---\nText", "cannot be read"),
        ("---\n- a\n---\nText", "cannot be read"),
        ("---\n1: a\n---\nText", "cannot be read"),
        ("---\nmodel-index: [{}]\n---\nText", "cannot be read"),
        ("---\nlanguage: 5\ndatasets: [{a: b}]\n---\nText", "no usable datasets, language"),
    ],
)
def test_cards_that_the_hub_would_refuse_are_refused_here(
    contract: dict[str, Any], body: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        card_of(contract, body=body)


@pytest.mark.parametrize("missing", ["license", "library_name", "pipeline_tag", "tags"])
def test_each_key_that_the_hub_needs_is_required(contract: dict[str, Any], missing: str) -> None:
    card = card_of(contract).replace(f"{missing}:", f"x_{missing}:", 1)
    with pytest.raises(UsageError, match=missing):
        validate_card(card)


def test_a_licence_that_the_hub_does_not_know_needs_name_and_link(
    contract: dict[str, Any],
) -> None:
    parsed = RuntimeContract.model_validate(contract)
    own = License("other", "LicenseRef-My", "my", "LICENSE")
    validate_card(make_card(parsed, REPO, own, ()))
    with pytest.raises(UsageError, match="license_name, license_link"):
        validate_card(make_card(parsed, REPO, License("other", "LicenseRef-My"), ()))
