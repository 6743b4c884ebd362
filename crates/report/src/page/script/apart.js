// Why neighbours are apart at the chosen moment: by address, by size, and what could be merged.

const strip = plot('strip', 44), sizes = plot('sizes', 160);
const SIZES = [1, 4, 16, 64, 256, 1024, 16384, 262144, Infinity];   // pages, upper ends
const MOST_PLACES = 200;

// The repair that removes a boundary: by its reason, and by whether the mapping can be accessed.
function repairOf(band) {
  const [reason] = data.reasons[bands.reason[band]];
  if (reason === 'guard') return '--fix guards';
  if (lookOf(band).perms.startsWith('---')) return '--fix empties';
  return reason === 'flags' ? '--fix flags' : 'vmarea merge';
}

const reasonColour = (reason) => REASON_COLOURS[data.reasons[reason][0]] ?? OTHER;

// Each mapping is equally wide; of several in a pixel, each reason gets its share of the height.
function drawStrip() {
  const context = strip.begin();
  const here = bandsHere();
  const width = strip.width / Math.max(1, here.length);
  if (width >= 1) {
    here.forEach((band, i) => {
      context.fillStyle = stripColour(band);
      context.fillRect(i * width, 0, Math.max(1, width - (width > 4 ? 1 : 0)), strip.height);
    });
  } else {
    for (let x = 0; x < strip.width; x++) {
      drawShares(context, x, here.slice(Math.floor(x / width), Math.ceil((x + 1) / width)));
    }
  }
  const found = tally(here);
  strip.canvas.setAttribute('aria-label', found.map(([reason, n]) => `${data.reasons[reason][1]}: ${count(n)}`).join('; '));
  drawReasons(found);
}

function stripColour(band) {
  if (state.marked && !state.marked.has(band)) return colour('--line');
  return cssColour(reasonColour(bands.reason[band]));
}

// One column of pixels for several bands, the most frequent colour at the bottom.
function drawShares(context, x, some) {
  const counted = new Map();
  for (const band of some) counted.set(stripColour(band), (counted.get(stripColour(band)) ?? 0) + 1);
  let y = 0;
  for (const [shade, n] of [...counted].sort((a, b) => a[1] - b[1])) {
    context.fillStyle = shade;
    context.fillRect(x, y, 1, strip.height - y);
    y += Math.max(2, n / some.length * strip.height);
  }
}

// Reasons with their numbers of bands, most first.
function tally(here) {
  const counted = new Map();
  for (const band of here) {
    if (bands.reason[band]) counted.set(bands.reason[band], (counted.get(bands.reason[band]) ?? 0) + 1);
  }
  return [...counted].sort((a, b) => b[1] - a[1]);
}

function drawReasons(found) {
  byId('reasons').replaceChildren(...found.map(([reason, n]) => markButton(reasonColour(reason),
    `${data.reasons[reason][0]}: ${data.reasons[reason][1]}`, n,
    { label: `reason ${reason}`, has: (band) => bands.reason[band] === reason })));
}

const sizeClass = (pages) => SIZES.findIndex((limit) => pages <= limit);
const sizeName = (i) => (SIZES[i] === Infinity ? `> ${size(SIZES[i - 1])}` : i ? `≤ ${size(SIZES[i])}` : size(1));

// A column for each class of sizes, stacked by reason.
function drawSizes() {
  const context = sizes.begin();
  const here = bandsHere().filter((band) => bands.reason[band]);
  const found = SIZES.map((_, i) => tally(here.filter((band) => sizeClass(bands.pages[band]) === i)));
  const sums = found.map((reasons) => reasons.reduce((sum, [, n]) => sum + n, 0));
  const most = Math.max(1, ...sums), width = sizes.width / SIZES.length;
  const room = sizes.height - 40;
  context.textAlign = 'center';
  context.textBaseline = 'alphabetic';
  found.forEach((reasons, i) => {
    let y = sizes.height - 20;
    for (const [reason, n] of reasons) {
      const height = n / most * room;
      context.fillStyle = cssColour(reasonColour(reason));
      context.fillRect(i * width + 3, y - height, width - 6, Math.max(1, height));
      y -= height;
    }
    context.fillStyle = colour('--text');
    if (sums[i]) context.fillText(count(sums[i]), i * width + width / 2, y - 5);
    context.fillStyle = colour('--muted');
    const last = i === SIZES.length - 1;
    context.textAlign = last ? 'right' : 'center';
    if (width > 50 || i % 2 === 0) context.fillText(sizeName(i), (i + (last ? 1 : 0.5)) * width, sizes.height - 5);
    context.textAlign = 'center';
  });
  const words = sums.map((n, i) => `${sizeName(i)}: ${count(n)}`);
  sizes.canvas.setAttribute('aria-label', `Boundaries by the size of the mapping above: ${words.join('; ')}`);
  byId('sizes-text').textContent = 'Size of the mapping above the boundary, and number of boundaries; colours as above.';
}

// The boundaries that a repair could remove.
function drawJoinable() {
  const here = bandsHere();
  const found = [];
  here.forEach((band, i) => { if (bands.joinable[band] && i) found.push([here[i - 1], band]); });
  const rows = found.slice(0, MOST_PLACES).map(([below, band]) => [
    goButton(band), size(bands.pages[below]), size(bands.pages[band]), nameOf(band),
    data.reasons[bands.reason[band]][1], repairOf(band), callOf(band)]);
  const heading = byId('joinable-heading');
  heading.textContent = `What could be merged: ${count(found.length)} of ${count(Math.max(0, here.length - 1))} boundaries`;
  const box = byId('joinable');
  if (!found.length) return box.replaceChildren(element('p', {}, 'Nothing: at this moment, no repair would merge two neighbours.'));
  const button = element('button', { type: 'button' }, 'mark them in the picture');
  button.addEventListener('click', () => setMark({ label: 'joinable', has: (band) => bands.joinable[band] === 1 }));
  const table = dataTable('Boundaries that could be removed',
    ['boundary', 'size below', 'size above', 'mapping', 'apart because', 'repair', 'made by'], rows);
  const more = found.length - rows.length;
  return box.replaceChildren(button, table, ...(more > 0 ? [element('p', { className: 'note' }, `${count(more)} more`)] : []));
}

// A button with an address, which goes there in the map.
function goButton(band) {
  const button = element('button', { type: 'button', className: 'go' }, address(bands.start[band]));
  button.addEventListener('click', () => {
    setBand(band);
    showBand(band);
    over.canvas.scrollIntoView({ block: 'center' });
    over.canvas.focus({ preventScroll: true });
    speak(describeBand(band, state.step));
  });
  return button;
}
