// The frame of the page: where we are, what waits, light or dark.
import { go, link, useAddress } from "./address.js";
import { useRead } from "./api.js";
import { html, render, useEffect, useState } from "./html.js";
import { Compare } from "./compare.js";
import { Inbox } from "./inbox.js";
import { Operate } from "./operate.js";
import { RunPage } from "./run.js";
import { Runs } from "./runs.js";
import { useFeed } from "./feed.js";
import { Dialog, isTyping } from "./parts.js";

/** @type {[string, string][]} */
const PLACES = [
  ["runs", "Runs"],
  ["inbox", "Inbox"],
  ["compare", "Compare"],
  ["operate", "Operate"],
];

/** Keys, and what they do. @type {[string, string][]} */
const KEYS = [
  ["/", "search"],
  ["g r · g i · g c · g o", "runs, inbox, compare, operate"],
  ["j · k", "next and previous run or request"],
  ["Enter", "open the run"],
  ["x", "mark the run"],
  ["[ · ]", "commit before and after"],
  ["← · →", "tab before and after"],
  ["Esc", "close"],
  ["?", "this list"],
];

function Top({ feed, place }) {
  const { data } = useRead("requests", { limit: 100, damaged: true }, feed.asked);
  const [theme, setTheme] = useState(
    () => localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"),
  );
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  const change = () => {
    const other = theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", other);
    setTheme(other);
  };
  const open = data?.requests.filter((request) => !request.answered).length ?? 0;
  return html`<header class="top"><a class="brand" href=${link(["runs"])} aria-label="Stepwell Studio">
    <i class="logo" /><span>Stepwell</span></a>
    <nav aria-label="Views">${PLACES.map(([name, title]) => html`<a href=${link([name])}
      aria-current=${name === place ? "page" : undefined}>
      ${title}${name === "inbox" && open > 0 && html`<b aria-label="${open} open">${open}${data.next ? "+" : ""}</b>`}
      </a>`)}</nav>
    <span class="sp" /><span role="status" class="offline">${feed.isOpen ? "" : "connecting…"}</span>
    <button class="button"
      onClick=${change} aria-label="Use the ${theme === "dark" ? "light" : "dark"} theme">◐</button></header>`;
}

function App() {
  const address = useAddress(),
    [place = "runs", id] = address.path,
    [missing, setMissing] = useState(/** @type {string | undefined} */ (undefined)),
    feed = useFeed(place === "runs" && id !== missing ? id : undefined);
  const props = { address, version: feed.version },
    [isHelp, setHelp] = useState(false);
  usePageKeys(() => setHelp(true));
  const view =
    place === "runs" && id
      ? html`<${RunPage} key=${id} id=${id} feed=${feed} address=${address} onRefused=${() => setMissing(id)} />`
      : place === "inbox"
        ? html`<${Inbox} ...${props} />`
        : place === "compare"
          ? html`<${Compare} ...${props} />`
          : place === "operate"
            ? html`<${Operate} ...${props} />`
            : html`<${Runs} ...${props} />`;
  useEffect(() => {
    document.title = `${id ?? PLACES.find(([name]) => name === place)?.[1] ?? "Runs"} · Stepwell`;
  }, [place, id]);
  return html`<div class="app"><${Top} feed=${feed} place=${place} /><main class="view" id="view" tabindex="-1">${view}
    </main>
    ${isHelp && html`<${Dialog} title="Keys" onClose=${() => setHelp(false)}><dl class="facts">
      ${KEYS.map(([keys, words]) => html`<dt><kbd>${keys}</kbd></dt><dd>${words}</dd>`)}</dl><//>`}</div>`;
}

/** Keys that work everywhere. @param {() => void} showHelp */
function usePageKeys(showHelp) {
  useEffect(() => {
    let before = "";
    const press = (/** @type {KeyboardEvent} */ e) => {
      if (isTyping(e)) return;
      const place = before === "g" && PLACES.find(([name]) => name[0] === e.key);
      if (place) go(link([place[0]]));
      else if (e.key === "?") showHelp();
      else if (e.key === "/") {
        e.preventDefault();
        /** @type {HTMLInputElement | null} */ (document.querySelector('input[type="search"]'))?.focus();
      }
      before = e.key;
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

render(html`<${App} />`, document.body);
