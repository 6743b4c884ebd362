// What the reader has chosen, and the order in which the pictures follow.

const state = {
  space: data.largest,
  step: 0,
  band: -1,                 // chosen band
  marked: null,             // { label, has(band) }
  colour: 'kind',
  axis: 'runs',
  from: 0, to: 1,           // shown steps
  low: 0, high: 1,          // shown part of the address axis
};

const followers = [];       // [what, what it follows]
let changes = new Set();
let queued = false;

// Calls `draw` after each change of one of these kinds.
function follow(kinds, draw) {
  followers.push([new Set(kinds.split(' ')), draw]);
}

// Notes changes; the pictures are drawn once before the browser's next frame.
function changed(...kinds) {
  kinds.forEach((kind) => changes.add(kind));
  if (!queued) {
    queued = true;
    requestAnimationFrame(draw);
  }
}

function draw() {
  queued = false;
  const now = changes;
  changes = new Set();
  for (const [kinds, follower] of followers) {
    if ([...now].some((kind) => kinds.has(kind))) follower();
  }
  if (!performance.getEntriesByName('first-picture').length) performance.mark('first-picture');
}

function setStep(step) {
  const { from, to } = data.spaces[state.space];
  state.step = Math.max(from, Math.min(step, Math.max(from, to - 1)));
  const band = state.band;
  if (band >= 0 && !(bands.from[band] <= state.step && state.step < bands.to[band])) state.band = -1;
  changed('step');
}

function setSpace(space) {
  const { from, to, peak_step: peak } = data.spaces[space];
  Object.assign(state, { space, band: -1, from, to: Math.max(to, from + 1), low: 0, high: 1 });
  setStep(peak);
  changed('space', 'view', 'marked');
}

// Marks bands in all pictures; the same mark again removes it.
function setMark(mark) {
  state.marked = mark && state.marked?.label === mark.label ? null : mark;
  changed('marked');
}

function setBand(band) {
  state.band = band;
  changed('band');
}

// Steps at which the chosen address space changed.
function changesOf(space) {
  const { begin, end } = bandsOf(space);
  const found = new Set();
  for (let i = begin; i < end; i++) {
    found.add(bands.from[i]);
    if (bands.to[i] <= data.last) found.add(bands.to[i]);
  }
  return Float64Array.from(found).sort();
}

// Goes to the next change (1) or the one before (-1).
function stepBy(direction) {
  const all = cached('changes', state.space, () => changesOf(state.space));
  const at = lastNotAbove(all, direction > 0 ? state.step : state.step - 1);
  const next = direction > 0 ? all[at + 1] : all[at];
  if (next !== undefined) setStep(next);
}

const caches = new Map();

// Returns a value that is computed anew only if its key changes.
function cached(name, key, compute) {
  const known = caches.get(name);
  if (known && known.key === key) return known.value;
  const value = compute();
  caches.set(name, { key, value });
  return value;
}

// Numbers of the bands at the chosen moment, by address.
function bandsHere() {
  return cached('here', `${state.space} ${state.step}`, () => bandsAt(state.space, state.step));
}

// Goes to the next mark of a kind in the chosen address space, and shows its address.
function nextMark(what, direction) {
  let best = -1;
  for (let i = 0; i < marks.length; i++) {
    if (marks.space[i] !== state.space || marks.what[i] !== what) continue;
    const ahead = (marks.step[i] - state.step) * direction;
    if (ahead > 0 && (best < 0 || ahead < (marks.step[best] - state.step) * direction)) best = i;
  }
  if (best >= 0) goTo(state.space, marks.step[best], marks.page[best]);
  return best;
}

// Goes to a place: an address space, a step and an address.
function goTo(space, step, page) {
  if (space !== state.space) setSpace(space);
  setStep(step);
  const there = bandsAt(space, state.step);
  const band = there.find((i) => bands.start[i] <= page && page < bands.start[i] + bands.pages[i]);
  setBand(band ?? -1);
  showBand(state.band);
}

// Moves the view so that it contains the chosen moment and a band.
function showBand(band) {
  const width = state.to - state.from;
  if (state.step < state.from || state.step > state.to) {
    const { from, to } = data.spaces[state.space];
    state.from = Math.max(from, Math.min(state.step - width / 2, to - width));
    state.to = state.from + width;
    changed('view');
  }
  if (band < 0) return;
  const axis = axisOf(state.space, state.axis);
  const middle = (axis.low[band - axis.begin] + axis.high[band - axis.begin]) / 2;
  const height = state.high - state.low;
  if (middle < state.low || middle > state.high) {
    state.low = Math.max(0, Math.min(middle - height / 2, 1 - height));
    state.high = state.low + height;
    changed('view');
  }
}
