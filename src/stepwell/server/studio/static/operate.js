// For people who keep a store running: workers and queue, cost, decisions, whether the code fits, damage.
import { adjust, link } from "./address.js";
import { read, useRead } from "./api.js";
import { duration, plural, size } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Age, Draft, Empty, RunLink, Standing, Tabs, Trouble, useAction } from "./parts.js";
import { WITHIN, sinceOf } from "./spans.js";
import { Leaf, ValueTree } from "./value_tree.js";

/** @type {[string, string][]} */
const VIEWS = [
  ["workers", "Workers"],
  ["cost", "Cost"],
  ["decisions", "Decisions"],
  ["code", "Code"],
  ["store", "Store"],
];

export function Operate({ address, version }) {
  const query = Object.fromEntries(address.query),
    tab = VIEWS.some(([name]) => name === query.tab) ? query.tab : "workers";
  const View = { workers: Workers, cost: Cost, decisions: Decisions, code: Code, store: Store }[tab];
  const choose = (name) =>
    adjust(Object.fromEntries([...Object.keys(query).map((key) => [key, undefined]), ["tab", name]]));
  return html`<div class="page operate"><h1 class="hidden">Operate</h1>
    <${Tabs} label="Operate" names=${VIEWS} chosen=${tab} onChoose=${choose} />
    <div id="panel" role="tabpanel" tabindex="0" aria-labelledby="tab-${tab}"><${View} query=${query}
      version=${version} /></div></div>`;
}

/** @param {any} metrics @param {string} name @returns {any[]} */
const valuesOf = (metrics, name) => metrics?.metrics.filter((each) => each.name === name) ?? [];

const EVERY = 5000; // milliseconds: workers announce themselves so often, and a busy store changes more often than these views are worth

/** A number that grows every five seconds while somebody looks, whether a run changes or not. */
function useTick() {
  const [tick, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTick((n) => n + 1), EVERY);
    return () => clearInterval(timer);
  }, []);
  return tick;
}

