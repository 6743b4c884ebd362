// Draws the bands of an address space into an image, in time that depends on the pixels.
//
// A band that is at least a pixel high is filled. Of lower ones, those in the same row of pixels
// are summed in each column, and the pixel gets the colour of the largest part, stronger the more
// bands there are. So 60,000 mappings cost a few additions each, however large or small they are drawn.

const COLOURS = OTHER + 2;   // one more for bands that are not marked
const FADED = OTHER + 1;

// Thin bands in one row of pixels: their number, and the height of each colour, as differences
// from one column to the next.
class Row {
  constructor(width) {
    this.width = width;
    this.heights = Array.from({ length: COLOURS }, () => new Int32Array(width + 1));
    this.counts = new Int32Array(width + 1);
    this.used = new Uint8Array(COLOURS);
    this.clear();
  }

  clear() {
    for (let c = 0; c < COLOURS; c++) {
      if (this.used[c]) this.heights[c].fill(0);
    }
    this.counts.fill(0);
    this.used.fill(0);
    this.left = this.width;
    this.right = 0;
    this.number = -1;
  }

  // Adds a band whose height is a part of a pixel.
  add(colour, { x0, x1, top, bottom }) {
    const height = 1 + Math.round((bottom - top) * 1024);
    this.used[colour] = 1;
    this.heights[colour][x0] += height;
    this.heights[colour][x1] -= height;
    if (colour !== FADED) {
      this.counts[x0]++;
      this.counts[x1]--;
    }
    this.left = Math.min(this.left, x0);
    this.right = Math.max(this.right, x1);
  }

  // Writes the row into the image.
  flush(pixels, shades) {
    if (this.number < 0 || this.left >= this.right) return;
    const colours = [...this.used.keys()].filter((c) => this.used[c]);
    const sums = new Int32Array(COLOURS);
    const row = this.number * this.width;
    let total = 0;
    for (let x = this.left; x < this.right; x++) {
      let best = -1, height = 0;
      total += this.counts[x];
      for (const c of colours) {
        sums[c] += this.heights[c][x];
        height += sums[c];
        if (sums[c] > 0 && (best < 0 || best === FADED || (c !== FADED && sums[c] > sums[best]))) best = c;
      }
      // What takes less than half of the pixel does not hide a higher band.
      if (best >= 0 && (height >= 512 || !pixels[row + x])) pixels[row + x] = shades[best][Math.min(7, 32 - Math.clz32(total))];
    }
  }
}

// What was last filled in each column of pixels: of bands that last for less than a pixel, those
// within another one of the same colour need not be drawn.
class Narrow {
  constructor(width) {
    this.top = new Float64Array(width).fill(Infinity);
    this.bottom = new Float64Array(width);
    this.colour = new Int16Array(width).fill(-1);
  }

  covers({ x0, x1, top, bottom }, colour) {
    if (x1 - x0 > 1) return false;
    if (this.colour[x0] === colour && this.top[x0] <= top && this.bottom[x0] >= bottom) return true;
    this.top[x0] = top;
    this.bottom[x0] = bottom;
    this.colour[x0] = colour;
    return false;
  }
}

// Shades of each colour: the plain one, and stronger ones for many bands in a pixel.
function shadesOf() {
  return cached('shades', colour('--surface') + colour('--text'), () => {
    const text = rgb(colour('--text')), surface = rgb(colour('--surface'));
    const shades = [];
    for (let c = 0; c < COLOURS; c++) {
      const plain = c === FADED ? mixed(surface, rgb(cssColour(OTHER)), 0.35) : rgb(cssColour(c));
      shades.push(Array.from({ length: 8 }, (_, n) => pixel(mixed(plain, text, Math.max(0, n - 1) * 0.08))));
    }
    return shades;
  });
}

// The band's rectangle in pixels of the image, or null if it is outside.
function box(band, axis, width, height) {
  const across = width / (state.to - state.from), up = height / (state.high - state.low);
  const left = (bands.from[band] - state.from) * across, right = (bands.to[band] - state.from) * across;
  const bottom = height - (axis.low[band - axis.begin] - state.low) * up;
  const top = height - (axis.high[band - axis.begin] - state.low) * up;
  if (right <= 0 || left >= width || bottom <= 0 || top >= height) return null;
  const x0 = Math.max(0, Math.min(width - 1, Math.floor(left)));
  return { x0, x1: Math.max(x0 + 1, Math.min(width, Math.floor(right))), top, bottom, starts: left >= 0 };
}

// Returns an image of the shown part.
function raster(context, width, height) {
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const shades = shadesOf();
  const axis = axisOf(state.space, state.axis);
  const { begin, of } = palette();
  const row = new Row(width), narrow = new Narrow(width);
  const end = begin + of.length;
  for (let band = begin; band < end; band++) {
    const place = box(band, axis, width, height);
    if (!place) continue;
    const faded = state.marked && !state.marked.has(band);
    const number = faded ? FADED : of[band - begin];
    if (place.bottom - place.top < 1) {
      const y = Math.max(0, Math.min(height - 1, Math.floor((place.top + place.bottom) / 2)));
      if (y !== row.number) {
        row.flush(pixels, shades);
        row.clear();
        row.number = y;
      }
      row.add(number, place);
    } else if (!narrow.covers(place, number)) {
      fill(pixels, width, height, place, shades[number]);
    }
  }
  row.flush(pixels, shades);
  return image;
}

// Fills a rectangle, with a line at its lower end and where it begins.
function fill(pixels, width, height, { x0, x1, top, bottom, starts }, shade) {
  const y0 = Math.max(0, Math.round(top)), y1 = Math.min(height, Math.max(y0 + 1, Math.round(bottom)));
  const line = y1 - y0 >= 3 && bottom <= height ? shade[5] : shade[0];
  for (let y = y0; y < y1; y++) {
    pixels.fill(y === y1 - 1 ? line : shade[0], y * width + x0, y * width + x1);
    if (starts && x1 - x0 >= 4 && y1 - y0 >= 3) pixels[y * width + x0] = shade[4];
  }
}
