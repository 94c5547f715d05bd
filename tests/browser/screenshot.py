"""Write docs/images/report.png and report-results.png: the page that the commands of docs/howto/report.md make.

python -m tests.browser.screenshot docs/images/report.png
"""

import os
import sys
import tempfile
from pathlib import Path

from lresnet import cli
from tests.browser.chromium import chromium

NODE = 1  # the node under the pointer
SIZE = {"width": 1400, "height": 900}


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for method in ("lorentz", "euclidean"):
            for seed in "012":
                options = ["--method", method, "--seed", seed, "--epochs", "300", "--test", "--device", "cpu"]
                assert cli.main(["train", "disease_tree/lp", *options]) == 0
        assert cli.main(["report", "-o", "report.html", "--embedding", "runs/disease_tree_lp-lorentz-0"]) == 0
        with chromium() as browser:
            page = browser.new_page(viewport=SIZE)
            page.goto(Path("report.html").resolve().as_uri())
            disk = "document.getElementById('disk').disk"
            page.mouse.move(*page.evaluate(f"{disk}.toWindow({disk}.position({NODE}))"))
            page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            page.screenshot(path=target)
            page.locator("#results").screenshot(path=target.with_name(f"{target.stem}-results{target.suffix}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
