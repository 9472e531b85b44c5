// @ts-check
// One run: a sentence, its graph, the strip of its commits, and what is known about each.
import { adjust, link } from "./address.js";
import { change, useRead } from "./api.js";
import { duration } from "./format.js";
import { Graph } from "./graph.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { RequestCard } from "./inbox.js";
import { ForkDialog } from "./compare.js";
import { Command, Dialog, RunLink, Standing, Tabs, Trouble, useAction } from "./parts.js";
import { Changes, Events, Overview, State, Timeline, Turns } from "./run_panels.js";

/** What a commit without executors is. @type {Record<string, string>} */
const KINDS = { intake: "answer or input" };

/** @param {string} id @param {string} [rest] */
const at = (id, rest = "") => `runs/${encodeURIComponent(id)}${rest}`;

/** @param {any} run @returns {any[]} as the inbox lists them */
export const openRequests = (run) => Object.values(run.requests ?? {}).map((request) => ({ ...request, run_id: run.run_id, answered: request.answer !== null, answered_by: request.answer?.by, answered_at: request.answer?.at }));

/** @param {{id: string, feed: import("./feed.js").Feed, address: import("./address.js").Address}} props */
export function RunPage({ id, feed, address }) {
  const { version } = feed, chosen = address.query.get("at") ?? undefined, node = address.query.get("node") ?? undefined;
  const { data: head, problem, reload } = useRead(at(id), {}, version), past = useRead(chosen === undefined ? null : at(id), { at: chosen }, version);
  const run = chosen === undefined ? head : past.data;
  if (!run || !head) return html`<div class="page"><${Trouble} problem=${problem ?? past.problem} /></div>`;
  const open = openRequests(run), tab = address.query.get("tab") ?? (open.length && !chosen ? "requests" : "overview");
  const choose = (/** @type {Record<string, unknown>} */ changes) => adjust(address, changes);
  const panel = { run, id, version, chosen, node, choose };
  return html`<div class="run">
    <${Head} run=${run} id=${id} chosen=${chosen} reload=${reload} choose=${choose} />
    <section class="canvas" aria-label="Graph">${run.graph && html`<${Graph} drawing=${run.graph} chosen=${node} onChoose=${(/** @type {string} */ name) => choose({ node: name === node ? undefined : name, tab: name === node ? tab : "events" })} />`}</section>
    <${Strip} run=${head} chosen=${chosen} isLive=${head.status === "running"} onChoose=${(/** @type {number | undefined} */ number) => choose({ at: number, tab: number === undefined ? undefined : "changes" })} />
    <aside class="panel" aria-label="Details"><${Tabs} label="Details" chosen=${tab} onChoose=${(/** @type {string} */ name) => choose({ tab: name })}
        names=${[["requests", "Requests", open.length], ["overview", "Overview"], ["turns", "Agents"], ["changes", "Changes"], ["state", "State"], ["time", "Time"], ["events", "Events"]]} />
      <div class="body" id="panel" role="tabpanel" tabindex="0" aria-labelledby="tab-${tab}"><${Trouble} problem=${problem} />
        ${tab === "requests" && (open.length ? open.map((/** @type {any} */ request) => html`<${RequestCard} key=${request.request_id} request=${request} onDone=${reload} />`) : html`<p class="mut">Nobody is asked anything.</p>`)}
        ${tab === "overview" && html`<${Overview} ...${panel} />`}
        ${tab === "turns" && html`<${Turns} ...${panel} live=${run.status === "running" ? feed.texts : []} />`}
        ${tab === "changes" && html`<${Changes} ...${panel} />`}
        ${tab === "state" && html`<${State} ...${panel} />`}
        ${tab === "time" && html`<${Timeline} ...${panel} />`}
        ${tab === "events" && html`<${Events} ...${panel} />`}</div></aside></div>`;
}

