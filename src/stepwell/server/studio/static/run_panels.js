// What the panel beside a graph shows: what a run is, what a commit changed, its state, its events.
import { link } from "./address.js";
import { useRead } from "./api.js";
import { ChangeList } from "./compare.js";
import { duration, moment, plural } from "./format.js";
import { html, useState } from "./html.js";
import { Lineage } from "./lineage.js";
import { Age, RunLink, Trouble } from "./parts.js";
import { Leaf, ValueTree } from "./value_tree.js";

/** @typedef {{run: any, head: any, id: string, version: number, chosen?: string, node?: string, base?: string, choose: (changes: object) => void, goTo: (number: number) => void, openDialog: (dialog: {verb: string, at?: number, request?: string}) => void}} PanelProps */

/** What people answered, and the way to answer otherwise in a fork. @param {PanelProps} props */
export function Decisions({ run, openDialog }) {
  const { answers = [] } = run;
  return answers.length > 0 && html`<section><h2>Decided by people</h2>${answers.map((answer) => html`<div class="card">
    <p class="row"><b>${answer.by ?? "somebody"}</b><span class="mut">${answer.executor ?? ""} · <${Age}
    at=${answer.at} /></span><span class="sp" /><button class="button quiet small"
    onClick=${() => openDialog({ verb: "fork", at: answer.commit - 1, request: answer.request_id })}>Fork with another answer…</button>
    </p><${ValueTree} value=${answer.value} label="the answer" />
    ${answer.comment && html`<p class="mut">“${answer.comment}”</p>`}</div>`)}</section>`;
}

/** @param {PanelProps} props */
export function Overview(props) {
  const { run, id, version } = props,
    { outputs = [], branches = [] } = run;
  return html`${run.error && html`<section><h2>Error</h2><${Failure} error=${run.error} /></section>`}
    ${branches.length > 0 && html`<section><h2>Superstep in progress</h2>${branches.map((branch) => html`<${Branch}
      branch=${branch} />`)}</section>`}
    ${outputs.length > 0 && html`<section><h2>${run.status === "completed" ? "Result" : "Output"}</h2><${Headline}
      value=${outputs.at(-1)} /></section>`}
    ${outputs.length > 1 && html`<section><h2>Earlier outputs, newest first</h2>${outputs.slice(0, -1).reverse().map((output) => html`<${ValueTree}
      value=${output} label="the output" />`)}</section>`}
    ${!(run.parent_run && run.input === null) && html`<section><h2>Input</h2>
      ${run.input_run && html`<p class="mut">of <${RunLink} id=${run.input_run} />, before the fork</p>`}<${ValueTree}
      value=${run.input} label="the input" /></section>`}
    <${Decisions} ...${props} />
    <${Lineage} id=${id} version=${version} />
    <section><h2>Facts</h2><dl class="facts"><dt>workflow</dt><dd>${run.workflow}</dd><dt>commit</dt><dd>
      ${run.number} (${run.kind}), ${moment(run.at)}</dd>
      ${run.by && html`<dt>by</dt><dd>${run.by}</dd>`}${run.reason && html`<dt>reason</dt><dd>${run.reason}
        </dd>`}${run.wake && html`<dt>wakes</dt><dd>${moment(run.wake)} (<${Age}
        at=${run.wake} />)</dd>`}${run.owner && html`<dt>driver</dt><dd>${run.owner}</dd>`}
      ${Object.entries(run.tags ?? {}).map(([key, value]) => html`<dt>${key}</dt><dd>
        <a href=${link(["runs"], { tag: `${key}=${value}` })}>${value}</a>
        </dd>`)}${Object.values(run.children ?? {}).map((child) => html`<dt>${child.executor}</dt><dd><${RunLink}
        id=${child.run_id} /></dd>`)}<dt>checkpoint</dt><dd class="mono">${run.checkpoint_id}</dd></dl></section>`;
}

/** What a run is for: a text or a number large, anything else as a tree. */
const Headline = ({ value }) =>
  value !== null && typeof value === "object" ? html`<${ValueTree} value=${value} label="the output" />` : html`<p class="headline"><${Leaf}
    value=${value} /></p>`;

