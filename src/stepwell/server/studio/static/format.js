// Times, durations and sizes as people read them.

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
/** @type {[string, number][]} */
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
];

export function duration(seconds) {
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const index = UNITS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = UNITS[index];
  const rest = Math.floor((seconds % size) / (UNITS[index + 1]?.[1] ?? 1));
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${UNITS[index + 1]?.[0] ?? "s"}` : ""}`;
}

/** @param {string | null | undefined} time ISO 8601 @param {number} now milliseconds */
export function age(time, now = Date.now()) {
  if (!time) return "";
  const seconds = (now - Date.parse(time)) / 1000;
  if (seconds < -1) return `in ${coarse(-seconds)}`;
  return seconds < 1 ? "now" : `${coarse(seconds)} ago`;
}

function coarse(seconds) {
  for (const [unit, size] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

export const moment = (time) => (time ? DATE.format(new Date(time)) : "");

export const plural = (count, noun) => `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;

/** @param {string} id A long id keeps its beginning: that is enough for every command. */
export const shortId = (id) => (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(id) ? id.slice(0, 8) : id);

export const size = (bytes) =>
  bytes < 1000 ? `${bytes} bytes` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
