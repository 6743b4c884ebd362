// The map: addresses upwards, time to the right.

const MAP_HEIGHT = STILL ? 460 : 420;
const map = plot('map', MAP_HEIGHT), over = plot('map-over', MAP_HEIGHT);

function drawMap() {
  const context = map.begin();
  const frame = frameOf(map);
  const [x, width] = [Math.round(frame.left * map.ratio), Math.round(frame.width * map.ratio)];
  const height = map.canvas.height;
  context.fillStyle = colour('--surface');
  context.fillRect(frame.left, 0, frame.width, MAP_HEIGHT);
  if (width < 8) return;
  const image = raster(context, width, height);
  // Drawn through a second canvas, so that what has no band stays as it is.
  const bitmap = cachedCanvas(width, height);
  bitmap.getContext('2d').putImageData(image, 0, 0);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(bitmap, x, 0);
  context.setTransform(map.ratio, 0, 0, map.ratio, 0, 0);
  drawNames(context, frame);
  describeMap();
}

const spare = document.createElement('canvas');
function cachedCanvas(width, height) {
  [spare.width, spare.height] = [width, height];
  return spare;
}

// Names the runs of addresses that are high enough for a line of text.
function drawNames(context, frame) {
  const axis = axisOf(state.space, state.axis);
  context.fillStyle = colour('--muted');
  let free = MAP_HEIGHT - 6;
  for (const run of axis.runs) {
    const low = yOf(axis.place(run.start)), high = yOf(axis.place(run.stop));
    if (low < 0 || high > MAP_HEIGHT) continue;
    const middle = (Math.min(low, MAP_HEIGHT) + Math.max(high, 0)) / 2;
    if (low - high < 9 || middle > free || middle < 6) continue;
    gutterText(context, runName(run), middle, frame.left);
    free = middle - 14;
  }
  if (STILL) drawBandTexts(context, frame, axis);
}

// Without time, there is room for a text beside each band that is high enough.
function drawBandTexts(context, frame, axis) {
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillStyle = colour('--text');
  let free = MAP_HEIGHT - 6;
  for (const band of bandsAt(state.space, 0)) {
    const low = yOf(axis.low[band - axis.begin]), high = yOf(axis.high[band - axis.begin]);
    const middle = (Math.min(low, MAP_HEIGHT) + Math.max(high, 0)) / 2;
    if (low < 0 || high > MAP_HEIGHT || low - high < 5 || middle > free || middle < 6) continue;
    context.fillText(`${lookOf(band).perms} ${size(bands.pages[band])} ${nameOf(band)}`, frame.right + 8, middle);
    free = middle - 13;
  }
}

// The most telling name in a run: `[heap]` or `[stack]`, else what takes most of its addresses.
function runName(run) {
  run.name ??= (() => {
    const sums = new Map();
    for (const band of run.bands) {
      const name = nameOf(band);
      const extra = name === '[heap]' || name === '[stack]' ? 1e9 : 1;
      sums.set(name, (sums.get(name) ?? 0) + bands.pages[band] * (bands.to[band] - bands.from[band]) * extra);
    }
    return [...sums].reduce((best, next) => (next[1] > best[1] ? next : best))[0];
  })();
  return run.name;
}

function yOf(place) {
  return MAP_HEIGHT - (place - state.low) / (state.high - state.low) * MAP_HEIGHT;
}

function placeOf(y) {
  return state.low + (MAP_HEIGHT - y) / MAP_HEIGHT * (state.high - state.low);
}

// What lies over the bands: marks, the moment, the chosen band.
function drawOver() {
  const context = over.begin();
  const frame = frameOf(over);
  context.save();
  context.beginPath();
  context.rect(frame.left - 1, 0, frame.width + 2, MAP_HEIGHT);
  context.clip();
  if (!STILL) drawGlyphs(context, frame);
  drawMoment(context, frame, MAP_HEIGHT);
  if (state.band >= 0) drawChosen(context, frame);
  context.restore();
}

