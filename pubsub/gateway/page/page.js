// The page of a gateway. What comes from the cluster is only ever set as text, never as HTML.

const PAGE = 50;
const AGAIN_MS = 3000;
const find = (id) => document.getElementById(id);
const state = { token: sessionStorage.getItem("token") ?? "", after: "", next: null, live: null, history: {} };
const SAMPLES = 720;

const headers = () => (state.token ? { authorization: `Bearer ${state.token}` } : {});

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  if (answer.status === 401) find("token").hidden = false;
  const facts = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Error(facts.detail ?? answer.statusText);
  return facts;
}

function element(name, content = "", attributes = {}) {
  const made = document.createElement(name);
  if (content instanceof Node) made.append(content);
  else made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const number = (value) => (value == null ? "" : Number(value).toLocaleString("en", { maximumFractionDigits: 1 }));

function size(bytes) {
  if (bytes == null) return "";
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${number(value)} ${unit}`;
    value /= 1024;
  }
  return `${number(value)} TiB`;
}

function span(seconds) {
  if (seconds == null) return "";
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours >= 48 ? `${Math.floor(hours / 24)} days` : hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

// A column is [head, how to make its cell of a row, its class].
function fill(table, columns, rows, none) {
  const head = element("tr");
  for (const [text, , kind] of columns) head.append(element("th", text, { scope: "col", class: kind ?? "" }));
  const body = rows.map((row) => {
    const line = element("tr");
    for (const [, cell, kind] of columns) {
      const found = cell(row);
      const [content, mark] = Array.isArray(found) ? found : [found, ""];
      line.append(element("td", content, { class: `${kind ?? ""} ${mark}`.trim() }));
    }
    return line;
  });
  if (!rows.length) body.push(element("tr", element("td", none, { colspan: columns.length })));
  // What has the focus within keeps it: a table is made anew every few seconds.
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  table.replaceChildren(element("thead", head), element("tbody"));
  table.tBodies[0].append(...body);
  if (focused !== undefined) [...table.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focused)?.focus();
}

function link(topic) {
  return element("a", topic, { href: `#/topics/${encodeURIComponent(topic)}`, "data-key": topic });
}

function plot(title, values, shown) {
  const SVG = "http://www.w3.org/2000/svg";
  const figure = element("figure");
  const caption = element("figcaption", element("span", title));
  caption.append(element("b", shown(values.at(-1))));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 720 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}, the last hour; now ${shown(values.at(-1))}`);
  const line = document.createElementNS(SVG, "polyline");
  const most = Math.max(1, ...values);
  const left = 720 - values.length;
  line.setAttribute("points", values.map((value, at) => `${left + at},${(97 - (94 * value) / most).toFixed(1)}`).join(" "));
  svg.append(line);
  figure.append(caption, svg);
  return figure;
}

function showLive(facts) {
  find("token").hidden = true;
  state.operate = facts.operate;
  state.servers = facts.servers.map((server) => server.id);
  find("state").textContent = facts.problem || `${facts.servers.length} servers, ${facts.proxies.length} proxies, ${number(facts.topics)} topics`;
  const warnings = find("warnings");
  warnings.hidden = facts.warnings.length === 0;
  warnings.replaceChildren(...facts.warnings.map((text) => element("p", text)));
  for (const [name, values] of Object.entries(facts.history)) {
    state.history[name] = [...(state.history[name] ?? []), ...values].slice(-SAMPLES);
  }
  const { puts, backlog, disk } = state.history;
  const rate = (value) => `${number(value ?? 0)}/s`;
  find("plots").replaceChildren(
    plot("Messages put", puts, rate),
    plot("Waiting for subscribers", backlog, (value) => number(value ?? 0)),
    plot("Servers' disks", disk, (value) => size(value ?? 0)),
  );
  const up = (row) => [row.state, row.up ? "good" : "bad"];
  fill(find("servers"), [
    ["server", (row) => row.id], ["state", up], ["topics", (row) => number(row.topics), "number"],
    ["messages", (row) => number(row.records), "number"], ["put/s", (row) => number(row.puts), "number"],
    ["handed out/s", (row) => number(row.deliveries), "number"],
    ["disk", (row) => size(row.disk && Object.values(row.disk).reduce((sum, part) => sum + part, 0)), "number"],
    ["up for", (row) => span(row.uptime_seconds)],
    ...(facts.operate ? [["", (row) => drainButton(row)]] : []),
  ], facts.servers, "No server is known.");
  fill(find("proxies"), [
    ["proxy", (row) => row.id], ["state", up], ["address", (row) => row.address],
    ["hears", (row) => row.servers.join(" ")],
    ["connections", (row) => number(row.connections), "number"], ["up for", (row) => span(row.uptime_seconds)],
  ], facts.proxies, "No proxy is known.");
  find("moving").hidden = facts.moving.length === 0;
  fill(find("moves-now"), [
    ["topic", (row) => link(row.topic)], ["", (row) => row.kind],
    ["servers", (row) => row.servers.join(row.kind === "move" ? " → " : " + ")],
    ["requests", (row) => (row.frozen ? "wait" : "go on")],
  ], facts.moving, "");
}

// A button that asks first, does it, and says what went wrong.
function act(text, name, question, method, where, body) {
  const button = element("button", text, { "data-key": `${text} ${name}` });
  button.onclick = async () => {
    if (question && !confirm(question)) return;
    button.disabled = true;
    try {
      await ask(where, { method, body: body && JSON.stringify(body) });
      await refresh();
    } catch (error) {
      alert(error.message);
    } finally {
      button.disabled = false;
    }
  };
  return button;
}

function drainButton(row) {
  const where = `/servers/${encodeURIComponent(row.id)}/drain`;
  if (row.state === "draining") return act("Take topics again", row.id, "", "DELETE", where);
  return act("Drain", row.id, `Move all topics of ${row.id} to other servers? Puts and gets on each wait while it is on its way.`, "PUT", where);
}

function connect() {
  state.live?.close();
  const query = state.token ? `?access_token=${encodeURIComponent(state.token)}` : "";
  state.history = {};
  state.live = new EventSource(`/live${query}`);
  state.live.onmessage = (event) => showLive(JSON.parse(event.data));
  state.live.onopen = () => { state.history = {}; };
  state.live.onerror = () => {
    find("state").textContent = "the gateway does not answer; trying again …";
    // An answer that is no stream ends the EventSource; why, a plain request says.
    if (state.live.readyState === EventSource.CLOSED) {
      ask("/proxies").catch((error) => { find("state").textContent = error.message; });
      setTimeout(() => { if (find("token").hidden) connect(); }, AGAIN_MS);
    }
  };
}

async function showTopics() {
  const wanted = new FormData(find("search")).get("search");
  const query = new URLSearchParams({ max: PAGE, search: wanted, after: state.after, sort: find("sort").value });
  const found = await ask(`/topics?${query}`);
  state.next = found.next;
  find("next").disabled = found.next === null;
  find("total").textContent = `${number(found.total)}${wanted ? " found" : ""}`;
  fill(find("topics"), [
    ["topic", (row) => link(row.topic)], ["owner", (row) => row.owners.join(" ") || "none yet"],
    ["whole", (row) => [row.whole ? "yes" : "no", row.whole ? "" : "bad"]],
    ["messages", (row) => number(row.records), "number"], ["bytes", (row) => size(row.bytes), "number"],
    ["subscribers", (row) => number(row.subscribers.length), "number"],
    ["put/s", (row) => number(row.puts), "number"], ["taken/s", (row) => number(row.deliveries), "number"],
    ["backlog", (row) => number(row.backlog), "number"], ["held by", (row) => row.held_by ?? ""],
  ], found.topics, "No topic.");
}

const path = (topic) => `/topics/${encodeURIComponent(topic)}`;

function buttons(topic, name) {
  const place = element("span");
  const where = `${path(topic)}/webhooks/${encodeURIComponent(name)}`;
  const question = `Remove webhook ${name}? What it has not delivered is given up.`;
  place.append(act("Redrive", name, "", "POST", `${where}/retry`), " ", act("Remove", name, question, "DELETE", where));
  return place;
}

function endButton(topic, client, waiting) {
  const question = `End the subscription of ${client}? ${number(waiting)} messages that wait for it are given up.`;
  return act("Unsubscribe", client, question, "DELETE", `${path(topic)}/clients/${encodeURIComponent(client)}`);
}

function showMoves(topic, owners) {
  const others = state.operate ? (state.servers ?? []).filter((server) => !owners.includes(server)) : [];
  const question = (server) => `Move ${topic} to ${server}? Puts and gets on it wait until it has arrived.`;
  find("moves").replaceChildren(
    ...others.map((server) => act(`Move to ${server}`, server, question(server), "POST", `${path(topic)}/move`, { to: server })),
  );
}

async function showTopic(topic) {
  find("name").textContent = topic;
  const [facts, hooks] = await Promise.all([
    ask(path(topic)).catch((error) => ({ missing: error.message, subscribers: [] })),
    ask(`${path(topic)}/webhooks`).catch(() => ({ webhooks: [] })),
  ]);
  find("facts").textContent = facts.missing
    ?? `${number(facts.records)} messages, ${size(facts.bytes)}, held by ${facts.owners.join(", ") || "nobody yet"}${facts.whole ? "" : ", not whole"}`;
  showMoves(topic, facts.owners ?? []);
  fill(find("subscribers"), [
    ["client", (row) => row.client], ["still to receive", (row) => number(row.waiting), "number"],
    ["", (row) => (row.polling ? "asking" : "not asking")],
    ...(state.operate ? [["", (row) => endButton(topic, row.client, row.waiting)]] : []),
  ], facts.subscribers, "Nobody has subscribed.");
  fill(find("webhooks"), [
    ["webhook", (row) => row.name], ["URL", (row) => row.url],
    ["state", (row) => [row.state, row.state === "active" ? "good" : "bad"]],
    ["waiting", (row) => number(row.waiting), "number"],
    ["dead letters", (row) => [number(row.dead_letters), row.dead_letters ? "bad" : ""], "number"],
    ["delivered", (row) => number(row.delivered), "number"], ["why not", (row) => row.reason],
    ["", (row) => buttons(topic, row.name)],
  ], hooks.webhooks, "No webhook of yours.");
}

async function peek(after) {
  const query = new URLSearchParams({ max: 20, ...(after && { after }) });
  const told = find("peeked");
  try {
    const found = await ask(`${path(topicShown())}/messages?${query}`);
    state.peeked = found.next;
    find("more").disabled = found.next === null;
    told.textContent = `${number(found.held)} messages are held; nobody's position has moved.`;
    fill(find("messages"), [
      ["position", (row) => row.position], ["taken in", (row) => new Date(row.stamp / 1000).toLocaleString()],
      ["publisher", (row) => row.publisher], ["key", (row) => row.key ?? row.key_base64 ?? ""],
      ["bytes", (row) => number(row.bytes), "number"],
      ["body", (row) => element("code", (row.body ?? row.body_base64) + (row.cut.includes("body") ? " …" : ""))],
    ], found.messages, "Nothing is there.");
  } catch (error) {
    told.textContent = error.message;
  }
}

