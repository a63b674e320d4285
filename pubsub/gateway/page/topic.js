// One topic: subscribers, stored messages, webhooks with their dead letters, and a test message.

import { act, ask, path, searched, state, topicShown } from "./asking.js";
import { code, element, fill, find, link, number, say, size, span, time } from "./draw.js";
import { before, ends, far } from "./overview.js";
import { leavePurge, showPurge } from "./objects.js";
import { leaveGroups, showGroups } from "./groups.js";
import { leaveSettings, showSettings } from "./settings.js";
import { leaveBack, seekButton } from "./back.js";
import { leaveTable } from "./table.js";

const SUBSCRIBERS = 100;
const MESSAGES = 20;
const SEARCHED = 100;
let peeked = null;
const NONE = { name: null, kind: "", after: 0, next: null };
let letters = NONE;

function lettersLink(kind, name, tag, more) {
  const show = element(tag, "Dead letters", { ...more, "data-key": `letters ${kind} ${name}`, "aria-label": `Dead letters: ${name}` });
  show.onclick = (event) => { event.preventDefault(); letters = { ...NONE, name, kind }; return showLetters(); };
  return show;
}

// Only HTTP subscribers of this user have dead letters here; subscriber S of alice is the client alice.S.
function lettersOf(row, hooks) {
  const mine = `${state.user}.`;
  const name = row.client.startsWith(mine) ? row.client.slice(mine.length) : "";
  return name && !hooks.some((hook) => hook.name === name) ? lettersLink("subscribers", name, "a", { href: location.hash }) : "";
}

function buttons(topic, row) {
  const place = element("span", "", { class: "buttons", "data-key": `webhook ${row.name}` });
  const where = `${path(topic)}/webhooks/${encodeURIComponent(row.name)}`;
  const question = `Remove webhook ${row.name}? Its undelivered messages and dead letters are dropped.`;
  place.append(act("Redrive", row.name, "", "POST", `${where}/redrive`), lettersLink("webhooks", row.name, "button", { type: "button" }), act("Purge", row.name, `Drop all dead letters of webhook ${row.name}?`, "DELETE", `${where}/dead-letters?age=0`), act("Remove", row.name, question, "DELETE", where));
  return place;
}

function endButton(topic, row) {
  const question = `End the subscription of ${row.client}? Its backlog of ${number(row.waiting)} messages is dropped.`;
  return act("Unsubscribe", row.client, question, "DELETE", `${path(topic)}/clients/${encodeURIComponent(row.client)}`);
}

// Subscribers of patterns that match: each receives this topic too, also before it has joined it.
function showPatterns(rows) {
  find("families").hidden = rows.length === 0;
  const question = (row) => `End the pattern ${row.pattern} of ${row.client}? Its backlog in all topics that match is dropped.`;
  const end = (row) => act("Unsubscribe", `${row.client} ${row.pattern}`, question(row), "DELETE", `${path(row.pattern)}/clients/${encodeURIComponent(row.client)}`);
  fill(find("patterns"), [
    ["client", (row) => row.client], ["pattern", (row) => link(row.pattern)], ["since", (row) => time(row.since)],
    ...(state.operate ? [["", end]] : []),
  ], rows, "");
}

function showMoves(topic, owners) {
  const others = state.operate ? state.servers.filter((server) => !owners.includes(server)) : [];
  const question = (server) => `Move ${topic} to ${server}? Puts and gets on it wait during the transfer.`;
  const wanted = others.map((server) => act(`Move to ${server}`, server, question(server), "POST", `${path(topic)}/move`, { to: server }));
  const place = find("moves");
  if (wanted.map((one) => one.dataset.key).join() !== [...place.children].map((one) => one.dataset.key).join()) place.replaceChildren(...wanted);
  const move = state.moving.find((one) => one.topic === topic);
  say("going", move ? `In progress: ${move.kind} ${ends(move)}, ${far(move)[0]}; its requests ${move.frozen ? "wait" : "continue"}.` : "");
}

function summed(facts) {
  if (facts.missing) return facts.missing;
  if (facts.unknown_seconds != null) {
    const since = `unknown for ${span(facts.unknown_seconds)}: ${facts.owners.join(", ")} does not answer`;
    return `${since}. Last known ${before(facts.last_known)}`;
  }
  const parts = [
    `${number(facts.records)} messages, ${size(facts.bytes)}`, `owner: ${facts.owners.join(", ") || "none yet"}`,
    ...(facts.sole_owner ? [] : ["no sole owner"]),
    ...(facts.puts == null ? [] : [`${number(facts.puts)} put/s, ${number(facts.deliveries)} acknowledged/s`]),
    ...(facts.oldest_unacknowledged_seconds == null ? [] : [`oldest unacknowledged message: ${span(facts.oldest_unacknowledged_seconds)}`]),
  ];
  return parts.join("; ");
}

let turn = 0;

