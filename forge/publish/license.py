"""The licence of an artifact: named by the user, or found in the folder; never guessed.

The hub knows many licences of SPDX, in lower case, and some that SPDX has not, which are named
`LicenseRef-ID` where SPDX is asked for. Any other licence is `other` on the hub, with its name and
a link to its text.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from huggingface_hub import CardData
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.forge.publish.front_matter import read_card

_HUB_LIST: Final = """
    apache-2.0 mit afl-3.0 artistic-2.0 bsl-1.0 bsd-2-clause bsd-3-clause bsd-3-clause-clear
    cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0
    cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl
    ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gpl-2.0 gpl-3.0 lgpl-2.1 lgpl-3.0
    isc lppl-1.3c ms-pl mpl-2.0 osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
    c-uda pddl lgpl-lr odc-by odbl
    openrail openrail++ bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
    bigcode-openrail-m apple-ascl apple-amlr deepfloyd-if-license fair-noncommercial-research-license
    llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 gemma grok2-community h-research intel-research
    openmdw-1.0
"""
_HUB_IDS: Final = frozenset(_HUB_LIST.split())
# The hub's spelling where it is not SPDX in lower case.
_SPDX_OF: Final = {
    "c-uda": "C-UDA-1.0",
    "pddl": "PDDL-1.0",
    "lgpl-lr": "LGPLLR",
    "odc-by": "ODC-By-1.0",
    "odbl": "ODbL-1.0",
}
_HUB_ID_OF: Final = {spdx: hub_id for hub_id, spdx in _SPDX_OF.items()}

# The hub does not tell "this version" from "this version or later".
_GNU_SUFFIX = re.compile(r"(?<=gpl-\d\.\d)(?:-only|-or-later|\+)$")
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
        """`license`, and for one that the hub does not know `license_name` and `license_link`."""
        values = {"license": self.hub_id, "license_name": self.name, "license_link": self.link}
        return {key: value for key, value in values.items() if value is not None}


def find_license(folder: Path, asked: str | None, readme: str | None = None) -> License:
    """The licence `asked` for, or else that of the model card, or of the text in the folder.

    `readme` is the text of a card given in place of the folder's README.md.

    Raises:
        UsageError: there is none, or it is none of SPDX, of the hub, or with a text of its own.
    """
    if asked is not None:
        return _parse(asked, folder)
    if readme is None and (folder / "README.md").is_file():
        readme = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    data = read_card(readme or "").data
    if (named := data.get("license")) is not None:
        return _other(data) if named == "other" else _parse(named, folder)
    found = _from_text(folder)
    if found is None:
        raise UsageError(f"No licence is known for {folder}.", hint=_HINT)
    return found


def _parse(text: Any, folder: Path) -> License:
    asked = text if isinstance(text, str) else ""
    of_hub = asked.removeprefix("LicenseRef-").lower()
    if of_hub in _HUB_IDS and _spdx(of_hub) is None:
        return License(of_hub, f"LicenseRef-{of_hub}")
    spdx = _spdx(asked)
    if spdx is None:
        raise InvalidRequestError(
            f"{text!a} is no licence of SPDX or of the hub.", key="license", hint=_HINT
        )
    hub_id = _HUB_ID_OF.get(spdx) or _GNU_SUFFIX.sub("", spdx.lower())
    return License(hub_id, spdx) if hub_id in _HUB_IDS else _unlisted(spdx, folder)


def _spdx(text: str) -> str | None:
    """The id as SPDX spells it; None for what is none, or more than one licence."""
    try:
        found = str(canonicalize_license_expression(_SPDX_OF.get(text.lower(), text)))
    except InvalidLicenseExpression:
        return None
    return found if re.fullmatch(r"[\w.+-]+", found) else None


def _unlisted(spdx: str, folder: Path) -> License:
    """A licence of SPDX that the hub does not list, or `LicenseRef-NAME` with its own text."""
    link = _text_file(folder)
    if link is None and spdx.startswith("LicenseRef-"):
        raise UsageError(
            f"{spdx} is a licence of its own and {folder} has no LICENSE file with its text.",
            hint=_HINT,
        )
    link = link or f"https://spdx.org/licenses/{spdx}.html"
    return License("other", spdx, spdx.removeprefix("LicenseRef-").lower(), link)


def _other(data: CardData) -> License:
    name, link = data.get("license_name"), data.get("license_link")
    if not (isinstance(name, str) and isinstance(link, str) and name and link):
        raise UsageError(
            "README.md has `license: other` without license_name and license_link.", hint=_HINT
        )
    return License("other", f"LicenseRef-{re.sub('[^A-Za-z0-9.-]+', '-', name)}", name, link)


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
