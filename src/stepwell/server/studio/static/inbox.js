// Everything people are asked, over all runs: one line for each, and a form for the one that is open.
import { adjust, link } from "./address.js";
import { useRead } from "./api.js";
import { AnswerForm, isAlike } from "./answer_form.js";
import { plural } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Age, Damaged, Empty, isTyping, RunLink, Trouble } from "./parts.js";
import { ValueTree } from "./value_tree.js";

export function Inbox({ address, version }) {
  const query = Object.fromEntries(address.query),
    { data, problem, reload } = useRead(
      "requests",
      { limit: 50, workflow: query.workflow, after: query.after, damaged: true },
      version,
    );
  const text = (query.text ?? "").toLowerCase(),
    all = data?.requests ?? [],
    requests = all.filter(
      (request) =>
        !text ||
        JSON.stringify([request.question, request.data, request.run_id, request.executor]).toLowerCase().includes(text),
    );
  const [answered, setAnswered] = useState(""),
    [marked, setMarked] = useState(/** @type {string[]} */ ([])),
    chosen = requests.filter((request) => marked.includes(request.request_id) && !request.answered);
  const open =
    requests.find((request) => request.request_id === query.request) ??
    (query.request === "none" ? null : requests.find((request) => !request.answered));
  const choose = (request) => adjust({ request: request === open ? "none" : request.request_id });
  useMoves(requests, open, (request) => adjust({ request: request.request_id }));
  const mark = (id) => setMarked(marked.includes(id) ? marked.filter((each) => each !== id) : [...marked, id]);
  const workflows = [
    ...new Set([...all.map((request) => request.workflow), ...(query.workflow ? [query.workflow] : [])]),
  ].sort();
  return html`<div class="page narrow"><h1 class="hidden">Inbox</h1>
    ${
      (all.length > 0 || query.workflow) &&
      html`<div class="filters"><input type="search" placeholder="Search questions…  /" aria-label="Search requests"
        value=${query.text ?? ""} onInput=${(e) => adjust({ text: e.target.value, request: undefined })} />
      <select aria-label="Workflow" value=${query.workflow ?? ""} onChange=${(e) => adjust({ workflow: e.target.value, request: undefined })}><option value="">every workflow</option>${workflows.map((name) => html`<option value=${name}>
        ${name}</option>`)}</select></div>`
    }
    <${Trouble} problem=${problem} /><${Damaged} entries=${data?.damaged} />
    ${data && !requests.length && !data.damaged?.length && (all.length || query.workflow || query.after ? html`<${Empty} title="No request is like that">
      <a href=${link(["inbox"])}>Show all requests</a><//>` : html`<${Empty} title="Nobody is asked anything" command="stepwell requests">A handler asks with <code>ctx.ask(question, Answer)</code>, and its run waits here until somebody answers.<//>`)}
    ${requests.length > 0 && html`<p class="note" aria-live="polite">
      ${`${answered && `Answered: ${answered}. `}${plural(requests.filter((request) => !request.answered).length, "open request")}${data.next ? " on this page" : ""}, the oldest first`}</p>`}
    ${chosen.length > 1 && html`<div class="card bulk"><header>
      <h2>Answer ${plural(chosen.length, "request")} with one form</h2></header><p class="mut">
      ${chosen.map((request) => request.run_id).join(", ")}</p><${AnswerForm} key=${chosen.length} requests=${chosen}
      onDone=${(words) => (setAnswered(words), setMarked([]), reload())} /></div>`}
    ${requests.map(
      (
        request,
      ) => html`<${RequestCard} key=${`${request.run_id}/${request.request_id}`} request=${request} showsRun=${true}
        isOpen=${request === open && chosen.length < 2} onOpen=${() => choose(request)}
        onDone=${(words) => (setAnswered(words), adjust({ request: undefined }), reload())} isMarked=${marked.includes(request.request_id)}
      onMark=${chosen.length && isAlike(chosen[0]) !== isAlike(request) ? null : () => mark(request.request_id)} />`,
    )}
    ${data?.next && html`<button class="button"
      onClick=${() => adjust({ after: data.next, request: undefined })}>More</button>`}</div>`;
}

/** `j` and `k` open the next and the previous request. @param {any[]} requests @param {any} open @param {(request: any) => void} onMove */
function useMoves(requests, open, onMove) {
  const now = useRef({ requests, open, onMove });
  now.current = { requests, open, onMove };
  useEffect(() => {
    const press = (e) => {
      const step = { j: 1, k: -1 }[e.key],
        { requests, open, onMove } = now.current;
      const following = step && !isTyping(e) ? requests[requests.indexOf(open) + step] : null;
      if (!following) return;
      onMove(following);
      requestAnimationFrame(() => document.getElementById(`open-${following.request_id}`)?.focus());
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** What people read first: the text of a question, wherever its payload has it. @param {any} request */
function questionOf({ data, request_type, question }) {
  if (request_type === "ToolApprovalRequest") return `May ${data?.agent} call ${data?.tool}?`;
  if (request_type === "MagenticPlanReviewRequest")
    return data?.is_stalled ? "The work stalled. Is this new plan right?" : "Is this plan right?";
  if (typeof data === "string") return data;
  const named = ["question", "prompt", "title", "text", "message"]
    .map((key) => data?.[key])
    .find((text) => typeof text === "string");
  return named ?? question ?? request_type;
}

/** What a person must know to decide. */
function Context({ request: { data, request_type, question } }) {
  if (data === null || typeof data !== "object") return null;
  if (request_type === "ToolApprovalRequest") return data.description ? html`<p>${data.description}</p>` : null;
  if (request_type === "MagenticPlanReviewRequest") return html`<pre class="plan">${data.plan?.text}</pre>`;
  const rest = Object.fromEntries(
    Object.entries(data).filter(
      ([key, value]) =>
        !["question", "prompt", "title", "text", "message"].includes(key) ||
        value !== questionOf({ data, request_type, question }),
    ),
  );
  return Object.keys(rest).length ? html`<${ValueTree} value=${rest} label="the request" />` : null;
}

export function RequestCard({ request, onDone, showsRun = false, isOpen = true, onOpen, isMarked = false, onMark }) {
  const question = questionOf(request),
    id = `open-${request.request_id}`;
  return html`<article class="card request ${isOpen ? "open" : ""}" aria-label="Request of ${request.executor}"><header>
    ${showsRun && html`<input type="checkbox" aria-label="Mark the request of ${request.run_id}" checked=${isMarked}
    disabled=${request.answered || onMark === null} onChange=${onMark}
    title=${onMark === null ? "It takes another kind of answer than those marked" : ""} />`}
      <h2>${onOpen ? html`<button type="button" id=${id} class="title" aria-expanded=${isOpen} onClick=${onOpen}>
        ${question}</button>` : question}</h2></header>
    <p class="mut">${showsRun && html`<${RunLink} id=${request.run_id} /> · `}${request.executor} · asked <${Age}
      at=${request.asked_at} />${request.deadline && html` · <b class="due">due <${Age} at=${request.deadline} /></b>`}
      </p>
    ${request.answered ? html`<p>Answered by <b>${request.answered_by ?? "somebody"}</b> <${Age}
      at=${request.answered_at} />; the run applies it next.</p>` : isOpen && html`<${Context} request=${request} />
      <${AnswerForm} requests=${[request]} onDone=${onDone} />`}</article>`;
}
