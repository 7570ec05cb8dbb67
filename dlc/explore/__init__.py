"""What the compiler made of a program and where its time and memory go, as one page to look at.

    page = explore(program, target, options, inputs)      compiles it, measures it, and draws
    page.save("page.html")                                one file that needs no network

`data.py` is all that a page shows, as plain values; `collect.py` compiles, runs and gathers it, with `graph.py` (ops in
kernels), `layout.py` (where they are drawn), `memory.py` (buffers over time) and `sources.py` (what the user wrote);
`encode.py` writes it small, and `page.py` puts it into the template of `page/`, whose scripts draw it in the browser.
"""

from dlc.explore.collect import collect
from dlc.explore.page import Page, page_of

__all__ = ["Page", "collect", "page_of"]
