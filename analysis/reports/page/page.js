'use strict';

const page = JSON.parse(document.getElementById('report').textContent);
const report = page.report;
const columns = page.tensors;
const count = columns.id.length;
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
  const counts = report.counts;
  facts(byId('runs-facts'), [
    ...report.facts.map(pair),
    ['tensors', `${counts.tensors}: ${counts.within_bound} within bound, ${counts.out_of_bound} out of bound, ` +
      `${counts.missing_in_candidate} missing in the candidate, ${counts.missing_in_reference} missing in the reference`],
    ['operators', counts.operators ? `${counts.operators} checked on their own, ${counts.operators_wrong} wrong, ${counts.inherited} inherited` : ''],
    ['noise', report.noise_coverage ? report.noise_coverage.sentence : ''],
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
    for (const part of page.paths[columns.path[i]].split('.')) {
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

function treeItem(node, level) {
  const inner = node.children.size > 0;
  const item = element('li', null, {role: 'treeitem', tabindex: '-1', 'aria-level': level});
  if (inner) item.setAttribute('aria-expanded', 'false');
  const worst = node.share === null ? 'not judged' : node.share === INHERITED ? 'wrong inputs alone' : `at most ${short(node.share)} of the bound`;
  item.setAttribute('aria-label', `${node.name}: ${worst}${node.findings ? `, ${node.findings} wrong` : ''}`);
  const line = element('div', null, {class: 'node'});
  line.append(element('span', inner ? '▸' : '', {class: 'twist'}), swatchOf(node.share), element('span', node.name));
  if (node.findings) line.append(element('span', `${node.findings} wrong`, {class: 'tag'}));
  item.append(line);
  item.node = node;
  return item;
}

function expand(item, open) {
  if (item.node.children.size === 0) return;
  item.setAttribute('aria-expanded', String(open));
  item.querySelector('.twist').textContent = open ? '▾' : '▸';
  let group = item.querySelector(':scope > ul');
  if (open && !group) {
    group = element('ul', null, {role: 'group'});
    const level = Number(item.getAttribute('aria-level')) + 1;
    for (const child of item.node.children.values()) group.append(treeItem(child, level));
    item.append(group);
  }
  if (group) group.hidden = !open;
}

function focusItem(tree, item) {
  if (!item) return;
  for (const old of tree.querySelectorAll('[tabindex="0"]')) old.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}

function showTree() {
  for (const [share, text] of legend) {
    const entry = element('span');
    entry.append(swatchOf(share), ' ' + text);
    byId('legend').append(entry);
  }
  const tree = byId('tree');
  const root = treeOfModules();
  for (const child of root.children.values()) tree.append(treeItem(child, 1));
  if (tree.firstChild) tree.firstChild.tabIndex = 0;
  // Opened as far as the first divergence.
  const first = report.first_divergence ? page.paths[columns.path[columns.id.indexOf(report.first_divergence.id)]] : '';
  let level = tree;
  for (const part of first ? first.split('.') : []) {
    const item = [...level.children].find((candidate) => candidate.node.name === part);
    if (!item) break;
    expand(item, true);
    level = item.querySelector(':scope > ul');
    if (!level) break;
  }
  tree.addEventListener('click', (event) => {
    const item = event.target.closest('[role="treeitem"]');
    if (!item) return;
    expand(item, item.getAttribute('aria-expanded') === 'false');
    focusItem(tree, item);
    filterBy({module: item.node.path});
  });
  tree.addEventListener('keydown', (event) => {
    const item = event.target.closest('[role="treeitem"]');
    const visible = [...tree.querySelectorAll('[role="treeitem"]')].filter((one) => one.offsetParent !== null);
    const at = visible.indexOf(item);
    const isOpen = item.getAttribute('aria-expanded') === 'true';
    const actions = {
      ArrowDown: () => focusItem(tree, visible[at + 1]),
      ArrowUp: () => focusItem(tree, visible[at - 1]),
      Home: () => focusItem(tree, visible[0]),
      End: () => focusItem(tree, visible[visible.length - 1]),
      ArrowRight: () => (isOpen ? focusItem(tree, visible[at + 1]) : expand(item, true)),
      ArrowLeft: () => (isOpen ? expand(item, false) : focusItem(tree, item.parentElement.closest('[role="treeitem"]'))),
      Enter: () => filterBy({module: item.node.path}),
    };
    if (actions[event.key]) {
      actions[event.key]();
      event.preventDefault();
    }
  });
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

const rowHeight = 28;
const shown = {indices: [], sort: 'order', descending: false, module: ''};
const tableColumns = [
  {name: 'order', title: 'Order', value: (i) => i, text: (i) => String(i), number: true},
  {name: 'id', title: 'Tensor', value: (i) => columns.id[i], text: (i) => columns.id[i]},
  {name: 'status', title: 'Status', value: (i) => page.statuses[columns.status[i]], text: (i) => page.statuses[columns.status[i]].replaceAll('_', ' ')},
  {name: 'share', title: 'Of its bound', value: (i) => shareOf(i) ?? -1, text: (i) => short(shareOf(i)), number: true},
  {name: 'error', title: 'Error', value: (i) => columns.error[i] ?? -1, text: (i) => short(columns.error[i]), number: true},
  {name: 'bound', title: 'Bound', value: (i) => columns.bound[i] ?? -1, text: (i) => short(columns.bound[i]), number: true},
  {name: 'norm', title: 'Norm', value: (i) => columns.norm[i] ?? -1, text: (i) => short(columns.norm[i]), number: true},
  {name: 'symptom', title: 'Symptom', value: (i) => page.symptoms[columns.symptom[i]], text: (i) => (page.symptoms[columns.symptom[i]] === 'none' ? '' : page.symptoms[columns.symptom[i]].replaceAll('_', ' '))},
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
  const inside = page.paths.map((path) => isWithin(path, shown.module));
  const indices = [];
  for (let i = 0; i < count; ++i) {
    if ((!findings || isFinding(i)) && (kind === '' || columns.kind[i] === Number(kind)) &&
        (status === '' || columns.status[i] === Number(status)) && inside[columns.path[i]] &&
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
  byId('table').setAttribute('aria-rowcount', String(shown.indices.length + 1));
  byId('viewport').scrollTop = 0;
  drawRows();
}

// Only the rows that can be seen, between two rows as high as all others.
function drawRows() {
  const viewport = byId('viewport');
  const first = Math.max(0, Math.floor(viewport.scrollTop / rowHeight) - 10);
  const last = Math.min(shown.indices.length, first + Math.ceil(viewport.clientHeight / rowHeight) + 20);
  const space = (rows) => {
    const row = element('tr', null, {class: 'space', 'aria-hidden': 'true'});
    row.style.height = `${rows * rowHeight}px`;
    row.append(element('td', '', {colspan: String(tableColumns.length)}));
    return row;
  };
  const rows = [space(first)];
  for (let place = first; place < last; ++place) {
    const index = shown.indices[place];
    const row = element('tr', null, {tabindex: '-1', 'aria-rowindex': String(place + 2)});
    row.place = place;
    for (const column of tableColumns) {
      const cell = element('td', column.text(index), column.number ? {class: 'number'} : {});
      if (column.name === 'share') cell.prepend(swatchOf(paintOf(index)), ' ');
      row.append(cell);
    }
    rows.push(row);
  }
  rows.push(space(shown.indices.length - last));
  byId('table').tBodies[0].replaceChildren(...rows);
}

function focusRow(place) {
  if (place < 0 || place >= shown.indices.length) return;
  const viewport = byId('viewport');
  const top = place * rowHeight;
  if (top < viewport.scrollTop || top + 3 * rowHeight > viewport.scrollTop + viewport.clientHeight) {
    viewport.scrollTop = Math.max(0, top - viewport.clientHeight / 2);
  }
  drawRows();
  const row = [...byId('table').tBodies[0].rows].find((one) => one.place === place);
  if (row) row.focus({preventScroll: true});
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
  const choices = (select, names, used) => {
    select.append(element('option', 'all', {value: ''}));
    names.forEach((name, place) => used.has(place) && select.append(element('option', name.replaceAll('_', ' '), {value: String(place)})));
  };
  choices(byId('filter-kind'), page.kinds, new Set(columns.kind));
  choices(byId('filter-status'), page.statuses, new Set(columns.status));
  const form = byId('filters');
  form.addEventListener('input', updateTable);
  // Not of the text, whose change ends with the press of a row, which must not be drawn anew then.
  for (const name of ['filter-kind', 'filter-status']) byId(name).addEventListener('change', updateTable);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('reset', () => {
    shown.module = '';
    setTimeout(updateTable);
  });
  const viewport = byId('viewport');
  viewport.addEventListener('scroll', drawRows);
  viewport.addEventListener('click', (event) => {
    const row = event.target.closest('tbody tr');
    if (row && row.place !== undefined) explain(shown.indices[row.place]);
  });
  viewport.addEventListener('keydown', (event) => {
    const row = event.target.closest('tbody tr');
    const place = row && row.place !== undefined ? row.place : -1;
    const page_rows = Math.floor(viewport.clientHeight / rowHeight) - 2;
    const moves = {ArrowDown: place + 1, ArrowUp: place - 1, PageDown: Math.min(place + page_rows, shown.indices.length - 1),
      PageUp: Math.max(place - page_rows, 0), Home: 0, End: shown.indices.length - 1};
    if (event.key in moves && event.target.tagName !== 'BUTTON') {
      focusRow(moves[event.key]);
      event.preventDefault();
    } else if (event.key === 'Enter' && place >= 0) {
      explain(shown.indices[place]);
    }
  });
  updateTable();
}

// --- one tensor --------------------------------------------------------------------------------

function explain(index) {
  if (index < 0) return;
  byId('explain-id').textContent = columns.id[index];
  const command = `ttrace explain ${page.run} ${columns.id[index]}`;
  byId('explain-text').textContent = page.explained[index] ??
    [`status: ${page.statuses[columns.status[index]].replaceAll('_', ' ')}`,
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
