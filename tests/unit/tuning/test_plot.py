"""The picture of a tuning result: what is in it, and what is refused before anything is measured."""

from __future__ import annotations

import errno
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from mtplx.contracts.errors import InvalidRequestError, ResourceError, UsageError
from mtplx.runtime.tuning.plot import require_plot, write_plot
from mtplx.runtime.tuning.record import TuningRecord
from tests.support.fake_tuning import a_record

SVG = "{http://www.w3.org/2000/svg}"


def texts(file: Path) -> set[str]:
    """All text of an SVG file."""
    root = ElementTree.parse(file).getroot()
    assert root.tag == f"{SVG}svg"
    return {"".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")}


def record(model: str = "a-model") -> TuningRecord:
    return a_record(conditions={"chip": "A chip"}, model=model)


def test_a_png_is_an_image(tmp_path: Path) -> None:
    file = tmp_path / "tune.png"
    write_plot(record(), file)
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
    assert (width, height) == (1800, 600)
    assert len(set(data)) > 200


def test_an_svg_names_all_that_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "tune.SVG"
    write_plot(record(), file)
    found = texts(file)
    assert found >= {"speed (95 % intervals)", "tokens a second", "plain", "1", "3", "auto"}
    assert found >= {"drafts accepted", "all", "code", "chat", "position of the draft"}
    assert found >= {"cost of a forward (c 0.250, o 0.010)", "v(M)", "rows M"}
    assert "a-model on A chip: 1 is fastest" in found


def test_every_way_of_decoding_has_its_point_and_its_interval(tmp_path: Path) -> None:
    file = tmp_path / "tune.svg"
    write_plot(record(), file)
    root = ElementTree.parse(file).getroot()
    groups = [element.get("id", "") for element in root.iter(f"{SVG}g")]
    bars = [name for name in groups if name.startswith("LineCollection")]
    assert len(bars) == len(record().rows)
    # A point and two caps for each, three curves of acceptance with their legend, and one of costs.
    assert sum(name.startswith("line2d") for name in groups) > 3 * len(record().rows) + 4


def test_any_name_of_a_model_can_be_drawn(tmp_path: Path) -> None:
    model = "costs $5 or $x_ 模型"
    write_plot(record(model), tmp_path / "tune.svg")
    assert any(text.startswith(model) for text in texts(tmp_path / "tune.svg"))
    write_plot(record("模型"), tmp_path / "tune.png")


@pytest.mark.parametrize("name", ["tune.pdf", "tune", "png"])
def test_another_kind_of_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"expected \.png or \.svg") as caught:
        require_plot(tmp_path / name)
    assert caught.value.key == "plot"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        require_plot(tmp_path / "none" / "tune.png")


def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        require_plot(tmp_path / "folder.png")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="cannot be written"):
        require_plot(tmp_path / "tune.png")


def test_without_matplotlib_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        require_plot(tmp_path / "tune.png")
    assert "mtplx[plot]" in caught.value.hint


def test_a_full_disk_is_an_error_and_leaves_no_half_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError):
        write_plot(record(), tmp_path / "tune.svg")
    assert list(tmp_path.iterdir()) == []
