// The list of runs: filters in the address, a page at a time, and new runs that do not push away what somebody looks at.
import { adjust, go, link } from "./address.js";
import { useRead } from "./api.js";
import { Bulk } from "./bulk.js";
import { plural } from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { Age, Damaged, Draft, Empty, isTyping, RunLink, STANDINGS, Standing, Trouble } from "./parts.js";
import { sinceOf, WITHIN } from "./spans.js";

const PAGE = 50;
/** What the address says, as the server's filter. @param {Record<string, string>} query */
function toFilter({ within, between, ...query }) {
  return WITHIN[within] ? { ...query, since: sinceOf(within) } : query;
}

export function Runs({ address, version }) {
  const query = Object.fromEntries(address.query),
    filter = toFilter(query);
  const { data, problem, isOld, reload } = useRead("runs", { ...filter, limit: PAGE, damaged: true }, query.after ? 0 : version);
  const [marked, setMarked] = useState(/** @type {Set<string>} */ (new Set())),
    [isOver, setOver] = useState(false),
    list = useRef(/** @type {any[]} */ ([]));
  const mark = (id) =>
    setMarked((before) => new Set(before.has(id) ? [...before].filter((each) => each !== id) : [...before, id]));
  const [at, setAt] = useKeys(list, mark);
  const { runs, fresh, waiting, show, expire } = useSteadyList(
    data,
    JSON.stringify(query),
    isOld,
    isOver || marked.size > 0 || at >= 0,
  );
  list.current = runs;
  const isFiltered = address.query.size > 0,
    isWhole = runs.length > 0 && runs.every((run) => marked.has(run.run_id));
  const choose = (changes) => (setMarked(new Set()), setAt(-1), adjust({ ...changes, after: undefined }));
  const showNew = () => (setAt(-1), show());
  return html`<div class="page"><h1 class="hidden">Runs</h1><${Filters} query=${query} runs=${runs} choose=${choose} />
    <div class="note" aria-live="polite">${waiting > 0 ? html`<button type="button" class="button small main"
      onClick=${showNew}>${plural(waiting, "new run")}: show</button>` : data && runs.length > 0 ? `${plural(runs.length, "run")}${data.next ? (data.is_whole ? " on this page" : " of the 100,000 looked through") : ""}, latest start first` : ""}
      </div>
    <${Trouble} problem=${problem} /><${Damaged} entries=${data?.damaged} />
    ${data && !runs.length && !data.damaged?.length && (data.is_whole === false ? html`<${Empty} title="None of the 100,000 runs looked through is like that">
      <a class="button main" href=${link(["runs"], { ...query, after: data.next })}>Search further</a><//>` : isFiltered ? html`<${Empty} title="No run is like that">
      <a href=${link(["runs"])}>Show all runs</a><//>` : html`<${Empty} title="This store has no runs yet" command="stepwell run module:workflow 'your input'">Start one from a program, or from a shell:<//>`)}
    ${
      runs.length > 0 &&
      html`<table aria-busy=${isOld} onPointerEnter=${() => setOver(true)} onPointerLeave=${() => setOver(false)}><thead><tr><th>
        <input type="checkbox" aria-label="Mark all runs of this page" checked=${isWhole}
        onChange=${() => setMarked(new Set(isWhole ? [] : runs.map((run) => run.run_id)))} /></th><th>Status</th>
        <th>Run</th><th class="wide">Workflow</th><th class="wide">Tags</th><th class="num wide">Commits</th>
        <th class="num wide">Started</th><th class="num">Changed</th></tr></thead>
      <tbody>${runs.map((run, n) => html`<${Row} key=${run.run_id} run=${run} isAt=${n === at}
        isFresh=${fresh.has(run.run_id)} isMarked=${marked.has(run.run_id)} onMark=${() => mark(run.run_id)} />`)}
        </tbody></table>
      <div class="row foot">${query.after && html`<button class="button"
        onClick=${() => choose({})}>Newest</button>`}${data?.next && html`<a class="button"
        href=${link(["runs"], { ...query, after: data.next })}>${data.is_whole ? "Older" : "Search further"}</a>`}</div>`
    }
    ${marked.size > 0 && html`<${Bulk} runs=${runs.filter((run) => marked.has(run.run_id))}
      onDone=${() => (setMarked(new Set()), expire(), reload())} />`}</div>`;
}

function Filters({ query, runs, choose }) {
  const { data } = useRead("workflows"),
    timer = useRef(0),
    isBetween = query.between || query.since || query.until;
  const names = useMemo(
    () =>
      [...new Set([...(data?.workflows ?? []).map((each) => each.name), ...runs.map((run) => run.workflow)])].sort(),
    [data, runs],
  );
  const [text, setText] = useState(query.text ?? "");
  useEffect(() => setText(query.text ?? ""), [query.text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = ({ target: { value } }) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => choose({ text: value }), 250);
  };
  const date = (name, label) =>
    html`<${Draft} type="datetime-local" aria-label=${label} value=${query[name] ? toLocal(query[name]) : ""}
      onChange=${(text) => choose({ [name]: text ? new Date(text).toISOString() : undefined, between: 1 })} />`;
  const chooseSpan = (value) =>
    choose({
      since: undefined,
      until: undefined,
      within: WITHIN[value] ? value : undefined,
      between: value === "between" ? 1 : undefined,
    });
  return html`<div class="filters">
    <input type="search" placeholder="Search ids, workflows, tags…  /" aria-label="Search runs" value=${text}
    onInput=${type} />
    <${Draft} list="workflows" placeholder="workflow" aria-label="Workflow" size="13" value=${query.workflow ?? ""}
      onChange=${(text) => choose({ workflow: text.trim() })} />
    <datalist id="workflows">${names.map((name) => html`<option value=${name} />`)}</datalist>
    <${Draft} placeholder="tag=value" aria-label="Tag" size="11" value=${query.tag ?? ""}
      onChange=${(text) => choose({ tag: text.trim() })} />
    <select aria-label="Started" value=${isBetween ? "between" : (query.within ?? "")}
      onChange=${(e) => chooseSpan(e.target.value)}><option value="">started at any time</option>
      ${Object.entries(WITHIN).map(([key, [words]]) => html`<option value=${key}>${words}</option>`)}
      <option value="between">between…</option></select>
    ${isBetween && html`${date("since", "Started from")}<span>to</span>${date("until", "Started before")}`}
    <span class="chips">${STANDINGS.map((status) => html`<button type="button" class="chip"
      aria-pressed=${query.status === status}
      onClick=${() => choose({ status: query.status === status ? undefined : status })}>${status}</button>`)}</span>
      </div>`;
}

function toLocal(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime())
    ? ""
    : new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

/**
 * The runs to show. While somebody points at the list or has marked something, rows stay where they are and only change in place; what is new waits.
 * @param {any} data @param {string} view what is filtered: another view starts afresh @param {boolean} isOld the data is that of an earlier view
 * @param {boolean} isInUse
 * @returns {{runs: any[], fresh: Set<string>, waiting: number, show: () => void, expire: () => void}} `expire`: what is read next is shown in any case
 */
function useSteadyList(data, view, isOld, isInUse) {
  const kept = useRef(
      /** @type {{view: string, data: any, runs: any[], fresh: Set<string>, isStale?: boolean}} */ ({
        view: "",
        data: null,
        runs: [],
        fresh: new Set(),
      }),
    ),
    [, redraw] = useState(0);
  const list = data?.runs ?? [],
    ids = new Set(kept.current.runs.map((run) => run.run_id)),
    waiting = list.filter((run) => !ids.has(run.run_id)),
    isOther = kept.current.view !== view || !kept.current.data;
  const showAll = () =>
    (kept.current = { view, data, runs: list, fresh: new Set(isOther ? [] : waiting.map((run) => run.run_id)) });
  if (data && !isOld && (data !== kept.current.data || (!isInUse && kept.current.runs !== list))) {
    if (!isInUse || isOther || kept.current.isStale) showAll();
    else {
      const now = new Map(list.map((run) => [run.run_id, run]));
      kept.current = {
        ...kept.current,
        view,
        data,
        runs: kept.current.runs.map((run) => now.get(run.run_id) ?? { ...run, isGone: list.length < PAGE }),
      };
    }
  }
  return {
    ...kept.current,
    waiting: isInUse ? waiting.length : 0,
    show: () => void (isOld || (showAll(), redraw((n) => n + 1))),
    expire: () => void (kept.current.isStale = true),
  };
}

function Row({ run, isAt, isFresh, isMarked, onMark }) {
  const row = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => void (isAt && row.current?.scrollIntoView({ block: "nearest" })), [isAt]);
  return html`<tr ref=${row} class="${isAt ? "at" : ""} ${isFresh ? "fresh" : ""} ${run.isGone ? "gone" : ""}"><td>
    <input type="checkbox" aria-label="Mark ${run.run_id}" checked=${isMarked} onChange=${onMark} /></td>
    <td><${Standing} of=${run.status} /></td><td><${RunLink} id=${run.run_id} /><div class="small-only mut">
      ${run.workflow}</div></td><td class="wide"><span class="cut">${run.workflow}</span></td>
    <td class="wide">${Object.entries(run.tags ?? {}).map(([key, value]) => html`<a class="tag"
      href=${link(["runs"], { tag: `${key}=${value}` })}>${key}=${value}</a> `)}</td>
    <td class="num wide">${run.number + 1}</td><td class="num wide"><${Age} at=${run.began_at} /></td><td class="num">
      <${Age} at=${run.changed_at} /></td></tr>`;
}

/** `j` and `k` move, `x` marks, Enter opens. Keys come faster than the page is drawn. @param {{current: any[]}} list @param {(id: string) => void} mark @returns {[number, (at: number) => void]} */
function useKeys(list, mark) {
  const [shown, setShown] = useState(-1),
    at = useRef(-1);
  const move = (to) => setShown((at.current = Math.max(-1, Math.min(to, list.current.length - 1))));
  useEffect(() => {
    const press = (e) => {
      const run = list.current[at.current];
      if (isTyping(e)) return;
      if (e.key === "j") move(at.current + 1);
      else if (e.key === "k") move(Math.max(0, at.current - 1));
      else if (e.key === "Escape") move(-1);
      else if (e.key === "x" && run) mark(run.run_id);
      else if (e.key === "Enter" && run && !(/** @type {Element} */ (e.target).closest("a, button")))
        go(link(["runs", run.run_id]));
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return [shown, move];
}