function Workers() {
  const tick = useTick(),
    { data, problem } = useRead("workers", {}, tick),
    { data: metrics } = useRead("metrics", {}, tick);
  if (!data || !metrics) return html`<${Trouble} problem=${problem} />`;
  const alive = data.workers.filter((worker) => worker.is_alive),
    slots = alive.reduce((sum, worker) => sum + worker.slots, 0),
    busy = alive.reduce((sum, worker) => sum + worker.runs.length, 0);
  const ready = valuesOf(metrics, "runs_ready")[0]?.value ?? 0,
    oldest = valuesOf(metrics, "runs_ready_age_seconds")[0]?.value ?? 0;
  return html`<p class="sentence">
      ${alive.length ? `${plural(alive.length, "worker")} alive, ${busy} of ${plural(slots, "slot")} in use.` : "No worker is alive: runs move only in the programs that started them."}
      ${" "}${ready ? html`${plural(ready, "run")} ${ready === 1 ? "is" : "are"} ready and nobody drives ${ready === 1 ? "it" : "them"}, the oldest for ${duration(oldest)}: <a
        href=${link(["runs"], { status: "queued" })}>queued</a>, <a
        href=${link(["runs"], { status: "stalled" })}>stalled</a>.` : "No run waits for a worker."}</p>
    ${
      data.workers.length
        ? html`<table><thead><tr><th>Worker</th><th>Alive</th><th class="num">Slots</th><th class="num">Takeovers</th>
        <th class="wide">Drives</th><th class="wide">Workflows</th><th class="num wide">Version</th><th class="num">Seen</th>
        </tr></thead><tbody>${data.workers.map((worker) => html`<tr key=${worker.process}><td>
        <span class="mono cut" title=${worker.process}>${worker.name}</span></td><td>
        ${worker.is_alive ? "yes" : html`<b class="bad">no</b>`}</td><td class="num">${`${worker.runs.length} of ${worker.slots}`}</td><td class="num">${worker.takeovers}</td><td class="wide">
        ${worker.runs.slice(0, 5).map((id) => html`<${RunLink} id=${id} /> `)}${worker.runs.length > 5 ? `and ${worker.runs.length - 5} more` : ""}
        </td><td class="wide">${Object.keys(worker.workflows).join(", ")}</td><td class="num wide">${worker.version}</td>
        <td class="num"><${Age} at=${worker.seen_at} /></td></tr>`)}</tbody></table>`
        : html`<${Empty} title="No worker has announced itself" command="stepwell worker module:workflow">A worker drives runs that no program drives any more.<//>`
    }
    <h2>Runs by their newest commit</h2><dl class="figures">${valuesOf(metrics, "runs").map((each) => html`<div><dt>
      ${each.labels.status}</dt><dd>${each.value.toLocaleString()}</dd></div>`)}</dl>`;
}

const money = (value) => value.toLocaleString(undefined, { maximumSignificantDigits: 4 });

function Cost({ query }) {
  const within = query.within ?? "7d",
    { data, problem } = useRead(
      "costs",
      { since: sinceOf(within), workflow: query.workflow, tag: query.tag, limit: query.limit },
      useTick(),
    );
  return html`<div class="filters"><select aria-label="Runs started" value=${within}
      onChange=${(e) => adjust({ within: e.target.value })}><option value="all">runs started at any time</option>
      ${Object.entries(WITHIN).map(([key, [words]]) => html`<option value=${key}>runs started ${words}</option>`)}
      </select>
    <${Draft} placeholder="workflow" aria-label="Workflow" size="13" value=${query.workflow ?? ""}
      onChange=${(text) => adjust({ workflow: text.trim() })} />
    <${Draft} placeholder="tag=value" aria-label="Tag" size="13" value=${query.tag ?? ""}
      onChange=${(text) => adjust({ tag: text.trim() })} /></div>
    <${Trouble} problem=${problem} />${data && html`<p class="sentence">${costSentence(data)}
      ${!data.is_whole && !query.limit && html` <button class="button small" onClick=${() => adjust({ limit: 500 })}>Read 500</button>`}
      </p>
    ${data.total.calls > 0 && html`<div class="groups"><${Group} title="Workflow" items=${data.workflows}
        target=${(name) => ({ ...query, workflow: name })} /><${Group} title="Tag" items=${data.tags}
        target=${(name) => ({ ...query, tag: name })} /><${Group} title="Day (UTC)" items=${data.days} /></div>`}`}`;
}

function costSentence({ total, runs, is_whole }) {
  const among = is_whole ? plural(runs, "run") : `the newest ${plural(runs, "run")}; older ones are not counted`;
  if (!total.calls) return `No model was called in ${among}.`;
  const unpriced = total.unpriced ? ` ${plural(total.unpriced, "call")} had no price.` : "";
  const tokens = `${total.input_tokens.toLocaleString()} tokens in, ${total.output_tokens.toLocaleString()} out`;
  return `${plural(total.calls, "model call")} cost ${money(total.cost)}: ${tokens}, in ${among}.${unpriced}`;
}

const SHOWN = 15; // of a group, until somebody asks for more

function Group({ title, items, target }) {
  const [isWhole, setWhole] = useState(false),
    rows = isWhole ? items : items.slice(0, SHOWN);
  if (!items.length) return null;
  return html`<div><table><thead><tr><th>${title}</th><th class="num">Cost</th><th class="num">Tokens</th>
    <th class="num wide">Calls</th><th class="num">Runs</th></tr></thead><tbody>${rows.map((item) => html`<tr
    key=${item.name}><td>${target ? html`<a href=${link(["operate"], target(item.name))}>${item.name}</a>` : item.name}
    </td><td class="num">${item.unpriced === item.calls ? "unknown" : money(item.cost)}</td><td class="num">
    ${(item.input_tokens + item.output_tokens).toLocaleString()}</td><td class="num wide">${item.calls.toLocaleString()}</td>
    <td class="num">${item.runs.toLocaleString()}</td></tr>`)}</tbody></table>
    ${items.length > rows.length && html`<button class="button small" onClick=${() => setWhole(true)}>
      ${items.length - rows.length} more</button>`}</div>`;
}

const KINDS = ["answered", "cancelled", "forked", "restored", "retried", "started", "resumed"];

function Decisions({ query, version }) {
  const { by, kind, run, after } = query,
    { data, problem } = useRead("decisions", { by, kind, run, after, limit: 50 }, after ? 0 : version);
  return html`<div class="filters">
    <${Draft} placeholder="who" aria-label="Decided by" size="13" value=${by ?? ""}
      onChange=${(text) => adjust({ by: text.trim(), after: undefined })} />
    <${Draft} placeholder="run" aria-label="Run" size="18" value=${run ?? ""}
      onChange=${(text) => adjust({ run: text.trim(), after: undefined })} />
    <span class="chips">${KINDS.map((each) => html`<button type="button" class="chip" aria-pressed=${kind === each}
      onClick=${() => adjust({ kind: kind === each ? undefined : each, after: undefined })}>${each}</button>`)}</span></div>
    <${Trouble} problem=${problem} />
    ${data && !data.decisions.length && html`<${Empty} title=${by || kind || run ? "No decision is like that" : "Nobody has decided anything yet"}
      command="stepwell respond RUN REQUEST 'answer' --by NAME">What people do to runs is kept here with their name.<//>`}
    ${
      data?.decisions.length > 0 &&
      html`<table><thead><tr><th class="num">When</th><th>Who</th><th>What</th><th>Run</th><th class="wide">
      Which</th></tr></thead><tbody>${data.decisions.map((each, n) => html`<tr key=${`${each.run_id} ${each.number} ${n}`}>
      <td class="num"><${Age} at=${each.at} /></td><td>
      ${each.by ?? html`<span class="mut">${each.kind === "answered" ? "a deadline, or nobody named" : "nobody named"}</span>`}</td>
      <td>${each.kind}</td><td><${RunLink} id=${each.run_id} query=${{ at: each.number }}>${each.run_id}@${each.number}<//></td>
      <td class="wide"><${Which} decision=${each} /></td></tr>`)}</tbody></table>
      <div class="row foot">${after && html`<button class="button" onClick=${() => adjust({ after: undefined })}>Newest</button>`}
        ${data.next && html`<a class="button" href=${link(["operate"], { ...query, after: data.next })}>Older</a>`}</div>`
    }`;
}

function Which({ decision }) {
  const { value, source_run: source, source_number: number, comment, executor } = decision;
  return html`${executor && html`<span class="mut">${executor} asked </span>`}
    ${decision.kind === "answered" && html`<${Answer} value=${value} />`}
    ${source && html`<span class="mut">from <${RunLink} id=${source} query=${{ at: number }}>${source}@${number}<//></span>`}
    ${comment && html`<span> “${comment}”</span>`}`;
}

/** An answer on one line, and as a tree for who opens it. */
function Answer({ value }) {
  if (value === null || typeof value !== "object") return html`<${Leaf} value=${value} />`;
  const line = Object.entries(value).map(([key, part]) => `${key}: ${typeof part === "string" ? part : JSON.stringify(part)}`);
  return html`<details><summary class="cut">${line.join(", ")}</summary><${ValueTree} value=${value} label="the answer" /></details>`;
}

function Code({ query }) {
  const { data, problem } = useRead("workflows", {}, 0);
  if (!data) return html`<${Trouble} problem=${problem} />`;
  if (!data.workflows.length)
    return html`<${Empty} title="No code is loaded here" command="stepwell studio --work module:workflow">
      With it, this view says which unfinished runs that code can continue. From a shell: <code>stepwell check module:workflow</code>.<//>`;
  return html`<p class="sentence">Can the code that is loaded here continue the runs that are not finished?</p>
    ${data.workflows.map((workflow) => html`<${Check} key=${workflow.name} workflow=${workflow}
      limit=${query.limit} />`)}`;
}

