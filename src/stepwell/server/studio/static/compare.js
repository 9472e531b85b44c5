// @ts-check
// Two checkpoints side by side, and forks with other answers or another state.
import { adjust, go, link } from "./address.js";
import { change, useRead } from "./api.js";
import { html, useState } from "./html.js";
import { Copy, Dialog, Empty, RunLink, Trouble, useAction } from "./parts.js";
import { Field, initialValue } from "./schema_form.js";

/** @param {any} value */
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Both sides of every change. @param {{changes: {path: string, where: string, kind: string, before: any, after: any}[]}} props */
export function ChangeList({ changes }) {
  if (!changes.length) return html`<p class="mut">Nothing differs.</p>`;
  return html`<div class="diff mono">${changes.map((each) => html`<div class="line" key=${each.path}><div class="path">${each.where}</div>
    <div class="side ${each.kind === "added" ? "" : "gone"}">${each.kind === "added" ? "" : text(each.before)}</div><div class="side ${each.kind === "removed" ? "" : "new"}">${each.kind === "removed" ? "" : text(each.after)}</div></div>`)}</div>`;
}

/** @param {{address: import("./address.js").Address, version: number}} props */
export function Compare({ address, version }) {
  const before = address.query.get("before") ?? "", after = address.query.get("after") ?? "";
  const { data, problem } = useRead(before && after ? "diff" : null, { before, after }, version);
  const submit = (/** @type {any} */ e) => {
    e.preventDefault();
    adjust(address, Object.fromEntries(new FormData(e.target)));
  };
  return html`<div class="page"><h1>Compare two checkpoints</h1><form class="filters" key=${`${before} ${after}`} onSubmit=${submit}>
      <input type="text" name="before" required aria-label="One checkpoint" placeholder="run or run@5" defaultValue=${before} /><span>and</span><input type="text" name="after" required aria-label="The other checkpoint" placeholder="run or run@5" defaultValue=${after} /><button class="button main">Compare</button></form>
    <${Trouble} problem=${problem} />
    ${!data && !problem && html`<${Empty} title="Any two checkpoints, of one run or of several" command="stepwell diff RUN@5 FORK">Write a run's id, or id@number for an earlier commit.<//>`}
    ${data && html`<div class="row" style="margin-bottom:8px"><${RunLink} id=${data.before_run} query=${{ at: data.before_number }}>${data.before_run}@${data.before_number}<//> → <${RunLink} id=${data.after_run} query=${{ at: data.after_number }}>${data.after_run}@${data.after_number}<//><span class="sp" /><${Copy} text=${JSON.stringify(data.patch, null, 2)} label="copy JSON Patch" /></div><${ChangeList} changes=${data.changes} />`}</div>`;
}

/** @param {{run: any, id: string, at: string | number, onClose: () => void}} props */
export function ForkDialog({ run, id, at, onClose }) {
  const action = useAction(), [edits, setEdits] = useState("{}"), [answers, setAnswers] = useState(/** @type {Record<string, any>} */ ({}));
  const requests = Object.values(run.requests ?? {});
  const act = () =>
    action.run(async () => {
      const set = JSON.parse(edits);
      const child = await change(`runs/${encodeURIComponent(id)}/fork`, { number: Number(at), ...(Object.keys(set).length ? { set } : {}), ...(Object.keys(answers).length ? { responses: answers } : {}) });
      go(link(["runs", child.run_id]));
      onClose();
    });
  return html`<${Dialog} title="Fork ${id} at commit ${at}" onClose=${onClose}><p>A new run starts from this checkpoint. The old one stays as it is.</p>
    ${requests.map((/** @type {any} */ request) => html`<details open=${request.request_id in answers}><summary>Give another answer to ${request.executor}</summary>${request.request_id in answers ? html`<${Field} schema=${{ ...request.response_schema, title: undefined }} root=${request.response_schema} value=${answers[request.request_id]} onChange=${(/** @type {any} */ value) => setAnswers({ ...answers, [request.request_id]: value })} />` : html`<button class="button" onClick=${() => setAnswers({ ...answers, [request.request_id]: initialValue(request.response_schema ?? {}) })}>Answer in the fork</button>`}</details>`)}
    <div class="field"><label for="edits">Change the state <i>paths and values as JSON</i></label><textarea id="edits" class="mono" rows="3" value=${edits} onInput=${(/** @type {any} */ e) => setEdits(e.target.value)} /><small>For example {"ticket.amount": 10}</small></div>
    <${Trouble} problem=${action.problem} /><div class="actions"><button class="button main" disabled=${action.isBusy} onClick=${act}>Fork</button></div><//>`;
}
