const methods = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const slider = byId('episode');
const size = methods[0].paths[0].length;
const [LEFT, RIGHT, TOP, BOTTOM] = [45, 755, 15, 260];
const episodes = +slider.max;
for (const method of methods) {
  let total = 0;
  method.totals = method.found.map((found) => (total += found));
}
const most = Math.max(1, ...methods.map((method) => method.totals.at(-1)));
const x = (episode) => LEFT + ((RIGHT - LEFT) * episode) / episodes;
const y = (total) => BOTTOM - ((BOTTOM - TOP) * total) / most;
const look = (number) =>
  `stroke: var(--method-${number}); stroke-dasharray: var(--dashes-${number})`;

function drawCurves() {
  const step = 10 ** Math.floor(Math.log10(most));
  const ticks = [];
  for (let total = 0; total <= most; total += step) ticks.push(total);
  const lines = ticks.map(
    (total) =>
      `<line class="axis" x1="${LEFT}" x2="${RIGHT}" y1="${y(total)}" y2="${y(total)}"></line>` +
      `<text x="${LEFT - 8}" y="${y(total) + 4}" text-anchor="end">${total}</text>`,
  );
  const marks = [0, 0.25, 0.5, 0.75, 1].map(
    (share) =>
      `<text x="${x(share * episodes)}" y="${BOTTOM + 20}" text-anchor="middle">` +
      `${Math.round(share * episodes)}</text>`,
  );
  const curves = methods.map((method, number) => {
    const points = method.totals.map((total, i) => `${x(i + 1).toFixed(1)},${y(total).toFixed(1)}`);
    return `<polyline points="${points.join(' ')}" style="${look(number)}"></polyline>`;
  });
  byId('curves').innerHTML =
    lines.join('') +
    marks.join('') +
    `<text x="${(LEFT + RIGHT) / 2}" y="${BOTTOM + 38}" text-anchor="middle">episodes</text>` +
    curves.join('') +
    labels() +
    `<line class="cursor" y1="${TOP}" y2="${BOTTOM}"></line>`;
}

/** Names at the ends of the curves, moved apart where they would overlap. */
function labels() {
  const ends = methods.map((method, number) => ({ method, number, at: y(method.totals.at(-1)) }));
  ends.sort((one, other) => one.at - other.at);
  ends.forEach((end, i) => (end.at = i ? Math.max(end.at, ends[i - 1].at + 17) : end.at));
  return ends
    .map(
      ({ method, number, at }) =>
        `<polyline points="${RIGHT + 6},${at} ${RIGHT + 34},${at}" style="${look(number)}"></polyline>` +
        `<text x="${RIGHT + 40}" y="${at + 4}">${method.name}, ${method.totals.at(-1)}</text>`,
    )
    .join('');
}

function drawSea(svg, method, number, episode) {
  const visits = Array.from({ length: size }, () => new Array(size).fill(0));
  for (const path of method.paths.slice(0, episode))
    [...path].forEach((column, depth) => (visits[depth][parseInt(column, 36)] += 1));
  const cells = [];
  for (let depth = 0; depth < size; depth++)
    for (let column = 0; column <= depth; column++) {
      const share = Math.log1p(visits[depth][column]) / Math.log1p(episode);
      const title = `depth ${depth + 1}, column ${column + 1}: ${visits[depth][column]} visits`;
      const fill = `color-mix(in srgb, var(--method-${number}) ${100 * share}%, var(--wash))`;
      cells.push(
        `<rect x="${column}" y="${depth}" width="1" height="1" style="fill: ${fill}">` +
          `<title>${title}</title></rect>`,
      );
    }
  const last = size - 1;
  svg.innerHTML =
    cells.join('') +
    `<rect class="treasure" x="${last + 0.1}" y="${last + 0.1}" width="0.8" height="0.8"></rect>`;
}

function show() {
  const episode = +slider.value;
  byId('at').textContent = `${episode} of ${episodes}`;
  const cursor = byId('curves').querySelector('.cursor');
  cursor.setAttribute('x1', x(episode));
  cursor.setAttribute('x2', x(episode));
  document.querySelectorAll('.seas figure').forEach((figure, number) => {
    const method = methods[number];
    drawSea(figure.querySelector('svg'), method, number, episode);
    const total = method.totals[episode - 1];
    const first = method.found.indexOf(1) + 1;
    figure.querySelector('.count').textContent =
      `Treasure found ${total} ${total === 1 ? 'time' : 'times'}` +
      (total ? `, first in episode ${first}.` : '.');
  });
}

let timer = null;
function stop() {
  clearInterval(timer);
  timer = null;
  byId('play').textContent = 'Play';
}
byId('play').addEventListener('click', () => {
  if (timer) return stop();
  if (+slider.value === episodes) slider.value = 1;
  byId('play').textContent = 'Pause';
  timer = setInterval(() => {
    slider.value = +slider.value + 2;
    show();
    if (+slider.value === episodes) stop();
  }, 50);
});
slider.addEventListener('input', show);
drawCurves();
show();
