"""The text of a model card, from nothing but the contract; what was not measured is not mentioned."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, Final

from mtplx.contracts.contract_parts import WINNING_VERDICT
from mtplx.contracts.runtime_contract import RuntimeContract, SpeedEvidence
from mtplx.forge.brand import DEGRADED, UNCALIBRATED, UNVERIFIED
from mtplx.forge.publish.license import License
from mtplx.forge.publish.repo_id import repo_id_fault

_VERDICTS: Final = {
    "no_mtp_depth_beat_ar": "MTP decoding was **not faster** than plain decoding where it was measured.",
    "mtp_acceptance_collapsed": "Hardly any draft of the MTP head was accepted: it does not help.",
    "exactness_failed": "Output with MTP **differed** from plain decoding. Use it without MTP.",
    "exactness_passed": "Output with MTP was exact; its speed was not measured.",
}
_LABELS: Final = {
    DEGRADED: "The MTP head is quantised like the body, so fewer of its drafts are accepted.",
    UNCALIBRATED: "The wiring of the MTP head was not measured; it is the default of its family.",
}
_MAX_CELL = 120


def warnings(contract: RuntimeContract, labels: tuple[str, ...]) -> str:
    """What readers must know before anything else, as a quotation; empty when there is nothing."""
    lines: list[str] = []
    if UNVERIFIED in labels:
        reasons = "; ".join(contract.unproven()) or "it was not verified as it is now"
        lines.append(f"**Unverified.** This artifact is published although {reasons}.")
    speed = contract.speed_evidence
    if speed is not None and speed.verdict not in (None, WINNING_VERDICT):
        verdict = str(speed.verdict)
        lines.append(_VERDICTS.get(verdict, f"The verdict of the measurement: {_cell(verdict)}."))
    lines += [
        _LABELS.get(label, f"Label: {_cell(label)}.") for label in labels if label != UNVERIFIED
    ]
    return "\n>\n".join(f"> {line}" for line in lines)


def text(contract: RuntimeContract, repo: str, license_: License) -> str:
    """Everything below the front matter, from the title on."""
    name = repo.rpartition("/")[2]
    sections = (
        f"# {name}\n\n{_intro(contract)}",
        _speed(contract),
        _exactness(contract),
        _usage(repo, name),
        _making(contract),
        _provenance(contract, license_),
    )
    return "\n\n".join(section for section in sections if section)


def is_quantised(contract: RuntimeContract) -> bool:
    """Whether the recipe packs the body into fewer bits."""
    return _recipe(contract).get("body_bits") is not None


def source_repo(contract: RuntimeContract) -> str | None:
    """The repository that the artifact was made from, None for a folder or what names none."""
    provenance = contract.forge_provenance
    source = provenance.source_repo if provenance is not None else None
    return source if source and not repo_id_fault(source) else None


def _intro(contract: RuntimeContract) -> str:
    source = source_repo(contract)
    origin = f"[{source}](https://huggingface.co/{source})" if source else "A language model"
    is_exact = contract.exactness is not None and contract.exactness.holds
    exact = "; where it was tested, the output was what plain decoding gives" if is_exact else ""
    return (
        f"{origin} for [MLX](https://github.com/ml-explore/mlx), together with its own head for "
        "multi-token prediction (MTP). With `mtplx` the head drafts tokens and the model verifies "
        f"them several at a time{exact}. Any other MLX program loads the folder as an ordinary "
        "model. Text only."
    )


def _speed(contract: RuntimeContract) -> str:
    """Every row that was measured, the losing ones too, and how it was measured."""
    speed = contract.speed_evidence
    rows = [_speed_row(row) for row in _measured(speed)] if speed is not None else []
    if speed is None or not rows:
        return ""
    table = _table(("decoding", "tok/s", "ratio", "95 % interval", "accepted by position"), rows)
    where = {
        "accepted_by_kind_of_text": speed.acceptance_by_domain,
        **(contract.verified_on or {}),
        **(speed.conditions or {}),
    }
    conditions = "\n".join(_facts(where))
    return f"## Measured speed\n\n{table}\n\n{conditions}".rstrip()


def _measured(speed: SpeedEvidence) -> list[Mapping[str, Any]]:
    """The recorded rows, or else those that the summary of the evidence amounts to."""
    rows = [row for row in speed.forge_verify_rows or [] if isinstance(row, Mapping)]
    if rows:
        return rows
    if speed.ar_tok_s is not None:
        rows.append({"depth": 0, "tok_s": speed.ar_tok_s})
    if speed.depth and (speed.tok_s is not None or speed.gain is not None):
        rows.append(
            {
                "depth": speed.depth,
                "tok_s": speed.tok_s,
                "multiplier_vs_ar": speed.gain,
                "gain_interval": speed.gain_interval,
                "acceptance_by_position": speed.acceptance_by_depth,
            }
        )
    return rows


def _speed_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    depth = row.get("depth") or 0
    interval = row.get("gain_interval")
    ends = interval if isinstance(interval, list | tuple) else ()
    return (
        f"MTP, depth {_cell(depth)}" if depth else "plain",
        _number(row.get("tok_s"), 1),
        _number(row.get("multiplier_vs_ar")) if depth else "1",
        " to ".join(_number(end) for end in ends) or "-",
        _shares(row.get("acceptance_by_position")) if depth else "-",
    )


def _exactness(contract: RuntimeContract) -> str:
    found = contract.exactness
    if found is None:
        return ""
    is_equal = found.passed and found.tokens > 0 and found.differences == 0
    verdict = "equal to plain decoding" if is_equal else "**not** shown equal to plain decoding"
    lines = [
        f"With MTP on, output was {verdict}: {found.tokens} tokens compared, {found.differences} "
        f"differed, and {found.numeric_ties} were ties (two tokens equally likely within rounding)."
    ]
    if found.law is not None and isinstance(found.law.get("passed"), bool):
        verdict = "passed" if found.law["passed"] else "**failed**"
        lines.append(f"The statistical test of rejection sampling {verdict}.")
    facts = "\n".join(_facts(found.tested_on))
    return f"## Exactness\n\n{' '.join(lines)}\n\n{facts}".rstrip()


def _usage(repo: str, name: str) -> str:
    return f"""## How to run it

