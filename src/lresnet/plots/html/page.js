// The sidebar, and tables that can be sorted and filtered.

const FILTERED_FROM = 8;  // a table with fewer rows has no filter

/** Open and close the list of sections on narrow screens, and mark the section that is being read. */
function startSidebar() {
  const bar = document.getElementById("sidebar"), menu = document.getElementById("menu");
  const open = (wanted) => {
    bar.classList.toggle("open", wanted);
    menu.setAttribute("aria-expanded", wanted);
  };
  menu.addEventListener("click", () => open(!bar.classList.contains("open")));
  bar.addEventListener("keydown", (event) => event.key === "Escape" && open(false));
  const links = [...bar.querySelectorAll("nav a")];
  links.forEach((link) => link.addEventListener("click", () => open(false)));
  const target = (link) => document.getElementById(decodeURIComponent(link.hash.slice(1)));
  const mark = () => {
    const read = links.filter((link) => target(link).getBoundingClientRect().top < innerHeight / 3);
    const current = read.at(-1) ?? links[0];
    links.forEach((link) => (link === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
}

/** Return a cell's key: the first number in a column of numbers, otherwise the text without its sign; null if there is none. */
function sortKey(cell, isNumber) {
  const text = cell.textContent.replaceAll("−", "-").trim();
  if (!isNumber) return text.replace(/^[^\p{L}\p{N}]+/u, "") || null;
  const found = text.replaceAll(",", "").match(/[-+]?\d+(\.\d+)?(e[-+]?\d+)?/i);
  return found && Number(found[0]);
}

class SortableTable {
  constructor(table) {
    this.table = table;
    this.groups = [...table.tBodies].map((body) => ({ body, rows: [...body.rows].filter((row) => !row.matches(".group")) }));
    this.count = this.groups.reduce((sum, group) => sum + group.rows.length, 0);
    if (this.count > 1) this.addButtons();
    if (this.count >= FILTERED_FROM) this.addFilter();
  }

  addButtons() {
    [...this.table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => this.sort(head, column));
      head.append(button);
    });
  }

  /** Sort the rows of each group; numbers start with the largest. The third click restores the original order. */
  sort(head, column) {
    const isNumber = head.matches(".number"), orders = isNumber ? ["descending", "ascending"] : ["ascending", "descending"];
    const order = orders[orders.indexOf(head.getAttribute("aria-sort")) + 1];
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    if (order) head.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const compare = (a, b) => (isNumber ? a - b : a.localeCompare(b, "en", { numeric: true }));
    for (const { body, rows } of this.groups) {
      const keyed = rows.map((row) => [sortKey(row.cells[column], isNumber), row]);
      const known = keyed.filter(([key]) => key !== null), others = keyed.filter(([key]) => key === null);
      if (order) known.sort(([a], [b]) => sign * compare(a, b));
      body.append(...(order ? [...known, ...others] : keyed).map(([, row]) => row));  // empty cells come last
    }
  }

  addFilter() {
    const label = document.createElement("label"), input = document.createElement("input");
    this.status = document.createElement("output");
    input.type = "search";
    label.className = "filter";
    label.append("Filter rows ", input, this.status);
    input.addEventListener("input", () => this.filter(input.value));
    this.table.parentNode.before(label);
  }

  /** Show the rows that contain every word, in themselves or in the heading of their group. */
  filter(text) {
    const words = text.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const { body, rows } of this.groups) {
      const heading = body.querySelector(".group")?.textContent ?? "";
      for (const row of rows) {
        const content = `${heading} ${[...row.cells].map((cell) => cell.textContent).join(" ")}`.toLowerCase();
        row.hidden = !words.every((word) => content.includes(word));
        shown += !row.hidden;
      }
      body.hidden = rows.every((row) => row.hidden);
    }
    this.status.textContent = text.trim() ? `${shown} of ${this.count}` : "";
  }
}

startSidebar();
document.querySelectorAll("figure.table table").forEach((table) => new SortableTable(table));
