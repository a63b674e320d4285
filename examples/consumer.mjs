// A consumer in Node, through a gateway: it appends each message to a file, once, and ends at SIGTERM.
//
//     node consumer.mjs http://127.0.0.1:8080 orders ledger received.ndjson
//
// Arguments: the gateway, a topic, the name of the subscriber, a file. A batch that was not confirmed comes again,
// unchanged, under the same `confirm` path. The file's last line names the last batch: it is the effect and the position in
// one write. A token goes into the variable TOKEN.
import { appendFileSync, closeSync, existsSync, fsyncSync, openSync, readFileSync, truncateSync } from "node:fs";

const [gateway, topic, subscriber, file] = process.argv.slice(2);
const base = `${gateway}/topics/${encodeURIComponent(topic)}/subscribers/${encodeURIComponent(subscriber)}`;
const headers = process.env.TOKEN ? { authorization: `Bearer ${process.env.TOKEN}` } : {};
const stopping = new AbortController();
process.on("SIGTERM", () => stopping.abort());

// The last batch in the file; a line that a crash cut off is removed.
function lastBatch() {
  if (!existsSync(file)) return "";
  const text = readFileSync(file);
  const end = text.lastIndexOf(10) + 1;
  truncateSync(file, end);
  const lines = text.subarray(0, end).toString().trimEnd().split("\n");
  return lines[0] ? JSON.parse(lines.at(-1)).confirm : "";
}

function append(batch) {
  const messages = batch.messages.map(({ id, body, body_base64 }) => ({ id, body, body_base64 }));
  const to = openSync(file, "a");
  appendFileSync(to, JSON.stringify({ confirm: batch.confirm, messages }) + "\n");
  fsyncSync(to);
  closeSync(to);
}

async function ask(url, options = {}) {
  const answer = await fetch(url, { ...options, headers, signal: stopping.signal });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer;
}

let seen = lastBatch();
let subscribed = false;
while (!stopping.signal.aborted) {
  try {
    if (!subscribed) await ask(base, { method: "PUT" });
    subscribed = true;
    const answer = await ask(`${base}/messages?max=100&wait=20`);
    if (answer.status === 204) continue; // No message came in 20 s.
    const batch = await answer.json();
    if (batch.confirm !== seen) append(batch); // Otherwise it was written before a crash, and not confirmed.
    seen = batch.confirm;
    await ask(gateway + batch.confirm, { method: "DELETE" });
  } catch (error) {
    if (stopping.signal.aborted) break;
    console.error(`${error}; trying again`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
