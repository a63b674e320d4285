// A topic as a table: the latest message of each key, with a search.

import { ask, path, searched, topicShown } from "./asking.js";
import { fill, find, number, say, time, value } from "./draw.js";

const VALUES = 20;
const form = find("latest");
let following = null;  // The query of the next page.

async function show(query) {
  const topic = topicShown();
  try {
    const found = await ask(`${path(topic)}/table?${query}`);
    if (topicShown() !== topic) return;
    // The key of the next page is bytes in the form %XX, which URLSearchParams escapes once more, as it has to.
    following = found.next && new URLSearchParams({ ...Object.fromEntries(query), after: found.next });
    find("further-keys").disabled = !following;
    say("keyed", `${number(found.keys)} keys have a value; shown: ${number(found.values.length)}.`);
    fill(find("values"), [
      ["key", (row) => value(row, "key")], ["body", (row) => value(row, "body")], ["time", (row) => time(row.stamp)],
    ], found.values, "No values.");
  } catch (error) {
    if (topicShown() === topic) say("keyed", error.message);
  }
}

// Clear the previous topic before another one is shown.
export function leaveTable() {
  say("keyed", "");
  find("values").replaceChildren();
  delete find("values").dataset.heads;
  find("further-keys").disabled = true;
  following = null;
  form.reset();
}

form.onsubmit = (event) => {
  event.preventDefault();
  return show(new URLSearchParams({ max: VALUES, ...searched(form) }));
};
find("further-keys").onclick = () => show(following);
