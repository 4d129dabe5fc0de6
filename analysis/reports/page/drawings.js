'use strict';

// The charts. What they draw is read in page.js, which calls these functions.

const charts = [];
const ink = () => getComputedStyle(document.documentElement).getPropertyValue('--ink').trim();
const line = () => getComputedStyle(document.documentElement).getPropertyValue('--line').trim();

function addChart(canvas, configuration) {
  Object.assign(configuration.options, {animation: false, responsive: true, maintainAspectRatio: false});
  const chart = new Chart(canvas, configuration);
  charts.push(chart);
  paintChart(chart);
}

function paintChart(chart) {
  for (const scale of Object.values(chart.options.scales)) {
    scale.ticks = {...scale.ticks, color: ink()};
    scale.grid = {...scale.grid, color: line()};
    scale.title = {...scale.title, color: ink()};
  }
  chart.options.plugins.legend.labels = {...chart.options.plugins.legend.labels, color: ink()};
  chart.update('none');
}

// A cell is the worst tensor of one kind in a stretch of the order of execution.
function showHeat() {
  const width = 240;
  const step = Math.max(1, Math.ceil(count / width));
  const cells = new Map();
  for (let i = 0; i < count; ++i) {
    const key = `${columns.kind[i]} ${Math.floor(i / step)}`;
    const share = paintOf(i);
    const worst = cells.get(key);
    if (worst === undefined || (share !== null && !(paintOf(worst) >= share))) cells.set(key, i);
  }
  const data = [];
  const colours = [];
  for (const index of cells.values()) {
    data.push({x: Math.floor(index / step) * step, y: kinds.indexOf(columns.kind[index]), index});
    colours.push(colour(paintOf(index)));
  }
  byId('heat-text').textContent = `Every mark is the worst of ${step === 1 ? '1 tensor' : `up to ${step} tensors`} ` +
    `of one kind. ${report.counts.tensors} tensors, ${columns.finding.reduce((a, b) => a + b, 0)} wrong. Choose a mark for its explanation.`;
  addChart(byId('heat'), {
    type: 'scatter',
    data: {datasets: [{data, pointStyle: 'rect', radius: 6, hoverRadius: 8, pointBackgroundColor: colours, pointBorderWidth: 0}]},
    options: {
      onClick: (event, hits) => hits.length && explain(data[hits[0].index].index),
      plugins: {
        legend: {display: false},
        tooltip: {callbacks: {label: (item) => `${columns.id[item.raw.index]}: ${short(shareOf(item.raw.index))} of its bound`}},
      },
      scales: {
        x: {type: 'linear', min: 0, max: Math.max(1, count - 1), title: {display: true, text: 'order of execution in the reference'}},
        y: {type: 'linear', min: -0.5, max: kinds.length - 0.5, reverse: true,
          afterBuildTicks: (axis) => { axis.ticks = kinds.map((_, value) => ({value})); },
          ticks: {autoSkip: false, callback: (value) => spaced(kinds[value])}},
      },
    },
  });
}

// The worst tensor of every stretch, so that no peak is lost.
function depthPoints(kind) {
  const wanted = [];
  for (let i = 0; i < count; ++i) {
    if (columns.kind[i] === kind && columns.norm[i] > 0 && columns.error[i] !== null) wanted.push(i);
  }
  const step = Math.max(1, Math.ceil(wanted.length / 800));
  const points = [];
  for (let start = 0; start < wanted.length; start += step) {
    const stretch = wanted.slice(start, start + step);
    points.push({x: start, index: stretch.reduce((worst, i) => (shareOf(i) > shareOf(worst) ? i : worst))});
  }
  return points;
}

function showDepth(canvas, kind) {
  const points = depthPoints(kind);
  const relative = (value, index) => value / columns.norm[index];
  const positive = (value) => (Number.isFinite(value) && value > 0 ? value : null);
  addChart(canvas, {
    type: 'line',
    data: {datasets: [
      {label: 'error', showLine: false, radius: 3, pointBackgroundColor: points.map((p) => colour(paintOf(p.index))), pointBorderWidth: 0,
        backgroundColor: '#7fb2d9', data: points.map((p) => ({x: p.x, y: positive(relative(columns.error[p.index], p.index)), index: p.index}))},
      {label: 'explained by round-off', stepped: true, borderWidth: 1, borderColor: '#6b8fb3', backgroundColor: 'rgb(107 143 179 / 25%)', fill: 'start', radius: 0,
        data: points.map((p) => ({x: p.x, y: positive(relative(columns.bound[p.index], p.index)), index: p.index}))},
    ]},
    options: {
      parsing: false,
      onClick: (event, hits) => hits.length && explain(points[hits[0].index].index),
      interaction: {mode: 'nearest', intersect: true},
      plugins: {
        legend: {display: true},
        tooltip: {callbacks: {title: () => '', label: (item) => `${columns.id[item.raw.index]}: ${item.dataset.label} ${short(item.raw.y)}`}},
      },
      scales: {
        x: {type: 'linear', title: {display: true, text: 'order of execution'}},
        y: {type: 'logarithmic', title: {display: true, text: 'relative to the norm'},
          afterDataLimits: (axis) => { axis.max *= 2; },  // so that no mark is cut in half
          ticks: {maxTicksLimit: 7, callback: (value) => value.toExponential(0)}},
      },
    },
  });
}
