"""Two explorations side by side: kernels matched, where they begin to differ, and pages read back from their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dlc
from dlc.explore import Page
from dlc.explore.data import Exploration, Pair
from dlc.explore.encode import decoded
from dlc.explore.matching import matched
from tests.explore.programs import changed, explored, mnist
from tests.targets import SHORT


def test_what_is_the_same_is_a_pair() -> None:
    assert matched(mnist(), mnist()) == tuple(Pair(k.name, k.name, "") for k in mnist().kernels)


def test_pairs_say_where_they_begin_to_differ() -> None:
    pairs = {pair.one or pair.other: pair for pair in matched(changed(), mnist())}
    assert pairs.pop("first") == Pair("first", "conv_add_relu", "tiling")
    assert pairs.pop("softmax") == Pair("", "softmax", "")
    assert set(pairs.values()) == {Pair(name, name, "") for name in pairs} and len(pairs) == len(mnist().kernels) - 2


def test_origins_of_derivatives_speak_for_kernels() -> None:
    of_derivative = [replace(k, origins=tuple(f"∂ {name}" for name in k.origins)) for k in mnist().kernels]
    units = [replace(u, name=f"d_{u.name}") if k else u for k, u in enumerate(mnist().units)]
    named = [replace(k, name=f"d_{k.name}") for k in of_derivative]
    pairs = matched(replace(mnist(), kernels=tuple(named), units=tuple(units)), mnist())
    assert [(pair.one, pair.other) for pair in pairs] == [(f"d_{k.name}", k.name) for k in mnist().kernels]


def test_nothing_in_common_is_no_pair() -> None:
    pairs = matched(explored(), mnist())
    assert [p.one for p in pairs if p.one] == [k.name for k in explored().kernels]
    assert [p.other for p in pairs if not p.one] == [k.name for k in mnist().kernels]


@pytest.mark.parametrize("exploration", [mnist, explored])
def test_pages_are_read_back(exploration: type[Exploration]) -> None:
    assert decoded(Page(exploration()).html) == exploration()


def test_a_file_that_is_no_page(tmp_path: Path) -> None:
    whole = Page(mnist()).html
    begin = whole.index('id="data">')
    for text in ("", "<html></html>", whole[: begin + 2000], whole[: begin + 2000] + "</script>", 'id="data">AAAA</script>'):
        (tmp_path / "page.html").write_text(text)
        with pytest.raises(dlc.ModelError, match=r"page\.html: no page that this version"):
            Page.read(tmp_path / "page.html")
    with pytest.raises(dlc.ModelError, match=r"none\.html: cannot be read"):
        Page.read(tmp_path / "none.html")


def test_what_is_no_page_or_path() -> None:
    page: Any = Page(mnist())
    for wrong in (page.save, page.against, page.read):
        with pytest.raises(dlc.DlcError, match=r"expected a.* pa(th|ge), .* got int"):
            wrong(3)


def test_labels_tell_pages_apart() -> None:
    mine, other = Page(mnist()), Page(replace(mnist(), target="opencl:0:0 (a device) as opencl:small"))
    assert f">{SHORT}</button>" in mine.against(other).html and ">opencl:0:0</button>" in mine.against(other).html
    assert ">mnist_cnn</button>" in mine.against(Page(explored())).html
    assert ">this one</button>" in mine.against(mine).html
