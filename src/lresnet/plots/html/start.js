// Read the embedding in the page and start the interactive disk.

function decode(text, Kind) {
  return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

function start() {
  const source = document.getElementById("embedding");
  if (!source) return;
  const raw = JSON.parse(source.textContent);
  const data = {
    ...raw,
    points: decode(raw.points, Float64Array),
    edges: decode(raw.edges, Uint32Array),
    labels: raw.labels && decode(raw.labels, Int32Array),
    order: raw.order && decode(raw.order, Uint32Array),
  };
  const get = (id) => document.getElementById(id);
  const canvas = get("disk"), disk = new Disk(canvas, data);
  const part = {
    stage: get("stage"), tip: get("tip"), selection: get("selection"), table: get("neighbours"), rows: get("rows"),
    form: get("search-form"), search: get("search"), searchStatus: get("search-status"), buttons: get("buttons"),
  };
  canvas.disk = disk;  // for the browser's console and for tests
  disk.controls = new Controls(disk, data, part);
  new ResizeObserver(() => disk.resize()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => disk.request());
  disk.resize();
}

start();
