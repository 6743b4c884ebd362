// The data of the page, decoded once. Addresses are in pages of 4 KiB.

performance.mark('script');
const data = JSON.parse(document.getElementById('data').textContent);
const PAGE = 4096;
const NONE = 0;
const KINDS_OF_MARK = ['merge', 'split', 'refusal', 'failed call'];

// Decodes a column: differences in zigzag form, seven bits a byte, as base64.
function column(text) {
  const bytes = atob(text);
  const numbers = new Float64Array(bytes.length);
  let at = 0, last = 0, value = 0, scale = 1;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    value += (byte & 127) * scale;
    if (byte & 128) {
      scale *= 128;
      continue;
    }
    last += value % 2 ? -(value + 1) / 2 : value / 2;
    numbers[at++] = last;
    value = 0;
    scale = 1;
  }
  return numbers.subarray(0, at);
}

function columns(names, texts) {
  const table = {};
  names.forEach((name, i) => { table[name] = column(texts[i]); });
  table.length = table[names[0]].length;
  return table;
}

const steps = columns(['step', 'event', 'us', 'label'], data.steps);
const marks = columns(['space', 'step', 'what', 'detail', 'count', 'page'], data.marks);
const anons = columns(['parent', 'root'], data.anons);
const bands = columns(
  ['space', 'start', 'pages', 'from', 'to', 'look', 'site', 'reason', 'joinable', 'anon', 'chain'], data.bands);
data.steps = data.marks = data.anons = data.bands = null;
performance.mark('decoded');

// A page of one moment has no time.
const STILL = data.last === 0;

// The bands of each address space are neighbours in the table, by address.
const firstBand = new Map();
for (let i = 0; i < bands.length; i++) {
  const range = firstBand.get(bands.space[i]);
  if (range) range.end = i + 1;
  else firstBand.set(bands.space[i], { begin: i, end: i + 1 });
}

function bandsOf(space) {
  return firstBand.get(space) ?? { begin: 0, end: 0 };
}

// Numbers of the bands of an address space that exist at a step, by address.
function bandsAt(space, step) {
  const { begin, end } = bandsOf(space);
  const found = [];
  for (let i = begin; i < end; i++) {
    if (bands.from[i] <= step && step < bands.to[i]) found.push(i);
  }
  return found.sort((a, b) => bands.start[a] - bands.start[b]);
}

// Index of the last element that is not larger than the value; -1 if there is none.
function lastNotAbove(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function count(n) {
  return Math.round(n).toLocaleString('en-US');
}

function percent(part, whole) {
  const share = whole ? 100 * part / whole : 0;
  return `${share >= 10 || part === 0 ? Math.round(share) : share.toFixed(1)} %`;
}

function size(pages) {
  let value = pages * 4, unit = 0;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

// An address has up to 64 bits, a number of the script only 53.
function address(page) {
  return (BigInt(page) * BigInt(PAGE)).toString(16);
}

function rangeOf(band) {
  return `${address(bands.start[band])}-${address(bands.start[band] + bands.pages[band])}`;
}

function lookOf(band) {
  const [kind, perms, name] = data.looks[bands.look[band]];
  return { kind, perms, name };
}

function fileName(path) {
  return path.slice(path.lastIndexOf('/') + 1);
}

// What a person would call the mapping.
const lookNames = data.looks.map(([kind, , name]) => (name ? fileName(name) : data.kinds[kind]));

function nameOf(band) {
  return lookNames[bands.look[band]];
}

function callOf(band) {
  return data.sites[bands.site[band]][0];
}

function rootOf(band) {
  return bands.anon[band] === NONE ? -1 : anons.root[bands.anon[band] - 1];
}

function spaceName(space) {
  const { name, pid, mm } = data.spaces[space];
  const who = name || 'process';
  return STILL ? who : `${who}${pid ? ` (${pid})` : ''}, mm${mm}`;
}

// Describes a moment: the call at or before it, and the time since the beginning.
function describeStep(step) {
  const at = lastNotAbove(steps.step, step);
  if (STILL || at < 0) return 'now';
  const seconds = (steps.us[at] / 1e6).toFixed(3);
  return `step ${count(step)} of ${count(data.last)}, after ${data.labels[steps.label[at]]} at ${seconds} s`;
}

function describeBand(band, step) {
  const { perms } = lookOf(band);
  const [, words] = data.reasons[bands.reason[band]];
  const apart = bands.reason[band] ? `; apart from the mapping below: ${words}` : '';
  const remedy = bands.joinable[band] ? ' (could be merged)' : '';
  const life = STILL ? '' : `, as here from step ${count(bands.from[band])} to ${count(bands.to[band])}`;
  return `${rangeOf(band)} ${perms} ${size(bands.pages[band])} ${nameOf(band)}, made by ${callOf(band)}`
    + `${life}${apart}${remedy}`;
}
