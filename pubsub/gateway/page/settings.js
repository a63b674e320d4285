// The settings of a topic: how much of it is kept, and a form that changes them.

import { ask, path, state, topicShown } from "./asking.js";
import { find, say, size, span } from "./draw.js";

const NAMES = ["keep", "drop", "expire", "rate", "bytes"];
const RARE = { expire: "never", rate: "none", bytes: "none" };  // Such values are not shown.
const IN_REPORT = { rate: "rate_limit", bytes: "bytes_limit" };
const form = find("settings");
let loaded = null;  // The topic with its settings in the form.
let version = "";

// The state of a topic's settings in words; "" while its server does not answer, or has a release without settings.
function summed(facts) {
  if (facts.keep == null) return "";
  const parts = [
    ...NAMES.map((name) => [name, facts[IN_REPORT[name] || name]]).filter(([name, value]) => value != null && value !== RARE[name]).map(([name, value]) => `${name}: ${value}${from((facts.settings_from || {})[name])}`),
    ...(facts.kept_bytes == null ? [] : [`${size(facts.kept_bytes)} that no subscriber needs`]),
    ...(facts.oldest_stored_seconds == null ? [] : [`oldest message: ${span(facts.oldest_stored_seconds)}`]),
    ...(facts.throttled ? [`${facts.throttled} puts were put off for ${span(facts.throttled_seconds)}`] : []),
    ...(facts.not_let_go ? [`more stays than keep says: ${facts.not_let_go}`] : []),
  ];
  return parts.join("; ");
}

// The pattern of the servers' configuration that a value is from; "" if the topic has it itself, or no server has one.
function from(source) {
  return source && source.includes("default ") ? ` (${source})` : "";
}

// The form has the topic's own values. An empty field shows the default in grey.
function fill(found) {
  version = found.version;
  for (const name of NAMES) {
    form.elements[name].value = found.conflict ? "" : found.own[name] || "";
    form.elements[name].placeholder = `${found[name]}${from(found.sources[name])}`;
  }
}

async function load(topic) {
  loaded = topic;
  try {
    const found = await ask(`${path(topic)}/settings`);
    if (topicShown() === topic) fill(found);
  } catch (error) {
    loaded = null;  // It is tried again with the next look at the topic.
    if (topicShown() === topic) say("set", error.message);
  }
}

export function showSettings(topic, facts) {
  say("kept", summed(facts));
  say("conflict", facts.settings_conflict ? "Two servers had different settings when they merged this topic. Both stay in force: set the right ones." : "");
  form.hidden = !state.operate;
  if (state.operate && loaded !== topic) return load(topic);
}

// Clear the previous topic before another one is shown.
export function leaveSettings() {
  for (const id of ["kept", "conflict", "set"]) say(id, "");
  form.reset();
  form.hidden = true;
  loaded = null;
}

form.onsubmit = async (event) => {
  event.preventDefault();
  const topic = topicShown();
  const wanted = Object.fromEntries(new FormData(form));
  const question = `Set ${NAMES.map((name) => `${name}=${wanted[name] || "the default"}`).join(" ")} for ${topic}? Messages that they let go do not come back.`;
  if (!confirm(question)) return;
  try {
    const headers = { "if-match": `"${version}"`, "content-type": "application/json" };
    const found = await ask(`${path(topic)}/settings`, { method: "PUT", body: JSON.stringify(wanted), headers });
    if (topicShown() !== topic) return;
    fill(found);
    say("set", `set: ${NAMES.filter((name) => found[name] !== RARE[name]).map((name) => `${name}=${found[name]}`).join(" ")}`);
    await state.refresh();
  } catch (error) {
    if (topicShown() !== topic) return;
    say("set", error.message);
    await load(topic);  // The form shows the settings in force, and the next try changes those.
  }
};
