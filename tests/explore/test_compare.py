"""Comparison of two explorations: kernel matching, first difference, and pages read from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dlc
from dlc.explore import Page
from dlc.explore.data import Exploration, KernelPair
from dlc.explore.encode import decode_page
from dlc.explore.kernel_matching import match_kernels
from tests.explore.programs import changed, explored, mnist
from tests.targets import SHORT


def test_equal_kernels_match() -> None:
    assert match_kernels(mnist(), mnist()) == tuple(KernelPair(k.name, k.name, "") for k in mnist().kernels)


def test_pairs_name_the_first_different_stage() -> None:
    pairs = {pair.first or pair.second: pair for pair in match_kernels(changed(), mnist())}
    assert pairs.pop("first") == KernelPair("first", "conv_add_relu", "tiling")
    assert pairs.pop("softmax") == KernelPair("", "softmax", "")
    assert set(pairs.values()) == {KernelPair(name, name, "") for name in pairs} and len(pairs) == len(mnist().kernels) - 2


def test_derivative_kernels_match_by_origin() -> None:
    of_derivative = [replace(k, origins=tuple(f"∂ {name}" for name in k.origins)) for k in mnist().kernels]
    units = [replace(u, name=f"d_{u.name}") if k else u for k, u in enumerate(mnist().units)]
    named = [replace(k, name=f"d_{k.name}") for k in of_derivative]
    pairs = match_kernels(replace(mnist(), kernels=tuple(named), units=tuple(units)), mnist())
    assert [(pair.first, pair.second) for pair in pairs] == [(f"d_{k.name}", k.name) for k in mnist().kernels]


def test_unrelated_kernels_do_not_match() -> None:
    pairs = match_kernels(explored(), mnist())
    assert [p.first for p in pairs if p.first] == [k.name for k in explored().kernels]
    assert [p.second for p in pairs if not p.first] == [k.name for k in mnist().kernels]


@pytest.mark.parametrize("exploration", [mnist, explored])
def test_pages_are_read_back(exploration: type[Exploration]) -> None:
    assert decode_page(Page(exploration()).html) == exploration()


def test_invalid_page_files(tmp_path: Path) -> None:
    whole = Page(mnist()).html
    begin = whole.index('id="data">')
    for text in ("", "<html></html>", whole[: begin + 2000], whole[: begin + 2000] + "</script>", 'id="data">AAAA</script>'):
        (tmp_path / "page.html").write_text(text)
        with pytest.raises(dlc.ModelError, match=r"page\.html: not a page written by this version"):
            Page.read(tmp_path / "page.html")
    with pytest.raises(dlc.ModelError, match=r"none\.html: cannot be read"):
        Page.read(tmp_path / "none.html")


def test_invalid_arguments() -> None:
    page: Any = Page(mnist())
    for wrong in (page.save, page.against, page.read):
        with pytest.raises(dlc.DlcError, match=r"expected a.* pa(th|ge).* got int"):
            wrong(3)


def test_labels_of_pages() -> None:
    mine, other = Page(mnist()), Page(replace(mnist(), target="opencl:0:0 (a device) as opencl:small"))
    assert f">{SHORT}</button>" in mine.against(other).html and ">opencl:0:0</button>" in mine.against(other).html
    assert ">mnist_cnn</button>" in mine.against(Page(explored())).html
    assert ">first</button>" in mine.against(mine).html
