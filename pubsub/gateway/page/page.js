// The page of a gateway: switches views and handles keys.

import { ask, state, topicShown } from "./asking.js";
import { find, say } from "./draw.js";
import { forget, showLive, showTopics } from "./overview.js";
import { leave, showTopic } from "./topic.js";

const AGAIN_MS = 3000;
let live = null;
let again = 0;
let before = null;

function connect() {
  live?.close();
  const query = state.token ? `?access_token=${encodeURIComponent(state.token)}` : "";
  live = new EventSource(`/live${query}`);
  live.onmessage = (event) => showLive(JSON.parse(event.data));
  live.onopen = forget;
  live.onerror = () => {
    say("state", "the gateway does not answer; trying again …");
    // A response that is not a stream ends the EventSource; a plain request gets the reason.
    if (live.readyState === EventSource.CLOSED) {
      ask("/proxies").catch((error) => say("state", error.message));
      setTimeout(() => { if (find("token").hidden) connect(); }, AGAIN_MS);
    }
  };
}

state.refresh = async () => {
  clearTimeout(again);
  const topic = topicShown();
  find("overview").hidden = topic !== null;
  find("topic").hidden = topic === null;
  document.title = topic === null ? "pubsub" : `${topic} · pubsub`;
  try {
    await (topic === null ? showTopics() : showTopic(topic));
  } catch (error) {
    say("state", error.message);
  } finally {
    clearTimeout(again);
    again = setTimeout(state.refresh, AGAIN_MS);
  }
};

window.onhashchange = async () => {
  const left = before;
  before = topicShown();
  leave();
  await state.refresh();
  // Move the keyboard focus to the new view, and back to the former link afterwards.
  if (before !== null) find("name").focus();
  else [...find("topics").querySelectorAll("a")].find((one) => one.dataset.key === left)?.focus();
};

find("token").onsubmit = (event) => {
  event.preventDefault();
  state.token = new FormData(event.target).get("token").trim();
  sessionStorage.setItem("token", state.token);
  find("token").hidden = true;
  connect();
  state.refresh();
};

// Keys outside of input fields: / searches, n and p turn pages, Escape returns to the overview.
document.onkeydown = (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape" && topicShown() !== null) {
    location.hash = "#/";
  } else if (!event.target.matches("input, textarea, select") && topicShown() === null) {
    const keys = { "/": () => find("search").elements.search.focus(), n: () => find("next").click(), p: () => find("previous").click() };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
};

before = topicShown();
connect();
state.refresh();
