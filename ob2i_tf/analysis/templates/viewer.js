const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const escaped = (text) => text.replace(/[&<]/g, (c) => `&#${c.charCodeAt(0)};`);
const last = data.actions.length - 1;
const slider = byId('slider');
const curve = byId('curve');
const HEIGHT = 200;
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 14, 26, 40]; // Margins, for axes and labels.
const peak = Math.max(...data.bonuses);
const floor = Math.min(...data.bonuses);
let total = 0;
const totals = data.rewards.map((reward) => (total += reward));
let step = 0;
let timer = null;

const width = () => slider.clientWidth;
const xOf = (i) => LEFT + (width() - LEFT - RIGHT) * (last ? i / last : 0);
const yAt = (bonus) =>
  HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (bonus - floor)) / (peak - floor || 1);
const yOf = (i) => yAt(data.bonuses[i]);
const unsigned = (text) => (+text ? text : text.replace('-', '')); // '-0.000' becomes '0.000'.

/** Round numbers between two, at most `count` intervals apart. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = power * ([1, 2, 5].find((n) => n * power >= rough) ?? 10);
  const found = [];
  for (let n = Math.ceil(low / size); n * size <= high; n++) found.push(+(n * size).toPrecision(6));
  return rough > 0 ? found : [low];
}

function axes() {
  const [right, bottom] = [width() - RIGHT, HEIGHT - BOTTOM];
  const steps = ticks(0, last, Math.max(2, width() / 120)).filter(Number.isInteger);
  const label = (x, y, anchor, text) =>
    `<text class="tick" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;
  return (
    ticks(floor, peak, 3)
      .map(
        (bonus) =>
          `<line class="axis" x1="${LEFT}" x2="${right}" y1="${yAt(bonus)}" y2="${yAt(bonus)}"></line>` +
          label(LEFT - 6, yAt(bonus) + 4, 'end', bonus),
      )
      .join('') +
    steps.map((i) => label(xOf(i), bottom + 18, 'middle', i)).join('') +
    label((LEFT + right) / 2, HEIGHT - 6, 'middle', 'agent step') +
    label(LEFT - 6, 16, 'end', 'bonus')
  );
}

function draw() {
  const points = data.bonuses.map((_, i) => xOf(i).toFixed(1) + ',' + yOf(i).toFixed(1)).join(' ');
  const marks = data.spikes
    .map(
      (s, n) =>
        `<circle class="spike" cx="${xOf(s)}" cy="${yOf(s)}" r="4"></circle>` +
        `<text x="${xOf(s)}" y="${yOf(s) - 8}" text-anchor="middle">${n + 1}</text>`,
    )
    .join('');
  curve.setAttribute('viewBox', `0 0 ${width()} ${HEIGHT}`);
  curve.innerHTML =
    `${axes()}<polyline class="line" points="${points}"></polyline>` +
    `<line class="cursor" y1="0" y2="${HEIGHT - BOTTOM}"></line>${marks}<circle class="at" r="4"></circle>`;
  show(step);
}

function show(to) {
  step = Math.max(0, Math.min(last, to));
  const cursor = curve.querySelector('.cursor');
  const at = curve.querySelector('.at');
  cursor.setAttribute('x1', xOf(step));
  cursor.setAttribute('x2', xOf(step));
  at.setAttribute('cx', xOf(step));
  at.setAttribute('cy', yOf(step));
  const cell = data.cells ? `, cell (${data.cells[step].join(', ')})` : '';
  const chance = data.random[step] ? ' by chance' : '';
  const text =
    `step ${step} of ${last}: bonus ${data.bonuses[step].toPrecision(3)}, ` +
    `action ${data.names[data.actions[step]]}${chance}, score ${+totals[step].toFixed(2)}${cell}`;
  byId('where').textContent = text;
  slider.setAttribute('aria-valuenow', step);
  slider.setAttribute('aria-valuetext', text);
  byId('frame').src = data.frames[step];
  byId('frame').alt = `The agent's observation at step ${step}`;
  byId('frame').dataset.step = step;
  table();
  for (const button of byId('spikes').querySelectorAll('button'))
    button.setAttribute('aria-current', +button.dataset.step === step);
}

function table() {
  const q = data.q[step];
  const votes = data.votes[step];
  const taken = data.actions[step];
  const mark = (a) => (a === taken ? ' taken' : '');
  const head = data.names
    .map((name, a) => `<th scope="col" class="${mark(a)}">${escaped(name)}</th>`)
    .join('');
  const bars = votes
    .map(
      (n, a) =>
        `<td class="${mark(a)}">${n}<span class="bar" ` +
        `style="width:${(100 * n) / q.length}%"></span></td>`,
    )
    .join('');
  const cell = (top) => (value, a) =>
    `<td class="${value === top ? 'greedy' : ''}${mark(a)}">${unsigned(value.toFixed(3))}</td>`;
  const rows = q
    .map((values, k) => {
      const cells = values.map(cell(Math.max(...values))).join('');
      return `<tr><th scope="row">head ${k}</th>${cells}</tr>`;
    })
    .join('');
  byId('values').innerHTML =
    `<thead><tr><th scope="col">action</th>${head}</tr></thead><tbody>` +
    `<tr><th scope="row">votes</th>${bars}</tr>${rows}</tbody>`;
}

function play(on) {
  clearInterval(timer);
  timer = on
    ? setInterval(() => (step < last ? show(step + 1) : play(false)), 1000 / byId('speed').value)
    : null;
  byId('play').textContent = on ? 'Pause' : 'Play';
}

function follow(event) {
  const box = slider.getBoundingClientRect();
  show(Math.round((last * (event.clientX - box.left - LEFT)) / (box.width - LEFT - RIGHT)));
}

slider.setAttribute('aria-valuemax', last);
slider.addEventListener('pointermove', (event) => {
  if (!timer || event.buttons) follow(event);
});
slider.addEventListener('pointerdown', (event) => {
  slider.setPointerCapture(event.pointerId);
  play(false);
  follow(event);
});
slider.addEventListener('keydown', (event) => {
  const next = (d) => data.spikes.filter((s) => d * (s - step) > 0).at(d > 0 ? 0 : -1) ?? step;
  const to = {
    ArrowLeft: step - 1,
    ArrowDown: step - 1,
    ArrowRight: step + 1,
    ArrowUp: step + 1,
    PageDown: step - 25,
    PageUp: step + 25,
    Home: 0,
    End: last,
    n: next(1),
    p: next(-1),
  }[event.key];
  if (event.key === ' ') play(!timer);
  else if (to !== undefined) {
    play(false);
    show(to);
  } else return;
  event.preventDefault();
});
byId('play').addEventListener('click', () => {
  if (step === last) show(0);
  play(!timer);
});
byId('speed').addEventListener('change', () => play(!!timer));
data.spikes.forEach((s, n) => {
  const item = document.createElement('li');
  const button = document.createElement('button');
  button.type = 'button';
  button.dataset.step = s;
  button.textContent = `step ${s}, ${data.bonuses[s].toPrecision(3)}`;
  button.addEventListener('click', () => {
    play(false);
    show(s);
  });
  item.append(button);
  byId('spikes').append(item);
});
addEventListener('resize', draw);
draw();
