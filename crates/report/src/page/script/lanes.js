// Lanes above the map: merges, splits, refusals and failed calls over time.

const LANE = 20;
const lanes = plot('lanes', 4 * LANE);

function drawLanes() {
  const context = lanes.begin();
  const frame = frameOf(lanes);
  const columnsOf = laneCounts(frame);
  columnsOf.forEach(({ counts, total }, what) => {
    const base = (what + 1) * LANE - 2;
    context.fillStyle = colour('--muted');
    gutterText(context, `${count(total)} ${plural(what, total)}`, base - 7, frame.left);
    context.strokeStyle = colour('--line');
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(frame.left, base + 0.5);
    context.lineTo(frame.right, base + 0.5);
    context.stroke();
    context.fillStyle = colour(GLYPH_COLOURS[what]);
    for (const [x, n] of counts) {
      const height = Math.min(LANE - 4, 5 + 2.5 * Math.log2(n));
      context.fillRect(frame.left + x, base - height, 2, height);
    }
  });
  drawMoment(context, frame, lanes.height);
  const texts = columnsOf.map(({ total }, what) => `${count(total)} ${plural(what, total)}`);
  lanes.canvas.setAttribute('role', 'img');
  lanes.canvas.setAttribute('aria-label', `In the shown interval: ${texts.join(', ')}. The table “What happened” lists them.`);
}

function plural(what, n) {
  const word = KINDS_OF_MARK[what];
  return n === 1 ? word : `${word}s`;
}

// Sums of the marks in each pixel, by kind, and of all that are shown.
function laneCounts(frame) {
  const found = KINDS_OF_MARK.map(() => ({ counts: new Map(), total: 0 }));
  for (let i = 0; i < marks.length; i++) {
    if (marks.space[i] !== state.space) continue;
    const x = Math.round(xOf(marks.step[i], frame) - frame.left);
    if (x < 0 || x > frame.width) continue;
    const lane = found[marks.what[i]];
    lane.counts.set(x, (lane.counts.get(x) ?? 0) + marks.count[i]);
    lane.total += marks.count[i];
  }
  return found;
}

// A click on a lane goes to the nearest mark of that kind.
function clickLane(event) {
  const { left, top } = lanes.canvas.getBoundingClientRect();
  const frame = frameOf(lanes);
  const what = Math.max(0, Math.min(3, Math.floor((event.clientY - top) / LANE)));
  let best = -1, distance = 12;
  for (let i = 0; i < marks.length; i++) {
    if (marks.space[i] !== state.space || marks.what[i] !== what) continue;
    const away = Math.abs(xOf(marks.step[i], frame) - (event.clientX - left));
    if (away < distance) [best, distance] = [i, away];
  }
  if (best < 0) return setStep(Math.round(stepOf(event.clientX - left, frame)));
  goTo(state.space, marks.step[best], marks.page[best]);
  return speak(describeMark(best));
}

// The mark at a place; -1 if there is none.
function markAt(space, step, page) {
  for (let i = 0; i < marks.length; i++) {
    if (marks.space[i] === space && marks.step[i] === step && marks.page[i] === page) return i;
  }
  return -1;
}

function describeMark(mark) {
  const detail = data.labels[marks.detail[mark]];
  const times = marks.count[mark] > 1 ? `${count(marks.count[mark])} times ` : '';
  return `${times}${KINDS_OF_MARK[marks.what[mark]]} (${detail}) at ${address(marks.page[mark])}, `
    + describeStep(marks.step[mark]);
}
