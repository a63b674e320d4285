// Processes, transfers and merges, the last hour, and topics by page and search.

import { act, ask, state } from "./asking.js";
import { element, fill, find, link, number, plot, say, size, span, unknown } from "./draw.js";
import { showCreate } from "./objects.js";

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
    plot("Messages put", history.puts, (value) => `${number(value)}/s`),
    plot("Backlog of all subscribers", history.backlog, number),
    plot("Age of the oldest unacknowledged message", history.oldest, span),
    plot("Disk space used by servers", history.disk, size),
  );
}

function drainButton(row) {
  const where = `/servers/${encodeURIComponent(row.id)}/drain`;
  if (row.state === "draining") return act("Stop draining", row.id, "", "DELETE", where);
  return act("Drain", row.id, `Move all topics of ${row.id} to other servers? Puts and gets on a topic wait during its transfer.`, "PUT", where);
}

export function far(move) {
  const progress = move.chunks ? `${move.state}, ${number(move.chunks)} chunks received` : move.state;
  return move.tries > 1 ? [`${progress}, ${number(move.tries)} tries without an answer`, "bad"] : [progress, ""];
}

export const ends = (move) => move.servers.join(move.kind === "move" ? " → " : " + ");

export function showLive(facts) {
  find("token").hidden = true;
  [state.operate, state.servers, state.moving] = [facts.operate, facts.servers.map((server) => server.id), facts.moving];
  const silent = facts.problem ? "Unknown: no proxy answers." : "";
  state.user = facts.user;
  showCreate();
  say("state", facts.problem || `${facts.servers.length} servers, ${facts.proxies.length} proxies, ${number(facts.topics)} topics`);
  warn(facts);
  draw(facts.history);
  const since = (row) => (row.silent_seconds == null ? "" : ` for ${span(row.silent_seconds)}`);
  const up = (row) => [row.up ? row.state : row.state + since(row), row.up ? "good" : "bad"];
  const known = (columns) => columns.map(([head, cell, kind]) => [head, (row) => (row.up ? cell(row) : unknown(before(row.last_known))), kind]);
  const free = (row) => [size(row.disk_free_bytes), row.disk_free_bytes < row.disk_size_bytes / 20 ? "bad" : ""];
  const process = [
    ["disk free", free, "number"], ["memory", (row) => size(row.memory_bytes), "number"], ["up for", (row) => span(row.uptime_seconds)],
  ];
  fill(find("servers"), [
    ["server", (row) => row.id], ["state", up], ...known([["topics", (row) => number(row.topics), "number"],
    ["messages", (row) => number(row.records), "number"], ["put/s", (row) => number(row.puts), "number"],
    ["delivered/s", (row) => number(row.deliveries), "number"],
    ["disk used", (row) => size(row.disk && Object.values(row.disk).reduce((sum, part) => sum + part, 0)), "number"],
    ...process]), ...(facts.operate ? [["", drainButton]] : []),
  ], facts.servers, silent || "No servers.");
  fill(find("proxies"), [
    ["proxy", (row) => row.id], ["state", up], ["address", (row) => row.address],
    ...known([["servers", (row) => row.servers.join(" ")], ["connections", (row) => number(row.connections), "number"], ...process]),
  ], facts.proxies, silent || "No proxies.");
  showStandbys(facts.standbys);
  find("moving").hidden = facts.moving.length === 0;
  fill(find("moves-now"), [
    ["topic", (row) => link(row.topic)], ["kind", (row) => row.kind], ["servers", ends], ["progress", far],
    ["requests", (row) => (row.frozen ? "wait" : "continue")],
  ], facts.moving, "");
}

// Servers with two members: the primary, and the state and lag of the standby.
function showStandbys(rows) {
  find("paired").hidden = rows.length === 0;
  const lag = (row) => (row.lag_loops == null ? "" : `${number(row.lag_loops)} loops, ${size(row.lag_bytes)}`);
  const stands = (row) => {
    const text = row.copied_percent == null ? row.state : `${row.state}, ${row.copied_percent} %`;
    return [text, ["in sync", "single"].includes(row.state) ? "good" : "bad"];
  };
  fill(find("standbys"), [
    ["server", (row) => row.server], ["standby", stands], ["for", (row) => span(row.since_seconds)], ["lag", lag],
    ["primary", (row) => row.primary], ["at", (row) => row.address], ["in sync", (row) => row.in_sync.join(" ")],
    ["term", (row) => row.term, "number"], ["votes", (row) => row.votes.join(" of ")],
  ], rows, "");
}

// The last known figures, in words.
export function before(last) {
  if (!last) return "Unknown.";
  const more = last.backlog == null ? `${number(last.topics)} topics` : `backlog ${number(last.backlog)}, ${size(last.bytes)}`;
  return `${span(last.seconds_ago)} ago: ${number(last.records)} messages, ${more}`;
}

let turn = 0;

export async function showTopics() {
  const mine = ++turn;
  const wanted = find("search").elements.search.value;
  const query = { max: PAGE, subscribers: 0, search: wanted, after: pages.at(-1), sort: find("sort").value };
  const found = await ask(`/topics?${new URLSearchParams(query)}`).catch((error) => {
    if (mine === turn) {
      say("total", "");
      fill(find("topics"), [["topic", () => ""]], [], `Unknown: ${error.message}`);
    }
    throw error;
  });
  if (mine !== turn) return;
  next = found.next;
  find("next").disabled = next === null;
  find("previous").disabled = pages.length < 2;
  say("total", `${number(found.total)}${wanted ? " found" : ""}`);
  const known = (columns) => columns.map(([head, cell, kind]) => [head, (row) => (row.unknown_seconds == null ? cell(row) : unknown(before(row.last_known))), kind]);
  const outage = found.topics.some((row) => row.unknown_seconds != null);
  fill(find("topics"), [
    ["topic", (row) => link(row.topic)], ["owner", (row) => row.owners.join(" ") || "none yet"],
    ["sole owner", (row) => (row.sole_owner === null ? unknown() : [row.sole_owner ? "yes" : "no", row.sole_owner ? "" : "bad"])],
    ...(outage ? [["unknown for", (row) => [span(row.unknown_seconds), "bad"]], ["last known", (row) => (row.unknown_seconds == null ? "" : before(row.last_known))]] : []),
    ...known([["messages", (row) => number(row.records), "number"], ["bytes", (row) => size(row.bytes), "number"],
    ["subscribers", (row) => number(row.subscribers_total), "number"],
    ["put/s", (row) => number(row.puts), "number"], ["acknowledged/s", (row) => number(row.deliveries), "number"],
    ["backlog", (row) => number(row.backlog), "number"],
    ["oldest", (row) => span(row.oldest_unacknowledged_seconds), "number"], ["largest backlog", (row) => row.held_by ?? ""]]),
  ], found.topics, "No topics.");
}

const first = () => { pages.length = 1; return state.refresh(); };
let typed = 0;
find("search").onsubmit = (event) => {
  event.preventDefault();
  const wanted = find("search").elements.search.value;
  const named = [...find("topics").querySelectorAll("a")].map((one) => one.textContent);
  // A user without the right to the list opens a topic by its name.
  if (wanted) location.hash = `#/topics/${encodeURIComponent(named.includes(wanted) || !named.length ? wanted : named[0])}`;
};
find("search").oninput = () => { clearTimeout(typed); typed = setTimeout(first, 150); };
find("sort").onchange = first;
find("previous").onclick = () => { if (pages.length > 1) pages.pop(); return state.refresh(); };
find("next").onclick = () => { if (next !== null) pages.push(next); return state.refresh(); };