/** @param {{run: any, id: string, chosen?: string, reload: () => void, choose: (changes: object) => void}} props */
function Head({ run, id, chosen, reload, choose }) {
  const [dialog, setDialog] = useState(/** @type {string | null} */ (null));
  const command = run.command?.map((/** @type {string} */ word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
  const verbs = { failed: ["retry"], stalled: ["cancel"], cancelled: ["retry"], running: ["cancel"], waiting: ["cancel"], queued: ["cancel"], sleeping: ["cancel"] }[/** @type {string} */ (run.status)] ?? [];
  return html`<section class="head" aria-label="Run"><div class="row"><${Standing} of=${run.status} /><h1 class="mono">${id}</h1><span class="mut">${run.workflow}</span>
      ${run.parent_run && html`<span class="mut">fork of <${RunLink} id=${run.parent_run} query=${{ at: run.parent_number }} /> (<a href=${link(["compare"], { before: run.parent_run, after: id })}>compare</a>)</span>`}
      ${chosen !== undefined && html`<button class="button small" onClick=${() => choose({ at: undefined })}>at commit ${chosen} · show the newest</button>`}<span class="sp" />
      ${verbs.map((verb) => html`<button class="button" onClick=${() => setDialog(verb)}>${verb === "retry" ? "Retry" : "Cancel"}…</button>`)}
      <button class="button" onClick=${() => setDialog("fork")}>Fork from here…</button><a class="button" href="api/v1/${at(id, "/export")}" download>Export</a></div>
    <p class="sentence">${run.sentence}</p>${command && html`<${Command} text=${command} />`}
    ${dialog === "fork" && html`<${ForkDialog} run=${run} id=${id} at=${chosen ?? run.number} onClose=${() => setDialog(null)} />`}
    ${(dialog === "retry" || dialog === "cancel") && html`<${VerbDialog} verb=${dialog} run=${run} id=${id} onClose=${() => (setDialog(null), reload())} />`}</section>`;
}

/** @param {{verb: string, run: any, id: string, onClose: () => void}} props */
function VerbDialog({ verb, run, id, onClose }) {
  const action = useAction(), [reason, setReason] = useState("");
  const act = () => action.run(async () => (await (verb === "retry" ? change("retry", { runs: [id], status: run.status }) : change(at(id, "/cancel"), reason ? { reason } : {})), onClose()));
  return html`<${Dialog} title="${verb === "retry" ? "Retry" : "Cancel"} ${id}" onClose=${onClose}><p>${verb === "retry" ? "The next worker continues the run from its last commit; what was done is kept." : "The run ends at its last commit. It can be resumed later."}</p>
    ${verb === "cancel" && html`<div class="field"><label for="reason">Reason</label><input id="reason" type="text" value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} /></div>`}<${Trouble} problem=${action.problem} />
    <div class="actions"><button class="button ${verb === "cancel" ? "danger" : "main"}" disabled=${action.isBusy} onClick=${act}>${verb === "retry" ? "Retry" : "Cancel the run"}</button></div><//>`;
}

/** @param {{run: any, chosen?: string, isLive: boolean, onChoose: (number: number | undefined) => void}} props */
function Strip({ run, chosen, isLive, onChoose }) {
  const { commits, newest: head } = run;
  const longest = Math.max(0.001, ...commits.map((/** @type {any} */ commit) => commit.seconds ?? 0)), end = useRef(/** @type {HTMLElement | null} */ (null)), sel = chosen === undefined ? head : Number(chosen);
  useEffect(() => {
    if (chosen === undefined && end.current) end.current.scrollLeft = end.current.scrollWidth;
  }, [commits.length]);
  return html`<section class="strip" ref=${end} aria-label="Commits"><h2>Commits <small>one for each superstep, input or answer</small></h2><ol>
    ${commits.map((/** @type {any} */ commit) => html`<li key=${commit.number}><button class="mark ${commit.status}" aria-pressed=${commit.number === sel} onClick=${() => onChoose(commit.number === head ? undefined : commit.number)} title="${commit.kind}, ${commit.at}">
      <div class="n">${commit.number}<small>${commit.seconds ? duration(commit.seconds) : ""}</small></div><div class="len" style="width:${Math.max(6, ((commit.seconds ?? 0) / longest) * 100)}%" /><div class="x">${commit.executors.join(", ") || KINDS[commit.kind] || commit.kind}</div><div class="x">${commit.by ? `by ${commit.by}` : commit.status}</div></button></li>`)}
    ${isLive && html`<li><div class="mark live"><div class="n">${head + 1}<small>live</small></div><div class="len" /><div class="x">working…</div></div></li>`}</ol></section>`;
}
