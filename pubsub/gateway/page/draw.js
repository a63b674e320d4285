// Elements of the page. Data from the cluster is only set as text, never as HTML.

export const find = (id) => document.getElementById(id);

export function element(name, content = "", attributes = {}) {
  const made = document.createElement(name);
  if (content instanceof Node) made.append(content);
  else made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Set a text only if it differs: a screen reader reads each change aloud.
export function say(id, text) {
  const place = find(id);
  if (place.textContent !== text) place.textContent = text;
}

export const number = (value) => (value == null ? "" : Number(value).toLocaleString("en", { maximumFractionDigits: 1 }));

// A number with its noun: 1 message, 2 messages.
export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

export function size(bytes) {
  if (bytes == null) return "";
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${number(value)} ${unit}`;
    value /= 1024;
  }
  return `${number(value)} TiB`;
}

export function span(seconds) {
  if (seconds == null) return "";
  for (const [unit, length, name, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ${Math.floor((seconds % length) / part)} ${name}`;
  }
  return `${Math.floor(seconds)} s`;
}

// A cell with an unknown figure; its tooltip has the last known one.
export const unknown = (title = "") => [element("span", "?", { title, "data-key": `? ${title}` }), "faint"];

export const time = (microseconds) => (microseconds == null ? "" : new Date(microseconds / 1000).toLocaleString());

// Keep an element with equal content, so that it does not lose a click or the focus.
function keep(old, made) {
  if (!(old instanceof Element) || old.dataset.key !== made.dataset?.key) return false;
  if (!old.isEqualNode(made) && !old.disabled && !old.querySelector(":disabled")) return false;
  old.onclick = made.onclick;
  [...old.children].forEach((child, at) => { child.onclick = made.children[at]?.onclick ?? child.onclick; });
  return true;
}

function fillCell(cell, content, kind) {
  if (cell.className !== kind) cell.className = kind;
  if (content instanceof Node) {
    if (!keep(cell.firstChild, content)) cell.replaceChildren(content);
  } else if (cell.firstElementChild || cell.textContent !== String(content)) cell.textContent = content;
}

// A column is [head, function from row to cell, class]. The first cell identifies a row.
export function fill(table, columns, rows, none) {
  const heads = columns.map(([text, , kind]) => `${text} ${kind ?? ""}`).join("|");
  if (table.dataset.heads !== heads) {
    const head = element("tr");
    for (const [text, , kind] of columns) head.append(element("th", text, { scope: "col", class: kind ?? "" }));
    table.replaceChildren(element("thead", head), element("tbody"));
    table.dataset.heads = heads;
  }
  const body = table.tBodies[0];
  const focused = document.activeElement;
  const known = new Map([...body.rows].map((line) => [line.dataset.row, line]));
  const seen = new Map();
  rows.forEach((row, place) => {
    const cells = columns.map(([, cell, kind]) => {
      const found = cell(row);
      return Array.isArray(found) ? [found[0], `${kind ?? ""} ${found[1]}`.trim()] : [found, kind ?? ""];
    });
    const first = cells[0][0] instanceof Node ? cells[0][0].textContent : String(cells[0][0]);
    const count = seen.get(first) ?? 0;
    seen.set(first, count + 1);
    const line = known.get(`${first} ${count}`) ?? element("tr", "", { "data-row": `${first} ${count}` });
    known.delete(line.dataset.row);
    cells.forEach(([content, kind], at) => fillCell(line.cells[at] ?? line.insertCell(), content, kind));
    if (body.rows[place] !== line) body.insertBefore(line, body.rows[place] ?? null);
  });
  for (const line of known.values()) line.remove();
  if (!rows.length) body.append(element("tr", element("td", none, { colspan: columns.length }), { "data-row": "" }));
  if (document.activeElement !== focused && table.contains(focused)) focused.focus();
}

export function link(topic) {
  return element("a", topic, { href: `#/topics/${encodeURIComponent(topic)}`, "data-key": topic });
}

// Text that may be long and have several lines.
export const code = (text) => element("code", text, { dir: "auto" });

// A null value is unknown: the line has a gap, and the caption a question mark.
export function plot(title, values, shown) {
  const SVG = "http://www.w3.org/2000/svg";
  const figure = element("figure");
  const caption = element("figcaption", element("span", title));
  const last = values.at(-1) == null ? "?" : shown(values.at(-1));
  caption.append(element("b", last));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 720 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}, the last hour; now ${last === "?" ? "unknown" : last}`);
  const most = values.reduce((a, b) => Math.max(a, b ?? 0), 1);
  const left = 720 - values.length;
  const lines = [[]];
  values.forEach((value, at) => {
    if (value == null) lines.push([]);
    else lines.at(-1).push(`${left + at},${(97 - (94 * value) / most).toFixed(1)}`);
  });
  for (const points of lines.filter((one) => one.length)) {
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", points.join(" "));
    svg.append(line);
  }
  figure.append(caption, svg);
  return figure;
}

const SHOWN = 2000;

// A field as text; bytes that are not UTF-8 as base64.
export function value(row, name) {
  const text = row[name] ?? (row[`${name}_base64`] === undefined ? "" : `base64: ${row[`${name}_base64`]}`);
  return code(text.length > SHOWN ? `${text.slice(0, SHOWN)} …` : text);
}
