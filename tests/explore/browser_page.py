"""An explorer page in a browser: errors, accessibility and navigation."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from playwright.sync_api import sync_playwright

VIEWS = ("graph", "pipeline", "kernels", "memory", "time")

# Lists elements that screen readers, keyboard users or users with low vision cannot use.
_AUDIT = """() => {
  const wrong = [], seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const told = (e) => e.outerHTML.slice(0, 120);
  const need = (fine, e, what) => { if (!fine) wrong.push(`${what}: ${told(e)}`); };
  const named = (e) => (e.getAttribute("aria-label") ?? document.getElementById(e.getAttribute("aria-labelledby"))?.textContent
    ?? e.labels?.[0]?.textContent ?? e.textContent).trim();

  for (const e of all("a[href], button, select, input, [role=button], [tabindex='0'], [role=tabpanel]")) need(named(e), e, "no name");
  for (const e of all("[tabindex]")) need(e.tabIndex <= 0, e, "out of order");
  for (const e of all("[onclick], rect, g, path, circle")) {
    if (getComputedStyle(e).cursor === "pointer" && !e.closest("[tabindex], button, tr")) need(false, e, "out of reach of keys");
  }
  for (const e of all("[role=tab]")) need(e.hasAttribute("aria-selected") && e.closest("[role=tablist]"), e, "no tab of a list");
  for (const e of all("[aria-controls], [aria-labelledby]")) {
    for (const name of ["aria-controls", "aria-labelledby"]) {
      need(!e.hasAttribute(name) || document.getElementById(e.getAttribute(name)), e, `${name} names nothing`);
    }
  }
  for (const e of all("svg")) need(e.hasAttribute("aria-hidden") || (e.hasAttribute("role") && named(e)), e, "an image without a label");
  for (const e of all("table")) need(named(e) && e.querySelector("th[scope=col]"), e, "a table without headings");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size < ids.length) wrong.push("two elements of one id");
  let level = 0;
  for (const e of all("h1, h2, h3, h4")) { need(Number(e.tagName[1]) <= level + 1, e, "a heading skips a level"); level = Number(e.tagName[1]); }
  need(document.documentElement.lang && document.title, document.documentElement, "no language or title");

  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
    return brush.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((total, v, k) => total + v * [0.2126, 0.7152, 0.0722][k], 0);
  const known = new Map();
  for (const e of all("body *:not(svg, svg *, script, style, option)")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.closest(".aside, .skip")) continue;
    const style = getComputedStyle(e), layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(getComputedStyle(at).backgroundColor);
    const key = [style.color, style.fontSize, style.fontWeight, ...layers].join();
    if (known.has(key)) continue;
    let ground = [255, 255, 255];
    for (const layer of layers.reverse()) { const [r, g, b, a] = rgba(layer); ground = [r, g, b].map((v, k) => v * a / 255 + ground[k] * (1 - a / 255)); }
    const [one, other] = [light(rgba(style.color)), light(ground)].sort((a, b) => b - a), ratio = (one + 0.05) / (other + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
    known.set(key, ratio);
    need(ratio >= (large ? 3 : 4.5), e, `${style.color} on ${ground.map(Math.round)} has a contrast of ${ratio.toFixed(1)}`);
  }
  return wrong;
}"""
# The index of the focused element in the page; -1 if its focus is not visible. Boxes of the graph have a border.
_FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const is_seen = e === document.body || e.matches(".box") || (style.outlineStyle !== "none" && style.outlineWidth !== "0px");
  return is_seen ? [...document.querySelectorAll("*")].indexOf(e) : -1;
}"""


@contextmanager
def chromium() -> Generator[Any]:
    """Start the system's browser, or Playwright's. Raises playwright's Error if there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work as root in a container.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """An open page; `wrong` collects errors and network requests."""

    def __init__(self, browser: Any, file: Path, **settings: Any) -> None:
        self.wrong: list[str] = []
        self.page = browser.new_page(viewport={"width": 1300, "height": 800}, **settings)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.page.on("request", lambda request: None if request.url.startswith("file:") else self.wrong.append(request.url))
        self.address = file.as_uri()
        began = perf_counter()
        self.page.goto(self.address)
        self.page.wait_for_selector("main:not([aria-busy])")
        self.seconds = perf_counter() - began

    def show(self, place: str) -> None:
        """Go to a view: `pipeline?unit=program`."""
        self.page.goto(f"{self.address}#{place}")
        self.page.wait_for_selector(f'#tab-{place.partition("?")[0]}[aria-selected="true"]')

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def to_vector_loop(self) -> list[str]:
        """Open the passes of the first convolution or product kernel and return the related lines of its loops."""
        self.show("graph")
        kinds = (
            '.box.kernel[aria-label*="conv"]',
            '.box.kernel[aria-label*="matmul"]',
            '.box.kernel[aria-label*="dot_general"]',
        )
        self.page.locator(", ".join(kinds)).first.click()
        self.page.click("text=Show its passes")
        self.page.wait_for_selector(".row.selected")
        return self.texts(".pane:nth-child(2) .row.related")

    def by_keys(self) -> str:
        """Go from the search to the passes of a kernel by keyboard; return the kernel's label."""
        self.show("time")
        self.show("graph")
        self.page.keyboard.press("/")
        self.page.keyboard.type("conv" if self.page.locator('.box.kernel[aria-label*="conv"]').count() else "matmul")
        self.page.keyboard.press("Enter")
        chosen: str = self.page.evaluate("document.activeElement.getAttribute('aria-label')")
        self.page.keyboard.press("Enter")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector('#tab-pipeline[aria-selected="true"]')
        return chosen

    def screenshots(self, folder: Path) -> None:
        """Write a screenshot of each view in the light theme."""
        self.to_vector_loop()
        self.screenshot(None, folder / "explorer-pipeline.png")
        for view in ("graph", "kernels", "memory", "time"):
            self.screenshot(view, folder / f"explorer-{view}.png")

    def screenshot(self, view: str | None, file: Path, *, dark: bool = False) -> None:
        """Write a screenshot of a view, or of the current one, in the light or dark theme."""
        if (self.page.get_attribute("html", "data-theme") == "dark") != dark:
            self.page.click("#theme")
        if view is not None:
            self.show(view)
        self.page.screenshot(path=file)

    def audit(self, views: Iterable[str] = VIEWS) -> list[str]:
        """Return accessibility problems in both themes."""
        found: dict[str, None] = {}
        for _ in range(2):
            self.page.click("#theme")
            for view in views:
                self.show(view)
                found |= {f"{view}: {problem}": None for problem in self.page.evaluate(_AUDIT)}
        return list(found)

    def tabs_in_order(self, view: str, steps: int = 30) -> bool:
        """Return whether Tab cycles through a view in document order with visible focus."""
        self.show(view)
        places: list[int] = []
        for _ in range(steps):
            self.page.keyboard.press("Tab")
            place = self.page.evaluate(_FOCUSED)
            if place in places:
                break
            places.append(place)
        return -1 not in places and sum(b < a for a, b in pairwise(places)) <= 1
