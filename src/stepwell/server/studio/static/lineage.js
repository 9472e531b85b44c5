// Which runs a run was forked from, and which were forked from it, as a tree.
import { link } from "./address.js";
import { useRead } from "./api.js";
import { html } from "./html.js";
import { RunLink, Standing } from "./parts.js";

export function Lineage({ id, version }) {
  const { data } = useRead(`runs/${encodeURIComponent(id)}/lineage`, {}, version),
    runs = data?.runs ?? [],
    known = new Set(runs.map((run) => run.run_id));
  if (runs.length < 2) return null;
  const below = (parent) => runs.filter((run) => run.parent_run === parent),
    roots = runs.filter((run) => !known.has(run.parent_run));
  const draw = (run) =>
    html`<li key=${run.run_id}><span class="row ${run.run_id === id ? "here" : ""}">
      ${run.run_id === id ? html`<span class="mono" aria-current="true">${run.run_id}</span>` : html`<${RunLink}
      id=${run.run_id} />`}${run.run && html`<${Standing}
      of=${run.run.status} />`}${run.parent_run && html`<span class="mut">from commit ${run.parent_number}</span>
      <a href=${link(["compare"], { before: run.parent_run, after: run.run_id })} aria-label="Compare ${run.run_id} with its parent">compare</a>`}
      </span>${below(run.run_id).length > 0 && html`<ul>${below(run.run_id).map(draw)}</ul>`}</li>`;
  return html`<section class="lineage"><h2>Forks</h2><ul>${roots.map(draw)}</ul>
    ${data.is_whole === false && html`<p class="mut">There are more: <code>stepwell list --parent ${id}</code></p>`}
    </section>`;
}
