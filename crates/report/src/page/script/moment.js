// Steering: keys and pointer in the map, the slider, and what is said about the chosen place.

const slider = byId('moment');

// Shows a text below the map.
function readOut(text) {
  byId('readout').textContent = text;
}

// Shows a text and has it read aloud. It stays until another moment or mapping is chosen.
function speak(text) {
  said = { text, step: state.step, band: state.band };
  readOut(text);
  byId('spoken').textContent = text;
}

let said = null;

// Shows what was said about the chosen moment and mapping, or describes them.
function readOutChosen() {
  const stands = said && said.step === state.step && said.band === state.band;
  readOut(stands ? said.text : describeChosen());
}

function describeChosen() {
  if (state.band < 0) return describeStep(state.step);
  return `${STILL ? '' : `${describeStep(state.step)}. `}${describeBand(state.band, state.step)}`;
}

// Zooms by a factor around a point of the view, given as shares of its width and height.
function zoom(acrossFactor, upFactor, x = 0.5, y = 0.5) {
  const { from, to } = data.spaces[state.space];
  const whole = Math.max(1, to - from);
  const width = Math.min(whole, Math.max(STILL ? 1 : 8, (state.to - state.from) * acrossFactor));
  const left = state.from + (state.to - state.from - width) * x;
  state.from = Math.max(from, Math.min(left, from + whole - width));
  state.to = state.from + width;
  const height = Math.min(1, Math.max(1e-9, (state.high - state.low) * upFactor));
  const low = state.low + (state.high - state.low - height) * y;
  state.low = Math.max(0, Math.min(low, 1 - height));
  state.high = state.low + height;
  changed('view');
}

// Moves the view by shares of its width and height.
function pan(across, up) {
  const { from, to } = data.spaces[state.space];
  const width = state.to - state.from, height = state.high - state.low;
  state.from = Math.max(from, Math.min(state.from + across * width, Math.max(from, to - width)));
  state.to = state.from + width;
  state.low = Math.max(0, Math.min(state.low + up * height, 1 - height));
  state.high = state.low + height;
  changed('view');
}

function whole() {
  const { from, to } = data.spaces[state.space];
  Object.assign(state, { from, to: Math.max(to, from + 1), low: 0, high: 1 });
  changed('view');
}

// Where the chosen place is in the view, so that zooming keeps it in sight.
function focus() {
  const share = (value, low, high) => (value >= low && value <= high ? (value - low) / (high - low) : 0.5);
  const x = share(state.step, state.from, state.to);
  if (state.band < 0) return [x, 0.5];
  const axis = axisOf(state.space, state.axis);
  const i = state.band - axis.begin;
  return [x, share((axis.low[i] + axis.high[i]) / 2, state.low, state.high)];
}

// Chooses the mapping above (1) or below (-1) the chosen one.
function bandBy(direction) {
  const here = bandsHere();
  if (!here.length) return;
  const at = here.indexOf(state.band);
  const first = direction > 0 ? 0 : here.length - 1;
  const next = at < 0 ? first : Math.max(0, Math.min(here.length - 1, at + direction));
  setBand(here[next]);
  showBand(state.band);
}

function toPeak() {
  setStep(data.spaces[state.space].peak_step);
  showBand(-1);
}

function markCall() {
  if (state.band < 0) return;
  const call = callOf(state.band);
  setMark({ label: `site ${call}`, has: (band) => callOf(band) === call });
}

function nextMerge(direction) {
  const mark = nextMark(0, direction);
  speak(mark < 0 ? `no merge ${direction > 0 ? 'after' : 'before'} this moment in this process` : describeMark(mark));
}

const KEYS = {
  '+': () => zoom(0.5, 0.5, ...focus()), '=': () => zoom(0.5, 0.5, ...focus()), '-': () => zoom(2, 2, ...focus()),
  0: whole, p: toPeak, m: () => nextMerge(1), M: () => nextMerge(-1), Enter: markCall, Escape: () => setMark(null),
  ArrowLeft: (event) => (event.shiftKey ? pan(-0.1, 0) : stepBy(-1)),
  ArrowRight: (event) => (event.shiftKey ? pan(0.1, 0) : stepBy(1)),
  ArrowUp: (event) => (event.shiftKey ? pan(0, 0.1) : bandBy(1)),
  ArrowDown: (event) => (event.shiftKey ? pan(0, -0.1) : bandBy(-1)),
};

