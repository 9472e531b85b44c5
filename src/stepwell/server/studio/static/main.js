// @ts-check
// The frame of the page: where we are, what waits, light or dark.
import { link, useAddress } from "./address.js";
import { useRead } from "./api.js";
import { html, render, useEffect, useState } from "./html.js";
import { Compare } from "./compare.js";
import { Inbox } from "./inbox.js";
import { Operate } from "./operate.js";
import { RunPage } from "./run.js";
import { Runs } from "./runs.js";
import { useFeed } from "./feed.js";

/** @type {[string, string][]} */
const PLACES = [["runs", "Runs"], ["inbox", "Inbox"], ["compare", "Compare"], ["operate", "Operate"]];

/** @param {{feed: import("./feed.js").Feed, place: string}} props */
function Top({ feed, place }) {
  const { data } = useRead("requests", { limit: 100 }, feed.version);
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  const change = () => {
    const other = theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", other);
    setTheme(other);
  };
  const open = data?.requests.filter((request) => !request.answered).length ?? 0;
  return html`<header class="top"><a class="brand" href=${link(["runs"])} aria-label="Stepwell Studio"><i class="logo" /><span>Stepwell</span></a>
    <nav aria-label="Views">${PLACES.map(([name, title]) => html`<a href=${link([name])} aria-current=${name === place ? "page" : undefined}>${title}${name === "inbox" && open > 0 && html`<b aria-label="${open} open">${open}${data.next ? "+" : ""}</b>`}</a>`)}</nav>
    <span class="sp" /><span role="status" class="offline">${feed.isOpen ? "" : "connecting…"}</span>
    <button class="button" onClick=${change} aria-label="Use the ${theme === "dark" ? "light" : "dark"} theme">◐</button></header>`;
}

function App() {
  const address = useAddress(), [place = "runs", id] = address.path, feed = useFeed(place === "runs" ? id : undefined);
  const props = { address, version: feed.version };
  const view =
    place === "runs" && id ? html`<${RunPage} key=${id} id=${id} feed=${feed} address=${address} />`
    : place === "inbox" ? html`<${Inbox} ...${props} />`
    : place === "compare" ? html`<${Compare} ...${props} />`
    : place === "operate" ? html`<${Operate} ...${props} />`
    : html`<${Runs} ...${props} />`;
  useEffect(() => {
    document.title = `${id ?? PLACES.find(([name]) => name === place)?.[1] ?? "Runs"} · Stepwell`;
  }, [place, id]);
  return html`<div class="app"><${Top} feed=${feed} place=${place} /><main class="view" id="view" tabindex="-1">${view}</main></div>`;
}

addEventListener("keydown", (e) => {
  const typing = /** @type {Element} */ (e.target).closest("input, textarea, select, dialog");
  if (e.key === "/" && !typing) {
    e.preventDefault();
    /** @type {HTMLInputElement | null} */ (document.querySelector('input[type="search"]'))?.focus();
  }
});

render(html`<${App} />`, document.body);