const topicShown = () => (location.hash.startsWith("#/topics/") ? decodeURIComponent(location.hash.slice(9)) : null);

async function refresh() {
  const topic = topicShown();
  find("overview").hidden = topic !== null;
  find("topic").hidden = topic === null;
  document.title = topic === null ? "pubsub" : `${topic} · pubsub`;
  try {
    await (topic === null ? showTopics() : showTopic(topic));
  } catch (error) {
    find("state").textContent = error.message;
  }
}

find("search").onsubmit = (event) => event.preventDefault();
find("search").oninput = () => { state.after = ""; refresh(); };
find("sort").onchange = () => { state.after = ""; refresh(); };
find("first").onclick = () => { state.after = ""; refresh(); };
find("next").onclick = () => { state.after = state.next; refresh(); };
find("token").onsubmit = (event) => {
  event.preventDefault();
  state.token = new FormData(event.target).get("token").trim();
  sessionStorage.setItem("token", state.token);
  find("token").hidden = true;
  connect();
  refresh();
};
find("newest").onclick = () => peek();
find("oldest").onclick = () => peek("-1");
find("more").onclick = () => peek(state.peeked);
// Keys where nothing is being written: / searches, n is the next page, Escape the overview.
document.onkeydown = (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, textarea, select")) return;
  const key = { "/": () => find("search").elements.search.focus(), n: () => find("next").click(), Escape: () => { location.hash = "#/"; } }[event.key];
  if (key && (event.key === "Escape" || topicShown() === null)) { event.preventDefault(); key(); }
};
find("put").onsubmit = async (event) => {
  event.preventDefault();
  const result = find("result");
  try {
    const body = new FormData(event.target).get("body");
    const key = { "idempotency-key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
    const put = await ask(`${path(topicShown())}/messages`, { method: "POST", body, headers: key });
    result.textContent = `put as ${put.id}`;
    event.target.reset();
  } catch (error) {
    result.textContent = error.message;
  }
};
window.onhashchange = () => { find("result").textContent = find("peeked").textContent = "";
  find("messages").replaceChildren();
  find("more").disabled = true;
  refresh(); };
connect();
refresh();
setInterval(refresh, AGAIN_MS);