function onKey(event) {
  const action = KEYS[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action(event);
  if (event.key.startsWith('Arrow') && !event.shiftKey) speak(describeChosen());
}

// Position of a pointer in the map, and as shares of the view.
function pointer(event) {
  const { left, top } = over.canvas.getBoundingClientRect();
  const frame = frameOf(over);
  const x = event.clientX - left, y = event.clientY - top;
  return { x, y, across: (x - frame.left) / frame.width, up: 1 - y / MAP_HEIGHT };
}

function onWheel(event) {
  if (document.activeElement !== over.canvas || event.ctrlKey) return;
  event.preventDefault();
  const { across, up } = pointer(event);
  const factor = Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 300)));
  zoom(event.shiftKey ? 1 : factor, event.altKey ? 1 : factor, across, up);
}

function listenToPointer() {
  let start = null;
  const { canvas } = over;
  canvas.addEventListener('pointerdown', (event) => {
    start = { ...pointer(event), from: state.from, to: state.to, low: state.low, high: state.high, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const at = pointer(event);
    if (!start) {
      const { band, step } = bandAtPoint(at.x, at.y);
      if (band >= 0) readOut(describeBand(band, step));
      return;
    }
    if (Math.hypot(at.x - start.x, at.y - start.y) > 4) start.moved = true;
    if (start.moved) {
      const { from, to, low, high } = start;
      Object.assign(state, { from, to, low, high });
      pan(start.across - at.across, start.up - at.up);
    }
  });
  canvas.addEventListener('pointerup', (event) => {
    if (start && !start.moved) {
      const { band, step } = bandAtPoint(start.x, start.y);
      setStep(step);
      setBand(band);
    }
    start = null;
  });
  canvas.addEventListener('pointercancel', () => { start = null; });
  canvas.addEventListener('pointerleave', readOutChosen);
}

function drawSlider() {
  if (!slider) return;
  const { from, to } = data.spaces[state.space];
  slider.min = from;
  slider.max = Math.max(from, to - 1);
  slider.value = state.step;
  slider.setAttribute('aria-valuetext', describeStep(state.step));
  slider.style.marginLeft = '';
}

function drawButtons() {
  byId('unmark').disabled = !state.marked;
  byId('unmark').textContent = state.marked ? 'unmark' : 'nothing marked';
}

function listenToControls() {
  const click = (id, action) => byId(id)?.addEventListener('click', action);
  click('in', () => zoom(0.5, 0.5, ...focus()));
  click('out', () => zoom(2, 2, ...focus()));
  click('closer', () => zoom(0.5, 1, ...focus()));
  click('wider', () => zoom(2, 1, ...focus()));
  click('whole', whole);
  click('to-peak', toPeak);
  click('previous-merge', () => nextMerge(-1));
  click('next-merge', () => nextMerge(1));
  click('unmark', () => setMark(null));
  slider?.addEventListener('input', () => setStep(Number(slider.value)));
  byId('colour').addEventListener('change', (event) => {
    state.colour = event.target.value;
    changed('colour');
  });
  byId('axis').addEventListener('change', (event) => {
    state.axis = event.target.value;
    Object.assign(state, { low: 0, high: 1 });
    changed('view');
  });
  over.canvas.addEventListener('keydown', onKey);
  over.canvas.addEventListener('wheel', onWheel, { passive: false });
  lanes?.canvas.addEventListener('click', clickLane);
  listenToPointer();
  const places = document.querySelectorAll('button.go');
  places.forEach((button) => {
    if (!data.spaces[Number(button.dataset.space)].drawn) return;
    button.hidden = false;
    button.addEventListener('click', () => {
      goTo(...['space', 'step', 'addr'].map((name) => Number(button.dataset[name])));
      over.canvas.scrollIntoView({ block: 'center' });
      over.canvas.focus({ preventScroll: true });
      const mark = markAt(state.space, state.step, Number(button.dataset.addr));
      speak(mark < 0 ? describeChosen() : describeMark(mark));
    });
  });
}

function fillSpaces() {
  const select = byId('space');
  const drawn = data.spaces.map((space, i) => [space, i]).filter(([space]) => space.drawn);
  drawn.sort(([a], [b]) => b.peak - a.peak);
  select.replaceChildren(...drawn.map(([space, i]) => element('option', { value: i },
    `${spaceName(i)}: ${count(space.peak)} mappings`)));
  byId('space-label').hidden = drawn.length < 2;
  select.addEventListener('change', () => setSpace(Number(select.value)));
}
