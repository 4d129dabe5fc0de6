'use strict';

const page = JSON.parse(document.getElementById('report').textContent);
const report = page.report;
const columns = page.tensors;
const count = columns.id.length;
const kinds = [...new Set(columns.kind)];
const byId = (id) => document.getElementById(id);

// --- numbers and colours -----------------------------------------------------------------------

// JSON has no NaN and Inf, so these are strings.
const number = (value) =>
  value === 'Inf' ? Infinity : value === '-Inf' ? -Infinity : value === 'NaN' ? NaN : value;
for (const name of ['share', 'error', 'norm', 'bound']) {
  columns[name] = columns[name].map(number);
}

function short(value) {
  if (value === null || value === undefined) return '-';
  value = number(value);
  if (!Number.isFinite(value)) return String(value).replace('Infinity', 'Inf');
  return value === 0 ? '0' : String(Number(value.toPrecision(3)));
}

// Within the bound from blue to yellow, beyond it from orange over red to crimson. What is wrong has a
// contrast of at least 3 with the paper of both themes.
const INHERITED = 1;  // stands for whatever an error before it has made beyond its bound
function colour(share) {
  if (share === INHERITED) return '#b9a3d6';
  if (share === null || Number.isNaN(share)) return '#9aa4ae';
  if (share > 1) return share > 100 ? '#c2185b' : share > 4 ? '#d32f2f' : '#e8663c';
  return share > 0.5 ? '#eab308' : share > 0.1 ? '#84b86a' : '#7fb2d9';
}
const legend = [[0.05, 'below 0.1 of the bound'], [0.3, '0.1 to 0.5'], [0.8, '0.5 to 1'],
  [INHERITED, 'right, but with a wrong input'], [2, 'beyond the bound'], [10, 'more than 4 times'], [1000, 'more than 100 times'], [null, 'not judged']];

const spaced = (name) => name.replaceAll('_', ' ');
const isFinding = (index) => columns.finding[index] === 1;
// How near a tensor is to its bound. Findings without numbers, such as missing ones, are beyond it.
const shareOf = (index) => (isFinding(index) && !(columns.share[index] > 1) ? Infinity : columns.share[index]);

const paintOf = (index) => (!isFinding(index) && shareOf(index) > 1 ? INHERITED : shareOf(index));

function swatchOf(share) {
  const swatch = element('span', '', {class: 'swatch'});
  swatch.style.background = colour(share);
  return swatch;
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function facts(list, pairs) {
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === '') continue;
    list.append(element('dt', name), element('dd', value));
  }
}

const pair = (fact) => [fact.label, fact.text];

// --- top of the page ---------------------------------------------------------------------------

function showVerdict() {
  byId('verdict').textContent = 'TTrace: ' + report.headline;
  byId('verdict').className = {clean: 'good', diverged: 'bad'}[report.verdict] ?? 'doubt';
  document.title = 'TTrace: ' + report.headline;
}

function showFirst() {
  const first = report.first_divergence;
  if (!first) return;
  byId('first').hidden = false;
  byId('first-id').textContent = first.id;
  const index = columns.id.indexOf(first.id);
  byId('first-explain').addEventListener('click', () => explain(index));
  byId('first-place').textContent = first.facts.find((fact) => fact.key === 'where').text;
  const [told, details] = [first.facts.filter((fact) => fact.depth !== 'detail' && fact.key !== 'where'),
    first.facts.filter((fact) => fact.depth === 'detail' && fact.key !== 'id')];
  facts(byId('first-facts'), told.map(pair));
  facts(byId('first-details'), details.map(pair));
}

function showFurther() {
  const further = report.diagnoses.slice(1);
  if (further.length === 0) return;
  byId('further').hidden = false;
  for (const root of further) {
    const item = element('li');
    const button = element('button', 'Explain', {type: 'button'});
    button.addEventListener('click', () => explain(columns.id.indexOf(root.id)));
    item.append(element('code', root.id), ': ' + root.cause + ' ', button);
    byId('further-list').append(item);
  }
  if (report.diagnoses_left_out > 0) {
    byId('further-list').append(element('li', `... and ${report.diagnoses_left_out} more`));
  }
}

