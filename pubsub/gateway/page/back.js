// Looking back: a topic's stored messages from a start on, and moving a subscriber to a start.

import { ask, path, state, topicShown } from "./asking.js";
import { code, element, fill, find, number, say, size, time, value } from "./draw.js";

const MESSAGES = 20;
const FORMS = "earliest, latest, last:100, -1h, 2026-11-01T00:00Z or a message's position";
const form = find("back");
let following = null;  // The query of the next page.

// Show where stored messages begin and end; nothing while a server does not answer, or has a release without times.
async function showTimes(topic) {
  try {
    const found = await ask(`${path(topic)}/times`);
    if (topicShown() !== topic) return;
    const most = found.exact ? "" : "at most ";
    const amount = `${most}${number(found.records)} messages, ${most}${size(found.bytes)}`;
    say("times", found.oldest === null ? "No stored messages." : `${amount}, from ${found.oldest} to ${found.newest}`);
  } catch (error) {
    if (topicShown() === topic) say("times", error.message);
  }
}

async function read(query) {
  const topic = topicShown();
  try {
    const found = await ask(`${path(topic)}/records?${query}`);
    if (topicShown() !== topic) return;
    following = found.next && new URLSearchParams({ max: MESSAGES, after: found.next, ...(query.get("stop") && { stop: query.get("stop") }) });
    find("further").disabled = !following;
    say("read", found.messages.length ? `${number(found.messages.length)} messages; no subscriber's position has changed.` : "No more messages.");
    fill(find("records"), [
      ["position", (row) => row.position], ["time", (row) => (row.stamp === undefined ? "" : time(row.stamp))],
      ["publisher", (row) => row.publisher ?? ""], ["key", (row) => value(row, "key")],
      ["body", (row) => (row.lost === undefined ? value(row, "body") : code(`lost: ${row.lost}`))],
    ], found.messages, "No messages.");
  } catch (error) {
    if (topicShown() === topic) say("read", error.message);
  }
}

// Only subscribers of a gateway, which are named USER.NAME, can be moved from here.
export function seekButton(topic, row) {
  if (!row.client.includes(".")) return "";
  const button = element("button", "Seek", { type: "button", "data-key": `Seek ${row.client}`, "aria-label": `Seek: ${row.client}` });
  button.onclick = async () => {
    const start = prompt(`Move ${row.client} to which start? It receives all messages from there on again, or passes over some. ${FORMS}`);
    if (!start) return;
    button.disabled = true;
    try {
      const headers = { "content-type": "application/json" };
      const where = `${path(topic)}/clients/${encodeURIComponent(row.client)}/seek`;
      const done = await ask(where, { method: "POST", body: JSON.stringify({ start }), headers });
      say("sought", `${done.client} continues at ${done.start} (replay ${done.replay})`);
      await state.refresh();
    } catch (error) {
      say("sought", error.message);
    } finally {
      button.disabled = false;
    }
  };
  return button;
}

// Clear the previous topic before another one is shown.
export function leaveBack() {
  for (const id of ["times", "read", "sought"]) say(id, "");
  find("records").replaceChildren();
  delete find("records").dataset.heads;
  find("further").disabled = true;
  following = null;
  form.reset();
}

form.onsubmit = (event) => {
  event.preventDefault();
  const { start, stop } = Object.fromEntries(new FormData(form));
  showTimes(topicShown());
  return read(new URLSearchParams({ max: MESSAGES, start: start || "earliest", ...(stop && { stop }) }));
};
find("further").onclick = () => read(following);
