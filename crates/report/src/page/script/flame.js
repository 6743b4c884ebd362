// The flame graph of the calls that made the mappings; the outermost function is at the top.

const SMALLEST = 0.002;   // share of a frame that is still drawn
const MOST_FRAMES = 1500;

// The functions and the call of a site, outermost first.
function pathOf(site) {
  const [call, stack] = data.sites[site];
  const functions = stack === null ? [] : data.names.stacks[stack] ?? [];
  return [...functions.map((number) => data.names.functions[number]), call];
}

function flameShowsInterval() {
  return document.querySelector('input[name=flame]:checked')?.value === 'interval';
}

// The bands that the flame graph counts.
function flameBands() {
  if (!flameShowsInterval()) return bandsHere();
  const { begin, end } = bandsOf(state.space);
  const found = [];
  for (let i = begin; i < end; i++) {
    if (bands.from[i] >= state.from && bands.from[i] <= state.to) found.push(i);
  }
  return found;
}

// Frames as a tree; the sites of a frame are those of all frames below it.
function flameTree(some) {
  const root = { name: 'all', count: 0, sites: new Set(), below: new Map() };
  const bySite = new Map();
  for (const band of some) bySite.set(bands.site[band], (bySite.get(bands.site[band]) ?? 0) + 1);
  const stacks = data.names.stacks.length > 0;
  for (const [site, n] of bySite) {
    let frame = root;
    const path = pathOf(site);
    enter(root, site, n);
    for (const name of path) {
      if (!frame.below.has(name)) frame.below.set(name, { name, count: 0, sites: new Set(), below: new Map() });
      frame = frame.below.get(name);
      enter(frame, site, n);
    }
  }
  if (!stacks) addKinds(root, some);
  return root;
}

function enter(frame, site, n) {
  frame.count += n;
  frame.sites.add(site);
}

// Without functions, what the calls mapped is shown below them.
function addKinds(root, some) {
  for (const band of some) {
    const frame = root.below.get(callOf(band));
    const name = nameOf(band);
    if (!frame.below.has(name)) {
      frame.below.set(name, { name, count: 0, sites: frame.sites, below: new Map(), of: name });
    }
    frame.below.get(name).count++;
  }
}

function drawFlame() {
  const some = flameBands();
  const root = flameTree(some);
  const frames = [];
  place(root, 0, 1, 0, '', frames);
  const box = byId('flame');
  const height = 1 + Math.max(0, ...frames.map((frame) => frame.depth));
  box.style.height = `${height * 26}px`;
  box.replaceChildren(...frames.map((frame) => frameButton(frame, root.count)));
  box.firstChild.tabIndex = 0;
  const drawn = frames.length;
  byId('flame-text').textContent = `${count(root.count)} mappings, ${count(drawn)} frames`
    + (root.left ? `; frames of less than ${SMALLEST * 100} % are left out` : '');
}

// Places a frame and those below it, largest first.
function place(frame, left, width, depth, path, frames) {
  const label = `${path}/${frame.name}`;
  frames.push({ frame, left, width, depth, label });
  let at = left;
  const below = [...frame.below.values()].sort((a, b) => b.count - a.count);
  for (const next of below) {
    const share = width * next.count / frame.count;
    if (share < SMALLEST || frames.length > MOST_FRAMES) {
      frame.left = true;
      continue;
    }
    place(next, at, share, depth + 1, label, frames);
    at += share;
  }
}

function frameButton({ frame, left, width, depth, label }, total) {
  const text = `${frame.name}: ${count(frame.count)} mappings, ${percent(frame.count, total)}`;
  const button = element('button', { type: 'button', className: 'frame', title: text, tabIndex: -1 }, frame.name);
  button.setAttribute('aria-label', `${text}, level ${depth + 1}`);
  const marked = state.marked?.label === `frame ${label}`;
  button.setAttribute('aria-pressed', String(marked));
  Object.assign(button.style, { left: `${left * 100}%`, width: `${width * 100}%`, top: `${depth * 26}px` });
  button.style.background = frameColour(frame.name, depth);
  button.addEventListener('click', () => {
    const has = (band) => frame.sites.has(bands.site[band]) && (!frame.of || nameOf(band) === frame.of);
    setMark(depth ? { label: `frame ${label}`, has } : null);
    byId('flame-text').textContent = text;
  });
  button.addEventListener('focus', () => { byId('flame-text').textContent = text; });
  button.addEventListener('mouseenter', () => { byId('flame-text').textContent = text; });
  return button;
}

// Arrow keys move between frames: down to the largest one that was called, left and right along a
// row. The Tab key reaches the graph once.
function onFlameKey(event) {
  const box = byId('flame'), here = document.activeElement;
  const of = (button) => ({ left: parseFloat(button.style.left), top: parseFloat(button.style.top),
    right: parseFloat(button.style.left) + parseFloat(button.style.width) });
  if (here.parentElement !== box) return;
  const at = of(here), all = [...box.children];
  const nearest = { ArrowDown: (o) => o.top > at.top && o.left >= at.left - 1e-6 && o.left < at.right,
    ArrowUp: (o) => o.top < at.top && o.left <= at.left + 1e-6 && o.right > at.left,
    ArrowRight: (o) => o.top === at.top && o.left > at.left, ArrowLeft: (o) => o.top === at.top && o.left < at.left }[event.key];
  if (!nearest) return;
  event.preventDefault();
  const found = all.filter((button) => nearest(of(button)));
  const away = (button) => Math.abs(of(button).top - at.top) * 100 + Math.abs(of(button).left - at.left);
  const next = found.sort((a, b) => away(a) - away(b))[0];
  if (!next) return;
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// A warm colour that depends on the name, so that a function has the same one everywhere.
function frameColour(name, depth) {
  if (!depth) return 'var(--frame-all)';
  let hash = 7;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) % 997;
  return `hsl(${12 + hash % 40} var(--frame-saturation) var(--frame-lightness))`;
}

// Shows which frame is marked, without drawing all anew.
function drawFlameMark() {
  const focused = document.activeElement?.getAttribute('aria-label');
  const inside = document.activeElement?.classList.contains('frame');
  drawFlame();
  if (!inside) return;
  for (const button of byId('flame').children) {
    if (button.getAttribute('aria-label') === focused) return button.focus({ preventScroll: true });
  }
}
