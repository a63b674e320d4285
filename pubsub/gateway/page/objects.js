// Topics as objects: create, purge and delete one. The name of a topic to purge or to delete must be typed.

import { ask, path, state, topicShown } from "./asking.js";
import { find, number, say } from "./draw.js";

const json = { "content-type": "application/json" };
const create = find("create");
const purge = find("purge");
const deletion = find("delete");

export const showCreate = () => { create.hidden = !state.operate; };
const messages = (count) => `${number(count)} ${count === 1 ? "message" : "messages"}`;

export const showPurge = () => { purge.hidden = deletion.hidden = !state.operate; };

// Clear the previous topic before another one is shown.
export function leavePurge() {
  for (const [form, id] of [[purge, "purged"], [deletion, "deleted"]]) {
    say(id, "");
    form.reset();
    form.hidden = true;
  }
}

create.onsubmit = async (event) => {
  event.preventDefault();
  const { topic, keep } = Object.fromEntries(new FormData(create));
  try {
    const found = await ask(path(topic), { method: "PUT", body: JSON.stringify(keep ? { keep } : {}), headers: json });
    say("created", `${topic} exists: keep=${found.keep} drop=${found.drop}`);
    create.reset();
    await state.refresh();
  } catch (error) {
    say("created", error.message);
  }
};

purge.onsubmit = async (event) => {
  event.preventDefault();
  const topic = topicShown();
  const { typed, unread } = Object.fromEntries(new FormData(purge));
  if (typed !== topic) return say("purged", `This is not the name; type ${topic}.`);
  try {
    const body = JSON.stringify({ unread: unread === "on" });
    const found = await ask(`${path(topic)}/purge`, { method: "POST", body, headers: json });
    if (topicShown() !== topic) return;
    say("purged", `${messages(found.records)} deleted, ${number(found.unread)} unread.`);
    purge.reset();
    await state.refresh();
  } catch (error) {
    if (topicShown() === topic) say("purged", error.message);
  }
};

deletion.onsubmit = async (event) => {
  event.preventDefault();
  const topic = topicShown();
  const { typed, force } = Object.fromEntries(new FormData(deletion));
  if (typed !== topic) return say("deleted", `This is not the name; type ${topic}.`);
  try {
    const found = await ask(`${path(topic)}?force=${force === "on"}`, { method: "DELETE" });
    if (topicShown() !== topic) return;
    say("deleted", `${topic} is deleted, with ${messages(found.records ?? 0)}.`);
    deletion.reset();
    await state.refresh();
  } catch (error) {
    if (topicShown() === topic) say("deleted", error.message);
  }
};
