// Canvases that follow their size and the resolution of the screen.

const GUTTER = () => (window.innerWidth < 600 ? 88 : 132);
const EDGE = 12;

function plot(id, height) {
  const canvas = document.getElementById(id);
  if (!canvas) return null;
  const made = {
    canvas, context: canvas.getContext('2d'), width: 0, height, ratio: 1,
    // Prepares the canvas for drawing; measures are in CSS pixels.
    begin() {
      this.ratio = Math.min(window.devicePixelRatio || 1, 2);
      this.width = canvas.parentElement.clientWidth;
      const [w, h] = [Math.round(this.width * this.ratio), Math.round(this.height * this.ratio)];
      if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
        canvas.style.width = `${this.width}px`;
        canvas.style.height = `${this.height}px`;
      }
      this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      this.context.clearRect(0, 0, this.width, this.height);
      this.context.font = '12px system-ui, sans-serif';
      return this.context;
    },
  };
  new ResizeObserver(() => changed('size')).observe(canvas.parentElement);
  return made;
}

// Horizontal measures of the plots, which share their time axis.
function frameOf(plotted) {
  const left = GUTTER();
  const right = STILL ? left + (plotted.width - left) * 0.6 : plotted.width - EDGE;
  return { left, right, width: right - left };
}

function xOf(step, frame) {
  return frame.left + (step - state.from) / (state.to - state.from) * frame.width;
}

function stepOf(x, frame) {
  return state.from + (x - frame.left) / frame.width * (state.to - state.from);
}

// Draws the line of the chosen moment.
function drawMoment(context, frame, height) {
  const x = xOf(state.step, frame);
  if (STILL || x < frame.left - 1 || x > frame.right + 1) return;
  context.strokeStyle = colour('--text');
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, height);
  context.stroke();
}

// Writes text in the left margin, shortened to fit.
function gutterText(context, text, y, left) {
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  let shown = text;
  while (shown.length > 2 && context.measureText(shown).width > left - 12) {
    shown = `${shown.slice(0, -2)}…`;
  }
  context.fillText(shown, left - 8, y);
}
