"""The page in a real browser, if there is one: Playwright's Chromium or the system's."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.explore import Page
from tests.explore.programs import FUNCTIONS, changed, explored, explored_function, mnist, page_of_counts, tiny, until
from tests.targets import SHORT

playwright = pytest.importorskip("playwright.sync_api")

from tests.explore.browser_page import VIEWS, Opened, chromium  # noqa: E402

WHOLE = {"a scan": explored, **{name: lambda name=name: explored_function(name) for name in FUNCTIONS}}


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    launched = ExitStack()
    try:
        yield launched.enter_context(chromium())
    except playwright.Error as error:
        pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
    launched.close()


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[Opened]:
    file: Path = tmp_path_factory.mktemp("page") / "page.html"
    Page(mnist()).save(file)
    opened = Opened(browser, file)
    yield opened
    opened.page.close()


@pytest.fixture
def page(opened: Opened) -> Generator[Any]:
    """The page at its first view; the test fails on any error or network request."""
    opened.show("time")
    opened.show("graph")
    yield opened.page
    assert not opened.wrong


@pytest.mark.parametrize("name", WHOLE)
def test_pages_of_whole_programs(browser: Any, name: str, tmp_path: Path) -> None:
    """Navigate to the vector loop of a product by mouse and keyboard, and check accessibility."""
    Page(WHOLE[name]()).save(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    assert any("vector.fma" in line for line in opened.to_vector_loop())
    assert opened.by_keys().startswith("kernel ")
    assert opened.audit() == []
    opened.page.close()
    assert not opened.wrong


def texts(page: Any, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def test_lines_link_a_convolution_to_its_vector_loop(page: Any) -> None:
    page.click('[aria-label^="kernel conv_add_relu_1,"]')
    assert "conv, add" in page.inner_text("aside") and "starts a kernel" in page.inner_text("aside")
    page.click("text=Show its passes")
    page.wait_for_selector(".row.selected")
    left, right = ".pane:nth-child(1) ", ".pane:nth-child(2) "
    (selected,) = texts(page, left + ".row.selected")
    assert "conv2d_1 = Conv(max_pool2d" in selected
    products = [row for row in texts(page, right + ".row.related") if "vector.fma" in row]
    assert products
    assert page.locator(right + ".row.related", has_text="vector.fma").first.bounding_box()["y"] < 800
    # From the node to machine code, and from an instruction back to the node.
    page.click('.trail >> text="assembly"')
    assert any("vfmadd" in row for row in texts(page, right + ".row.related"))
    page.locator(right + ".row", has_text="vfmadd").first.click(position={"x": 200, "y": 9})
    assert ["conv2d_1 = Conv" in row for row in texts(page, left + ".row.related")] == [True]
    # An instruction links to exactly one line of the loops.
    page.select_option(left + "select", label="loops · name-values")
    assert [("vector.fma" in row) for row in texts(page, left + ".row.related")] == [True]


def test_a_kernel_and_an_input_of_the_same_name(browser: Any, tmp_path: Path) -> None:
    Page(until()).save(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    opened.show("pipeline?unit=tanh")
    assert "dl.tanh" in opened.texts(".row.selected")[0] or "dnp.tanh" in opened.texts(".row.selected")[0]
    opened.show("graph")
    opened.page.click('[aria-label^="input tanh"]')
    assert "launches" not in opened.texts("aside dt")
    opened.page.click('[aria-label^="kernel tanh"]')
    assert "launches" in opened.texts("aside dt")
    opened.page.close()
    assert not opened.wrong


def test_a_pass_marks_what_it_changed(page: Any, opened: Opened) -> None:
    opened.show("pipeline?unit=program")
    page.click('.steps >> text="simplify"')
    removed = texts(page, ".row.removed")
    assert len(removed) == 2 and all("dl.transpose" in row for row in removed)
    assert page.locator(".row.added").count() == 0
    # Lines that differ only in value numbers are equal.
    assert page.locator(".row.renumbered").count() >= 10


def test_a_value_is_highlighted_on_both_sides(page: Any, opened: Opened) -> None:
    opened.show("pipeline?unit=program")
    page.click('.steps >> text="simplify"')
    page.locator('.pane:nth-child(1) [data-v="%11"]').first.click()
    lit = [texts(page, f".pane:nth-child({k}) .t-val.lit") for k in (1, 2)]
    assert lit == [["%11", "%11"], ["%10", "%10"]]


def test_keyboard_navigation(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    assert page.evaluate(focused).startswith("kernel softmax,")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused).startswith("kernel matmul_add,")
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "Show its passes"
    page.keyboard.press("Enter")
    page.wait_for_selector('#tab-pipeline[aria-selected="true"]')
    page.focus("#tab-pipeline")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "Kernels"
    page.wait_for_selector('#tab-kernels[aria-selected="true"]')
    page.focus("text=GFLOP/s >> nth=-1")
    page.keyboard.press("Enter")
    assert page.get_attribute('th:has-text("GFLOP/s")', "aria-sort") == "descending"


def test_accessibility(page: Any, opened: Opened) -> None:
    assert opened.audit() == []


def test_tab_order(page: Any, opened: Opened) -> None:
    assert [view for view in VIEWS if not opened.tabs_in_order(view)] == []


def test_narrow_screens(page: Any, opened: Opened) -> None:
    page.set_viewport_size({"width": 420, "height": 800})
    for view in VIEWS:
        opened.show(view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
    page.set_viewport_size({"width": 1300, "height": 800})


def test_light_and_dark_theme(browser: Any, opened: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page = browser.new_page(color_scheme="dark")
    page.goto(opened.address)
    page.wait_for_selector("main:not([aria-busy])")
    dark = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != dark and page.get_attribute("html", "data-theme") == "light"
    page.close()


def test_memory_names_the_largest_buffer(page: Any, opened: Opened) -> None:
    opened.show("memory")
    assert "max_pool_pad" in page.inner_text("figcaption") and "32.5 KB" in page.inner_text(".facts")
    assert texts(page, "tbody tr:first-child td:last-child") == ["matmul_add"]


def test_two_pages_are_compared(browser: Any, tmp_path: Path) -> None:
    seconds = ((mnist(), (0.03, 0.01, 0.02)), (changed(), (0.01,)))
    old, new = (replace(page, measurements=replace(page.measurements, runs=runs)) for page, runs in seconds)
    Page(new, label="new").against(Page(old, label="old")).save(tmp_path / "both.html")
    opened = Opened(browser, tmp_path / "both.html")
    page, wrong = opened.page, opened.wrong
    page.wait_for_selector('#tab-compare[aria-selected="true"]')
    assert opened.audit(["compare"]) == []
    opened.show("compare")
    rows = {row.split("\t")[0]: row for row in texts(page, '[aria-label="Kernels of both"] tbody tr')}
    # Kernels with different code come first; time differences of equal code are noise.
    assert {*list(rows)[:2]} == {"first · conv_add_relu", "softmax"}
    assert texts(page, "main p:has-text('fastest run')") == [
        "old: the fastest run took 10.0 ms, the median run 20.0 ms: the machine was busy, so kernel times are uncertain."
    ]
    assert "from tiling on" in rows["first · conv_add_relu"] and "only in old" in rows["softmax"]
    assert "nothing" in rows["matmul_add"] and "the same" in page.inner_text('.summary tr:has-text("arena")')
    # A kernel's name links to both texts at the first different stage.
    page.click('button:text-is("first")')
    page.wait_for_selector('#tab-pipeline[aria-selected="true"]')
    assert texts(page, ".whose") == ["old", "new"]
    assert any("arith.constant 7" in row for row in texts(page, ".row.added"))
    assert all("first" in row or "constant 7" in row for row in texts(page, ".row.added"))
    # A click switches to the other page, and the view stays.
    page.click('#pages >> text="old"')
    page.click("#tab-kernels")
    assert "softmax" in page.inner_text("tbody") and not wrong
    page.click('#pages >> text="new"')
    page.wait_for_selector('#pages button:first-child[aria-pressed="true"]')
    assert "softmax" not in page.inner_text("tbody") and not wrong
    page.close()


def test_a_program_without_kernels(browser: Any, tmp_path: Path) -> None:
    model = dlc.compile_model(tiny("Identity"), target=SHORT, num_threads=1)
    model.explore(np.ones(4, np.float32)).save(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    assert opened.audit() == []
    opened.show("kernels")
    assert "There are no kernels" in texts(opened.page, "main")[0] and not opened.wrong
    opened.page.close()


def test_data_dependent_size(browser: Any, tmp_path: Path) -> None:
    page_of_counts().save(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    page = opened.page
    page.click('.box.size >> text="nonzero_0 is 3"')
    assert "a call waits here" in page.inner_text("aside") and texts(page, "aside .bare .link") == [
        "cast_reduce_sum",
        "true_indices",
    ]
    # Segments between data-dependent sizes have steps like the program and its kernels.
    page.click("aside .chip")
    page.select_option('[aria-label="Program or kernel"]', label="segment 2")
    page.wait_for_selector('.steps >> text="simplify"')
    assert texts(page, ".steps .what") == ["as imported", "simplify", "form-kernels"]
    opened.show("memory")
    assert "n = 6, nonzero_0 = 3" in page.inner_text("figcaption") and not opened.wrong
    page.close()
