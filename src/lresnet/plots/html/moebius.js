// Isometries of the Poincaré disk: z -> (a z + b) / (conj(b) z + conj(a)) with |a| > |b|, stored as
// [re a, im a, re b, im b] in float64. They are normalised to |a| = 1, so that nothing overflows.

const IDENTITY = [1, 0, 0, 0];

/** Return the translation z -> (z + t) / (1 + conj(t) z), which maps the centre to t without rotation. */
function translation([x, y]) {
  return [1, 0, x, y];
}

/** Return the composition f after g. */
function compose([ar, ai, br, bi], [cr, ci, dr, di]) {
  const re = ar * cr - ai * ci + br * dr + bi * di;
  const im = ar * ci + ai * cr + bi * dr - br * di;
  const u = ar * dr - ai * di + br * cr + bi * ci;
  const v = ar * di + ai * dr + bi * cr - br * ci;
  const scale = 1 / Math.hypot(re, im);
  return [re * scale, im * scale, u * scale, v * scale];
}

/** Apply f to the points x0, y0, x1, y1, ... and write the results to `to`. */
function applyAll([ar, ai, br, bi], from, to) {
  for (let i = 0; i < from.length; i += 2) {
    const x = from[i], y = from[i + 1];
    const nr = ar * x - ai * y + br, ni = ar * y + ai * x + bi;
    const dr = br * x + bi * y + ar, di = br * y - bi * x - ai;
    const q = 1 / (dr * dr + di * di);
    to[i] = (nr * dr + ni * di) * q;
    to[i + 1] = (ni * dr - nr * di) * q;
  }
}

function apply(f, point) {
  const to = [0, 0];
  applyAll(f, point, to);
  return to;
}

/** Return the point that f maps to the centre: -b / a. */
function focusOf([ar, ai, br, bi]) {
  const q = -1 / (ar * ar + ai * ai);
  return [(br * ar + bi * ai) * q, (bi * ar - br * ai) * q];
}

/**
 * Return the translation that maps u to v. (u + t) / (1 + conj(t) u) = v is linear in t and conj(t):
 * t = (d + u v conj(d)) / (1 - |u v|²), d = v - u. For v = 0 this is -u.
 */
function carry([ux, uy], [vx, vy]) {
  const dx = vx - ux, dy = vy - uy;
  const px = ux * vx - uy * vy, py = ux * vy + uy * vx;
  const q = 1 / (1 - px * px - py * py);
  return translation([(dx + px * dx + py * dy) * q, (dy + py * dx - px * dy) * q]);
}

/** Return the distance of two points in radii of curvature: 2 artanh |(v - u) / (1 - conj(u) v)|. */
function distance([ux, uy], [vx, vy]) {
  const nr = vx - ux, ni = vy - uy;
  const dr = 1 - ux * vx - uy * vy, di = uy * vx - ux * vy;
  return 2 * Math.atanh(Math.min(1 - 2 ** -53, Math.hypot(nr, ni) / Math.hypot(dr, di)));
}
