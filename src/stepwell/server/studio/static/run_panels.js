// @ts-check
// What the panel beside a graph shows.
import { useRead } from "./api.js";
import { ChangeList } from "./compare.js";
import { duration, moment, plural } from "./format.js";
import { html, useState } from "./html.js";
import { Age, RunLink, Trouble } from "./parts.js";
import { ValueTree } from "./value_tree.js";

/** @typedef {{run: any, id: string, version: number, chosen?: string, node?: string, choose: (changes: object) => void}} PanelProps */

/** @param {string} id @param {string} rest */
const at = (id, rest) => `runs/${encodeURIComponent(id)}/${rest}`;

/** @param {PanelProps} props */
export function Overview({ run }) {
  return html`${run.error && html`<section><h2>Error</h2><${Failure} error=${run.error} /></section>`}
    ${(run.branches ?? []).length > 0 && html`<section><h2>Superstep in progress</h2>${run.branches.map((/** @type {any} */ branch) => html`<div class="row"><b class="mono">${branch.executor}</b><span>${branch.state}</span>${branch.seconds !== null && branch.seconds !== undefined && html`<span class="mut">${duration(branch.seconds)}</span>`}${branch.attempts > 1 && html`<span class="mut">attempt ${branch.attempts}</span>`}${branch.due && html`<span class="mut"><${Age} at=${branch.due} /></span>`}</div>`)}</section>`}
    <section><h2>Input</h2><${ValueTree} value=${run.input} label="the input" /></section>
    ${(run.outputs ?? []).length > 0 && html`<section><h2>Output</h2>${run.outputs.map((/** @type {any} */ output) => html`<${ValueTree} value=${output} label="the output" />`)}</section>`}
    ${(run.answers ?? []).length > 0 && html`<section><h2>Decided by people</h2>${run.answers.map((/** @type {any} */ answer) => html`<div class="card"><p><b>${answer.by ?? "somebody"}</b> <span class="mut"><${Age} at=${answer.at} /> · ${answer.executor ?? ""}</span></p><${ValueTree} value=${answer.value} label="the answer" />${answer.comment && html`<p class="mut">“${answer.comment}”</p>`}</div>`)}</section>`}
    <section><h2>Facts</h2><dl class="facts"><dt>workflow</dt><dd>${run.workflow}</dd><dt>commit</dt><dd>${run.number}${run.kind ? ` (${run.kind})` : ""}</dd><dt>committed</dt><dd>${moment(run.at)}</dd>
      ${run.wake && html`<dt>wakes</dt><dd>${moment(run.wake)}</dd>`}${run.owner && html`<dt>driver</dt><dd>${run.owner}</dd>`}${run.caller && html`<dt>called by</dt><dd><${RunLink} id=${run.caller.run_id ?? run.caller} /></dd>`}
      ${Object.entries(run.tags ?? {}).map(([key, value]) => html`<dt>${key}</dt><dd>${value}</dd>`)}<dt>checkpoint</dt><dd class="mono">${run.checkpoint_id}</dd></dl></section>`;
}

/** @param {{error: any}} props */
function Failure({ error }) {
  return html`<div class="trouble"><p><b>${error.executor_id ?? error.executor ?? ""}</b> ${error.error_type ?? error.type}: ${error.message}</p></div>${error.traceback && html`<details><summary>Traceback</summary><pre>${error.traceback}</pre></details>`}`;
}

/** @param {PanelProps} props */
export function State({ run }) {
  const kept = Object.entries(run.executors ?? {}).filter(([, value]) => value !== null && Object.keys(Object(value)).length);
  return html`<${ValueTree} value=${run.state} label="the state" />${kept.length > 0 && html`<section><h2>Kept by executors</h2><${ValueTree} value=${Object.fromEntries(kept)} label="what executors keep" /></section>`}`;
}

/** @param {PanelProps} props */
export function Changes({ id, run, chosen, version }) {
  const number = Number(chosen ?? run.number);
  const { data, problem } = useRead(number > 0 ? "diff" : null, { before: `${id}@${number - 1}`, after: `${id}@${number}` }, version);
  if (number === 0) return html`<p class="mut">Commit 0 is the input of the run.</p>`;
  return html`<h2>Commit ${number - 1} → ${number}</h2><${Trouble} problem=${problem} />${data && html`<${ChangeList} changes=${data.changes} />`}`;
}

/** @param {PanelProps & {live: import("./feed.js").LiveText[]}} props */
export function Turns({ run, live }) {
  const { turns } = run;
  return html`${!turns.length && !live.length && html`<p class="mut">No agent has worked in this run.</p>`}
    ${turns.map((/** @type {any} */ turn) => html`<section key=${`${turn.commit}/${turn.executor}`}><h2>${turn.executor} · commit ${turn.commit}${turn.seconds !== null ? ` · ${duration(turn.seconds)}` : ""}</h2>${turn.heard.map((/** @type {any} */ message) => html`<${Speech} message=${message} />`)}${turn.calls.map((/** @type {any} */ call) => html`<${Call} call=${call} />`)}${turn.asked.map((/** @type {any} */ asked) => html`<${Asked} asked=${asked} />`)}${turn.said.map((/** @type {any} */ message) => html`<${Speech} message=${message} />`)}</section>`)}
    ${live.map((text) => html`<section key="live ${text.executor}"><h2>${text.executor} · now, not stored yet</h2><div class="turn model ${text.isWithdrawn ? "withdrawn" : ""}"><pre>${text.text}</pre>${text.isWithdrawn && html`<small>withdrawn</small>`}</div></section>`)}`;
}

