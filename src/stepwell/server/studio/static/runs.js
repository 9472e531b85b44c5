// @ts-check
// The list of runs: filters in the address, a page at a time, and what is done to several at once.
import { adjust, go, link } from "./address.js";
import { change, useRead } from "./api.js";
import { plural } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Age, Dialog, Empty, RunLink, STANDINGS, Standing, Trouble, useAction } from "./parts.js";

const PAGE = 50;

/** @param {{address: import("./address.js").Address, version: number}} props */
export function Runs({ address, version }) {
  const query = Object.fromEntries(address.query);
  const { data, problem, reload } = useRead("runs", { ...query, limit: PAGE }, query.after ? 0 : version);
  const { data: known } = useRead("workflows", {}, version);
  const [marked, setMarked] = useState(/** @type {Set<string>} */ (new Set()));
  const runs = data?.runs ?? [];
  const [at, setAt] = useKeys(runs);
  const filter = (/** @type {Record<string, unknown>} */ changes) => (setMarked(new Set()), setAt(-1), adjust(address, { ...changes, after: undefined }));
  const mark = (/** @type {string} */ id) => setMarked(new Set(marked.has(id) ? [...marked].filter((each) => each !== id) : [...marked, id]));
  const isFiltered = [...address.query.keys()].length > 0;
  return html`<div class="page"><h1 class="hidden">Runs</h1>
    <div class="filters"><input type="search" placeholder="Search runs…  /" aria-label="Search runs" value=${query.text ?? ""} onChange=${(/** @type {any} */ e) => filter({ text: e.target.value })} />
      <select aria-label="Workflow" value=${query.workflow ?? ""} onChange=${(/** @type {any} */ e) => filter({ workflow: e.target.value })}><option value="">every workflow</option>${(known?.workflows ?? []).map((/** @type {any} */ each) => html`<option value=${each.name}>${each.name}</option>`)}</select>
      <input type="text" placeholder="tag=value" aria-label="Tag" size="12" value=${query.tag ?? ""} onChange=${(/** @type {any} */ e) => filter({ tag: e.target.value })} />
      ${STANDINGS.map((status) => html`<button type="button" class="chip" aria-pressed=${query.status === status} onClick=${() => filter({ status: query.status === status ? undefined : status })}>${status}</button>`)}</div>
    <${Trouble} problem=${problem} />
    ${data && !runs.length && (isFiltered ? html`<${Empty} title="No run is like that"><a href=${link(["runs"])}>Show all runs</a><//>` : html`<${Empty} title="This store has no runs yet" command="stepwell run module:workflow 'your input'">Start one from a program, or from a shell:<//>`)}
    ${runs.length > 0 && html`<table><thead><tr><th><span class="hidden">Mark</span></th><th>Status</th><th>Run</th><th>Workflow</th><th class="wide">Tags</th><th class="num wide">Commits</th><th class="num wide">Started</th><th class="num">Changed</th></tr></thead>
      <tbody>${runs.map((/** @type {any} */ run, /** @type {number} */ n) => html`<${Row} key=${run.run_id} run=${run} isAt=${n === at} isMarked=${marked.has(run.run_id)} onMark=${() => mark(run.run_id)} />`)}</tbody></table>
      <div class="row" style="margin-top:10px">${query.after && html`<button class="button" onClick=${() => filter({})}>Newest</button>`}${data.next && html`<button class="button" onClick=${() => go(link(["runs"], { ...query, after: data.next }))}>Older</button>`}</div>`}
    ${marked.size > 0 && html`<${Bulk} ids=${[...marked]} onDone=${() => (setMarked(new Set()), reload())} />`}</div>`;
}

/** @param {{run: any, isAt: boolean, isMarked: boolean, onMark: () => void}} props */
function Row({ run, isAt, isMarked, onMark }) {
  return html`<tr class=${isAt ? "at" : ""}><td><input type="checkbox" aria-label="Mark ${run.run_id}" checked=${isMarked} onChange=${onMark} /></td>
    <td><${Standing} of=${run.status} /></td><td><${RunLink} id=${run.run_id} /></td><td><span class="cut">${run.workflow}</span></td>
    <td class="wide">${Object.entries(run.tags ?? {}).map(([key, value]) => html`<a class="tag" href=${link(["runs"], { tag: `${key}=${value}` })}>${key}=${value}</a> `)}</td>
    <td class="num wide">${run.number + 1}</td><td class="num wide"><${Age} at=${run.began_at} /></td><td class="num"><${Age} at=${run.changed_at} /></td></tr>`;
}

/** `j` and `k` move, Enter opens. Keys come faster than the page is drawn. @param {any[]} runs @returns {[number, (at: number) => void]} */
function useKeys(runs) {
  const [shown, setShown] = useState(-1), at = useRef(-1), list = useRef(runs);
  list.current = runs;
  const move = (/** @type {number} */ to) => setShown((at.current = Math.max(-1, Math.min(to, list.current.length - 1))));
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ e) => {
      if (/** @type {Element} */ (e.target).closest("input, textarea, select, button, a, dialog")) return;
      if (e.key === "j") move(at.current + 1);
      else if (e.key === "k") move(Math.max(0, at.current - 1));
      else if (e.key === "Enter" && list.current[at.current]) go(link(["runs", list.current[at.current].run_id]));
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return [shown, move];
}

/** What can be done to several runs. `look` says what would happen, `act` does it; both return a word for each run. */
/** @typedef {{title: string, words: string, look?: (ids: string[]) => Promise<[string, string][]>, act: (ids: string[]) => Promise<[string, string][]>}} Verb */

/** @param {string[]} ids @param {boolean} dry_run @returns {Promise<[string, string][]>} */
async function retry(ids, dry_run) {
  const { runs, skipped } = await change("retry", { runs: ids, dry_run });
  return ids.map((id) => [id, skipped[id] ?? (runs.includes(id) ? (dry_run ? "is retried" : "ready again") : "stays as it is")]);
}

/** @param {string[]} ids @returns {Promise<[string, string][]>} */
async function cancel(ids) {
  const words = /** @type {[string, string][]} */ ([]);
  for (const id of ids) words.push([id, await change(`runs/${encodeURIComponent(id)}/cancel`, {}).then((run) => run.status, (problem) => problem.message)]);
  return words;
}

/** @param {string[]} ids @param {boolean} dry_run @returns {Promise<[string, string][]>} */
async function prune(ids, dry_run) {
  const { runs, stays } = await change("prune", { runs: ids, entirely: true, dry_run });
  return ids.map((id) => [id, stays[id] ?? (runs.includes(id) ? (dry_run ? "is deleted for good" : "deleted") : "stays as it is")]);
}

/** @type {Record<string, Verb>} */
const VERBS = {
  retry: { title: "Retry", words: "A worker continues them from their last commit.", look: (ids) => retry(ids, true), act: (ids) => retry(ids, false) },
  cancel: { title: "Cancel", words: "They end at their last commit, and can be resumed.", act: cancel },
  prune: { title: "Delete", words: "Their checkpoints are deleted.", look: (ids) => prune(ids, true), act: (ids) => prune(ids, false) },
};

/** @param {{ids: string[], onDone: () => void}} props */
function Bulk({ ids, onDone }) {
  const [name, setName] = useState(""), action = useAction(), [words, setWords] = useState(/** @type {[string, string][]} */ ([])), [isDone, setDone] = useState(false), verb = VERBS[name];
  const choose = (/** @type {string} */ chosen) => {
    setName(chosen);
    setWords([]);
    const { look } = VERBS[chosen];
    if (look) action.run(async () => setWords(await look(ids)));
  };
  const act = () => action.run(async () => (setWords(await verb.act(ids)), setDone(true)));
  const close = () => (setName(""), isDone && (setDone(false), onDone()));
  return html`<div class="bar" role="region" aria-label="Marked runs"><b>${plural(ids.length, "run")} marked</b><span class="sp" />${Object.entries(VERBS).map(([key, { title }]) => html`<button class="button" onClick=${() => choose(key)}>${title}…</button>`)}<button class="button quiet" onClick=${onDone}>Clear</button></div>
    ${verb && html`<${Dialog} title="${verb.title} ${plural(ids.length, "run")}" onClose=${close}><p>${isDone ? "Done." : verb.words}</p>
      <ul>${ids.map((id) => html`<li><span class="mono">${id}</span> <span class="mut">${words.find(([each]) => each === id)?.[1] ?? ""}</span></li>`)}</ul><${Trouble} problem=${action.problem} />
      <div class="actions">${!isDone && html`<button class="button ${name === "retry" ? "main" : "danger"}" disabled=${action.isBusy} onClick=${act}>${verb.title} ${plural(ids.length, "run")}</button>`}</div><//>`}`;
}
