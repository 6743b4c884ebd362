// Tables: sorted by a click on a heading, copied with a button.

// The value by which a cell is sorted: numbers and sizes by value, the rest as text.
function sortValue(cell) {
  const text = cell?.textContent.trim() ?? '';
  const number = /^-?[\d,]+(\.\d+)?/.exec(text);
  const unit = { KiB: 1, MiB: 1024, GiB: 1024 ** 2, TiB: 1024 ** 3 }[/[KMGT]iB$/.exec(text)?.[0]] ?? 1;
  const isNumber = number && /^-?[\d,.]+(\s?(%|[KMGT]iB))?$/.test(text);
  return isNumber ? Number(number[0].replaceAll(',', '')) * unit : text;
}

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}

function sortTable(table, column, heading) {
  const down = heading.getAttribute('aria-sort') === 'ascending';
  table.querySelectorAll('th[aria-sort]').forEach((other) => other.removeAttribute('aria-sort'));
  heading.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => (down ? -1 : 1) * compare(sortValue(a.cells[column]), sortValue(b.cells[column])));
  table.tBodies[0].append(...rows);
}

// Text of a table with tabs, which spreadsheets understand.
function tableText(table) {
  const line = (row) => [...row.cells].map((cell) => cell.innerText.replace(/\s+/g, ' ').trim()).join('\t');
  return [...table.rows].map(line).join('\n');
}

async function copyTable(table, button) {
  const text = tableText(table);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page from a file may not use the clipboard; a selection can be copied.
    const area = element('textarea', { value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.focus();
  }
  button.textContent = 'copied';
  setTimeout(() => { button.textContent = 'copy'; }, 1500);
}

function liven(table) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    if (!heading.textContent) return;
    const button = element('button', { type: 'button', className: 'sort' }, heading.textContent);
    heading.replaceChildren(button);
    button.addEventListener('click', () => sortTable(table, column, heading));
  });
  const caption = table.caption ?? table.createCaption();
  const copy = element('button', { type: 'button', className: 'copy' }, 'copy');
  copy.setAttribute('aria-label', `Copy the table: ${caption.textContent}`);
  copy.addEventListener('click', () => copyTable(table, copy));
  caption.append(' ', copy);
  return table;
}

document.querySelectorAll('table.sortable').forEach(liven);