/** @param {{message: any}} props */
const Speech = ({ message }) => html`<div class="turn ${message.role === "assistant" ? "model" : ""}"><small>${message.author_name ?? message.role}</small><pre>${message.text}</pre></div>`;

/** @param {{asked: any}} props */
const Asked = ({ asked }) => html`<div class="turn asked"><small>asks a person</small><p>${asked.question}</p>${asked.answer ? html`<p><b>${asked.answer.by ?? "somebody"}</b>: <code>${JSON.stringify(asked.answer.value)}</code></p>` : html`<p class="mut">no answer yet</p>`}</div>`;

/** @param {{call: any}} props */
function Call({ call }) {
  const { input_tokens: heard = 0, output_tokens: said = 0, cost, seconds } = call;
  const facts = [heard + said > 0 && `${heard} tokens in, ${said} out`, cost && `cost ${cost}`, typeof seconds === "number" && duration(seconds)];
  return html`<div class="turn ${call.kind} ${call.error ? "error" : ""}"><div class="row"><b>${call.kind === "model" ? "model" : call.name}</b>${call.kind === "tool" && html`<span class="mut">tool</span>`}${call.recalled && html`<span class="tag">recalled</span>`}${call.attempts > 1 && html`<span class="tag">attempt ${call.attempts}</span>`}<span class="sp" />
      <span class="mut">${facts.filter(Boolean).join(" · ")}</span></div>
    ${call.text && html`<pre>${call.text}</pre>`}${call.arguments && html`<pre class="mono mut">${call.arguments}</pre>`}${call.result && html`<pre>→ ${call.result}</pre>`}${call.error && html`<pre class="error">${call.error}</pre>`}${call.has_result === false && html`<p class="mut">no result</p>`}</div>`;
}

/** @param {PanelProps} props */
export function Timeline({ run }) {
  const data = run.timeline;
  if (!data) return html`<p class="mut">Nothing has run yet.</p>`;
  const names = [...new Set(data.bars.map((/** @type {any} */ bar) => bar.executor))];
  return html`<p class="mut">${moment(data.start)} to ${moment(data.end)}; worked for ${duration(data.working_seconds)}. Long waits are drawn short.</p>
    <div class="times">${names.map((name) => html`<span class="mono">${name || "run"}</span><div class="track">${data.waits.map((/** @type {any} */ wait) => html`<span class="span wait" title=${wait.words} style="left:${wait.left * 100}%;width:${wait.width * 100}%" />`)}${data.bars.filter((/** @type {any} */ bar) => bar.executor === name).map((/** @type {any} */ bar) => html`<span class="span ${bar.kind}" title=${bar.words} style="left:${bar.left * 100}%;width:${Math.max(0.4, bar.width * 100)}%" />`)}</div>`)}</div>
    <ul>${data.waits.filter((/** @type {any} */ wait) => !wait.words.startsWith("nothing ran")).map((/** @type {any} */ wait) => html`<li class="mut">${wait.words}</li>`)}${data.bars.filter((/** @type {any} */ bar) => bar.kind !== "ran").map((/** @type {any} */ bar) => html`<li>${bar.words}</li>`)}</ul>`;
}

const RECENT = 50; // commits whose events are shown at first

/** @param {PanelProps} props */
export function Events({ id, run, version, node, choose }) {
  const [count, setCount] = useState(RECENT), first = Math.max(-1, run.newest - count);
  const { data, problem } = useRead(at(id, "events"), { after: first }, version);
  const events = (data?.events ?? []).filter((/** @type {any} */ event) => !node || event.executor === node).reverse();
  return html`<${Trouble} problem=${problem} />${node && html`<p>Only <b class="mono">${node}</b> <button class="button quiet small" onClick=${() => choose({ node: undefined })}>show all</button></p>`}
    ${events.map((/** @type {any} */ event, /** @type {number} */ n) => html`<details key=${`${event.commit}/${events.length - n}`}><summary class="mono">${event.commit} ${event.type} <span class="mut">${event.executor ?? ""}${event.seconds !== undefined ? ` ${duration(event.seconds)}` : ""}${event.by ? ` by ${event.by}` : ""}</span></summary><${ValueTree} value=${event} label="the event" /></details>`)}
    <p class="mut">${data ? plural(events.length, "event") : ""}</p>${first >= 0 && html`<button class="button" onClick=${() => setCount(count + RECENT)}>Earlier ones</button>`}`;
}