function showRuns() {
  facts(byId('runs-facts'), [
    ...report.facts.map(pair),
    ['incomplete', report.lacking.join('; ')],
    ...report.unmet.map((sentence) => ['required', sentence]),
    ...report.not_seen.map((part) => ['not seen', `${part.kind} (${part.side}): ${part.sentence}`]),
  ]);
}

// --- modules -----------------------------------------------------------------------------------

function treeOfModules() {
  const root = {name: '', path: '', children: new Map(), share: null, findings: 0};
  for (let i = 0; i < count; ++i) {
    let node = root;
    const share = paintOf(i);
    const visit = (reached) => {
      reached.findings += columns.finding[i];
      if (share !== null && (reached.share === null || share > reached.share)) reached.share = share;
    };
    visit(root);
    for (const part of columns.path[i].split('.')) {
      if (!node.children.has(part)) {
        const path = node.path ? node.path + '.' + part : part;
        node.children.set(part, {name: part, path, children: new Map(), share: null, findings: 0});
      }
      node = node.children.get(part);
      visit(node);
    }
  }
  return root;
}

// A module is a button that filters the table; one with modules inside opens, too.
function treeItem(node) {
  const inner = node.children.size > 0;
  const worst = node.share === null ? 'not judged' : node.share === INHERITED ? 'wrong inputs alone' : `at most ${short(node.share)} of the bound`;
  const button = element('button', node.name, {type: 'button', class: 'node',
    'aria-label': `${node.name}: ${worst}${node.findings ? `, ${node.findings} wrong` : ''}`});
  button.addEventListener('click', () => filterBy({module: node.path}));
  const line = element(inner ? 'summary' : 'div');
  line.append(swatchOf(node.share), button);
  if (node.findings) line.append(element('span', `${node.findings} wrong`, {class: 'tag'}));
  const item = element('li');
  item.append(inner ? element('details') : line);
  if (!inner) return item;
  const details = item.firstChild;
  details.append(line);
  details.dataset.path = node.path;
  // What lies inside is made when it is opened, because a model has thousands of modules.
  details.fill = () => details.children.length > 1 || details.append(listOf(node));
  details.addEventListener('toggle', details.fill);
  return item;
}

function listOf(node) {
  const list = element('ul');
  list.append(...[...node.children.values()].map(treeItem));
  return list;
}

function showTree() {
  for (const [share, text] of legend) {
    const entry = element('span');
    entry.append(swatchOf(share), ' ' + text);
    byId('legend').append(entry);
  }
  byId('tree').append(...listOf(treeOfModules()).children);
  // Opened as far as the first divergence.
  const first = report.first_divergence ? columns.path[columns.id.indexOf(report.first_divergence.id)] : '';
  const parts = first.split('.');
  for (let i = 1; i <= parts.length; ++i) {
    const details = byId('tree').querySelector(`details[data-path="${CSS.escape(parts.slice(0, i).join('.'))}"]`);
    if (!details) break;
    details.fill();
    details.open = true;
  }
}

// --- ranks and parts of the first divergence ---------------------------------------------------

function showRanks() {
  const ranks = report.close_look ? report.close_look.ranks : [];
  if (ranks.length === 0) return;
  byId('ranks').hidden = false;
  byId('ranks-text').textContent = ranks.some((rank) => rank.is_addend)
    ? 'Ranks hold addends of a sum, so only their sum has a counterpart in the reference.'
    : 'Each number is the error of the rank\'s own part, relative to the norm of the same part of the reference.';
  const axes = Object.keys(ranks[0].coordinates);
  const across = axes[0] ?? 'rank';
  const columnOf = (rank) => (axes.length ? rank.coordinates[across] : rank.rank);
  const rowOf = (rank) => axes.slice(1).map((axis) => `${axis} ${rank.coordinates[axis]}`).join(', ');
  const names = [...new Set(ranks.map(columnOf))].sort((a, b) => a - b);
  const rows = [...new Set(ranks.map(rowOf))];
  const grid = byId('rank-grid');
  const head = element('tr');
  head.append(element('th', '', {scope: 'col'}), ...names.map((name) => element('th', `${across} ${name}`, {scope: 'col'})));
  grid.append(head);
  for (const row of rows) {
    const made = element('tr');
    made.append(element('th', row, {scope: 'row'}));
    for (const name of names) {
      const cell = element('td');
      for (const rank of ranks.filter((one) => columnOf(one) === name && rowOf(one) === row)) {
        const relative = number(rank.error) / number(rank.reference_norm);
        const text = rank.is_addend ? 'addend' : number(rank.error) === 0 ? 'equal' : short(relative);
        cell.append(element('div', `rank ${rank.rank}: ${text}`));
        if (!rank.is_addend && report.first_divergence.bound !== null) {
          cell.style.background = colour(number(rank.error) / number(report.first_divergence.bound)) + '55';
        }
      }
      made.append(cell);
    }
    grid.append(made);
  }
}

