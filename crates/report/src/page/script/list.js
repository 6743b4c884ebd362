// Tables that the script makes, and the list of all mappings at the moment.

const ROWS_SHOWN = 100;

// Makes a table; a cell is a text or an element.
function dataTable(caption, headings, rows) {
  const isNumber = headings.map((_, i) => rows.every((row) => /^[\d,.]+( ?([KMGT]iB|%))?$/.test(row[i])));
  const cells = (row) => row.map((cell, i) => element('td', { className: isNumber[i] ? '' : 'text' }, cell));
  const table = element('table', { className: 'sortable' }, element('caption', {}, caption),
    element('thead', {}, element('tr', {}, ...headings.map((heading, i) => element('th', {
      scope: 'col', className: isNumber[i] ? '' : 'text' }, heading)))),
    element('tbody', {}, ...rows.map((row) => element('tr', {}, ...cells(row)))));
  const box = element('div', { className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': caption }, table);
  liven(table);
  return box;
}

// All mappings at the moment that contain the wanted text.
function drawList() {
  const wanted = byId('find').value.trim().toLowerCase();
  const here = bandsHere();
  const text = (band) => `${rangeOf(band)} ${lookOf(band).perms} ${lookOf(band).name} ${nameOf(band)} ${callOf(band)} `
    + data.reasons[bands.reason[band]].join(' ');
  const found = wanted ? here.filter((band) => text(band).toLowerCase().includes(wanted)) : here;
  const rows = found.slice(0, ROWS_SHOWN).map((band) => {
    const { perms, name } = lookOf(band);
    return [goButton(band), size(bands.pages[band]), perms, name || data.kinds[lookOf(band).kind], callOf(band),
      bands.reason[band] ? data.reasons[bands.reason[band]][1] : '', bands.joinable[band] ? 'yes' : ''];
  });
  byId('found').textContent = `${count(found.length)} of ${count(here.length)} mappings`
    + (found.length > rows.length ? `; the first ${ROWS_SHOWN} are shown` : '');
  const headings = ['address', 'size', 'rights', 'mapping', 'made by', 'apart from the one below because', 'could be merged'];
  // A column in which nothing is known is left out.
  const known = headings.map((_, i) => i < 4 || rows.some((row) => row[i] && row[i] !== 'not known'));
  const kept = (row) => row.filter((_, i) => known[i]);
  byId('list').replaceChildren(dataTable(`Mappings of ${spaceName(state.space)}, ${describeStep(state.step)}`,
    kept(headings), rows.map(kept)));
}
