// A new run from a checkpoint of another, with other answers or another state.
import { AnswerFields, firstAnswer, inWords, responseOf } from "./answer_form.js";
import { go, link } from "./address.js";
import { change, read, useRead } from "./api.js";
import { shortId } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Dialog, Trouble, useAction } from "./parts.js";
import { EditTree } from "./edit_tree.js";

/** What becomes of a path of the state. @typedef {{verb: "set" | "add" | "delete", value?: any}} Edit */

/** @param {Record<string, Edit>} edits @param {string} verb */
const valuesOf = (edits, verb) =>
  Object.fromEntries(
    Object.entries(edits)
      .filter(([, edit]) => edit.verb === verb)
      .map(([path, edit]) => [path, edit.value]),
  );

/** A name that says what a fork is, if its parent has one that people chose. @param {string} id @param {any[]} runs of its tree of forks */
function nameOf(id, runs) {
  if (shortId(id) !== id) return "";
  const known = new Set(runs.map((run) => run.run_id));
  for (let n = 1; ; n++) {
    const name = `${id}-fork${n > 1 ? `-${n}` : ""}`;
    if (!known.has(name)) return name;
  }
}

const AGAIN = 300, // milliseconds between two looks
  LOOKS = 40;

/**
 * Answer what a fork asks anew, once a worker has driven it to there. If none does, the question stays on its page.
 * @param {string} id of the fork @param {any} asked the request of its parent @param {any} value
 */
async function answerAnew(id, asked, value) {
  const path = `runs/${encodeURIComponent(id)}`,
    isSame = (/** @type {any} */ request) =>
      request.executor === asked.executor && JSON.stringify(request.data) === JSON.stringify(asked.data);
  for (let look = 0; look < LOOKS; look++) {
    const { requests } = await read("requests", { run: id }),
      request = requests.find((/** @type {any} */ each) => isSame(each) && !each.answered);
    if (request) return change(`${path}/requests/${encodeURIComponent(request.request_id)}/response`, { value });
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

/** What a checkpoint is in the history of its run. @param {any} run at the checkpoint */
function pointOf(run) {
  const { executors = [] } = run.commits.at(-1) ?? {};
  if (Object.keys(run.requests).length) return `where ${run.run_id} waited for an answer`;
  return executors.length ? `after ${executors.join(", ")} ran` : `after the ${run.kind} of ${run.run_id}`;
}

/** @param {{id: string, at: number, request?: string, answers?: any[], onClose: () => void}} props `answers`: what the run was answered, up to now */
export function ForkDialog({ id, at, request: first, answers: before = [], onClose }) {
  const path = `runs/${encodeURIComponent(id)}`,
    { data: run, problem } = useRead(path, { at }),
    { data: lineage } = useRead(`${path}/lineage`),
    action = useAction();
  const [edits, setEdits] = useState(/** @type {Record<string, Edit>} */ ({})),
    [answers, setAnswers] = useState(/** @type {Record<string, any>} */ ({})),
    [name, setName] = useState("");
  useEffect(() => setName(nameOf(id, lineage?.runs ?? [])), [lineage]);
  const requests = Object.values(run?.requests ?? {}),
    toggle = (request) => {
      const { [request.request_id]: had, ...rest } = answers;
      setAnswers(had === undefined ? { ...answers, [request.request_id]: firstAnswer(request) } : rest);
    };
  useEffect(() => {
    const request = requests.find((each) => each.request_id === first);
    if (request) toggle(request);
  }, [run !== null]);
  const act = () =>
    action.run(async () => {
      const given = requests
          .filter((each) => each.request_id in answers)
          .map((each) => ({ request: each, value: responseOf(each, answers[each.request_id]) })),
        responses = Object.fromEntries(
          given.filter(({ request }) => !request.is_awaited).map(({ request, value }) => [request.request_id, value]),
        );
      const child = await change(`${path}/fork`, {
        number: Number(at),
        set: valuesOf(edits, "set"),
        add: valuesOf(edits, "add"),
        delete: Object.keys(valuesOf(edits, "delete")),
        responses,
        ...(name ? { run_id: name } : {}),
      });
      for (const { request, value } of given) if (request.is_awaited) await answerAnew(child.run_id, request, value);
      go(link(["runs", child.run_id]));
      onClose();
    });
  const count = Object.keys(edits).length,
    hasState = run && Object.keys(run.state).length > 0;
  return html`<${Dialog} title="Fork ${id} at commit ${at}" onClose=${onClose}>
    <p>${run ? `Commit ${at} is the point ${pointOf(run)}. ` : ""}A new run starts from there. This one stays as it is,
      and the two can be compared.</p><${Trouble}
    problem=${problem} />
    ${requests.map(
      (
        request,
      ) => html`<div class="card"><div class="tick"><input type="checkbox" id="fork-${request.request_id}"
        checked=${request.request_id in answers} onChange=${() => toggle(request)} />
        <label for="fork-${request.request_id}">Answer ${request.executor} in the fork</label></div><p class="mut">
        ${request.question}${request.is_awaited ? " (The fork asks this anew, and then gets your answer.)" : ""}</p>
      ${before.filter((answer) => answer.request_id === request.request_id).map((answer) => html`<p class="mut">
        Answered there: <b>${inWords(answer.value)}</b></p>`)}
      ${request.request_id in answers && html`<${AnswerFields} request=${request} value=${answers[request.request_id]}
        onChange=${(value) => setAnswers({ ...answers, [request.request_id]: value })} />`}</div>`,
    )}
    ${hasState && html`<details><summary>Change the state${count ? ` (${count})` : ""}</summary><${EditTree}
      value=${run.state} edits=${edits} onEdit=${setEdits} /></details>`}
    <div class="field"><label for="fork-id">Id of the new run <i>optional</i></label><input id="fork-id" type="text"
      value=${name} onInput=${(e) => setName(e.target.value.trim())} /></div>
    <${Trouble} problem=${action.problem} /><div class="actions"><button class="button main"
      disabled=${action.isBusy || !run} onClick=${act}>Fork</button></div><//>`;
}
