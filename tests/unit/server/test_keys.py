"""Key files, keys, and clients that guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.contracts.errors import UsageError
from mtplx.runtime.server.keys import ApiKeys, read_first_key
from mtplx.runtime.server.throttle import Throttle

KEY, OTHER = "k" * 16, "o" * 40


def key_file(tmp_path: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "keys"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def test_keys_have_names(tmp_path: Path) -> None:
    keys = ApiKeys.read(key_file(tmp_path, f"# mine\n\nme: {KEY}\n  you.too :{OTHER}  \n"))
    assert keys.find(KEY.encode()) == "me"
    assert keys.find(OTHER.encode()) == "you.too"
    assert keys.find(KEY.encode() + b"k") is None
    assert keys.find(b"") is None


def test_keys_themselves_are_not_kept(tmp_path: Path) -> None:
    assert KEY not in repr(ApiKeys.read(key_file(tmp_path, f"me: {KEY}\n")))


def test_a_client_sends_the_first_key(tmp_path: Path) -> None:
    assert read_first_key(key_file(tmp_path, f"# x\nme: {KEY}\nyou: {OTHER}\n")) == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, f"me: {KEY}\n", mode)
    with pytest.raises(UsageError, match="can be read by others") as caught:
        ApiKeys.read(path)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# nothing\n",
        KEY,
        f"me {KEY}",
        "me: short",
        f"me: {KEY} and more",
        f"me: {KEY}é",
        f"me: {KEY}\nme: {OTHER}",
        f"me: {KEY}\nyou: {KEY}",
        f"bad name: {KEY}",
        b"\xff\xfe",
        "x" * 70_000,
    ],
)
def test_a_file_that_is_no_list_of_keys_is_refused_without_telling_keys(
    tmp_path: Path, content: str | bytes
) -> None:
    with pytest.raises(UsageError, match="keys") as caught:
        ApiKeys.read(key_file(tmp_path, content))
    assert KEY not in str(caught.value)
    assert caught.value.hint


def test_a_file_that_is_not_there_comes_with_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "no such keys"
    with pytest.raises(UsageError, match="cannot be read") as caught:
        ApiKeys.read(path)
    assert f"> '{path}'" in caught.value.hint


def test_a_client_with_too_many_failures_waits_until_the_first_is_old() -> None:
    now = [0.0]
    throttle = Throttle(3, 60.0, now=lambda: now[0])
    for second in (0, 10, 20):
        now[0] = second
        assert throttle.wait_s("1.2.3.4") == 0
        throttle.fail("1.2.3.4")
    assert throttle.wait_s("1.2.3.4") == 40
    assert throttle.wait_s("1.2.3.5") == 0
    now[0] = 60
    assert throttle.wait_s("1.2.3.4") == 0
    throttle.fail("1.2.3.4")
    assert throttle.wait_s("1.2.3.4") == 10


def test_the_table_of_failures_is_bounded() -> None:
    throttle = Throttle(1, 60.0, max_clients=10, now=lambda: 0.0)
    for number in range(100):
        throttle.fail(f"10.0.0.{number}")
    assert len(throttle) == 10
    assert throttle.wait_s("10.0.0.0") == 0
    assert throttle.wait_s("10.0.0.99") == 60


def test_addresses_of_one_host_are_one_client() -> None:
    throttle = Throttle(1, 60.0, now=lambda: 0.0)
    throttle.fail("2001:db8::1")
    throttle.fail("::ffff:1.2.3.4")
    assert throttle.wait_s("2001:db8::ffff:1") == 60
    assert throttle.wait_s("2001:db8:0:1::1") == 0
    assert throttle.wait_s("1.2.3.4") == 60
