"""The hub: away, refusing, and the token that is never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtplx.runtime.diagnostics.hub import HubFacts, check_hub, read_hub
from tests.support.hub_server import HubServer, running_hub, use_hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with running_hub() as server:
        use_hub(server, tmp_path / "hub-home", monkeypatch)
        yield server


def statuses(facts: HubFacts | None) -> list[str]:
    return [str(check.status) for check in check_hub(facts)]


def test_nobody_asked() -> None:
    assert statuses(None) == ["skip", "skip"]


def test_a_hub_that_is_away_fails() -> None:
    access, login = check_hub(HubFacts("http://hub", "ConnectError"))
    assert (access.status, access.exit_code, login.status) == ("fail", 11, "skip")


def test_a_token_that_is_refused_fails() -> None:
    access, login = check_hub(HubFacts("http://hub", login_status=401))
    assert (access.status, login.status, login.exit_code) == ("pass", "fail", 11)
    assert login.command == "hf auth login"


def test_without_a_token_public_models_can_be_had(hub: HubServer) -> None:
    facts = read_hub()
    assert facts == HubFacts(hub.url)
    assert statuses(facts) == ["pass", "pass"]


def test_a_good_token_is_accepted(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    facts = read_hub()
    assert facts.login_status == 200
    assert hub.token not in repr(check_hub(facts))


@pytest.mark.usefixtures("hub")
def test_a_bad_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    facts = read_hub()
    assert facts.login_status == 401
    assert statuses(facts) == ["pass", "fail"]
    assert "wrong" not in repr(check_hub(facts))


def test_credentials_of_the_address_are_not_shown(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.url.replace("://", "://me:plantedword@"))
    facts = read_hub()
    assert facts.problem is None
    assert "planted" not in repr(check_hub(facts))
    monkeypatch.setattr(constants, "ENDPOINT", "http://me:plantedword@127.0.0.1:9")
    facts = read_hub()
    assert facts.problem is not None
    assert "planted" not in repr(check_hub(facts))


@pytest.mark.usefixtures("hub")
def test_a_token_that_no_header_can_hold_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_gehéim")
    facts = read_hub()
    assert facts.problem is not None
    assert "gehéim" not in repr(check_hub(facts))


def test_the_offline_mode_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()
    access, login = check_hub(read_hub())
    assert (access.status, login.status) == ("warn", "skip")
    assert access.command == "unset HF_HUB_OFFLINE"
    assert not hub.asked("/api")
    close_session()