export async function showTopic(topic) {
  const mine = ++turn;
  say("name", topic);
  const [facts, hooks, families] = await Promise.all([
    ask(`${path(topic)}?subscribers=${SUBSCRIBERS}`).catch((error) => ({ missing: error.message, subscribers: [], subscribers_total: 0 })),
    ask(`${path(topic)}/webhooks`).catch(() => ({ webhooks: [] })),
    ask(`/patterns?${new URLSearchParams({ topic })}`).catch(() => ({ patterns: [] })),
  ]);
  if (mine !== turn || topicShown() !== topic) return;
  say("facts", summed(facts));
  showMoves(topic, facts.owners ?? []);
  showSettings(topic, facts);
  showPurge();
  showPatterns(families.patterns);
  const subscribers = facts.subscribers ?? [];
  const more = facts.subscribers_total - subscribers.length;
  say("named", more > 0 ? `${number(facts.subscribers_total)}; shown: the ${SUBSCRIBERS} with the largest backlogs` : "");
  fill(find("subscribers"), [
    ["client", (row) => row.client], ["backlog", (row) => number(row.waiting), "number"],
    ["oldest message", (row) => span(row.oldest_unacknowledged_seconds), "number"],
    ["state", (row) => (row.polling ? "polling" : "not polling")], ["", (row) => lettersOf(row, hooks.webhooks)],
    ...(state.operate ? [["", (row) => seekButton(topic, row)], ["", (row) => endButton(topic, row)]] : []),
  ], subscribers, facts.subscribers ? "No subscribers." : "Unknown.");
  fill(find("webhooks"), [
    ["webhook", (row) => row.name], ["URL", (row) => row.url, "text"],
    ["state", (row) => [row.state, row.state === "active" ? "good" : "bad"]],
    ["waiting", (row) => number(row.waiting), "number"],
    ["dead letters", (row) => [number(row.dead_letters), row.dead_letters ? "bad" : ""], "number"],
    ["delivered", (row) => number(row.delivered), "number"], ["reason", (row) => row.reason, "text"],
    ["last failure", (row) => failure(row.last_failure), "text"], ["", (row) => buttons(topic, row)],
  ], hooks.webhooks, "You have no webhooks here.");
  await showGroups(topic);
  if (letters.kind === "webhooks" && !hooks.webhooks.some((row) => row.name === letters.name)) find("letters").hidden = true;
}

const failure = (last) => (last ? `${last.error}, try ${last.attempts}, ${time(last.failed_at)}` : "");

// Keys, headers and bodies as text; bytes that are not UTF-8 as base64.
const text = (row, name) => row[name] ?? (row[`${name}_base64`] === undefined ? "" : `base64: ${row[`${name}_base64`]}`);
const shown = (row, name) => code(text(row, name) + (row.cut?.includes(name) ? " …" : ""));

function headers(row) {
  const lines = [
    ...Object.entries(row.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    ...Object.entries(row.headers_base64 ?? {}).map(([name, value]) => `${name}: base64: ${value}`),
  ];
  return code(lines.join("\n"));
}

const contents = [
  ["key", (row) => shown(row, "key")], ["headers", headers], ["bytes", (row) => number(row.bytes), "number"],
  ["body", (row) => (row.lost === undefined ? shown(row, "body") : code(`lost: ${row.lost}`))],
];

async function peek(after) {
  const topic = topicShown();
  const wanted = searched(find("find"));
  const searching = Object.keys(wanted).length > 0;
  const query = new URLSearchParams({ max: searching ? SEARCHED : MESSAGES, ...(after && { after }), ...wanted });
  try {
    const found = await ask(`${path(topic)}/messages?${query}`);
    if (topicShown() !== topic) return;
    peeked = found.next;
    find("more").disabled = peeked === null;
    const looked = searching ? ` ${number(found.searched)} of them were searched, and ${number(found.messages.length)} found.` : "";
    say("peeked", `${number(found.held)} messages are stored; no subscriber's position has changed.${looked}`);
    fill(find("messages"), [
      ["position", (row) => row.position], ["time", (row) => time(row.stamp)], ["publisher", (row) => row.publisher], ...contents,
    ], found.messages, "No messages.");
  } catch (error) {
    say("peeked", error.message);
  }
}

async function showLetters() {
  const topic = topicShown();
  const query = new URLSearchParams({ max: MESSAGES, after: letters.after, beginnings: true });
  try {
    const found = await ask(`${path(topic)}/${letters.kind}/${encodeURIComponent(letters.name)}/dead-letters?${query}`);
    if (topicShown() !== topic) return;
    letters = { ...letters, next: found.next };
    find("letters").hidden = false;
    say("whose", letters.name);
    find("more-letters").disabled = letters.next === null;
    fill(find("dead"), [
      ["message", (row) => row.id], ["tries", (row) => number(row.attempts), "number"],
      ["failed at", (row) => time(row.failed_at)], ["error", (row) => [row.error, "bad"], "text"], ...contents,
    ], found.dead_letters, "No dead letters.");
  } catch (error) {
    alert(error.message);
  }
}

async function put(event) {
  event.preventDefault();
  const form = event.target;
  try {
    const { body, key } = Object.fromEntries(new FormData(form));
    const named = { "idempotency-key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
    if (key) named["pubsub-key"] = encodeURIComponent(key);
    const done = await ask(`${path(topicShown())}/messages`, { method: "POST", body, headers: named });
    say("result", `put as ${done.id}`);
    form.reset();
  } catch (error) {
    say("result", error.message);
  }
}

// Clear the previous topic before another one is shown.
export function leave() {
  for (const id of ["result", "peeked", "facts", "going", "named"]) say(id, "");
  for (const id of ["messages", "dead", "subscribers", "webhooks"]) {
    find(id).replaceChildren();
    delete find(id).dataset.heads;
  }
  leaveGroups();
  leaveSettings();
  leaveBack();
  leaveTable();
  leavePurge();
  find("find").reset();
  find("moves").replaceChildren();
  find("more").disabled = true;
  find("letters").hidden = true;
  letters = NONE;
}

find("newest").onclick = () => peek();
find("oldest").onclick = () => peek("-1");
find("more").onclick = () => peek(peeked);
find("more-letters").onclick = () => { letters = { ...letters, after: letters.next }; return showLetters(); };
find("find").onsubmit = (event) => { event.preventDefault(); return peek(); };
find("put").onsubmit = put;