function showParts() {
  const parts = report.close_look ? report.close_look.parts : [];
  if (parts.length === 0) return;
  byId('parts').hidden = false;
  const table = byId('part-table');
  const head = element('tr');
  for (const [name, kind] of [['part', ''], ['error', 'number'], ['relative to its norm', 'number'], ['share of the largest', '']]) {
    head.append(element('th', name, {scope: 'col', class: kind}));
  }
  table.append(head);
  const largest = Math.max(...parts.map((part) => number(part.error)));
  for (const part of parts) {
    const row = element('tr');
    const bar = element('span', '', {class: 'bar'});
    bar.style.width = `${(12 * number(part.error)) / largest}rem`;
    const cell = element('td');
    cell.append(bar);
    row.append(element('td', part.where), element('td', short(part.error), {class: 'number'}),
      element('td', short(number(part.error) / number(part.reference_norm)), {class: 'number'}), cell);
    table.append(row);
  }
}

// --- the table ---------------------------------------------------------------------------------

const kMore = 500;  // rows that are drawn at first, and with every wish for more
const shown = {indices: [], rows: kMore, sort: 'order', descending: false, module: ''};
const tableColumns = [
  {name: 'order', title: 'Order', value: (i) => i, text: (i) => String(i), number: true},
  {name: 'id', title: 'Tensor', value: (i) => columns.id[i], text: (i) => columns.id[i]},
  {name: 'status', title: 'Status', value: (i) => columns.status[i], text: (i) => spaced(columns.status[i])},
  {name: 'share', title: 'Of its bound', value: (i) => shareOf(i) ?? -1, text: (i) => short(shareOf(i)), number: true},
  {name: 'error', title: 'Error', value: (i) => columns.error[i] ?? -1, text: (i) => short(columns.error[i]), number: true},
  {name: 'bound', title: 'Bound', value: (i) => columns.bound[i] ?? -1, text: (i) => short(columns.bound[i]), number: true},
  {name: 'norm', title: 'Norm', value: (i) => columns.norm[i] ?? -1, text: (i) => short(columns.norm[i]), number: true},
  {name: 'symptom', title: 'Symptom', value: (i) => columns.symptom[i], text: (i) => (columns.symptom[i] === 'none' ? '' : spaced(columns.symptom[i]))},
];

function filterBy({module}) {
  shown.module = module;
  updateTable();
  byId('count').scrollIntoView({block: 'nearest'});
}

function isWithin(path, module) {
  return module === '' || path === module || path.startsWith(module + '.');
}

function updateTable() {
  const text = byId('filter-text').value.trim().toLowerCase();
  const kind = byId('filter-kind').value;
  const status = byId('filter-status').value;
  const findings = byId('filter-findings').checked;
  const indices = [];
  for (let i = 0; i < count; ++i) {
    if ((!findings || isFinding(i)) && (kind === '' || columns.kind[i] === kind) &&
        (status === '' || columns.status[i] === status) && isWithin(columns.path[i], shown.module) &&
        (text === '' || columns.id[i].toLowerCase().includes(text))) {
      indices.push(i);
    }
  }
  const column = tableColumns.find((one) => one.name === shown.sort);
  const keys = indices.map(column.value);
  const places = indices.map((_, place) => place);
  const sign = shown.descending ? -1 : 1;
  places.sort((a, b) => (keys[a] < keys[b] ? -sign : keys[a] > keys[b] ? sign : indices[a] - indices[b]));
  shown.indices = places.map((place) => indices[place]);
  byId('count').textContent = `${shown.indices.length} of ${count} tensors` + (shown.module ? ` in ${shown.module}` : '');
  for (const head of byId('table').tHead.querySelectorAll('th')) {
    const own = head.dataset.column === shown.sort;
    head.setAttribute('aria-sort', own ? (shown.descending ? 'descending' : 'ascending') : 'none');
    head.querySelector('button').textContent = head.dataset.title + (own ? (shown.descending ? ' ▼' : ' ▲') : '');
  }
  shown.rows = kMore;
  drawRows();
}

