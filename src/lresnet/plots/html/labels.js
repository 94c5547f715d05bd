// Names of nodes beside their points: those of general nodes first, more of them as a region is enlarged.

const FIRST_LABELS = 30;     // names in the initial view; an enlarged one has more
const MOST_LABELS = 80;      // names on the screen
const FULL_WIDTH = 600;      // pixels; a narrower disk has fewer names
const GAP = 5;               // pixels between two names
const SPACE = 16;            // pixels per radius of curvature at a node that are needed for its name
const LABEL_FONT = 12;       // pixels
const LONGEST_LABEL = 28;    // letters

class Labels {
  /** `order` lists nodes, the most general first; null draws no names. */
  constructor(names, order) {
    this.names = names;
    this.order = names && order;
    this.widths = new Map();
    this.shown = [];  // nodes whose names are on the screen
  }

  text(node) {
    const name = this.names[node].replace(/\s+/g, " ");
    return name.length > LONGEST_LABEL ? `${name.slice(0, LONGEST_LABEL - 1)}…` : name;
  }

  width(c, node) {
    if (!this.widths.has(node)) this.widths.set(node, c.measureText(this.text(node)).width);
    return this.widths.get(node);
  }

  /** Draw the names for which there is room; a name that would cover another one is left out. */
  draw(disk, ink) {
    this.shown = [];
    if (!this.order) return;
    const { context: c, canvas: { width, height }, points, radius: r, ratio } = disk, placed = [];
    c.font = `${LABEL_FONT}px system-ui, sans-serif`;
    c.textBaseline = "middle";
    c.lineJoin = "round";
    c.lineWidth = 4 * ratio;
    c.strokeStyle = ink.disk;
    c.fillStyle = ink.ink;
    const share = Math.min(1, width / ratio / FULL_WIDTH), gap = GAP * ratio;
    const most = share * Math.min(MOST_LABELS, FIRST_LABELS * disk.zoom / disk.home);
    for (const node of this.order) {
      if (placed.length >= most) break;
      const px = points[2 * node], py = points[2 * node + 1];
      if ((1 - px * px - py * py) * r / 2 < SPACE * ratio && node !== disk.selected) continue;
      const w = this.width(c, node) * ratio, h = (LABEL_FONT + 2) * ratio / 2;
      const aside = disk.size(node) + 3 * ratio, y = -py * r;
      let x = px * r + aside;
      if (px * r <= width / 2 && x + w > width / 2) x = px * r - aside - w;  // no room on the right
      if (x < -width / 2 || x + w > width / 2 || y - h < -height / 2 || y + h > height / 2) continue;
      if (placed.some((box) => x < box[2] + gap && box[0] < x + w + gap && y - h < box[3] && box[1] < y + h)) continue;
      placed.push([x, y - h, x + w, y + h]);
      this.shown.push(node);
    }
    c.font = `${LABEL_FONT * ratio}px system-ui, sans-serif`;
    this.shown.forEach((node, k) => {
      const [x, top, , bottom] = placed[k];
      c.strokeText(this.text(node), x, (top + bottom) / 2);
      c.fillText(this.text(node), x, (top + bottom) / 2);
    });
  }
}
