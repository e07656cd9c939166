"""What must not leave the machine does not, and the rest stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.runtime.diagnostics.redaction import Place, Redactor

REDACTOR = Redactor(
    home="/home/ada.l",
    users=("ada.l",),
    hosts=("tower-7.lan", "tower-7"),
    secrets=("opensesame",),
    places=(Place("/env", "<python>"),),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ada.l/models/x", "~/<path>"),
        ("/home/ada.later/x", "<path>"),
        ("/Users/bob/x, /srv/acme/y: no", "<path>, <path>: no"),
        ("cat '/srv/acme corp/x' --at=/srv/acme", "cat '<path>' --at=<path>"),
        ("a:/srv/acme and ~bob/acme", "a:<path> and ~/<path>"),
        ("/env/lib/numpy and /env/lib64", "<python>/lib/numpy and <python>/lib64"),
        ("/environs/x", "<path>"),
        ("run by Ada.L on TOWER-7", "run by <user> on <host>"),
        ("http://tower-7.lan:8000", "http://<host>:8000"),
        ("key=opensesame!", "key=<secret>!"),
        ("hf_abcDEF123456", "<secret>"),
        ("sk-proj_0123456789", "<secret>"),
        ("ghp_0123456789abcdef", "<secret>"),
        ("Authorization: Bearer abc.def-12345", "Authorization: <secret>"),
        ("https://me:p@w@proxy/x", "https://<host>/<path>"),
        ("https://cdn/x?Signature=abc", "https://<host>/<path>"),
        ("https://huggingface.co/acme/x: no", "https://huggingface.co/<path> no"),
        ("http://[fe80::1]:80/", "http://<host>:80/"),
        ("file:///srv/acme/x", "file:///<path>"),
        ("10.1.2.3 and [fe80::1]:80", "<ip> and [<ip>]:80"),
        ("2001:db8::8a2e:370:7334.", "<ip>"),
    ],
)
def test_private_text_is_replaced(text: str, expected: str) -> None:
    assert REDACTOR.text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "mlx 0.32.4, 12:30:45",
        "999.1.1.1",
        "std::vec",
        "adalong on tower-70",
        "/usr/lib/libmkl_rt.so",
        "tokens/s and 3 / 4",
        "https://huggingface.co",
        "https://github.com",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_a_known_name_is_replaced_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    redactor = REDACTOR.knowing("my acme", "<model>")
    text = f"my acme, {tmp_path}/my acme/config.json, my acmes"
    assert redactor.text(text) == "<model>, <model>/config.json, my acmes"


def test_of_secrets_alone_names_and_paths_stay() -> None:
    text = "/home/ada.l/x hf_abcDEF123456 opensesame https://me:pw@hub/x?key=1"
    expected = "/home/ada.l/x <secret> <secret> https://<secret>@hub/x?<query>"
    assert REDACTOR.without_secrets(text) == expected


def test_whole_values_are_redacted_and_words_of_the_report_are_not() -> None:
    redactor = Redactor(home="", users=("pass",), hosts=(), secrets=())
    value = {"status": "pass", "rows": [{"observed": "by pass"}], "n": 1, "none": None}
    assert redactor.value(value) == {
        "status": "pass",
        "rows": [{"observed": "by <user>"}],
        "n": 1,
        "none": None,
    }


def test_secrets_come_from_variables_with_telling_names() -> None:
    found = Redactor.of_this_machine(
        {
            "HOME": "/home/x",
            "MY_API_KEY": "abcdefgh",
            "DB_PASSWORD": "12345678",
            "LANG": "en_GB.UTF",
        }
    )
    assert set(found.secrets) == {"abcdefgh", "12345678"}
    assert found.home == "/home/x"
