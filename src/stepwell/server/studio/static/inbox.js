// @ts-check
// Everything people are asked, over all runs, with a form for each answer.
import { adjust, link } from "./address.js";
import { change, useRead } from "./api.js";
import { moment } from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { Age, Empty, RunLink, Trouble, useAction } from "./parts.js";
import { Field, initialValue } from "./schema_form.js";
import { ValueTree } from "./value_tree.js";

/** @param {{address: import("./address.js").Address, version: number}} props */
export function Inbox({ address, version }) {
  const query = Object.fromEntries(address.query), { data, problem, reload } = useRead("requests", { limit: 50, workflow: query.workflow, after: query.after }, version);
  const requests = (data?.requests ?? []).filter((/** @type {any} */ request) => !query.request || request.request_id === query.request);
  const [marked, setMarked] = useState(/** @type {string[]} */ ([]));
  const alike = requests.filter((/** @type {any} */ request) => marked.includes(request.request_id));
  return html`<div class="page narrow"><h1 class="hidden">Inbox</h1><${Trouble} problem=${problem} />
    ${data && !requests.length && html`<${Empty} title="Nobody is asked anything" command="stepwell requests">A handler asks with <code>ctx.ask(question, Answer)</code>, and its run waits here until somebody answers.<//>`}
    ${alike.length > 1 && html`<div class="card"><h2>Answer ${alike.length} requests with one form</h2><${AnswerForm} requests=${alike} onDone=${() => (setMarked([]), reload())} /></div>`}
    ${requests.map((/** @type {any} */ request) => html`<${RequestCard} key=${request.request_id} request=${request} showsRun=${true} onDone=${reload} isMarked=${marked.includes(request.request_id)}
      onMark=${() => setMarked(marked.includes(request.request_id) ? marked.filter((id) => id !== request.request_id) : [...marked, request.request_id])} />`)}
    ${query.request && html`<a href=${link(["inbox"])}>Show all requests</a>`}${data?.next && html`<button class="button" onClick=${() => adjust(address, { after: data.next })}>More</button>`}</div>`;
}

/** What people read first: the text of a question, wherever its payload has it. @param {any} request */
function questionOf(request) {
  const { data } = request;
  if (typeof data === "string") return data;
  const named = ["question", "prompt", "title", "text", "message"].map((key) => data?.[key]).find((text) => typeof text === "string");
  return named ?? request.question ?? request.request_type;
}

/** @param {{request: any, onDone: () => void, showsRun?: boolean, isMarked?: boolean, onMark?: () => void}} props */
export function RequestCard({ request, onDone, showsRun = false, isMarked = false, onMark }) {
  const isTool = request.request_type === "ToolApprovalRequest", rest = typeof request.data === "object" ? request.data : null;
  return html`<article class="card" id=${request.request_id} aria-label="Request of ${request.executor}"><header class="row">${onMark && html`<input type="checkbox" aria-label="Mark the request of ${request.run_id}" checked=${isMarked} onChange=${onMark} />`}
      <h2>${isTool ? `May ${rest?.agent} call ${rest?.tool}?` : questionOf(request)}</h2></header>
    <p class="mut">${showsRun && html`<${RunLink} id=${request.run_id} /> · `}${request.executor} · asked <${Age} at=${request.asked_at} />${request.deadline && html` · <b>due <${Age} at=${request.deadline} /></b> <span title=${moment(request.deadline)} />`}</p>
    ${rest && !isTool && html`<details open><summary>Context</summary><${ValueTree} value=${rest} label="the request" /></details>`}
    ${request.answered ? html`<p>Answered by <b>${request.answered_by ?? "somebody"}</b> <${Age} at=${request.answered_at} />; the run applies it next.</p>` : html`<${AnswerForm} requests=${[request]} onDone=${onDone} />`}</article>`;
}

/** What a form starts with: a tool's arguments can be edited. @param {any} request */
function startOf(request) {
  const value = initialValue(request.response_schema ?? {});
  if (request.request_type === "ToolApprovalRequest" && value && typeof value === "object") return { decision: "approve", arguments: request.data?.arguments };
  if (value && typeof value === "object" && request.data && typeof request.data === "object")
    for (const key of Object.keys(value)) if (typeof request.data[key] === typeof value[key] && !(key in (request.response_schema.properties?.[key]?.default ?? {}))) value[key] = request.data[key];
  return value;
}

/** @param {{requests: any[], onDone: () => void}} props */
function AnswerForm({ requests, onDone }) {
  const [request] = requests, schema = request.response_schema ?? {}, first = useMemo(() => startOf(request), [request.request_id]);
  const [value, setValue] = useState(first), [comment, setComment] = useState(""), action = useAction();
  const errors = Object.fromEntries((action.problem?.details?.errors ?? []).map((/** @type {any} */ error) => [error.path, error.message]));
  const send = (/** @type {Event} */ e) => {
    e.preventDefault();
    return action.run(async () => {
      for (const each of requests) await change(`runs/${encodeURIComponent(each.run_id)}/requests/${encodeURIComponent(each.request_id)}/response`, { value, ...(comment ? { comment } : {}) });
      onDone();
    });
  };
  return html`<form onSubmit=${send}><${Field} schema=${{ ...schema, title: undefined, description: undefined }} root=${schema} value=${value} errors=${errors} onChange=${setValue} />
    <div class="field"><label>Comment <i>optional, kept with the answer</i><input type="text" value=${comment} onInput=${(/** @type {any} */ e) => setComment(e.target.value)} /></label></div>
    <${Trouble} problem=${action.problem} /><button class="button main" disabled=${action.isBusy}>${requests.length > 1 ? `Send ${requests.length} responses` : "Send response"}</button></form>`;
}
