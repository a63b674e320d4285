// Topics as objects: create one, and purge one. The name of a topic to purge must be typed.

import { ask, path, state, topicShown } from "./asking.js";
import { find, number, say } from "./draw.js";

const json = { "content-type": "application/json" };
const create = find("create");
const purge = find("purge");

export const showCreate = () => { create.hidden = !state.operate; };
export const showPurge = () => { purge.hidden = !state.operate; };

// Clear the previous topic before another one is shown.
export function leavePurge() {
  say("purged", "");
  purge.reset();
  purge.hidden = true;
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
    say("purged", `${number(found.records)} messages are deleted, ${number(found.unread)} of them unread.`);
    purge.reset();
    await state.refresh();
  } catch (error) {
    if (topicShown() === topic) say("purged", error.message);
  }
};
