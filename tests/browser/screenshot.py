"""Write docs/images/report.png: the page's disk with the demo's tree, one node at the centre, one selected.

python -m tests.browser.screenshot docs/images/report.png
"""

import sys
import tempfile
from pathlib import Path

from lresnet.plots.html.runs_page import runs_page
from lresnet.plots.poincare_disk import DiskEmbedding, move_to_centre
from lresnet.runs.demo import learn_embedding
from tests.browser.chromium import chromium
from tests.runs.run_records import report_of

CENTRE, NODE = 0, 1
MARGIN = 16


def demo_tree() -> DiskEmbedding:
    """The tree of `lresnet demo` with its root at the centre."""
    tree = learn_embedding()
    return DiskEmbedding(
        "The demo's tree, learned by link prediction with Lorentz residuals",
        move_to_centre(tree.points, tree.points[0]),
        tree.edges,
        tree.labels,
        ("never infected", "infected at some time"),
        note="Two dimensions: all distances are preserved.",
    )


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "page.html"
        file.write_text(runs_page(report_of([]), demo_tree()), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1120, "height": 900})
        page.goto(file.as_uri())
        page.evaluate("document.getElementById('embedding-section').scrollIntoView()")
        page.fill("#search", str(CENTRE))
        page.press("#search", "Enter")
        page.mouse.move(*page.evaluate(f"(d => d.toWindow(d.position({NODE})))(document.getElementById('disk').disk)"))
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        box = page.locator("#embedding-section").bounding_box()
        clip = {"x": box["x"] - MARGIN, "y": 2, "width": box["width"] + 2 * MARGIN, "height": 880}
        page.screenshot(path=target, clip=clip)


if __name__ == "__main__":
    main(sys.argv[1])