function rowOf(index) {
  const row = element('tr');
  for (const column of tableColumns) {
    const cell = element('td', column.name === 'id' ? null : column.text(index), column.number ? {class: 'number'} : {});
    if (column.name === 'id') {
      const button = element('button', column.text(index), {type: 'button', class: 'link'});
      button.addEventListener('click', () => explain(index));
      cell.append(button);
    }
    if (column.name === 'share') cell.prepend(swatchOf(paintOf(index)), ' ');
    row.append(cell);
  }
  return row;
}

function drawRows() {
  byId('table').tBodies[0].replaceChildren(...shown.indices.slice(0, shown.rows).map(rowOf));
  const rest = shown.indices.length - shown.rows;
  byId('more').hidden = rest <= 0;
  byId('more').textContent = `Show ${Math.min(rest, kMore)} of ${rest} more`;
}

function showTable() {
  const head = element('tr');
  for (const column of tableColumns) {
    const cell = element('th', null, {scope: 'col', class: column.number ? 'number' : ''});
    cell.dataset.column = column.name;
    cell.dataset.title = column.title;
    const button = element('button', column.title, {type: 'button'});
    button.addEventListener('click', () => {
      // Numbers begin with the largest, because these are what matters.
      shown.descending = shown.sort === column.name ? !shown.descending : Boolean(column.number) && column.name !== 'order';
      shown.sort = column.name;
      updateTable();
    });
    cell.append(button);
    head.append(cell);
  }
  byId('table').tHead.append(head);
  const choose = (select, names) => select.append(element('option', 'all', {value: ''}), ...names.map((name) => element('option', spaced(name), {value: name})));
  choose(byId('filter-kind'), kinds);
  choose(byId('filter-status'), [...new Set(columns.status)]);
  const form = byId('filters');
  form.addEventListener('input', updateTable);
  // Not of the text, whose change ends with the press of a row, which must not be drawn anew then.
  for (const name of ['filter-kind', 'filter-status']) byId(name).addEventListener('change', updateTable);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('reset', () => {
    shown.module = '';
    setTimeout(updateTable);
  });
  byId('more').addEventListener('click', () => {
    shown.rows += kMore;
    drawRows();
  });
  updateTable();
}

// --- one tensor --------------------------------------------------------------------------------

function explain(index) {
  if (index < 0) return;
  byId('explain-id').textContent = columns.id[index];
  const command = `ttrace explain ${page.run} ${columns.id[index]}`;
  byId('explain-text').textContent = page.explained[index] ??
    [`status: ${spaced(columns.status[index])}`,
      `error: ${short(columns.error[index])}, of the reference's norm ${short(columns.norm[index])}`,
      `bound: ${short(columns.bound[index])}`,
      `nearest check: ${short(shareOf(index))} of its bound`,
      '', 'This page holds the whole explanation of what is wrong and of what is nearest to its bound. For this tensor, run:', command].join('\n');
  byId('explain').showModal();
}

const prefersDark = matchMedia('(prefers-color-scheme: dark)');

function useTheme(dark) {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  charts.forEach(paintChart);
}

showVerdict();
showFirst();
showFurther();
showRuns();
showTree();
showRanks();
showParts();
showTable();
useTheme(prefersDark.matches);
byId('theme').addEventListener('click', () => useTheme(document.documentElement.dataset.theme !== 'dark'));
prefersDark.addEventListener('change', () => useTheme(prefersDark.matches));
showHeat();
showDepth(byId('forward'), 'output');
showDepth(byId('backward'), 'grad_output');
document.documentElement.dataset.ready = 'true';
