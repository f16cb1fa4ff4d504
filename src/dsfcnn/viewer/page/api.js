// Questions to the server; a refusal becomes an error with the server's own sentence.

export async function get(path) {
  let reply;
  try {
    reply = await fetch(path);
  } catch {
    throw new Error("The server does not answer; is 'dsfcnn view' still running?");
  }
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(sentence(body.message ?? `the server answered ${reply.status}`));
  return body;
}

export const resultPath = (key) => `/api/results/${key}`;
export const tilePath = (key, layer, level, x, y) => `${resultPath(key)}/tiles/${layer}/${level}/${x}/${y}`;

// With a capital letter, unless it begins with the name of a file.
export function sentence(text) {
  const whole = /^[^ ]+:/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!]$/.test(whole) ? whole : `${whole}.`;
}
