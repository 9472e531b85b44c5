// What the page shows is in its address, so that a link reproduces it: `#/runs/r1?tab=state&at=4`.
import { useEffect, useState } from "./html.js";

/** @typedef {{path: string[], query: URLSearchParams}} Address */

/** @returns {Address} */
export function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query ?? "") };
}

/** @param {string[]} path @param {Record<string, unknown>} [query] what is empty or undefined is left out */
export function link(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** @param {string} target as `link` makes it @param {{replace?: boolean}} [options] */
export function go(target, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Change some of the query and stay where we are. It is read from the browser: a view may be older. @param {Record<string, unknown>} changes */
export function adjust(changes) {
  const { path, query } = readAddress();
  go(link(path, { ...Object.fromEntries(query), ...changes }), { replace: true });
}

/** @returns {Address} */
export function useAddress() {
  const [address, setAddress] = useState(readAddress);
  useEffect(() => {
    const read = () => setAddress(readAddress());
    addEventListener("popstate", read);
    addEventListener("hashchange", read);
    return () => {
      removeEventListener("popstate", read);
      removeEventListener("hashchange", read);
    };
  }, []);
  return address;
}
