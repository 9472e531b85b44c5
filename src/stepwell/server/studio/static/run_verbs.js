// What a person does to one run: retry, cancel, and run it again from an earlier commit.
import { change } from "./api.js";
import { html, useState } from "./html.js";
import { Command, Dialog, Trouble, useAction } from "./parts.js";

/** @typedef {{title: string, act: string, words: (number: number) => string, command: (id: string, number: number) => string, isDangerous?: boolean, takesReason?: boolean}} Verb */

/** @type {Record<string, Verb>} */
const VERBS = {
  retry: {
    title: "Retry",
    act: "Retry",
    words: () => "The next worker continues the run from its last commit; what was done is kept.",
    command: (id) => `stepwell retry ${id}`,
  },
  cancel: {
    title: "Cancel",
    act: "Cancel the run",
    words: () => "The run ends at its last commit. It can be retried later.",
    command: (id) => `stepwell cancel ${id}`,
    isDangerous: true,
    takesReason: true,
  },
  rerun: {
    title: "Rerun",
    act: "Rerun from here",
    words: (number) =>
      `The run is moved back to commit ${number}, and everything after it is executed afresh. Later commits remain as history. To keep them as they are, fork the run instead.`,
    command: (id, number) => `stepwell fork ${id}@${number}`,
    isDangerous: true,
  },
};

function act(verb, run, number, reason) {
  const path = `runs/${encodeURIComponent(run.run_id)}`;
  if (verb === "retry") return change("retry", { runs: [run.run_id], status: run.status });
  if (verb === "cancel") return change(`${path}/cancel`, reason ? { reason } : {});
  return change(`${path}/restore`, { number, head: run.newest });
}

export function RunVerb({ verb, run, number, onClose, onDone }) {
  const action = useAction(),
    [reason, setReason] = useState(""),
    { title, act: label, words, command, isDangerous, takesReason } = VERBS[verb];
  return html`<${Dialog} title="${title} ${run.run_id}" onClose=${onClose}><p>${words(number)}</p>
    ${takesReason && html`<div class="field"><label for="reason">Reason <i>optional</i></label>
      <input id="reason" type="text" value=${reason} onInput=${(e) => setReason(e.target.value)} /></div>`}
    ${verb === "rerun" ? html`<p class="mut">As a fork, from a shell:</p>` : html`<p class="mut">From a shell:</p>`}
      <${Command} text=${command(run.run_id, number)} /><${Trouble} problem=${action.problem} />
    <div class="actions"><button class="button ${isDangerous ? "danger" : "main"}" disabled=${action.isBusy}
      onClick=${() => action.run(async () => (await act(verb, run, number, reason), onDone()))}>${label}</button>
      </div><//>`;
}
