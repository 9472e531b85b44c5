// Any JSON value as a tree that opens and closes, with a search over keys and texts.
import { html, useMemo, useState } from "./html.js";

const OPEN_DEPTH = 2,
  PAGE = 100,
  LONG = 300,
  DIGITS = 6; // of a number that is not an integer; all of them are in its title

const isTree = (value) => value !== null && typeof value === "object";

/** Whether a key or a text in a value contains what is searched. @param {any} value @param {string} text @returns {boolean} */
function contains(value, text) {
  if (!isTree(value)) return String(value).toLowerCase().includes(text);
  return Object.entries(value).some(([key, part]) => key.toLowerCase().includes(text) || contains(part, text));
}

export function ValueTree({ value, label }) {
  const [search, setSearch] = useState(""),
    text = search.trim().toLowerCase();
  const isLarge = useMemo(
    () => isTree(value) && (JSON.stringify(value).length > 400 || Object.keys(value).length > 8),
    [value],
  );
  return html`<div class="tree mono">
    ${isLarge && html`<input type="search" placeholder="Search in ${label}" aria-label="Search in ${label}"
      value=${search} onInput=${(e) => setSearch(e.target.value)} />`}
    ${text && !contains(value, text) ? html`<p>Nothing in ${label} contains “${search}”.</p>` : html`<${Branch}
      value=${value} depth=${0} text=${text} />`}</div>`;
}

function Branch({ name, value, depth, text }) {
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH),
    [shown, setShown] = useState(PAGE);
  const key = name === undefined ? null : html`<span class="key">${name}</span>`;
  if (!isTree(value)) return html`<div class="leaf">${key}<${Leaf} value=${value} /></div>`;
  const all = Object.entries(value),
    isList = Array.isArray(value);
  const parts = text
    ? all.filter(([part, content]) => part.toLowerCase().includes(text) || contains(content, text))
    : all;
  const open = isOpen || text !== "";
  const size = isList ? `[${all.length}]` : `{${all.length}}`;
  if (!all.length) return html`<div class="leaf">${key}<span class="size">${isList ? "[]" : "{}"}</span></div>`;
  return html`<div>
    ${(name !== undefined || depth > 0) && html`<button type="button" class="twig" aria-expanded=${open}
      onClick=${() => setOpen(!open)}><i aria-hidden="true">${open ? "▾" : "▸"}</i>${key}<span class="size">${size}
      </span></button>`}
    ${
      open &&
      html`<div class=${depth || name !== undefined ? "twigs" : ""}>
        ${parts.slice(0, shown).map(([part, content]) => html`<${Branch} key=${part} name=${part} value=${content}
        depth=${depth + 1} text=${name !== undefined && name.toLowerCase().includes(text) ? "" : text} />`)}
      ${parts.length > shown && html`<button type="button" class="button quiet small"
        onClick=${() => setShown(shown + PAGE)}>${parts.length - shown} more</button>`}</div>`
    }</div>`;
}

export function Leaf({ value }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") {
    const text = String(value),
      shown = typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(DIGITS))) : text;
    return html`<span class="atom ${typeof value}" title=${shown === text ? undefined : text}>${shown}</span>`;
  }
  if (value.length <= LONG) return html`<span class="atom string">${value}</span>`;
  return html`<span class="atom string">${isWhole ? value : `${value.slice(0, LONG)}…`}
    </span> <button type="button" class="button quiet small" onClick=${() => setWhole(!isWhole)}>
    ${isWhole ? "less" : `all ${value.length.toLocaleString()} characters`}</button>`;
}
