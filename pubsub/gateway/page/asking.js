// Requests to the gateway, and the state that all parts of the page share.

import { element, find } from "./draw.js";

export const state = {
  token: sessionStorage.getItem("token") ?? "",
  operate: false,
  user: null,
  servers: [],
  moving: [],
  refresh: async () => {},
};

export async function ask(path, options = {}) {
  const token = state.token ? { authorization: `Bearer ${state.token}` } : {};
  const answer = await fetch(path, { ...options, headers: { ...token, ...options.headers } });
  if (answer.status === 401) find("token").hidden = false;
  const facts = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Error(facts.detail ?? answer.statusText);
  return facts;
}

// A button that asks for confirmation, sends a request, and shows its error.
export function act(text, name, question, method, where, body) {
  const button = element("button", text, { type: "button", "data-key": `${text} ${name}`, "aria-label": `${text}: ${name}` });
  button.onclick = async () => {
    if (question && !confirm(question)) return;
    button.disabled = true;
    try {
      await ask(where, { method, body: body && JSON.stringify(body) });
      await state.refresh();
    } catch (error) {
      alert(error.message);
    } finally {
      button.disabled = false;
    }
  };
  return button;
}

export const path = (topic) => `/topics/${encodeURIComponent(topic)}`;

export function topicShown() {
  if (!location.hash.startsWith("#/topics/")) return null;
  try {
    return decodeURIComponent(location.hash.slice(9));
  } catch {
    return location.hash.slice(9);
  }
}

// What a form of a search asks for; times as microseconds since 1970.
export function searched(form) {
  const wanted = Object.entries(Object.fromEntries(new FormData(form))).filter(([, value]) => value);
  return Object.fromEntries(wanted.map(([name, value]) => (["since", "until"].includes(name) ? [name, Date.parse(value) * 1000] : [name, value])));
}
