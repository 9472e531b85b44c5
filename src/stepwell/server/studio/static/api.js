// The HTTP API as the page uses it. Addresses are relative, so the page works under any path.
import { useCallback, useEffect, useRef, useState } from "./html.js";

const ROOT = "api/v1/";

/** @typedef {{type: string, title: string, status: number, detail: string, hint?: string, candidates?: string[], errors?: {path: string, message: string}[]}} ProblemDetails */

/** What the server refused, with its sentence and its hint. */
export class Problem extends Error {
  /** @param {ProblemDetails} details */
  constructor(details) {
    super(details.detail ?? details.title);
    this.details = details;
  }
}

/** @param {string} path @param {Record<string, unknown>} [query] */
function address(path, query = {}) {
  const kept = Object.entries(query).flatMap(([key, value]) =>
    Array.isArray(value)
      ? value.map((each) => [key, String(each)])
      : value === undefined || value === null || value === ""
        ? []
        : [[key, String(value)]],
  );
  const text = new URLSearchParams(kept).toString();
  return `${ROOT}${path}${text ? `?${text}` : ""}`;
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (/** @type {any} */ (error).name === "AbortError") throw error;
    throw new Problem({
      type: "Unreachable",
      title: "No connection",
      status: 0,
      detail: "the server does not answer",
      hint: "it may be restarting; the page tries again by itself",
    });
  }
  if (response.status === 204) return null;
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const body = isJson ? await response.json() : await response.text();
  if (!response.ok)
    throw new Problem(
      isJson
        ? body
        : { type: "Error", title: response.statusText, status: response.status, detail: String(body).slice(0, 500) },
    );
  return body;
}

/** @param {string} path @param {Record<string, unknown>} [query] @param {AbortSignal} [signal] */
export const read = (path, query, signal) => call(address(path, query), { signal });

/** Change something, once: the key makes a repeated call harmless. @param {string} path @param {unknown} body */
export const change = (path, body, method = "POST") =>
  call(address(path), {
    method,
    headers: { "content-type": "application/json", "idempotency-key": crypto.randomUUID() },
    body: JSON.stringify(body),
  });

const REST = 3; // a read that is repeated because something changed leaves the server this many times as long in peace

/**
 * What a path says now. It is read again when `path`, the query or `version` changes; what was there stays until the new is.
 * A read that is under way is not given up for a new version: on a large store it would never come to an end.
 * @param {string | null} path @param {Record<string, unknown>} [query] @param {unknown} [version]
 * @returns {{data: any, problem: Problem | null, isOld: boolean, reload: () => void}} `isOld`: it answers an earlier query
 */
export function useRead(path, query, version) {
  const [state, setState] = useState(
    /** @type {{data: any, problem: any, at: string | null}} */ ({ data: null, problem: null, at: null }),
  );
  const key = path === null ? null : address(path, query),
    refresh = useRef((/** @type {boolean} */ isAtOnce) => {}),
    seen = useRef(version);
  useEffect(() => {
    if (path === null) return;
    const aborted = new AbortController();
    let isReading = false,
      isStale = false,
      isAtOnce = false,
      timer = 0;
    const rest = (/** @type {number} */ milliseconds) => {
      timer = setTimeout(() => {
        timer = 0;
        if (isStale) load();
      }, milliseconds);
    };
    const load = () => {
      const began = performance.now();
      isReading = true;
      isStale = isAtOnce = false;
      read(path, query, aborted.signal)
        .then(
          (data) => aborted.signal.aborted || setState({ data, problem: null, at: key }),
          (problem) =>
            problem.name === "AbortError" ||
            setState((before) => ({ data: before.at === key ? before.data : null, problem, at: key })),
        )
        .finally(() => {
          isReading = false;
          if (!aborted.signal.aborted) rest(isAtOnce ? 0 : REST * (performance.now() - began));
        });
    };
    refresh.current = (isWanted) => {
      isStale = true;
      isAtOnce ||= isWanted;
      if (!isReading && timer && isWanted) (clearTimeout(timer), rest(0));
      else if (!isReading && !timer) load();
    };
    load();
    return () => {
      refresh.current = () => {};
      clearTimeout(timer);
      aborted.abort();
    };
  }, [key]);
  useEffect(() => {
    if (seen.current !== version) refresh.current(false);
    seen.current = version;
  }, [version]);
  const isOther = state.at !== null && key !== null && state.at.split("?")[0] !== key.split("?")[0];
  return {
    data: isOther ? null : state.data,
    problem: isOther ? null : state.problem,
    isOld: state.data !== null && state.at !== key,
    reload: useCallback(() => refresh.current(true), []),
  };
}

const HIDDEN = 5000; // milliseconds after which a tab that nobody sees leaves its connection: a browser has few for one server

const AGAIN = 1000,
  AGAIN_AT_MOST = 30000; // milliseconds between two attempts

/**
 * Follow a stream of events while a component is shown, in a tab that somebody sees. A broken connection is taken up again after the last event seen.
 * @param {string | null} path @param {string[]} names of the events @param {(name: string, data: any) => void} onEvent @returns {boolean} whether it is connected
 */
export function useStream(path, names, onEvent) {
  const [isOpen, setOpen] = useState(true),
    handler = useRef(onEvent);
  handler.current = onEvent;
  useEffect(() => {
    if (path === null) return;
    let last = "",
      source = /** @type {EventSource | null} */ (null),
      timer = 0,
      hiding = 0,
      pause = AGAIN;
    const connect = () => {
      source = new EventSource(
        `${ROOT}${path}${last ? `${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(last)}` : ""}`,
      );
      source.onopen = () => (setOpen(true), (pause = AGAIN));
      for (const name of names)
        source.addEventListener(name, (message) => {
          last = message.lastEventId || last;
          handler.current(name, JSON.parse(message.data));
        });
      source.onerror = () => {
        setOpen(false);
        if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
        timer = setTimeout(connect, pause); // it gave up; a server that restarts is back soon, one that refuses will refuse again
        pause = Math.min(2 * pause, AGAIN_AT_MOST);
      };
    };
    const close = () => {
      clearTimeout(timer);
      source?.close();
      source = null;
    };
    const look = () => {
      clearTimeout(hiding);
      if (document.hidden) hiding = setTimeout(close, HIDDEN);
      else if (!source) connect();
    };
    if (!document.hidden) connect();
    document.addEventListener("visibilitychange", look);
    return () => {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(hiding);
      close();
    };
  }, [path]);
  return isOpen;
}