/** One handler call that is not committed yet. */
const Branch = ({ branch }) =>
  html`<div class="row"><b class="mono">${branch.executor}</b><span>${branch.state}</span>
    ${typeof branch.seconds === "number" && html`<span class="mut">${duration(branch.seconds)}
    </span>`}${branch.attempts > 1 && html`<span class="tag">attempt ${branch.attempts}
    </span>`}${branch.due && html`<span class="mut"><${Age} at=${branch.due} />
    </span>`}${branch.error && html`<span class="bad">${branch.error}</span>`}</div>`;

function Failure({ error }) {
  const { own_frames: own, traceback } = error;
  return html`<div class="trouble"><p><b>${error.executor}</b> ${error.type}: ${error.message}</p></div>
    ${own && own !== traceback && html`<pre class="frames">${own}</pre>`}${traceback && html`<details>
    <summary>Whole traceback</summary><pre>${traceback}</pre></details>`}`;
}

/** @param {PanelProps} props */
export function State({ run }) {
  const kept = Object.entries(run.executors ?? {}).filter(
      ([, value]) => value !== null && Object.keys(Object(value)).length,
    ),
    isEmpty = !Object.keys(run.state).length;
  return html`${isEmpty && !kept.length ? html`<p class="mut">The run keeps no state here. A handler writes it with <code>ctx.set_state(key, value)</code>.</p>` : !isEmpty && html`<${ValueTree}
    value=${run.state} label="the state" />`}${kept.length > 0 && html`<section><h2>Kept by executors</h2><${ValueTree}
    value=${Object.fromEntries(kept)} label="what executors keep" /></section>`}`;
}

/** What differs between a commit and the one before it, or any other; and the messages that it left in flight. @param {PanelProps} props */
export function Changes({ id, run, head, base, version, choose }) {
  const number = run.number,
    before = base === undefined ? number - 1 : Number(base),
    isFirst = number === 0 && base === undefined;
  const { data, problem } = useRead(
    isFirst ? null : "diff",
    { before: `${id}@${before}`, after: `${id}@${number}` },
    version,
  );
  const numbers = head.commits.map((commit) => commit.number).filter((each) => each !== number);
  return html`${isFirst ? html`<p class="mut">Commit 0 is the ${run.parent_run ? "start of the fork" : "input of the run"}.</p>` : html`<div class="row">
    <h2>Commit</h2><select aria-label="Compare with commit" value=${before}
    onChange=${(e) => choose({ base: Number(e.target.value) === number - 1 ? undefined : e.target.value })}>
    ${numbers.map((each) => html`<option value=${each}>${each}</option>`)}</select><h2>→ ${number}</h2>
    <span class="sp" /><a href=${link(["compare"], { before: `${id}@${before}`, after: `${id}@${number}` })}>on a page of its own</a>
    </div>`}
    <${Trouble} problem=${problem} />${data && html`<${ChangeList}
      changes=${data.changes.filter((change) => !change.path.startsWith("/messages"))} />`}
    <section class="messages"><h2>Messages in flight after it</h2>${run.messages.length ? run.messages.map((message) => html`<div class="message">
      <p><b class="mono">${message.from}</b> → <b class="mono">${message.to.join(", ")}</b></p><${ValueTree}
      value=${message.data} label="the message" /></div>`) : html`<p class="mut">None.</p>`}</section>`;
}

const RECENT = 50; // commits whose events are shown at first

/** @param {PanelProps} props */
export function Events({ id, run, version, node, goTo }) {
  const [count, setCount] = useState(RECENT),
    first = Math.max(-1, run.newest - count);
  const { data, problem } = useRead(`runs/${encodeURIComponent(id)}/events`, { after: first }, version);
  const events = (data?.events ?? []).filter((event) => !node || event.executor === node).reverse();
  return html`<${Trouble} problem=${problem} />
    ${events.map((event, n) => html`<details class="event" key=${`${event.commit}/${events.length - n}`}>
      <summary class="mono">${event.commit} ${event.type} <span class="mut">
      ${event.executor ?? ""}${event.seconds !== undefined ? ` ${duration(event.seconds)}` : ""}${event.by ? ` by ${event.by}` : ""}
      </span></summary><${ValueTree} value=${event} label="the event" /><button class="button quiet small"
      onClick=${() => goTo(event.commit)}>Show the run at commit ${event.commit}</button></details>`)}
    <p class="mut">${data ? plural(events.length, "event") : ""}</p>${first >= 0 && html`<button class="button"
      onClick=${() => setCount(count + RECENT)}>Earlier ones</button>`}`;
}
