// Small pieces that every view uses.
import { link } from "./address.js";
import { age, moment, shortId } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";

export const STANDINGS = ["running", "queued", "stalled", "waiting", "sleeping", "completed", "failed", "cancelled"];

export const Standing = ({ of }) => html`<span class="pill ${of}"><i aria-hidden="true" />${of}</span>`;

/** Whether a key belongs to what somebody fills in, and not to the page. @param {KeyboardEvent} e */
export const isTyping = (e) =>
  e.ctrlKey ||
  e.metaKey ||
  e.altKey ||
  /** @type {Element} */ (e.target).closest("input:not([type=checkbox]), textarea, select, dialog") !== null;

let now = Date.now();
const clocks = new Set();
setInterval(() => {
  now = Date.now();
  if (!document.hidden) clocks.forEach((tick) => tick(now));
}, 1000);

/** How long ago something was, kept true by one clock for the whole page. */
export function Age({ at }) {
  const [, tick] = useState(now);
  useEffect(() => {
    clocks.add(tick);
    return () => void clocks.delete(tick);
  }, []);
  return html`<time datetime=${at ?? ""} title=${moment(at)}>${age(at, now)}</time>`;
}

export const RunLink = ({ id, query = {}, children }) =>
  html`<a class="mono" href=${link(["runs", id], /** @type {any} */ (query))} title=${id}>${children ?? shortId(id)}
    </a>`;

/** A field that is applied when it is left, or with Enter. What somebody types survives a redraw of the page. */
export function Draft({ value, onChange, ...rest }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  return html`<input type="text" ...${rest} value=${text} onInput=${(e) => setText(e.target.value)}
    onChange=${(e) => onChange(e.target.value)} />`;
}

export function Copy({ text, label = "copy" }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<button type="button" class="button quiet small"
    onClick=${copy} aria-label="Copy ${label === "copy" ? "the command" : label}">${isCopied ? "copied" : label}
    </button>`;
}

/** A command of the command line, to copy. */
export const Command = ({ text }) => html`<div class="command"><code>${text}</code><${Copy} text=${text} /></div>`;

export const Empty = ({ title, command, children }) =>
  html`<div class="empty"><p><b>${title}</b></p>${children && html`<p>${children}</p>`}${command && html`<${Command}
    text=${command} />`}</div>`;

export function Trouble({ problem }) {
  if (!problem) return null;
  const { detail, hint, status } = problem.details ?? { detail: String(problem) },
    command = /`(stepwell [^`]+)`/.exec(hint ?? "")?.[1];
  // What is not there has a hint for programs; a person looks at the list.
  return html`<div class="trouble" role="alert"><p>${detail}</p>
    ${status === 404 ? html`<p><a href=${link(["runs"])}>Show all runs</a></p>` : hint && html`<p>${hint.replaceAll("`", "")}</p>`}
    ${command && html`<${Command} text=${command} />`}</div>`;
}

/** Entries of a list that cannot be read, and what to do about them. @param {{entries?: {run_id: string | null, request_id?: string | null, detail: string}[]}} props */
export const Damaged = ({ entries = [] }) =>
  entries.length > 0 &&
  html`<section class="trouble" role="alert" aria-label="Damaged"><ul>${entries.map((entry) => html`<li>${entry.detail}
    ${entry.run_id && html` <${RunLink} id=${entry.run_id} />`}</li>`)}</ul><p>The store has damaged entries, which are not
    listed below. This says what is damaged and what is not:</p><${Command} text="stepwell doctor" /></section>`;

export function Tabs({ names, chosen, onChoose, label }) {
  const move = (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    const at = names.findIndex(([name]) => name === chosen),
      next = names[(at + step + names.length) % names.length][0];
    onChoose(next);
    requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>${names.map(
    ([
      name,
      title,
      count,
    ]) => html`<button type="button" role="tab" id="tab-${name}" aria-selected=${name === chosen} aria-controls="panel"
      tabindex=${name === chosen ? 0 : -1}
    class="tab" onClick=${() => onChoose(name)}>${title}${count ? html` <b>${count}</b>` : ""}</button>`,
  )}</div>`;
}

/** A dialog of the browser's own: it keeps the focus, and Escape closes it. */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label=${title}><header><h2>${title}</h2>
    <button type="button" class="button quiet" aria-label="Close" onClick=${() => dialog.current?.close()}>✕</button>
    </header>${children}</dialog>`;
}

/** Run an action once at a time, and keep what it refused. @returns {{isBusy: boolean, problem: any, run: (action: () => Promise<void>) => Promise<void>}} */
export function useAction() {
  const [isBusy, setBusy] = useState(false),
    [problem, setProblem] = useState(/** @type {any} */ (null));
  const run = async (/** @type {() => Promise<void>} */ action) => {
    setBusy(true);
    setProblem(null);
    try {
      await action();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, problem, run };
}