function Check({ workflow, limit }) {
  const { data, problem } = useRead("check", { workflow: workflow.name, limit }, useTick()),
    count = (verdict) => data?.runs.filter((run) => run.verdict === verdict).length ?? 0;
  const changed = data?.runs.filter((run) => run.verdict !== "compatible") ?? [],
    bad = count("incompatible"),
    migrating = count("migrates");
  const parts = [
    count("compatible") && `${count("compatible")} as they are`,
    migrating && `${migrating} after a migration`,
    bad && `${bad} not`,
  ].filter(Boolean);
  return html`<section class="card"><h2>${workflow.name} <small>version ${workflow.version}</small></h2>
    <${Trouble} problem=${problem} />
    ${data && html`<p class=${bad ? "bad" : ""}>${data.runs.length ? `${plural(data.runs.length, "unfinished run")}${data.is_whole ? "" : " checked; there are more"}: ${parts.join(", ")}.` : "No run is unfinished."}
      ${!data.is_whole && !limit && html` <button class="button small" onClick=${() => adjust({ limit: 500 })}>Check 500</button>`}</p>`}
    ${changed.length > 0 && html`<ul class="plain">${changed.map((run) => html`<li key=${run.run_id}><div class="row"><${RunLink}
      id=${run.run_id} /><${Standing} of=${run.status} /><b>${run.verdict}</b></div>
      ${[...run.why, ...run.suggestions].map((why) => html`<p>${why}</p>`)}</li>`)}</ul>`}</section>`;
}

function Store() {
  const [seconds, setSeconds] = useState(10),
    [report, setReport] = useState(/** @type {any} */ (null)),
    action = useAction();
  const examine = () => action.run(async () => setReport(await read("examination", { seconds })));
  useEffect(() => void examine(), []);
  return html`<p class="sentence" aria-live="polite">${report ? examined(report) : action.isBusy ? `Reading the store, for at most ${seconds} s…` : ""}</p>
    <div class="row"><button class="button" disabled=${action.isBusy} onClick=${examine}>Examine again</button>
      <label>for at most <select value=${seconds} onChange=${(e) => setSeconds(Number(e.target.value))}>
      ${[10, 30, 60].map((each) => html`<option value=${each}>${each} s</option>`)}</select></label><span class="sp" />
      <span class="mut">everything, however long it takes: <code>stepwell doctor</code></span></div>
    <${Trouble} problem=${action.problem} />
    ${report?.findings.length > 0 && html`<table><tbody>${report.findings.map((finding, n) => html`<tr key=${n}><td><b
      class=${finding.severity === "error" ? "bad" : "due"}>${finding.severity}</b></td><td>${finding.run_id && html`<${RunLink}
      id=${finding.run_id} query=${{ at: finding.number }} />`}</td><td>${finding.what}</td></tr>`)}</tbody></table>`}`;
}

function examined({ findings, runs, records, bytes, seconds, is_whole }) {
  const what = `${plural(runs, "run")}, ${plural(records, "commit")} and ${size(bytes)} were read in ${duration(seconds)}`;
  const verdict = findings.length ? plural(findings.length, "problem") : is_whole ? "The store is healthy" : "Nothing wrong";
  return `${verdict}: ${what}${is_whole ? "" : ", which is not everything"}.`;
}
