"""Licences: what is accepted, under which ids, and that none is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import UsageError
from mtplx.forge.publish.license import License, find_license

if TYPE_CHECKING:
    from pathlib import Path

MIT = "MIT License\n\nCopyright (c) someone\n\nPermission is hereby granted, free of charge, to"


@pytest.mark.parametrize(
    ("asked", "hub_id", "spdx"),
    [
        ("Apache-2.0", "apache-2.0", "Apache-2.0"),
        ("apache-2.0", "apache-2.0", "Apache-2.0"),
        ("MIT", "mit", "MIT"),
        ("GPL-3.0-or-later", "gpl-3.0", "GPL-3.0-or-later"),
        ("LGPL-2.1-only", "lgpl-2.1", "LGPL-2.1-only"),
        ("agpl-3.0", "agpl-3.0", "AGPL-3.0"),
        ("CC-BY-NC-SA-4.0", "cc-by-nc-sa-4.0", "CC-BY-NC-SA-4.0"),
        ("pddl", "pddl", "PDDL-1.0"),
        ("PDDL-1.0", "pddl", "PDDL-1.0"),
        ("gemma", "gemma", "LicenseRef-gemma"),
        ("LicenseRef-gemma", "gemma", "LicenseRef-gemma"),
        ("llama3.1", "llama3.1", "LicenseRef-llama3.1"),
    ],
)
def test_ids_of_spdx_and_of_the_hub_are_known(
    tmp_path: Path, asked: str, hub_id: str, spdx: str
) -> None:
    found = find_license(tmp_path, asked)
    assert found == License(hub_id, spdx)
    assert found.front_matter() == {"license": hub_id}


def test_a_licence_that_the_hub_does_not_list_is_other_with_a_link(tmp_path: Path) -> None:
    assert find_license(tmp_path, "BlueOak-1.0.0").front_matter() == {
        "license": "other",
        "license_name": "blueoak-1.0.0",
        "license_link": "https://spdx.org/licenses/BlueOak-1.0.0.html",
    }


def test_a_licence_of_its_own_needs_its_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no LICENSE file"):
        find_license(tmp_path, "LicenseRef-Model-Terms")
    (tmp_path / "LICENSE").write_text("Be nice.")
    found = find_license(tmp_path, "LicenseRef-Model-Terms")
    assert found == License("other", "LicenseRef-Model-Terms", "model-terms", "LICENSE")


@pytest.mark.parametrize("asked", ["", "gpl", "Apache", "MIT OR Apache-2.0", "other", "x\ny", "é"])
def test_anything_else_is_refused_by_name(tmp_path: Path, asked: str) -> None:
    with pytest.raises(UsageError, match="no licence of SPDX") as caught:
        find_license(tmp_path, asked)
    assert ascii(asked) in caught.value.message
    assert "--license" in caught.value.hint


def test_the_card_of_the_folder_comes_before_its_text(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text(MIT)
    assert find_license(tmp_path, None) == License("mit", "MIT")
    (tmp_path / "README.md").write_text("---\nlicense: gemma\n---\n# Model\n")
    assert find_license(tmp_path, None).hub_id == "gemma"
    assert find_license(tmp_path, None, "---\nlicense: isc\n---\n").hub_id == "isc"
    assert find_license(tmp_path, "Zlib", "---\nlicense: isc\n---\n").hub_id == "zlib"


def test_an_apache_text_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "LICENSE.txt").write_text("\n   Apache License\n   Version 2.0, January 2004\n")
    assert find_license(tmp_path, None) == License("apache-2.0", "Apache-2.0")


def test_an_unknown_text_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No licence is known"):
        find_license(tmp_path, None)
    (tmp_path / "LICENSE").write_text("You may use this model like the MIT License says.")
    with pytest.raises(UsageError, match="No licence is known"):
        find_license(tmp_path, None)


def test_other_in_a_card_needs_name_and_link(tmp_path: Path) -> None:
    card = "---\nlicense: other\nlicense_name: my terms\nlicense_link: https://a.b/c\n---\n"
    found = find_license(tmp_path, None, card)
    assert found == License("other", "LicenseRef-my-terms", "my terms", "https://a.b/c")
    with pytest.raises(UsageError, match="without license_name"):
        find_license(tmp_path, None, "---\nlicense: other\n---\n")


@pytest.mark.parametrize("value", ["[mit, isc]", "7", "nonsense"])
def test_a_card_with_a_licence_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="no licence of SPDX"):
        find_license(tmp_path, None, f"---\nlicense: {value}\n---\n")
