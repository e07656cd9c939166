"""The licence of an artifact: named by the user, or found in the folder; never guessed.

The hub knows licences by the lower-case ids listed here. Most are SPDX ids; the others are named
`LicenseRef-ID` where SPDX is asked for. A licence that the hub does not list is written
`LicenseRef-NAME` and comes with its text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.forge.publish.front_matter import read_front_matter

_SPDX: Final = """
    Apache-2.0 MIT AFL-3.0 Artistic-2.0 BSL-1.0 BSD-2-Clause BSD-3-Clause BSD-3-Clause-Clear C-UDA-1.0
    CC0-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-NC-2.0
    CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-ND-4.0 CC-BY-NC-ND-3.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-2.0
    CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0 CDLA-Sharing-1.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0 WTFPL
    ECL-2.0 EPL-1.0 EPL-2.0 etalab-2.0 EUPL-1.1 EUPL-1.2 AGPL-3.0 GPL-2.0 GPL-3.0 LGPL-2.1 LGPL-3.0
    ISC LPPL-1.3c MS-PL MPL-2.0 OSL-3.0 PostgreSQL OFL-1.1 NCSA Unlicense Zlib PDDL-1.0 LGPLLR
"""
_HUB_ONLY: Final = """
    openrail openrail++ bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
    bigcode-openrail-m apple-ascl apple-amlr deepfloyd-if-license fair-noncommercial-research-license
    llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 gemma grok2-community h-research intel-research
    openmdw-1.0
"""
# The hub's spelling where it is not SPDX in lower case.
_HUB_SPELLING: Final = {"C-UDA-1.0": "c-uda", "PDDL-1.0": "pddl", "LGPLLR": "lgpl-lr"}

_BY_ID: Final[dict[str, tuple[str, str]]] = {
    spelling: (hub_id, spdx)
    for spdx in _SPDX.split()
    for hub_id in [_HUB_SPELLING.get(spdx, spdx.lower())]
    for spelling in {hub_id, spdx.lower()}
} | {hub_id: (hub_id, f"LicenseRef-{hub_id}") for hub_id in _HUB_ONLY.split()}

_GNU = re.compile(r"(?i)((?:a|l)?gpl-\d\.\d)-(?:only|or-later)")
_OWN = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_TEXT_NAMES: Final = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
_HINT: Final = (
    "Give --license with an SPDX id such as Apache-2.0, an id of the hub such as gemma, or "
    "LicenseRef-NAME with the text in a file LICENSE of the folder."
)


@dataclass(frozen=True, slots=True)
class License:
    """A licence as the hub has it (`hub_id`, `name`, `link`) and by its SPDX id."""

    hub_id: str
    spdx: str
    name: str | None = None
    link: str | None = None

    def front_matter(self) -> dict[str, str]:
        """`license`, and for a licence of its own `license_name` and `license_link`."""
        values = {"license": self.hub_id, "license_name": self.name, "license_link": self.link}
        return {key: value for key, value in values.items() if value is not None}


def find_license(folder: Path, asked: str | None, readme: str | None = None) -> License:
    """The licence `asked` for, or else that of the model card, or of the text in the folder.

    `readme` is the text of a card given in place of the folder's README.md.

    Raises:
        UsageError: there is none, or none that the hub knows.
    """
    if asked is not None:
        return _parse(asked, folder)
    if readme is None and (folder / "README.md").is_file():
        readme = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    card = read_front_matter(readme or "")
    if card.get("license") is not None:
        return _from_card(card, folder)
    found = _from_text(folder)
    if found is None:
        raise UsageError(f"No licence is known for {folder}.", hint=_HINT)
    return found


def _parse(text: str, folder: Path) -> License:
    gnu = _GNU.fullmatch(text)
    known = _BY_ID.get(gnu[1].lower() if gnu else text.lower())
    if known is not None:
        hub_id, spdx = known
        return License(hub_id, text if gnu else spdx)
    if not _OWN.fullmatch(text):
        raise InvalidRequestError(
            f"{text!a} is no licence that the hub knows.", key="license", hint=_HINT
        )
    link = _text_file(folder)
    if link is None:
        raise UsageError(
            f"{text} is a licence of its own and {folder} has no LICENSE file with its text.",
            hint=_HINT,
        )
    return License("other", text, text.removeprefix("LicenseRef-").lower(), link)


def _from_card(card: Mapping[str, Any], folder: Path) -> License:
    value = card["license"]
    if value == "other":
        name, link = card.get("license_name"), card.get("license_link")
        if isinstance(name, str) and isinstance(link, str) and name and link:
            return License(
                "other", f"LicenseRef-{re.sub('[^A-Za-z0-9.-]+', '-', name)}", name, link
            )
        raise UsageError(
            "README.md has `license: other` without license_name and license_link.", hint=_HINT
        )
    if not isinstance(value, str):
        raise UsageError(f"README.md has the licence {value!a}, expected one id.", hint=_HINT)
    return _parse(value, folder)


def _text_file(folder: Path) -> str | None:
    return next((name for name in _TEXT_NAMES if (folder / name).is_file()), None)


def _from_text(folder: Path) -> License | None:
    """The two licences whose texts cannot be confused with another's."""
    name = _text_file(folder)
    if name is None:
        return None
    text = " ".join((folder / name).read_text(encoding="utf-8", errors="replace").split())
    if text.startswith("Apache License Version 2.0, January 2004"):
        return License("apache-2.0", "Apache-2.0")
    if text.startswith("MIT License") and "Permission is hereby granted, free of charge" in text:
        return License("mit", "MIT")
    return None
