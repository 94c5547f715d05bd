// Mouse, touch, keyboard and search for the disk, and the panel of the selected node.

const SNAP = 6;         // a node dragged this close to the centre (pixels) snaps to it
const NEAR = 10;        // the pointer selects a node within this distance (pixels)
const STEP = 0.25;      // movement of the focus per arrow key, in radii of curvature, in a view of the whole disk
const ROWS = 200;       // longest list of neighbours
const FARTHEST = 0.995; // a pointer beyond the boundary counts as at this radius

class Controls {
  constructor(disk, data, part) {
    Object.assign(this, { disk, names: data.names, classes: data.classes, part });
    this.pointers = new Map();
    this.rest = 0;
    const on = (target, kinds, act) => kinds.split(" ").forEach((kind) => target.addEventListener(kind, act, { passive: false }));
    on(disk.canvas, "pointerdown", (event) => this.press(event));
    on(disk.canvas, "pointermove", (event) => this.move(event));
    on(disk.canvas, "pointerup pointercancel", (event) => this.release(event));
    on(disk.canvas, "pointerleave", () => this.hover(-1));
    on(disk.canvas, "wheel", (event) => this.wheel(event));
    on(disk.canvas, "keydown", (event) => this.key(event));
    on(document, "keydown", (event) => this.shortcut(event));
    on(part.search, "input", () => part.searchStatus.replaceChildren());
    on(part.form, "submit", (event) => this.search(event));
    on(part.buttons, "click", (event) => this.button(event.target.dataset.act));
    on(part.rows, "click", (event) => event.target.dataset.node && this.show(Number(event.target.dataset.node)));
  }

  name(node) {
    return this.names ? this.names[node] : String(node);
  }

  className(node) {
    const { labels, noLabel } = this.disk;
    return labels ? this.classes[labels[node]] ?? noLabel.name : "";
  }

  // --- pointers: one drags, two zoom -------------------------------------------------------------------------------

  press(event) {
    const { disk } = this, at = inside(disk.toDisk(event.clientX, event.clientY));
    disk.canvas.focus({ preventScroll: true });
    disk.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    const node = disk.nearest(at, NEAR);
    // The drag starts at the node's position, not the pointer's, so that a node can be dragged exactly to the centre.
    this.drag = { view: disk.view, from: node < 0 ? at : disk.position(node), node, x: event.clientX, y: event.clientY, far: false };
    if (this.pointers.size === 2) this.pinch = { apart: this.spread(), zoom: disk.zoom };
  }

  move(event) {
    const { disk, drag } = this;
    if (!this.pointers.has(event.pointerId)) {
      this.hover(disk.nearest(disk.toDisk(event.clientX, event.clientY), NEAR));
      return;
    }
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    if (this.pointers.size === 2) {
      disk.setZoom(this.pinch.zoom * this.spread() / this.pinch.apart);
      return;
    }
    drag.far ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 3;
    if (!drag.far) return;
    let to = inside(disk.toDisk(event.clientX, event.clientY));
    const [cx, cy] = disk.toWindow([0, 0]);
    if (drag.node >= 0 && Math.hypot(event.clientX - cx, event.clientY - cy) <= SNAP) to = [0, 0];
    this.busy();
    disk.setView(compose(carry(drag.from, to), drag.view));
  }

  release(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (this.pointers.size === 0) {
      if (!this.drag.far && event.type === "pointerup") this.select(this.drag.node);
      this.settle();
    } else {  // of two fingers one is left: it continues the drag
      const [[x, y]] = this.pointers.values();
      this.drag = { view: this.disk.view, from: inside(this.disk.toDisk(x, y)), node: -1, x, y, far: true };
    }
  }

  spread() {
    const [[ax, ay], [bx, by]] = this.pointers.values();
    return Math.max(1, Math.hypot(ax - bx, ay - by));
  }

  wheel(event) {
    // The wheel scrolls the page until the disk has the focus (by a click or Tab); then it zooms.
    if (document.activeElement !== this.disk.canvas && !event.ctrlKey) return;
    event.preventDefault();
    this.busy();
    this.disk.setZoom(this.disk.zoom * Math.exp(-event.deltaY / 400));
    this.settleSoon();
  }

  /** A large graph is drawn with less detail during a movement and in full afterwards. */
  busy() {
    clearTimeout(this.rest);
    this.disk.moving = true;
  }

  settle() {
    clearTimeout(this.rest);
    this.disk.moving = false;
    this.disk.request();
  }

