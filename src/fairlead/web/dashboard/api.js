// Calls of the gateway. The token is kept for this tab only, and goes into the Authorization header, never into a URL.
const KEY = "fairlead-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
  clear: () => sessionStorage.removeItem(KEY),
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function open(path, { method = "GET", body, signal } = {}) {
  const headers = { accept: "application/json, text/event-stream" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, signal, cache: "no-store", body: body && JSON.stringify(body) });
  if (answer.ok) return answer;
  let message = `The gateway answered ${answer.status}.`;
  try { message = (await answer.json()).error.message ?? message; } catch { /* not its usual form */ }
  throw new Refused(answer.status, message);
}

export const ask = async (path, options) => (await open(path, options)).json();

// The lines of an answer that has no end.
export async function* lines(path, signal) {
  const reader = (await open(path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// What server-sent events, or lines of JSON, hold.
export async function* values(path, signal) {
  for await (const line of lines(path, signal)) {
    const text = line.startsWith("data:") ? line.slice(5) : line;
    if (text.trimStart().startsWith("{")) yield JSON.parse(text);
  }
}
