// The address axis: where each address is drawn, between 0 (lowest) and 1 (highest).

const GAP = 0.25;   // height of a gap, in units of the smallest run

// The runs of an address space: addresses that were mapped at any time, without a gap inside.
function runsOf({ begin, end }) {
  const order = Array.from({ length: end - begin }, (_, i) => begin + i)
    .sort((a, b) => bands.start[a] - bands.start[b]);
  const runs = [];
  for (const band of order) {
    const start = bands.start[band], stop = start + bands.pages[band];
    const last = runs[runs.length - 1];
    if (last && start <= last.stop) last.stop = Math.max(last.stop, stop);
    else runs.push({ start, stop, bands: [] });
    runs[runs.length - 1].bands.push(band);
  }
  return runs;
}

// Corners of the axis: addresses with their places.
function corners(range, kind) {
  const pages = [], places = [];
  let at = 0;
  const add = (page, place) => { pages.push(page); places.push(place); };
  if (kind === 'even') {
    const ends = new Set();
    for (let i = range.begin; i < range.end; i++) ends.add(bands.start[i]).add(bands.start[i] + bands.pages[i]);
    const runs = runsOf(range);
    let run = 0;
    for (const page of Float64Array.from(ends).sort()) {
      while (runs[run].stop < page) run++;
      add(page, at);
      at += page === runs[run].stop ? GAP : 1;
    }
    return { pages, places, total: at };
  }
  for (const { start, stop } of runsOf(range)) {
    add(start, at);
    at += kind === 'bytes' ? stop - start : Math.log2(1 + stop - start) ** 2 + 1;
    add(stop, at);
    at += kind === 'bytes' ? 0 : GAP;
  }
  return { pages, places, total: at };
}

// Returns the lower and the upper place of each band, by its number less `begin`.
function axisOf(space, kind) {
  return cached('axis', `${space} ${kind}`, () => {
    const range = bandsOf(space);
    const { pages, places, total } = corners(range, kind);
    const place = (page) => {
      const at = Math.max(0, lastNotAbove(pages, page));
      const next = Math.min(at + 1, pages.length - 1);
      const share = next > at ? (page - pages[at]) / (pages[next] - pages[at]) : 0;
      return (places[at] + Math.min(1, Math.max(0, share)) * (places[next] - places[at])) / total;
    };
    const low = new Float64Array(range.end - range.begin), high = low.slice();
    for (let i = range.begin; i < range.end; i++) {
      low[i - range.begin] = place(bands.start[i]);
      high[i - range.begin] = place(bands.start[i] + bands.pages[i]);
    }
    return { begin: range.begin, low, high, place, runs: runsOf(range) };
  });
}
