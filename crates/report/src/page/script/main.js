// Starts the pictures: the map is drawn first, the rest when the browser is idle.

function later(kinds, draw) {
  let waiting = false;
  follow(kinds, () => {
    if (printing()) draw();
    if (waiting || printing()) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      draw();
    }, 60);
  });
}

document.querySelectorAll('.scripted').forEach((part) => { part.hidden = false; });
fillSpaces();
listenToControls();

follow('space size view marked colour theme', drawMap);
if (!STILL) {
  follow('space size view step theme', drawLanes);
  follow('space size view step theme', drawCounts);
}
follow('space size view step band marked colour theme', drawOver);
follow('step space', drawSlider);
follow('marked', drawButtons);
follow('step space', describeMap);
follow('step space', () => { byId('space').value = state.space; });
follow('step space colour marked', drawLegend);
follow('step space band', readOutChosen);
if (strip) {
  later('space step size marked theme', drawStrip);
  later('space step size theme', drawSizes);
  later('space step', drawJoinable);
}
if (byId('flame')) {
  byId('flame').addEventListener('keydown', onFlameKey);
  later('space step', drawFlame);
  later('view', () => { if (flameShowsInterval()) drawFlame(); });
  later('marked', drawFlameMark);
}
later('space step marked', drawGraph);
later('space step', drawList);
byId('find').addEventListener('input', drawList);
document.querySelectorAll('input[name=flame]').forEach((input) => input.addEventListener('change', drawFlame));

setSpace(data.largest);
draw();
performance.mark('ready');
