// What is done to several runs at once, after a look at what would happen.
import { change } from "./api.js";
import { plural, size } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Dialog, Standing, Trouble, useAction } from "./parts.js";

/** What happens to each run, and in all. @typedef {{words: Record<string, string>, all?: string}} Outcome */
/** @typedef {{title: string, words: string, isDangerous: boolean, options?: [string, string][], act: (runs: any[], dry_run: boolean, option: string) => Promise<Outcome>}} Verb */

/** @param {any[]} runs @param {boolean} dry_run @returns {Promise<Outcome>} */
async function retry(runs, dry_run) {
  const ids = runs.map((run) => run.run_id),
    { runs: ready, skipped } = await change("retry", { runs: ids, dry_run });
  return {
    words: Object.fromEntries(
      ids.map((id) => [
        id,
        skipped[id] ??
          (ready.includes(id) ? (dry_run ? "continues from its last commit" : "ready again") : "stays as it is"),
      ]),
    ),
    all: `${plural(ready.length, "run")} ${dry_run ? "would be" : ready.length === 1 ? "is" : "are"} retried.`,
  };
}

/** @param {any[]} runs @param {boolean} dry_run @returns {Promise<Outcome>} */
async function cancel(runs, dry_run) {
  const words = /** @type {Record<string, string>} */ ({}),
    isOver = (run) => ["completed", "failed", "cancelled"].includes(run.status);
  for (const run of runs) {
    const name = run.run_id;
    if (isOver(run)) words[name] = `stays ${run.status}`;
    else
      words[name] = dry_run
        ? "ends at its last commit"
        : await change(`runs/${encodeURIComponent(name)}/cancel`, {}).then(
            (moved) => moved.status,
            (problem) => problem.message,
          );
  }
  return {
    words,
    all: `${plural(runs.filter((run) => !isOver(run)).length, "run")} ${dry_run ? "would be" : "told to be"} cancelled.`,
  };
}

/** @param {any[]} runs @param {boolean} dry_run @param {string} option @returns {Promise<Outcome>} */
async function prune(runs, dry_run, option) {
  const ids = runs.map((run) => run.run_id),
    how = option === "entirely" ? { entirely: true } : { keep_last: Number(option) };
  const { runs: deleted, stays, checkpoints, bytes } = await change("prune", { runs: ids, ...how, dry_run });
  const count = (id) => checkpoints[id]?.length ?? 0,
    all = ids.reduce((sum, id) => sum + count(id), 0);
  const words = ids.map((id) => [
    id,
    deleted.includes(id)
      ? dry_run
        ? "is deleted for good"
        : "deleted"
      : count(id)
        ? `${plural(count(id), "checkpoint")} deleted, the run stays`
        : (stays[id] ?? "stays as it is"),
  ]);
  return {
    words: Object.fromEntries(words),
    all: `${deleted.length ? plural(deleted.length, "run") : plural(all, "checkpoint")}${bytes ? `, ${size(bytes)},` : ""} ${dry_run ? "would be" : (deleted.length || all) === 1 ? "was" : "were"} deleted.`,
  };
}

/** @type {Record<string, Verb>} */
const VERBS = {
  retry: {
    title: "Retry",
    words: "A worker continues them from their last commit; what was done is kept.",
    isDangerous: false,
    act: retry,
  },
  cancel: {
    title: "Cancel",
    words: "They end at their last commit, and can be retried.",
    isDangerous: true,
    act: cancel,
  },
  prune: {
    title: "Delete",
    words: "What is deleted cannot be brought back.",
    isDangerous: true,
    options: [
      ["entirely", "the whole runs"],
      ["1", "all checkpoints but the newest"],
      ["5", "all checkpoints but the newest 5"],
    ],
    act: prune,
  },
};

export function Bulk({ runs, onDone }) {
  const [name, setName] = useState(""),
    close = (isDone) => (setName(""), isDone && onDone());
  return html`<div class="bar" role="region" aria-label="Marked runs"><b>${plural(runs.length, "run")} marked</b>
    <span class="sp" />${Object.entries(VERBS).map(([key, { title }]) => html`<button class="button"
    onClick=${() => setName(key)}>${title}…</button>`)}<button class="button quiet" onClick=${onDone}>Clear</button>
    </div>
    ${name && html`<${BulkDialog} verb=${VERBS[name]} runs=${runs} onClose=${close} />`}`;
}

function BulkDialog({ verb, runs, onClose }) {
  const action = useAction(),
    [chosen] = useState(runs),
    [option, setOption] = useState(verb.options?.[0][0] ?? ""),
    [outcome, setOutcome] = useState(/** @type {Outcome | null} */ (null)),
    [isDone, setDone] = useState(false);
  const look = (wanted) => (
    setOption(wanted),
    action.run(async () => setOutcome(await verb.act(chosen, true, wanted)))
  );
  useEffect(() => void look(option), []);
  const act = () => action.run(async () => (setOutcome(await verb.act(chosen, false, option)), setDone(true)));
  return html`<${Dialog} title="${verb.title} ${plural(chosen.length, "run")}" onClose=${() => onClose(isDone)}><p>
    ${isDone ? "Done." : verb.words} ${outcome?.all}</p>
    ${verb.options && !isDone && html`<div class="field"><label for="what">Delete</label><select id="what"
      value=${option} onChange=${(e) => look(e.target.value)}>
      ${verb.options.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select></div>`}
    <table class="preview"><tbody>${chosen.map((run) => html`<tr><td><${Standing} of=${run.status} /></td>
      <td class="mono">${run.run_id}</td><td class="mut">${outcome?.words[run.run_id] ?? "…"}</td></tr>`)}</tbody>
      </table><${Trouble} problem=${action.problem} />
    <div class="actions">${!isDone && html`<button class="button ${verb.isDangerous ? "danger" : "main"}"
      disabled=${action.isBusy || !outcome} onClick=${act}>${verb.title} ${plural(chosen.length, "run")}</button>`}
      </div><//>`;
}