  settleSoon() {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.settle(), 150);
  }

  // --- keys --------------------------------------------------------------------------------------------------------

  key(event) {
    const arrows = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const acts = { "+": "in", "=": "in", "-": "out", "0": "reset", Enter: "centre", Escape: "clear" };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in arrows || event.key in acts)) return;
    event.preventDefault();
    if (event.key in acts) return this.button(acts[event.key]);
    const far = Math.tanh((event.shiftKey ? 4 : 1) * STEP / this.disk.home / 2), [x, y] = arrows[event.key];
    this.busy();
    this.disk.setView(compose(translation([far * x, far * y]), this.disk.view));
    this.settleSoon();
  }

  shortcut(event) {
    if (event.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    event.preventDefault();
    this.part.search.focus();
    this.part.search.select();
  }

  button(act) {
    const { disk } = this;
    if (act === "in") disk.setZoom(disk.zoom * 1.25);
    if (act === "out") disk.setZoom(disk.zoom / 1.25);
    if (act === "reset") {
      disk.setZoom(disk.home);
      disk.setView(IDENTITY);
    }
    if (act === "centre") this.select(disk.nearest([0, 0], Infinity));
    if (act === "clear") this.select(-1);
  }

  // --- hover and selection ------------------------------------------------------------------------------------------

  hover(node) {
    const { disk, part } = this;
    if (node !== disk.hovered) {
      disk.hovered = node;
      disk.request();
    }
    part.tip.hidden = node < 0;
    if (node < 0) return;
    const around = disk.neighbours[node], kind = this.className(node);
    const listed = around.slice(0, 6).map((other) => this.name(other)).join(", ") + (around.length > 6 ? ", …" : "");
    part.tip.textContent = `node ${this.name(node)}${kind && ` · ${kind}`} · ${plural(around.length, "neighbour")}${listed && `: ${listed}`}`;
    const [x, y] = disk.toWindow(disk.position(node)), box = part.stage.getBoundingClientRect();
    part.tip.style.left = `${Math.min(Math.max(0, x - box.left + 12), Math.max(0, box.width - part.tip.offsetWidth))}px`;
    part.tip.style.top = `${Math.max(0, y - box.top - part.tip.offsetHeight - 10)}px`;
  }

  select(node) {
    const { disk, part } = this;
    disk.selected = node;
    disk.request();
    part.rows.replaceChildren();
    part.table.hidden = node < 0;
    if (node < 0) {
      part.selection.textContent = "No node is selected.";
      return;
    }
    const around = disk.neighbours[node], kind = this.className(node);
    part.selection.textContent = `Node ${this.name(node)}${kind && `, ${kind}`}: ${plural(around.length, "neighbour")}` +
      (around.length > ROWS ? `, the first ${ROWS} below.` : ".");
    part.rows.append(...around.slice(0, ROWS).map((other) => this.row(node, other)));
  }

  row(node, other) {
    const row = document.createElement("tr"), go = document.createElement("button");
    go.type = "button";
    go.textContent = this.name(other);
    go.dataset.node = other;
    go.setAttribute("aria-label", `go to node ${this.name(other)}`);
    const apart = distance(this.place(node), this.place(other)).toFixed(2);
    [go, this.className(other), apart].forEach((what) => row.insertCell().append(what));
    return row;
  }

  place(node) {
    return [this.disk.original[2 * node], this.disk.original[2 * node + 1]];
  }

  /** Select a node and move it to the centre, as exactly as float64 allows. */
  show(node) {
    this.disk.setView(compose(carry(this.disk.position(node), [0, 0]), this.disk.view));
    if (!(Math.hypot(...this.disk.position(node)) < 1e-6)) {
      // From a very distant view the position has lost its accuracy: compute from the original one.
      const [x, y] = this.place(node), shorter = Math.min(1, Math.sqrt(1 - 2 * RIM) / Math.hypot(x, y));
      this.disk.setView(translation([-shorter * x, -shorter * y]));
    }
    this.hover(-1);  // another node is under the pointer now
    this.select(node);
  }

  search(event) {
    event.preventDefault();
    const wanted = this.part.search.value.trim().toLowerCase();
    if (!wanted) return;
    const names = this.names || Array.from({ length: this.disk.count }, (_, i) => String(i));
    const is = [(name) => name === wanted, (name) => name.startsWith(wanted), (name) => name.includes(wanted)];
    const tests = this.names ? is : is.slice(0, 1);  // numbers must match exactly
    const node = tests.map((test) => names.findIndex((name) => test(name.toLowerCase()))).find((found) => found >= 0);
    this.part.searchStatus.textContent = node === undefined ? `There is no node ${this.part.search.value.trim()}.` : "";
    if (node !== undefined) this.show(node);
  }
}

function inside([x, y]) {
  const norm = Math.hypot(x, y);
  return norm > FARTHEST ? [x * FARTHEST / norm, y * FARTHEST / norm] : [x, y];
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
