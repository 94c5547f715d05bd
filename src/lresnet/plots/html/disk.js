// Drawing of points and geodesics on a canvas, after an isometry of the disk. Events are handled in controls.js.

const MANY = 5000;          // with more points than this, movements show squares and a part of the edges
const EDGES_MOVING = 1000;  // edges drawn during a movement: about the longest on the screen
const RIM = 2 ** -46;       // lower limit of 1 - |focus|²: the focus is at most 33 radii of curvature from its start
const SHAPES = ["circle", "diamond", "triangle", "square", "wedge"];

class Disk {
  constructor(canvas, data) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.original = data.points;
    this.points = Float64Array.from(data.points);
    this.edges = data.edges;
    this.labels = data.labels;
    this.count = data.points.length / 2;
    this.colours = data.colours;
    this.noLabel = data.noLabel;
    this.byClass = groupByClass(data.labels, this.count);
    this.neighbours = adjacency(data.edges, this.count);
    this.names = new Labels(data.names, data.order);
    this.view = IDENTITY;
    this.home = this.zoom = data.zoom;  // above 1 if all points are close to the centre
    this.selected = this.hovered = -1;
    this.moving = false;
    this.pending = 0;
    this.frames = 0;
    this.fullFrames = 0;
  }

  /** Match the canvas to its size on the page, in pixels of the screen. */
  resize() {
    const box = this.canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(box.width * ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    this.ratio = ratio;
    this.request();
  }

  get radius() {
    return (Math.min(this.canvas.width, this.canvas.height) / 2 - 4 * this.ratio) * this.zoom;
  }

  /** Convert pixels of the window to coordinates of the disk (y points up), and back. */
  toDisk(x, y) {
    const box = this.canvas.getBoundingClientRect(), r = this.radius / this.ratio;
    return [(x - box.left - box.width / 2) / r, -(y - box.top - box.height / 2) / r];
  }

  toWindow([x, y]) {
    const box = this.canvas.getBoundingClientRect(), r = this.radius / this.ratio;
    return [box.left + box.width / 2 + x * r, box.top + box.height / 2 - y * r];
  }

  position(node) {
    return [this.points[2 * node], this.points[2 * node + 1]];
  }

  /** Change the view, unless its focus is so far out that float64 cannot separate points. */
  setView(view) {
    const [x, y] = focusOf(view);
    if (!(1 - x * x - y * y > RIM)) return;
    this.view = view;
    applyAll(view, this.original, this.points);
    this.request();
  }

  setZoom(zoom) {
    this.zoom = Math.min(40 * this.home, Math.max(1, zoom));
    this.request();
  }

  /** Return the node nearest to a point of the disk within a number of pixels of the window; -1 if there is none. */
  nearest([x, y], pixels) {
    let best = -1, least = (pixels * this.ratio / this.radius) ** 2;
    for (let i = 0; i < this.count; i++) {
      const dx = this.points[2 * i] - x, dy = this.points[2 * i + 1] - y, d = dx * dx + dy * dy;
      if (d <= least) [best, least] = [i, d];
    }
    return best;
  }

  request() {
    this.pending ||= requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  draw() {
    const { context: c, canvas, radius: r } = this, quick = this.moving && this.count > MANY;
    const ink = palette();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = ink.page;
    c.fillRect(0, 0, canvas.width, canvas.height);
    c.translate(canvas.width / 2, canvas.height / 2);
    c.beginPath();
    c.arc(0, 0, r, 0, 2 * Math.PI);
    c.fillStyle = ink.disk;
    c.fill();
    c.lineWidth = 1.2 * this.ratio;
    c.strokeStyle = ink.rim;
    c.stroke();
    this.drawEdges(quick ? this.longest(EDGES_MOVING) : null, ink.edge);
    this.drawNeighbours(ink);
    if (quick) this.drawSquares();
    else this.byClass.forEach((nodes, label) => this.drawPoints(nodes, label, ink));
    this.drawRings(ink);
    if (!quick) this.names.draw(this, ink);
    this.frames++;
    if (!quick) this.fullFrames++;
  }

  /** Return at most `limit` edges, about the longest on the screen; the threshold is estimated from a sample. */
  longest(limit) {
    const { edges, points } = this, total = edges.length / 2, length = new Float32Array(total), found = [];
    for (let e = 0; e < total; e++) {
      const i = 2 * edges[2 * e], j = 2 * edges[2 * e + 1];
      length[e] = (points[i] - points[j]) ** 2 + (points[i + 1] - points[j + 1]) ** 2;
    }
    const every = Math.ceil(total / 2000), sample = length.filter((_, e) => e % every === 0).sort();
    const least = sample[Math.max(0, Math.ceil(sample.length * (1 - limit / total)))] ?? 0;
    for (let e = 0; e < total && found.length < limit; e++) if (length[e] >= least) found.push(e);
    return found;
  }

  drawEdges(chosen, colour) {
    const { context: c, edges } = this, total = chosen ? chosen.length : edges.length / 2;
    c.strokeStyle = colour;
    c.lineWidth = (this.count > 2000 ? 0.6 : 0.9) * this.ratio;
    for (let start = 0; start < total; start += 400) {  // one long path is slower than several short ones
      c.beginPath();
      for (let k = start; k < Math.min(total, start + 400); k++) {
        const e = 2 * (chosen ? chosen[k] : k);
        this.geodesic(edges[e], edges[e + 1]);
      }
      c.stroke();
    }
  }

  /** Add the geodesic between two points: an arc of a circle orthogonal to the boundary, or a line if it is straight. */
  geodesic(i, j) {
    const { context: c, points, radius: r } = this;
    const ax = points[2 * i], ay = points[2 * i + 1], bx = points[2 * j], by = points[2 * j + 1];
    c.moveTo(ax * r, -ay * r);
    const twice = 2 * (ax * by - ay * bx), p = ax * ax + ay * ay + 1, q = bx * bx + by * by + 1;
    const cx = (p * by - q * ay) / twice, cy = (q * ax - p * bx) / twice;  // |z|² + 1 = 2 z · centre on such a circle
    const R = Math.sqrt(cx * cx + cy * cy - 1), chord = Math.hypot(ax - bx, ay - by);
    if (!(chord * chord * r > 2 * R * this.ratio)) {  // the arc deviates from the line by less than a quarter of a pixel
      c.lineTo(bx * r, -by * r);
      return;
    }
    const from = Math.atan2(cy - ay, ax - cx), to = Math.atan2(cy - by, bx - cx);
    let turn = to - from;
    turn -= 2 * Math.PI * Math.round(turn / (2 * Math.PI));
    c.arc(cx * r, -cy * r, R * r, from, to, turn < 0);
  }

  /** Return the size of a marker: larger near the centre, as lengths are, and smaller for leaves of a large graph. */
  size(node) {
    const x = this.points[2 * node], y = this.points[2 * node + 1], room = Math.max(0, 1 - x * x - y * y);
    const most = 6.5 * Math.max(0.4, Math.min(1, 200 / this.count) ** 0.25);
    const share = this.count > 200 && this.neighbours[node].length < 2 ? 0.7 : 1;
    return share * most * (0.2 + 0.8 * room) * this.ratio * (this.zoom / this.home) ** 0.25;
  }

  /** Return the colour of a class; -1 stands for no label. */
  colour(label) {
    return label < 0 ? this.noLabel.colour : this.colours[label % this.colours.length];
  }

  drawPoints(nodes, label, ink) {
    const { context: c, points, radius: r } = this, shape = SHAPES[Math.max(0, label) % SHAPES.length];
    c.fillStyle = this.colour(label);
    c.strokeStyle = ink.disk;
    c.lineWidth = 0.6 * this.ratio;
    const add = (i) => outline(c, shape, points[2 * i] * r, -points[2 * i + 1] * r, this.size(i));
    for (let start = 0; start < nodes.length; start += 400) {
      const some = nodes.subarray(start, start + 400);
      c.beginPath();
      some.forEach(add);
      c.fill();
      c.beginPath();
      some.filter((i) => this.size(i) > 3 * this.ratio).forEach(add);  // an outline would cover small markers
      c.stroke();
    }
  }

  /** Draw every point as a square, pixel by pixel: ten times faster than calls of the canvas. */
  drawSquares() {
    const { context: c, canvas: { width, height }, points, radius: r } = this;
    if (this.buffer?.width !== width || this.buffer.height !== height) {
      this.buffer = Object.assign(document.createElement("canvas"), { width, height });
      this.image = this.buffer.getContext("2d").createImageData(width, height);
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    pixels.fill(0);
    this.byClass.forEach((nodes, label) => {
      const colour = packed(this.colour(label));
      for (const i of nodes) {
        const x = width / 2 + points[2 * i] * r, y = height / 2 - points[2 * i + 1] * r, s = this.size(i);
        const left = Math.max(0, Math.round(x - s)), right = Math.min(width, Math.round(x + s));
        const bottom = Math.min(height, Math.round(y + s));
        for (let row = Math.max(0, Math.round(y - s)); row < bottom; row++)
          pixels.fill(colour, row * width + left, Math.max(row * width + left, row * width + right));
      }
    });
    this.buffer.getContext("2d").putImageData(this.image, 0, 0);
    c.drawImage(this.buffer, -width / 2, -height / 2);
  }

  /** Draw the edges of the selected node, or else of the node under the pointer. */
  drawNeighbours(ink) {
    const { context: c } = this, node = this.selected >= 0 ? this.selected : this.hovered;
    if (node < 0) return;
    c.strokeStyle = ink.mark;
    c.lineWidth = 2 * this.ratio;
    c.beginPath();
    for (const other of this.neighbours[node]) this.geodesic(node, other);
    c.stroke();
  }

  drawRings(ink) {
    const { context: c, points, radius: r } = this;
    c.strokeStyle = ink.mark;
    c.lineWidth = 2 * this.ratio;
    for (const i of new Set([this.selected, this.hovered])) {
      if (i < 0) continue;
      c.beginPath();
      c.arc(points[2 * i] * r, -points[2 * i + 1] * r, this.size(i) + 4 * this.ratio, 0, 2 * Math.PI);
      c.stroke();
    }
  }
}

/** Add the outline of a marker to the path. */
function outline(c, shape, x, y, s) {
  if (shape === "circle") {
    c.moveTo(x + s, y);
    c.arc(x, y, s, 0, 2 * Math.PI);
    return;
  }
  const d = 1.25 * s, h = 0.9 * s;
  const corners = {
    diamond: [[0, -d], [d, 0], [0, d], [-d, 0]],
    square: [[-h, -h], [h, -h], [h, h], [-h, h]],
    triangle: [[0, -d], [d, h], [-d, h]],
    wedge: [[0, d], [-d, -h], [d, -h]],
  }[shape];
  corners.forEach(([dx, dy], k) => (k ? c.lineTo(x + dx, y + dy) : c.moveTo(x + dx, y + dy)));
  c.closePath();
}

/** Return "#rrggbb" as an opaque pixel; red is the lowest byte. */
function packed(colour) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}

/** Return the page's colours, which depend on light or dark mode. */
function palette() {
  const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
  return { ink: read("--ink"), page: read("--page"), disk: read("--disk"), rim: read("--rim"), edge: read("--edge"), mark: read("--mark") };
}

/** Return a map from labels to nodes in ascending order, so that nodes without a label (-1) are drawn first. */
function groupByClass(labels, count) {
  const groups = new Map([...new Set(labels || [0])].sort((a, b) => a - b).map((label) => [label, []]));
  for (let i = 0; i < count; i++) groups.get(labels ? labels[i] : 0).push(i);
  return new Map(Array.from(groups, ([label, nodes]) => [label, Uint32Array.from(nodes)]));
}

function adjacency(edges, count) {
  const found = Array.from({ length: count }, () => []);
  for (let e = 0; e < edges.length; e += 2) {
    found[edges[e]].push(edges[e + 1]);
    found[edges[e + 1]].push(edges[e]);
  }
  return found;
}
