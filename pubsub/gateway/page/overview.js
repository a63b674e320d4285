// Processes, what moves, the last hour, and topics by page and search.

import { act, ask, state } from "./asking.js";
import { element, fill, find, link, number, plot, say, size, span } from "./draw.js";

const PAGE = 50;
const SAMPLES = 720;
let history = {};
const pages = [""];
let next = null;

export const forget = () => { history = {}; };

function warn(facts) {
  const found = [...facts.warnings, ...facts.alarms];
  const place = find("warnings");
  place.hidden = found.length === 0;
  if (found.join("\n") !== [...place.children].map((one) => one.textContent).join("\n")) {
    place.replaceChildren(...found.map((text) => element("p", text)));
  }
}

function draw(samples) {
  for (const [name, values] of Object.entries(samples)) history[name] = [...(history[name] ?? []), ...values].slice(-SAMPLES);
  find("plots").replaceChildren(
    plot("Messages put", history.puts, (value) => `${number(value ?? 0)}/s`),
    plot("Waiting for subscribers", history.backlog, (value) => number(value ?? 0)),
    plot("The oldest waits", history.oldest, (value) => span(value ?? 0)),
    plot("Servers' disks", history.disk, (value) => size(value ?? 0)),
  );
}

function drainButton(row) {
  const where = `/servers/${encodeURIComponent(row.id)}/drain`;
  if (row.state === "draining") return act("Take topics again", row.id, "", "DELETE", where);
  return act("Drain", row.id, `Move all topics of ${row.id} to other servers? Puts and gets on each wait while it is on its way.`, "PUT", where);
}

export function far(move) {
  const so = move.chunks ? `${move.state}, ${number(move.chunks)} parts arrived` : move.state;
  return move.tries > 1 ? [`${so}, ${number(move.tries)} tries without an answer`, "bad"] : [so, ""];
}

export const ends = (move) => move.servers.join(move.kind === "move" ? " → " : " + ");

export function showLive(facts) {
  find("token").hidden = true;
  [state.operate, state.servers, state.moving] = [facts.operate, facts.servers.map((server) => server.id), facts.moving];
  state.user = facts.user;
  say("state", facts.problem || `${facts.servers.length} servers, ${facts.proxies.length} proxies, ${number(facts.topics)} topics`);
  warn(facts);
  draw(facts.history);
  const up = (row) => [row.state, row.up ? "good" : "bad"];
  const free = (row) => [size(row.disk_free_bytes), row.disk_free_bytes < row.disk_size_bytes / 20 ? "bad" : ""];
  const process = [
    ["disk free", free, "number"], ["memory", (row) => size(row.memory_bytes), "number"], ["up for", (row) => span(row.uptime_seconds)],
  ];
  fill(find("servers"), [
    ["server", (row) => row.id], ["state", up], ["topics", (row) => number(row.topics), "number"],
    ["messages", (row) => number(row.records), "number"], ["put/s", (row) => number(row.puts), "number"],
    ["handed out/s", (row) => number(row.deliveries), "number"],
    ["disk", (row) => size(row.disk && Object.values(row.disk).reduce((sum, part) => sum + part, 0)), "number"],
    ...process, ...(facts.operate ? [["", drainButton]] : []),
  ], facts.servers, "No server is known.");
  fill(find("proxies"), [
    ["proxy", (row) => row.id], ["state", up], ["address", (row) => row.address], ["hears", (row) => row.servers.join(" ")],
    ["connections", (row) => number(row.connections), "number"], ...process,
  ], facts.proxies, "No proxy is known.");
  find("moving").hidden = facts.moving.length === 0;
  fill(find("moves-now"), [
    ["topic", (row) => link(row.topic)], ["", (row) => row.kind], ["servers", ends], ["how far", far],
    ["its requests", (row) => (row.frozen ? "wait" : "go on")],
  ], facts.moving, "");
}

let turn = 0;

export async function showTopics() {
  const mine = ++turn;
  const wanted = find("search").elements.search.value;
  const query = { max: PAGE, subscribers: 0, search: wanted, after: pages.at(-1), sort: find("sort").value };
  const found = await ask(`/topics?${new URLSearchParams(query)}`);
  if (mine !== turn) return;
  next = found.next;
  find("next").disabled = next === null;
  find("previous").disabled = pages.length < 2;
  say("total", `${number(found.total)}${wanted ? " found" : ""}`);
  fill(find("topics"), [
    ["topic", (row) => link(row.topic)], ["owner", (row) => row.owners.join(" ") || "none yet"],
    ["whole", (row) => [row.whole ? "yes" : "no", row.whole ? "" : "bad"]],
    ["messages", (row) => number(row.records), "number"], ["bytes", (row) => size(row.bytes), "number"],
    ["subscribers", (row) => number(row.subscribers_total), "number"],
    ["put/s", (row) => number(row.puts), "number"], ["taken/s", (row) => number(row.deliveries), "number"],
    ["backlog", (row) => number(row.backlog), "number"],
    ["oldest", (row) => span(row.oldest_unacknowledged_seconds), "number"], ["held by", (row) => row.held_by ?? ""],
  ], found.topics, "No topic.");
}

const first = () => { pages.length = 1; return state.refresh(); };
let typed = 0;
find("search").onsubmit = (event) => {
  event.preventDefault();
  const wanted = find("search").elements.search.value;
  const named = [...find("topics").querySelectorAll("a")].map((one) => one.textContent);
  // Who may not see the list can open a topic by its name.
  if (wanted) location.hash = `#/topics/${encodeURIComponent(named.includes(wanted) || !named.length ? wanted : named[0])}`;
};
find("search").oninput = () => { clearTimeout(typed); typed = setTimeout(first, 150); };
find("sort").onchange = first;
find("previous").onclick = () => { if (pages.length > 1) pages.pop(); return state.refresh(); };
find("next").onclick = () => { if (next !== null) pages.push(next); return state.refresh(); };
