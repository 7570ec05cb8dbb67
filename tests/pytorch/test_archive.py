"""Archives of torch.export.save are validated before torch reads them; needs no PyTorch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from dlc.errors import ModelError
from dlc.pytorch.archive import checked_archive


def test_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data/weights/weight_0", bytes(1 << 20))
    with pytest.raises(ModelError, match="larger than the file"):
        checked_archive(path)


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        ("torch.ops.aten.relu.default", False),
        ("torch.ops.transformers.grouped_mm_fallback.default", False),
        ("torch.ops.others.unknown.default", True),
        ("_operator.mul", False),
        ("math.system", True),
    ],
)
def test_allowed_functions(tmp_path: Path, function: str, refused: bool) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/models/model.json", json.dumps({"nodes": [{"target": function}]}))
    if not refused:
        assert checked_archive(path).read()
        return
    with pytest.raises(ModelError, match="a function '"):
        checked_archive(path)


def test_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(b"weights")
    with pytest.raises(ModelError, match=r"not an archive of torch\.export\.save"):
        checked_archive(path)
