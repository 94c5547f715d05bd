"""A parser that checks the structure of a page and collects its tables and links."""

from html.parser import HTMLParser

__all__ = ["Reader"]

VOID = {"meta", "link", "input", "br", "img"}


class Reader(HTMLParser):
    """Checks that elements close in order and ids are unique; collects the text of all rows, and all links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and "svg" not in self.open:
                self.ids.append(value or "")
            if name in ("href", "src") and value:
                (self.links if value.startswith("#") else self.outside).append(value)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass  # within an svg

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
