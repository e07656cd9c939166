"""Measure decoding speed of checkpoints, and write the table of it into the README.

Usage: python docs/speed_table.py [CHECKPOINT... [-- OPTION...]]

Runs `mtplx bench speed --compare mlx-lm --json` on each checkpoint in turn, with the options after `--`, and keeps
the reports in `docs/speed-measured.json`. Without a checkpoint nothing is measured: the table is written again from
that file. The README has it between two comments.
"""

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from mtplx.contracts.files import write_json, write_text
from mtplx.runtime.bench.part import Interval
from mtplx.runtime.bench.report import SpeedReport, SpeedRow

DOCS = Path(__file__).resolve().parent
MEASURED = DOCS / "speed-measured.json"
README = DOCS.parent / "README.md"
BEGIN = "<!-- begin: written by docs/speed_table.py -->"
END = "<!-- end: written by docs/speed_table.py -->"

NOT_MEASURED = "No report is kept here yet: `python docs/speed_table.py CHECKPOINT...` measures and writes this table."
MLX_LM = "mlx-lm"
_LONGEST_REASON = 160
REPORTS: TypeAdapter[list[SpeedReport]] = TypeAdapter(list[SpeedReport])

INTRODUCTION = """Measured by `mtplx bench speed --compare mlx-lm`: {machine}. {sampling}, {max_tokens} tokens
after each of {prompts} prompts of code, prose and chat; all systems in turns, {repeats} repeats after a warm-up.
Medians of ratios that are formed repeat by repeat, with bootstrap intervals; **bold** is surely faster than plain
decoding, *italic* surely slower (5 % error for a line). Cores that other processes kept busy meanwhile: {others}.{busy}
"""


def main(arguments: Sequence[str]) -> None:
    """Measure what is asked for, and write the table."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    checkpoints, options = arguments[:cut], arguments[cut + 1 :]
    if checkpoints:
        write_json(MEASURED, [measure(Path(folder), options) for folder in checkpoints])
    text = README.read_text(encoding="utf-8")
    write_text(README, replace_table(text, table(read_reports(MEASURED))))


def measure(folder: Path, options: Sequence[str]) -> object:
    """The report on one checkpoint."""
    print(f"measuring {folder.name}", flush=True)
    command = [sys.executable, "-m", "mtplx", "bench", "speed", "--model", str(folder)]
    command += ["--compare", MLX_LM, "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with code {done.returncode}: {done.stdout}")
    return json.loads(done.stdout)


def read_reports(path: Path) -> list[SpeedReport]:
    """The reports that are kept; none where nothing was measured."""
    if not path.exists():
        return []
    return REPORTS.validate_json(path.read_bytes())


def replace_table(readme: str, text: str) -> str:
    """The README with `text` between the two comments."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md has no lines `{BEGIN}` and `{END}`")
    return f"{before}{begin}\n{text}{end}{after}"


def table(reports: Sequence[SpeedReport]) -> str:
    """Conditions, one line a model, and what was refused or differs."""
    if not reports:
        return f"{NOT_MEASURED}\n"
    names = list(dict.fromkeys(row.name for report in reports for row in suite(report)))
    ways = [name for name in names if name not in ("plain", MLX_LM)]
    columns = ["model", "plain tok/s", *(f"{name} over plain" for name in ways)]
    columns += ["mlx-lm over plain", "fastest over mlx-lm", "accepted by depth"]
    lines = [columns, ["---"] * len(columns), *(cells(report, ways) for report in reports)]
    text = introduction(reports) + "\n"
    text += "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + notes(reports)


def introduction(reports: Sequence[SpeedReport]) -> str:
    """What the table shows, on which machine."""
    first = reports[0]
    found = first.conditions
    versions = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    busy = sorted({report.conditions.model for report in reports if report.conditions.busy})
    return INTRODUCTION.format(
        machine=f"{found.cores} cores, {found.platform}, {found.blas or found.back_end}, "
        f"{'/'.join(found.dtypes)}, {versions}",
        sampling="Greedy"
        if not first.sampling.temperature
        else f"Temperature {first.sampling.temperature:g}",
        max_tokens=first.max_tokens,
        prompts=len(first.parts[0].prompt_tokens),
        repeats=first.repeats,
        others=", ".join(f"{report.conditions.other_cores:.1f}" for report in reports),
        busy=f" **The machine was busy for {', '.join(busy)}.**" if busy else "",
    )


def suite(report: SpeedReport) -> tuple[SpeedRow, ...]:
    """The systems on the prompts of the suite."""
    return next(part.rows for part in report.parts if part.context is None)


def cells(report: SpeedReport, ways: Sequence[str]) -> list[str]:
    """One line of the table."""
    rows = {row.name: row for row in suite(report)}
    plain, stock = rows["plain"], rows.get(MLX_LM)
    own = [row for row in rows.values() if row.name != MLX_LM]
    fastest = max(own, key=lambda row: row.tok_s.median)
    deepest = max(own, key=lambda row: len(row.acceptance))
    return [
        f"{report.conditions.model} ({report.conditions.weight_bytes / 1e6:.0f} MB)",
        f"{plain.tok_s.median:.0f}",
        *(over_plain(rows.get(name)) for name in ways),
        "refused" if stock is None else over_plain(stock),
        "-" if fastest.over_mlx_lm is None else f"{ratio(fastest.over_mlx_lm)} ({fastest.name})",
        " ".join(f"{share:.2f}" for share in deepest.acceptance) or "-",
    ]


def over_plain(row: SpeedRow | None) -> str:
    """A ratio to plain decoding, marked by its verdict."""
    if row is None:
        return "-"
    mark = {"faster": "**", "slower": "*"}.get(row.verdict or "", "")
    low, high = row.over_plain.low, row.over_plain.high
    return f"{mark}{row.over_plain.median:.2f}{mark} ({low:.2f} to {high:.2f})"


def ratio(found: Interval) -> str:
    """A ratio with its interval."""
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


def notes(reports: Sequence[SpeedReport]) -> str:
    """What was left out, and texts that are not those of plain decoding."""
    lines, equal = [], []
    for report in reports:
        name = report.conditions.model
        lines += [
            f"{name}: {item.name} was left out: {brief(item.reason)}" for item in report.left_out
        ]
        differing = [row.name for row in suite(report) if not all(row.text_equals_plain.values())]
        if differing:
            lines.append(
                f"{name}: the text differs from that of plain decoding with {', '.join(differing)}"
            )
        else:
            equal.append(name)
    if equal:
        lines.append(f"{', '.join(equal)}: every system gave the text of plain decoding")
    return "\n" + "".join(f"* {line}\n" for line in lines)


def brief(reason: str) -> str:
    """A reason that fits a line or two."""
    return textwrap.shorten(reason, _LONGEST_REASON, placeholder=" ...")


if __name__ == "__main__":
    if "--help" in sys.argv[1:]:
        sys.exit(__doc__)
    main(sys.argv[1:])
