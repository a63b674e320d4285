// The consumer groups of a topic: figures, members and dead letters of one group, and actions of operators.

import { act, ask, path, state, topicShown } from "./asking.js";
import { counted, element, fill, find, number, say, size, span, time } from "./draw.js";

let shown = null;  // Name of the group with its members shown.

const where = (topic, group) => `${path(topic)}/groups/${encodeURIComponent(group)}`;

function details(row) {
  const link = element("a", row.name, { href: location.hash, "data-key": `group ${row.name}` });
  link.onclick = (event) => { event.preventDefault(); shown = shown === row.name ? null : row.name; return state.refresh(); };
  return link;
}

function standing(row) {
  if (row.suspended) return ["suspended: its server was restored from a copy", "bad"];
  if (row.full) return ["full: too many dead letters", "bad"];
  if (row.in_doubt) return [`${number(row.in_doubt)} in doubt at ${counted(row.in_doubt_members, "silent member")} for ${span(row.in_doubt_seconds)}`, "bad"];
  if (row.waiting && !row.members_heard) return ["messages wait, and no member is heard", "bad"];
  return ["", ""];
}

function groupButtons(topic, row) {
  const place = element("span", "", { class: "buttons", "data-key": `acts ${row.name}` });
  const base = where(topic, row.name);
  if (row.dead_letters) {
    place.append(
      act("Redrive", row.name, "", "POST", `${base}/redrive`),
      act("Drop letters", row.name, `Delete ${counted(row.dead_letters, "dead letter")} of group ${row.name}?`, "POST", `${base}/drop`),
    );
  }
  if (row.suspended) {
    place.append(
      act("Redeliver", row.name, `Hand out ${counted(row.waiting, "message")} of group ${row.name}? Some may be done twice, and are marked as doubtful.`, "POST", `${base}/resume`, { skip: false }),
      act("Skip", row.name, `Pass over ${counted(row.waiting, "message")} of group ${row.name}? Some may never have been done.`, "POST", `${base}/resume`, { skip: true }),
    );
  }
  const doubt = row.in_doubt ? ` In doubt: ${counted(row.in_doubt, "message")}.` : "";
  place.append(act("End", row.name, `End group ${row.name} for all members? Given up: ${counted(row.waiting, "waiting message")} and ${counted(row.dead_letters, "dead letter")}.${doubt}`, "DELETE", `${base}?force=${row.in_doubt > 0}`));
  return place;
}

function releaseButton(topic, group, row) {
  if (row.heard || !row.claimed) return "";
  const question = `Release ${counted(row.claimed, "message")} of ${row.client} to other members, marked as doubtful? An effect may have happened, and then happens twice. If ${row.client} can be started again, do that instead.`;
  return act("Release", row.client, question, "POST", `${where(topic, group)}/release`, { member: row.client, store: row.store });
}

function heard(row) {
  const ago = row.heard_seconds == null ? "since the server started" : `for ${span(row.heard_seconds)}`;
  if (row.heard) return ["heard", "good"];
  return row.left ? ["left", ""] : [`silent ${ago}`, row.claimed ? "bad" : ""];
}

async function showDetails(topic, group) {
  const found = await ask(where(topic, group));
  if (topicShown() !== topic || shown !== group) return;
  find("group").hidden = false;
  say("group-name", group);
  fill(find("members"), [
    ["member", (row) => row.client], ["state", heard], ["claimed", (row) => number(row.claimed), "number"],
    ["in doubt", (row) => [number(row.in_doubt), row.in_doubt ? "bad" : ""], "number"],
    ["offered", (row) => number(row.offered), "number"], ["held for", (row) => span(row.held_seconds), "number"],
    ...(state.operate ? [["", (row) => releaseButton(topic, group, row)]] : []),
  ], found.member_facts, "No members.");
  const one = (row, text, action, question) => act(text, row.id, question, "POST", `${where(topic, group)}/${action}`, { ids: [row.id] });
  fill(find("group-letters"), [
    ["message", (row) => row.id], ["kind", (row) => row.kind], ["publisher", (row) => row.publisher],
    ["time", (row) => time(row.stamp)], ["bytes", (row) => size(row.bytes), "number"],
    ["tries", (row) => number(row.attempts), "number"], ["reason", (row) => [row.reason, "bad"], "text"],
    ...(state.operate ? [
      ["", (row) => (row.kind === "dead" ? one(row, "Redrive", "redrive", "") : "")],
      ["", (row) => (row.kind === "dead" ? one(row, "Drop", "drop", `Delete the dead letter ${row.id}?`) : "")],
    ] : []),
  ], found.letters, "No dead letters.");
}

export async function showGroups(topic) {
  const found = await ask(`${path(topic)}/groups`).catch(() => ({ groups: [] }));
  if (topicShown() !== topic) return;
  find("grouped").hidden = found.groups.length === 0;
  fill(find("groups"), [
    ["group", details], ["mode", (row) => (row.parts ? `keyed, ${number(row.parts)} parts` : "shared")],
    ["members heard", (row) => `${number(row.members_heard)} of ${number(row.members)}`, "number"],
    ["waiting", (row) => number(row.waiting), "number"], ["claimed", (row) => number(row.claimed), "number"],
    ["in doubt", (row) => [number(row.in_doubt), row.in_doubt ? "bad" : ""], "number"],
    ["delayed", (row) => number(row.delayed), "number"],
    ["dead letters", (row) => [number(row.dead_letters), row.dead_letters ? "bad" : ""], "number"],
    ["state", standing, "text"], ...(state.operate ? [["", (row) => groupButtons(topic, row)]] : []),
  ], found.groups, "");
  if (shown !== null && !found.groups.some((row) => row.name === shown)) shown = null;
  if (shown === null) find("group").hidden = true;
  else await showDetails(topic, shown).catch((error) => say("group-name", error.message));
}

// Clear the previous topic before another one is shown.
export function leaveGroups() {
  shown = null;
  find("grouped").hidden = find("group").hidden = true;
  for (const id of ["groups", "members", "group-letters"]) {
    find(id).replaceChildren();
    delete find(id).dataset.heads;
  }
}
