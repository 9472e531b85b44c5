// Workers, and what waits for them.
import { useRead } from "./api.js";
import { duration } from "./format.js";
import { html } from "./html.js";
import { Age, Empty, RunLink, Trouble } from "./parts.js";

export function Operate({ version }) {
  const { data: workers, problem } = useRead("workers", {}, version),
    { data: metrics } = useRead("metrics", {}, version);
  const value = (name) => metrics?.metrics.filter((each) => each.name === name) ?? [];
  const oldest = value("runs_ready_age_seconds")[0]?.value ?? 0;
  return html`<div class="page"><h1 class="hidden">Operate</h1><${Trouble} problem=${problem} />
    <section class="card"><h2>Workers</h2>${workers && !workers.workers.length && html`<${Empty} title="No worker has announced itself" command="stepwell worker module:workflow">Runs move only while a program or a worker drives them.<//>`}
      ${workers?.workers.length > 0 && html`<table><thead><tr><th>Worker</th><th>Alive</th><th class="num">Runs</th>
        <th class="num">Slots</th><th class="wide">Workflows</th><th class="wide">Version</th><th class="num">Seen</th>
        </tr></thead><tbody>${workers.workers.map((worker) => html`<tr><td>${worker.name}</td><td>
        ${worker.is_alive ? "yes" : html`<b class="offline">no</b>`}</td><td class="num">
        ${worker.runs.map((id) => html`<${RunLink} id=${id} /> `)}${worker.runs.length}</td><td class="num">
        ${worker.slots}</td><td class="wide">${Object.keys(worker.workflows).join(", ")}</td><td class="wide">
        ${worker.version}</td><td class="num"><${Age} at=${worker.seen_at} /></td></tr>`)}</tbody></table>`}</section>
    <section class="card"><h2>Queue</h2><dl class="facts"><dt>oldest ready run</dt><dd>${oldest ? duration(oldest) : "nothing waits"}</dd>${value("runs").map((each) => html`<dt>
      ${Object.values(each.labels).join(" ")}</dt><dd>${each.value.toLocaleString()}</dd>`)}</dl></section></div>`;
}
