// Two checkpoints side by side, of one run or of two.
import { adjust, link } from "./address.js";
import { inWords } from "./answer_form.js";
import { useRead } from "./api.js";
import { shortId } from "./format.js";
import { html, useState } from "./html.js";
import { Copy, Draft, Empty, RunLink, Standing, Trouble } from "./parts.js";

const LONG = 400; // characters of a value that are shown at first

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Long ids in a path, by their beginnings. @param {string} path */
const shortIds = (path) => path.replace(/\b([0-9a-f]{8})-[0-9a-f-]{27}\b/g, "$1…");

/** One side of a change. */
function Side({ value, kind }) {
  const [isWhole, setWhole] = useState(false),
    words = kind ? (text(value) ?? "") : "";
  return html`<div class="side ${kind}">
    ${isWhole ? words : words.slice(0, LONG)}${words.length > LONG && html`… <button type="button" class="button quiet small"
    onClick=${() => setWhole(!isWhole)}>${isWhole ? "less" : "all of it"}</button>`}</div>`;
}

/** Both sides of every change. */
export function ChangeList({ changes }) {
  if (!changes.length) return html`<p class="mut">Nothing differs.</p>`;
  return html`<div class="diff mono">${changes.map((each) => html`<div class="line" key=${each.path}><div class="path">
    <span title=${each.where}>${shortIds(each.where)}</span></div><${Side} value=${each.before} kind=${each.kind === "added" ? "" : "gone"} /><${Side}
    value=${each.after} kind=${each.kind === "removed" ? "" : "new"} /></div>`)}</div>`;
}

/** In a line: what differs in the result, and which nodes ran in only one of the two. */
function Summary({ data, names: [one, other], version }) {
  const path = (id) => `runs/${encodeURIComponent(id)}`,
    { data: before } = useRead(path(data.before_run), { at: data.before_number }, version),
    { data: after } = useRead(path(data.after_run), { at: data.after_number }, version);
  if (!before || !after) return null;
  const ran = (run) => (run.graph?.nodes ?? []).filter((node) => node.count > 0).map((node) => node.id),
    only = (run, than) => ran(run).filter((id) => !ran(than).includes(id)),
    hasOther = data.changes.some((each) => each.path.startsWith("/outputs"));
  const results = [
      [one, before],
      [other, after],
    ].flatMap(([name, run]) => (hasOther && run.outputs.length ? [`“${inWords(run.outputs.at(-1))}” in ${name}`] : [])),
    nodes = [
      [one, only(before, after)],
      [other, only(after, before)],
    ].flatMap(([name, ids]) => (ids.length ? [`${ids.join(", ")} ran only in ${name}.`] : []));
  const words = [...(results.length ? [`Result: ${results.join(", ")}.`] : []), ...nodes];
  return words.length > 0 && html`<p class="sentence">${words.join(" ")}</p>`;
}

/** What people call the two sides. @param {any} data */
const namesOf = (data) =>
  data.before_run === data.after_run
    ? [`commit ${data.before_number}`, `commit ${data.after_number}`]
    : [shortId(data.before_run), shortId(data.after_run)];

export function Compare({ address, version }) {
  const before = address.query.get("before") ?? "",
    after = address.query.get("after") ?? "";
  const { data, problem } = useRead(before && after ? "diff" : null, { before, after }, version),
    { data: known } = useRead("runs", { limit: 100 });
  const change = (sides) => adjust(sides),
    forks = (known?.runs ?? []).filter((run) => run.parent_run).slice(0, 5);
  const names = data ? namesOf(data) : [],
    title = data ? `Compare ${names.join(" with ")}${data.before_run === data.after_run ? ` of ${data.after_run}` : ""}` : "Compare two checkpoints";
  return html`<div class="page"><h1>${title}</h1>
    <datalist id="runs">${(known?.runs ?? []).map((run) => html`<option value=${run.run_id}>
      ${run.workflow}, ${run.status}</option>`)}</datalist>
    <div class="sides"><${Pick} label="One" value=${before} version=${version}
      onChange=${(value) => change({ before: value })} />
      <button type="button" class="button" aria-label="Swap the two" title="Swap the two" disabled=${!before && !after}
      onClick=${() => change({ before: after, after: before })}>⇄</button><${Pick} label="The other" value=${after}
      version=${version} onChange=${(value) => change({ after: value })} /></div>
    <${Trouble} problem=${problem} />
    ${!data && !problem && html`<${Empty} title="Any two checkpoints, of one run or of several"
      command="stepwell diff RUN@5 FORK">Choose two runs, and a commit of each. A fork is compared with its parent in
      the same way.<//>${forks.length > 0 && html`<p class="mut center">Forks: ${forks.map((run) => html`<a
      href=${link(["compare"], { before: run.parent_run, after: run.run_id })}>${shortId(run.run_id)} with ${shortId(run.parent_run)}</a> `)}</p>`}`}
    ${data && html`<div class="row foot"><${RunLink} id=${data.before_run} query=${{ at: data.before_number }}>
      ${data.before_run}@${data.before_number}<//> → <${RunLink} id=${data.after_run}
      query=${{ at: data.after_number }}>${data.after_run}@${data.after_number}<//><span class="mut">
      ${data.changes.length} ${data.changes.length === 1 ? "change" : "changes"}</span><span class="sp" /><${Copy}
      text=${JSON.stringify(data.patch, null, 2)} label="copy JSON Patch" /></div><${Summary} data=${data} names=${names} version=${version} /><${ChangeList}
      changes=${data.changes} />`}</div>`;
}

/** A run and one of its commits: `run` is its newest, `run@5` an earlier one. */
function Pick({ label, value, version, onChange }) {
  const [, id, number] = /** @type {string[]} */ (/^(.*?)(?:@(-?\d+))?$/.exec(value)),
    { data: run } = useRead(id ? `runs/${encodeURIComponent(id)}` : null, {}, version);
  const commits = [...(run?.commits ?? [])].reverse();
  return html`<div class="card"><div class="row">
      <${Draft} list="runs" aria-label="${label} run" placeholder="run" value=${id}
        onChange=${(text) => onChange(text.trim())} />
      <select aria-label="Commit of ${label.toLowerCase()} run" value=${number ?? ""} disabled=${!run}
        onChange=${(e) => onChange(e.target.value ? `${id}@${e.target.value}` : id)}>
        <option value="">newest</option>
        ${commits.map((commit) => html`<option value=${commit.number}>
          ${commit.number} ${commit.executors.join(", ") || commit.kind}</option>`)}</select></div>
    <p class="mut">${run && html`<${Standing} of=${run.status} /> ${run.workflow}`}
      ${run?.parent_run && html`, fork of <a href=${link(["runs", run.parent_run], { at: run.parent_number })}>
        ${run.parent_run}@${run.parent_number}</a>`}</p></div>`;
}
