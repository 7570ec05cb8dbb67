"""Archives of torch.export.save are looked at before anything of them is read; this takes no PyTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dlc.errors import ModelError
from dlc.pytorch.archive import checked_archive


def test_an_archive_is_not_unpacked_to_more_than_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data/weights/weight_0", bytes(1 << 20))
    with pytest.raises(ModelError, match="larger than the file"):
        checked_archive(path)


def test_what_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(b"weights")
    with pytest.raises(ModelError, match=r"no archive of torch\.export\.save"):
        checked_archive(path)
