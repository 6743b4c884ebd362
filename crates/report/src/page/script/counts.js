// The number of mappings over time under each policy, with the limit.

const COUNTS_HEIGHT = 180, TIMES_HEIGHT = 18;
const counts = plot('counts', COUNTS_HEIGHT + TIMES_HEIGHT);
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [1, 2], [12, 4]];

function drawCounts() {
  const context = counts.begin();
  const frame = frameOf(counts);
  const lines = data.spaces[state.space].counts;
  const highest = Math.max(1, ...lines.map((line) => line.reduce((most, [, n]) => Math.max(most, n), 0)));
  const limit = data.limit && highest > data.limit / 3 ? data.limit : null;
  const top = limit ? Math.max(limit, highest) * 1.05 : highest * 1.1;
  const y = (n) => COUNTS_HEIGHT - 4 - n / top * (COUNTS_HEIGHT - 14);
  drawTicks(context, frame, top, y);
  drawTimes(context, frame);
  context.save();
  context.beginPath();
  context.rect(frame.left, 0, frame.width, COUNTS_HEIGHT);
  context.clip();
  // The kernel's own line is drawn last, above those of the other policies.
  [...lines.keys()].reverse().forEach((i) => drawLine(context, frame, lines[i], y, i));
  if (limit) drawLimit(context, frame, y(limit), limit);
  drawMoment(context, frame, COUNTS_HEIGHT);
  context.restore();
  describeCounts(lines, limit);
}

function drawTicks(context, frame, top, y) {
  const step = 10 ** Math.floor(Math.log10(top));
  const apart = top / step < 2 ? step / 2 : top / step < 5 ? step : step * 2;
  context.strokeStyle = colour('--line');
  context.lineWidth = 1;
  for (let n = 0; n <= top; n += apart) {
    context.fillStyle = colour('--muted');
    gutterText(context, count(n), Math.max(7, y(n) - 1), frame.left);
    context.beginPath();
    context.moveTo(frame.left, y(n) + 0.5);
    context.lineTo(frame.right, y(n) + 0.5);
    context.stroke();
  }
}

// The time at some steps; the axis itself counts steps.
function drawTimes(context, frame) {
  const parts = frame.width < 500 ? 2 : 4;
  context.fillStyle = colour('--muted');
  context.textBaseline = 'bottom';
  for (let i = 0; i <= parts; i++) {
    const at = Math.max(0, lastNotAbove(steps.step, state.from + i / parts * (state.to - state.from)));
    context.textAlign = i === 0 ? 'left' : i === parts ? 'right' : 'center';
    context.fillText(`${(steps.us[at] / 1e6).toFixed(2)} s`, frame.left + i / parts * frame.width, COUNTS_HEIGHT + TIMES_HEIGHT);
  }
}

function drawLine(context, frame, points, y, i) {
  context.strokeStyle = lineColour(i);
  context.lineWidth = i === 0 ? 2.5 : 2;
  context.setLineDash(DASHES[i % DASHES.length]);
  context.beginPath();
  let last = null;
  for (const [step, n] of points) {
    const x = xOf(step, frame);
    if (last === null) context.moveTo(x, y(n));
    else {
      context.lineTo(x, y(last));
      context.lineTo(x, y(n));
    }
    last = n;
  }
  if (last !== null) context.lineTo(xOf(Math.min(data.spaces[state.space].to, data.last), frame), y(last));
  context.stroke();
  context.setLineDash([]);
}

function drawLimit(context, frame, at, limit) {
  context.strokeStyle = context.fillStyle = colour('--failure');
  context.lineWidth = 2;
  context.setLineDash([10, 4]);
  context.beginPath();
  context.moveTo(frame.left, at);
  context.lineTo(frame.right, at);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = 'left';
  context.textBaseline = 'bottom';
  context.fillText(`limit ${count(limit)}`, frame.left + 6, at + (at < 16 ? 16 : -2));
}

const lineColour = (i) => (i === 0 ? colour('--text') : cssColour([0, 1, 4, 7, 5, 2][(i - 1) % 6]));

// The number under a policy at a step.
function countAt(points, step) {
  const at = lastNotAbove(points.map((point) => point[0]), step);
  return at < 0 ? 0 : points[at][1];
}

function describeCounts(lines, limit) {
  const items = lines.map((points, i) => {
    const sample = element('span', { className: 'sample' });
    sample.style.borderTopColor = lineColour(i);
    sample.style.borderTopStyle = i === 0 ? 'solid' : i % 2 ? 'dashed' : 'dotted';
    return element('li', {}, sample, `${data.policies[i]} `, element('b', {}, count(countAt(points, state.step))));
  });
  if (data.limit && !limit) items.push(element('li', {}, `the limit of ${count(data.limit)} is far above`));
  byId('policies').replaceChildren(...items);
  const peaks = lines.map((points, i) => `${data.policies[i]} ${count(Math.max(0, ...points.map((point) => point[1])))}`);
  counts.canvas.setAttribute('aria-label', `Number of mappings over time; largest under ${peaks.join(', ')}`);
}