```sh
hf download {repo} --local-dir {name}
mtplx run "Why is the sky blue?" --model {name}
mtplx chat --model {name}
```

Without MTP, in stock mlx-lm:

```sh
mlx_lm.generate --model {repo} --prompt "Why is the sky blue?"
```"""


def _making(contract: RuntimeContract) -> str:
    parts = [_recipe_table(contract), _head_line(contract), _calibration_line(contract)]
    text = "\n\n".join(part for part in parts if part)
    return f"## How it was made\n\n{text}" if text else ""


def _recipe_table(contract: RuntimeContract) -> str:
    recipe = _recipe(contract)
    if not recipe:
        return ""
    body = {"bits": recipe.get("body_bits"), "group_size": recipe.get("body_group_size")}
    body["mode"] = recipe.get("body_mode")
    rows = [("body", _bits(body))]
    overrides = recipe.get("module_overrides")
    if isinstance(overrides, Mapping):
        rows += [(_cell(module), _bits(spec)) for module, spec in overrides.items()]
    rows.append(("MTP head", _cell(recipe.get("mtp_policy", "-"))))
    return f"Recipe `{_cell(recipe.get('name', '-'))}`:\n\n" + _table(("module", "weights"), rows)


def _bits(spec: Any) -> str:
    if not isinstance(spec, Mapping) or spec.get("bits") is None:
        return "as published"
    return f"{spec['bits']} bits, groups of {spec.get('group_size')}, {spec.get('mode', 'affine')}"


def _head_line(contract: RuntimeContract) -> str:
    head = contract.head
    if head is None:
        return ""
    layers = "1 layer" if head.mtp_layers == 1 else f"{head.mtp_layers} layers"
    return (
        f"Head: layout {head.layout}, {layers}; fed with the hidden state {head.feed}-norm, "
        f"recycling its own {head.recycle}-norm, {head.concat.replace('_', ' then ')}."
    )


def _calibration_line(contract: RuntimeContract) -> str:
    found = contract.calibration
    if found is None or not found.agreement:
        return ""
    tokens = (found.text or {}).get("tokens")
    size = f" over {tokens} tokens" if isinstance(tokens, int) else ""
    candidates = f" of {len(found.scores)} candidates" if found.scores else ""
    return (
        f"The wiring was chosen by measurement, the best{candidates}: head and trunk agree on the "
        f"next token at {_shares(found.agreement)} by depth{size}."
    )


def _provenance(contract: RuntimeContract, license_: License) -> str:
    facts: dict[str, Any] = {}
    provenance = contract.forge_provenance
    if provenance is not None:
        facts |= {
            "source": provenance.source_repo or "a local folder",
            "commit": provenance.source_sha,
            "source format": provenance.source_format,
            "versions": provenance.versions,
        }
    facts |= {
        "contract": f"mtplx_runtime.json, written by mtplx {contract.mtplx_version or '-'}",
        "content": contract.content.identity if contract.content is not None else None,
        "license": license_.spdx,
    }
    return "## Provenance\n\n" + "\n".join(_facts(facts))


def _recipe(contract: RuntimeContract) -> Mapping[str, Any]:
    provenance = contract.forge_provenance
    recipe = provenance.forge_recipe if provenance is not None else None
    if isinstance(recipe, str):
        return {"name": recipe}
    return recipe or {}


def _facts(values: Mapping[str, Any]) -> Iterable[str]:
    """One list item for each value that can be said in a line."""
    for key, value in values.items():
        shown = _value(value)
        if shown:
            yield f"- {_cell(key.replace('_', ' '))}: {shown}"


def _value(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, Mapping):
        pairs = ((key, _value(item)) for key, item in value.items())
        return _cell(", ".join(f"{key} {item}" for key, item in pairs if item))
    if isinstance(value, list):
        return (
            _cell(", ".join(_value(item) for item in value)) if len(value) <= 8 else f"{len(value)}"
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _number(value) if isinstance(value, float) else _cell(value)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shares(values: Any) -> str:
    if not isinstance(values, list):
        return "-"
    return ", ".join(_number(value, 3) for value in values) or "-"


def _number(value: Any, digits: int = 2) -> str:
    """A number, or the median of several, as the public format has them."""
    if isinstance(value, list) and value and all(_is_number(item) for item in value):
        value = median(value)
    return f"{value:.{digits}f}" if _is_number(value) else "-"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    """One line of text that cannot end a table cell or open a tag."""
    line = " ".join(str(value).split())
    for mark, escaped in (("|", "\\|"), ("<", "&lt;")):
        line = line.replace(mark, escaped)
    return line if len(line) <= _MAX_CELL else line[:_MAX_CELL] + "…"
