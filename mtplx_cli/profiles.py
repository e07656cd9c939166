"""Named sets of options, each with what it is for and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

NO_PROFILE: Final = "none"


@dataclass(frozen=True, slots=True)
class Profile:
    """Values for some settings. `gives` and `costs` complete "it gives" and "it costs"."""

    name: str
    purpose: str
    gives: str
    costs: str
    options: Mapping[str, Any]
    aliases: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Every field by its name."""
        return {
            "name": self.name,
            "aliases": list(self.aliases),
            "purpose": self.purpose,
            "gives": self.gives,
            "costs": self.costs,
            "options": dict(self.options),
        }


_ALL = (
    Profile(
        "stable",
        purpose="the same work in every round",
        gives="a speed that varies little from text to text, no measuring of costs before "
        "the first answer, and less memory while a prompt is read",
        costs="speed on text that a deeper draft would guess",
        options={"depth": 1, "acceptance": "coupled", "prefill_chunk": 256},
    ),
    Profile(
        "sustained",
        purpose="long contexts and agents",
        gives="about half the memory for each token of context that 16-bit caches take, a "
        "quarter of 32-bit ones, and less memory while a prompt is read",
        costs="the text that an unquantised cache would give: keys and values are rounded to 8 "
        "bits, for plain decoding as for MTP. Models with latent attention (DeepSeek) refuse it",
        options={
            "depth": "auto",
            "acceptance": "coupled",
            "prefill_chunk": 256,
            "kv_bits": 8,
        },
    ),
    Profile(
        "turbo",
        purpose="most accepted drafts when sampling, for models whose forwards outweigh the law",
        gives="9 % more tokens a round than coupled (an 8 M model, depth 4, temperature 0.8), and "
        "fewer chunks a prompt",
        costs="more work a round: on that model, on a CPU, it used the gain up (0.98 of coupled's "
        "speed). The text for a seed depends on the depth too, which auto chooses from measured "
        "times; its distribution, and greedy text, stay the same. More memory while a prompt is "
        "read",
        options={"depth": "auto", "acceptance": "block", "prefill_chunk": 1024},
    ),
    Profile(
        "burst",
        purpose="single short prompts, answered soon after the start",
        gives="no measuring of costs before the first answer, and a prompt of up to 8192 tokens in one "
        "forward",
        costs="memory that grows with the length of the prompt, and speed where text is hard to "
        "guess: three tokens are drafted whether or not they are accepted",
        options={"depth": 3, "acceptance": "coupled", "prefill_chunk": 8192},
        aliases=("performance-cold",),
    ),
    Profile(
        "exact",
        purpose="the reference that MTP is compared with",
        gives="plain decoding, one token a forward: no tie between two tokens can fall otherwise "
        "because several rows are computed at once",
        costs="all the speed of MTP",
        options={"depth": 0, "acceptance": "coupled", "prefill_chunk": 512, "kv_bits": "off"},
    ),
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({p.name: p for p in _ALL})

_ALIASES = {alias: profile.name for profile in _ALL for alias in profile.aliases}


def canonical_name(name: str) -> str | None:
    """The profile's own name for `name`, which may be an alias; None when there is none."""
    own = _ALIASES.get(name, name)
    return own if own in PROFILES or own == NO_PROFILE else None


def profile_options(name: object) -> Mapping[str, Any]:
    """The options of the profile `name`; none for no profile and for what is not one."""
    own = canonical_name(name) if isinstance(name, str) else None
    return PROFILES[own].options if own is not None and own in PROFILES else {}
