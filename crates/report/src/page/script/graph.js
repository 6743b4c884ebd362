// The graph of VMAs, chains and anon_vmas at the chosen moment, in clusters by family.

const MOST_CARDS = 24, MOST_ROWS = 6;
const ROW = 24;

// All bands at the moment with an anon_vma, in every drawn address space: families cross forks.
function familyMembers() {
  const families = new Map();
  data.spaces.forEach((space, number) => {
    if (!space.drawn || state.step < space.from || state.step >= space.to) return;
    for (const band of bandsAt(number, state.step)) {
      const root = rootOf(band);
      if (root < 0) continue;
      if (!families.has(root)) families.set(root, []);
      families.get(root).push(band);
    }
  });
  return families;
}

// The anon_vmas to which a band is linked: the chain, which includes its own.
function linksOf(band) {
  const own = bands.anon[band] - 1;
  return bands.chain[band] === NONE ? [own] : data.chains[bands.chain[band] - 1];
}

// The anon_vmas of a family with their ancestors, parents first.
function anonsOf(members) {
  const found = new Set();
  const add = (anon) => {
    if (found.has(anon)) return;
    if (anons.parent[anon] !== anon) add(anons.parent[anon]);
    found.add(anon);
  };
  for (const band of members) linksOf(band).forEach(add);
  return [...found].sort((a, b) => a - b);
}

// Families with the same shape: numbers of VMAs by process, and the tree of their anon_vmas.
function shapeOf(members) {
  const all = anonsOf(members);
  const place = new Map(all.map((anon, i) => [anon, i]));
  const spaces = [...new Set(members.map((band) => bands.space[band]))];
  const rows = members.slice(0, 40).map((band) => `${spaces.indexOf(bands.space[band])}:${place.get(bands.anon[band] - 1)}:`
    + linksOf(band).map((anon) => place.get(anon)).join(','));
  return `${members.length} ${all.map((anon) => place.get(anons.parent[anon])).join(',')} ${rows.sort().join(' ')}`;
}

function drawGraph() {
  const families = familyMembers();
  const shapes = new Map();
  for (const [root, members] of families) {
    const shape = members.length === 1 && linksOf(members[0]).length === 1 ? 'one' : shapeOf(members);
    if (!shapes.has(shape)) shapes.set(shape, []);
    shapes.get(shape).push({ root, members });
  }
  const groups = [...shapes.values()].sort((a, b) => b[0].members.length - a[0].members.length || b.length - a.length);
  const shown = groups.slice(0, MOST_CARDS);
  byId('families').replaceChildren(...shown.map(card));
  const vmas = [...families.values()].reduce((sum, members) => sum + members.length, 0);
  const text = [`${count(families.size)} families with ${count(vmas)} VMAs at this moment.`];
  if (groups.length > shown.length) {
    text.push(`${count(groups.length - shown.length)} smaller shapes of families are not drawn.`);
  }
  if (!families.size) text[0] = 'No mapping has an anon_vma at this moment, as far as is known.';
  byId('families-text').textContent = text.join(' ');
}

// A box for one family, or for several of the same shape.
function card(group) {
  const { root, members } = group[0];
  const all = anonsOf(members);
  const roots = new Set(group.map((family) => family.root));
  const title = group.length > 1 ? `${count(group.length)} families like this one` : `family of A${root + 1}`;
  const vmas = members.length * group.length;
  const about = `${count(members.length)} VMA${members.length > 1 ? 's' : ''}, ${count(all.length)} anon_vma${all.length > 1 ? 's' : ''}`;
  const button = element('button', { type: 'button', className: 'family' }, title);
  const mark = { label: `families ${root} ${group.length}`, has: (band) => roots.has(rootOf(band)) };
  button.setAttribute('aria-pressed', String(state.marked?.label === mark.label));
  button.addEventListener('click', () => setMark(mark));
  return element('figure', { className: 'card' }, button,
    element('p', { className: 'note' }, group.length > 1 ? `${about} each, ${count(vmas)} VMAs together` : about),
    drawFamily(members, all, title));
}

const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// VMAs on the left, anon_vmas on the right, the tree indented by generation.
function drawFamily(members, all, title) {
  const rows = members.slice(0, MOST_ROWS), nodes = all.slice(0, MOST_ROWS);
  const left = members.length - rows.length, more = all.length - nodes.length;
  const height = (Math.max(rows.length + (left > 0), nodes.length + (more > 0)) + 0.5) * ROW;
  const middle = (i) => ROW * (i + 0.75);
  const picture = svg('svg', { viewBox: `0 0 320 ${height}`, role: 'img', 'aria-label': familyText(title, members, all) });
  const depth = (anon) => (anons.parent[anon] === anon ? 0 : 1 + depth(anons.parent[anon]));
  const nodeX = (anon) => 212 + 12 * Math.min(4, depth(anon));
  rows.forEach((band, i) => linksOf(band).forEach((anon) => {
    const at = nodes.indexOf(anon);
    if (at < 0) return;
    const own = anon === bands.anon[band] - 1;
    picture.append(svg('line', { x1: 166, y1: middle(i), x2: nodeX(anon), y2: middle(at), class: own ? 'own' : 'link' }));
  }));
  rows.forEach((band, i) => picture.append(
    svg('rect', { x: 2, y: middle(i) - 9, width: 164, height: 18, rx: 3, class: 'vma' }),
    svg('text', { x: 8, y: middle(i) + 4 }, shortened(vmaName(band), 24))));
  nodes.forEach((anon, i) => picture.append(
    svg('rect', { x: nodeX(anon), y: middle(i) - 9, width: 56, height: 18, rx: 9, class: 'anon' }),
    svg('text', { x: nodeX(anon) + 28, y: middle(i) + 4, 'text-anchor': 'middle' }, `A${anon + 1}`)));
  if (left > 0) picture.append(svg('text', { x: 8, y: middle(rows.length) + 4 }, `and ${count(left)} more VMAs`));
  if (more > 0) picture.append(svg('text', { x: 212, y: middle(nodes.length) + 4 }, `and ${count(more)} more`));
  return picture;
}

function vmaName(band) {
  const several = data.spaces.filter((space) => space.drawn).length > 1;
  return `${several ? `mm${data.spaces[bands.space[band]].mm} ` : ''}${size(bands.pages[band])} ${nameOf(band)}`;
}

const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function familyText(title, members, all) {
  return `${title}: ${members.slice(0, MOST_ROWS).map((band) => `${vmaName(band)} with A${bands.anon[band]}`).join(', ')}`
    + `; anon_vmas ${all.slice(0, MOST_ROWS).map((anon) => `A${anon + 1}`).join(', ')}`;
}
