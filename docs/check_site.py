"""Check the built documentation site: every internal link and anchor resolves, and nothing loads from the network.

python docs/check_site.py site
"""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_RESOURCES = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}


class Page(HTMLParser):
    """The anchors, links and resources of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.resources = set[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name in ("src", "href"):
            if (tag, name) in _RESOURCES and name in values and values.get("rel") not in ("canonical", "prev", "next"):
                self.resources.append(values[name])


def problems(site: Path) -> list[str]:
    """Return one line for each broken link, missing anchor and resource from the network; empty if all is well."""
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for file, page in pages.items():
        if file.name == "404.html":  # its links start at the site's root, wherever it is served
            continue
        here = file.relative_to(site)
        for link in page.links + page.resources:
            parts = urlsplit(link)
            if parts.scheme in ("mailto", "data"):
                continue
            if parts.scheme or parts.netloc:
                if link in page.resources:
                    found.append(f"{here}: loads {link} from the network")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file():
                found.append(f"{here}: {link} does not exist")
            elif parts.fragment and target.suffix == ".html":
                anchors = pages[target].anchors if target in pages else Page(target.read_text(encoding="utf-8")).anchors
                if unquote(parts.fragment) not in anchors:
                    found.append(f"{here}: {link} has no such anchor")
    for file in sorted(site.rglob("*.css")):
        urls = re.findall(r"url\(['\"]?(https?:[^)'\"]+)", file.read_text(encoding="utf-8"))
        found += [f"{file.relative_to(site)}: loads {url} from the network" for url in urls]
    return found


def main() -> int:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    found = problems(site)
    for line in found:
        print(line, file=sys.stderr)
    if found:
        return 1
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    count = len(list(site.rglob("*.html")))
    print(f"{site.name}/: {count} pages, {len(index['docs'])} entries in the search; all links and anchors exist")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