function drawChosen(context, frame) {
  const axis = axisOf(state.space, state.axis);
  const i = state.band - axis.begin;
  const x0 = Math.max(frame.left, xOf(bands.from[state.band], frame));
  const x1 = Math.min(frame.right, xOf(bands.to[state.band], frame));
  const [y0, y1] = [yOf(axis.high[i]), yOf(axis.low[i])];
  context.lineWidth = 2;
  context.strokeStyle = colour('--text');
  context.strokeRect(x0 - 1, y0 - 2, Math.max(3, x1 - x0 + 2), Math.max(3, y1 - y0 + 4));
  context.fillStyle = colour('--text');
  const x = STILL ? frame.left + 8 : Math.min(Math.max(xOf(state.step, frame), frame.left), frame.right);
  context.beginPath();
  context.arc(x, (y0 + y1) / 2, 4, 0, 2 * Math.PI);
  context.fill();
}

// Marks at their addresses; of several in one cell of 10 pixels, the first is drawn. The more there
// are, the smaller they become.
function drawGlyphs(context, frame) {
  const axis = axisOf(state.space, state.axis);
  const places = cached('mark places', `${state.space} ${state.axis}`, () => Float64Array.from(marks.page, axis.place));
  const taken = new Map();
  for (const what of [0, 3, 1, 2]) {
    for (let i = 0; i < marks.length; i++) {
      if (marks.what[i] !== what || marks.space[i] !== state.space) continue;
      const x = xOf(marks.step[i], frame), y = yOf(places[i]);
      if (x < frame.left || x > frame.right || y < 0 || y > MAP_HEIGHT) continue;
      const cell = Math.floor(x / 10) * 1024 + Math.floor(y / 10);
      if (!taken.has(cell)) taken.set(cell, [what, x, y]);
    }
  }
  const scale = Math.max(0.35, Math.min(1, Math.sqrt(120 / taken.size)));
  for (const [what, x, y] of taken.values()) glyph(context, what, x, y, scale);
}

const GLYPH_COLOURS = ['--merge', '--split', '--refusal', '--failure'];

// A triangle for a merge, a bar for a split, a circle for a refusal, a cross for a failed call.
function glyph(context, what, x, y, scale) {
  const s = (n) => n * scale;
  context.beginPath();
  if (what === 0) {
    context.moveTo(x, y - s(5));
    context.lineTo(x + s(5), y + s(4));
    context.lineTo(x - s(5), y + s(4));
    context.closePath();
  } else if (what === 1) {
    context.rect(x - s(1.5), y - s(4), s(3), s(8));
  } else if (what === 2) {
    context.arc(x, y, s(3), 0, 2 * Math.PI);
  } else {
    context.moveTo(x - s(4), y - s(4));
    context.lineTo(x + s(4), y + s(4));
    context.moveTo(x + s(4), y - s(4));
    context.lineTo(x - s(4), y + s(4));
  }
  context.strokeStyle = colour('--surface');
  context.lineWidth = s(3);
  context.stroke();
  context.fillStyle = context.strokeStyle = colour(GLYPH_COLOURS[what]);
  context.lineWidth = s(2);
  if (what === 3) context.stroke();
  else context.fill();
}

// The band at a point of the map; of several in a pixel, the largest.
function bandAtPoint(x, y) {
  const step = STILL ? 0 : Math.floor(stepOf(x, frameOf(map)));
  const place = placeOf(y), reach = 3 * (state.high - state.low) / MAP_HEIGHT;
  const axis = axisOf(state.space, state.axis);
  let best = -1, distance = reach;
  for (const band of bandsAt(state.space, step)) {
    const i = band - axis.begin;
    const away = Math.max(axis.low[i] - place, place - axis.high[i], 0);
    if (away < distance || (away === distance && best >= 0 && bands.pages[band] > bands.pages[best])) {
      [best, distance] = [band, away];
    }
  }
  return { band: best, step };
}

function describeMap() {
  const here = bandsHere();
  byId('map-text').textContent = `${spaceName(state.space)}, ${describeStep(state.step)}: ${count(here.length)} `
    + `mappings. The table “All mappings at the chosen moment” lists them.`;
  over.canvas.setAttribute('aria-label', `Map of the address space of ${spaceName(state.space)}: `
    + `${count(here.length)} mappings`);
}
