// Colours of bands: of what they depend, and their legend.

const OTHER = 9;   // number of the colour of all that have none of their own

let known = null;
function colour(name) {
  known ??= new Map();
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}

for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)']) {
  matchMedia(query).addEventListener('change', () => {
    known = null;
    caches.delete('palette');
    changed('theme');
  });
}

// Paper is white, whatever the screen's theme is.
const printing = () => document.documentElement.classList.contains('printing');
for (const [event, starts] of [['beforeprint', true], ['afterprint', false]]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle('printing', starts);
    known = null;
    changes.add('theme');
    draw();
  });
}

// The value by which bands are coloured.
const VALUES = {
  kind: (band) => lookOf(band).kind,
  reason: (band) => bands.reason[band],
  site: (band) => callOf(band),
  family: (band) => rootOf(band),
};

const WORDS = {
  kind: (value) => data.kinds[value],
  reason: (value) => data.reasons[value][1],
  site: (value) => value,
  family: (value) => (value < 0 ? 'no anon_vma' : `family of A${value + 1}`),
};

// The values of an address space with their colours: kinds have fixed colours, others by frequency.
function palette() {
  return cached('palette', `${state.space} ${state.colour}`, () => {
    const by = state.colour;
    const { begin, end } = bandsOf(state.space);
    const counts = new Map();
    const values = new Array(end - begin);
    for (let i = begin; i < end; i++) {
      const value = VALUES[by](i);
      values[i - begin] = value;
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const order = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
    const numbers = new Map(order.map((value, i) => [value, colourNumber(by, value, i)]));
    const of = Uint8Array.from(values, (value) => numbers.get(value));
    return { begin, of, values, order, numbers };
  });
}

function colourNumber(by, value, place) {
  if (by === 'kind') return value;
  if (by === 'reason') return REASON_COLOURS[data.reasons[value][0]] ?? OTHER;
  if (by === 'family' && value < 0) return OTHER;
  return Math.min(place, OTHER);
}

// Reasons have fixed colours, so that two pages can be compared.
const REASON_COLOURS = {
  first: OTHER, gap: 6, guard: 1, protection: 0, flags: 2, file: 4, file_offset: 5, anon_vma: 3, page_offset: 7,
  nothing: 8,
};

const cssColour = (number) => colour(`--c${number}`);

function rgb(text) {
  const hex = text.replace('#', '');
  const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join('') : hex;
  return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
}

function mixed([r, g, b], [r2, g2, b2], share) {
  const mix = (a, c) => Math.round(a + (c - a) * share);
  return [mix(r, r2), mix(g, g2), mix(b, b2)];
}

// One pixel of an image as a number.
function pixel([r, g, b]) {
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

// Legend of the bands at the moment: only what appears, with its number.
function drawLegend() {
  const list = byId('legend');
  const { begin, of, values, numbers } = palette();
  const counts = new Map();
  for (const band of bandsHere()) {
    const value = values[band - begin];
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  const order = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const own = order.filter((value) => numbers.get(value) !== OTHER);
  const others = order.filter((value) => numbers.get(value) === OTHER);
  const shown = own.concat(others.slice(0, 1));
  list.replaceChildren(...shown.map((value) => {
    const many = numbers.get(value) === OTHER && others.length > 1;
    const words = many ? `${count(others.length)} others` : WORDS[state.colour](value);
    const n = many ? others.reduce((sum, other) => sum + counts.get(other), 0) : counts.get(value);
    return markButton(numbers.get(value), words, n, {
      label: `${state.colour} ${words}`,
      has: many ? (band) => of[band - begin] === OTHER : (band) => VALUES[state.colour](band) === value,
    });
  }));
}

// A list item with a button that marks bands.
function markButton(number, words, n, mark) {
  const swatch = element('span', { className: 'swatch' });
  swatch.style.background = cssColour(number);
  const button = element('button', { type: 'button', className: 'key' }, swatch, `${words} `,
    element('b', {}, count(n)));
  button.setAttribute('aria-pressed', String(state.marked?.label === mark.label));
  button.addEventListener('click', () => setMark(mark));
  return element('li', {}, button);
}
