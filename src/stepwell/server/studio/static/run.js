// One run: a sentence, its graph, the strip of its commits, and what is known about each.
import { adjust, link } from "./address.js";
import { useRead } from "./api.js";
import { ForkDialog } from "./fork.js";
import { duration, plural, shortId } from "./format.js";
import { Graph } from "./graph.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { RequestCard } from "./inbox.js";
import { Command, isTyping, RunLink, Standing, Tabs, Trouble } from "./parts.js";
import { Changes, Decisions, Events, Overview, State } from "./run_panels.js";
import { RunVerb } from "./run_verbs.js";
import { Timeline } from "./timeline.js";
import { Turns } from "./turns.js";

/** What a commit without executors is. @type {Record<string, string>} */
const KINDS = { intake: "answer/input" };
/** What the server answers if there is no such run, or it is damaged: then it has no events to follow. */
const REFUSED = [404, 424];
/** Tabs that show something of one executor. */
const BY_NODE = ["turns", "events"];

/** @param {any} run @returns {any[]} as the inbox lists them */
const requestsOf = (run) =>
  Object.values(run.requests ?? {}).map((request) => ({
    ...request,
    run_id: run.run_id,
    answered: request.answer !== null,
    answered_by: request.answer?.by,
    answered_at: request.answer?.at,
  }));

export function RunPage({ id, feed, address, onRefused }) {
  const { version } = feed,
    chosen = address.query.get("at") ?? undefined,
    node = address.query.get("node") ?? undefined,
    open = (address.query.get("open") ?? "").split(",").filter(Boolean);
  const path = `runs/${encodeURIComponent(id)}`,
    { data: head, problem, reload } = useRead(path, { open }, version),
    past = useRead(chosen === undefined ? null : path, { at: chosen, open }, version);
  const [dialog, setDialog] = useState(/** @type {{verb: string, at?: number, request?: string} | null} */ (null)),
    [accepted, setAccepted] = useState(/** @type {{run: string, request: string, words: string} | null} */ (null));
  const run = chosen === undefined ? head : past.data;
  const choose = (changes) => adjust(changes);
  // What a commit did is read in Changes, unless a tab is open that shows the same for each commit.
  const goTo = (number) =>
    choose({
      at: number === head.newest ? undefined : number,
      tab: [null, "requests", "overview"].includes(address.query.get("tab")) ? "changes" : address.query.get("tab"),
    });
  useCommitKeys(head?.commits ?? [], run?.number ?? 0, goTo);
  const status = problem?.details?.status ?? 0;
  useEffect(() => void (REFUSED.includes(status) && onRefused()), [status]);
  if (!run || !head)
    return html`<div class="page narrow">${(problem ?? past.problem) && html`<h1 class="mono">${id}</h1>`}<${Trouble}
      problem=${problem ?? past.problem} />${past.problem && head && html`<p><${RunLink} id=${id}>
      Show its newest commit<//></p>`}</div>`;
  const requests = requestsOf(run),
    isAsked = requests.some((request) => !request.answered) && chosen === undefined,
    tab = address.query.get("tab") ?? (isAsked ? "requests" : "overview");
  const panel = {
    run,
    head,
    id,
    version,
    chosen,
    node,
    choose,
    goTo,
    base: address.query.get("base") ?? undefined,
    openDialog: setDialog,
  };
  const commit = head.commits.find((each) => each.number === run.number);
  const marks = {
    chosen: node,
    lit: chosen === undefined ? [] : (commit?.executors ?? []),
    onChoose: (name) =>
      choose({ node: name === node ? undefined : name, tab: name === node || BY_NODE.includes(tab) ? tab : "events" }),
    onOpen: (child) =>
      choose({ open: (open.includes(child) ? open.filter((each) => each !== child) : [...open, child]).join(",") }),
  };
  return html`<div class="run">
    <${Head} run=${run} head=${head} id=${id} chosen=${chosen} choose=${choose} openDialog=${setDialog}
      accepted=${accepted?.run === id ? accepted : null} />
    <section class="canvas" aria-label="Graph">${run.graph ? html`<${Graph} drawing=${run.graph}
      marks=${marks} />` : html`<p class="mut pad">This graph is too large to be drawn.</p>`}</section>
    <${Strip} run=${head} node=${node} number=${run.number} onChoose=${goTo} />
    <aside class="panel" aria-label="Details"><${Tabs} label="Details" chosen=${tab}
      onChoose=${(name) => choose({ tab: name })}
        names=${[
          ["requests", "Requests", requests.length],
          ["overview", "Overview"],
          ["turns", "Agents"],
          ["changes", "Changes"],
          ["state", "State"],
          ["time", "Time"],
          ["events", "Events"],
        ]} />
      <div class="body" id="panel" role="tabpanel" tabindex="0" aria-labelledby="tab-${tab}"><${Trouble}
        problem=${problem} />
        ${node && BY_NODE.includes(tab) && html`<p>Only <b class="mono">${node}</b> <button class="button quiet small"
          onClick=${() => choose({ node: undefined })}>show all</button></p>`}
        ${tab === "requests" && (requests.length ? requests.map((request) => html`<${RequestCard}
          key=${request.request_id} request=${request}
          onDone=${(words) => (setAccepted({ run: id, request: request.request_id, words }), choose({ tab: undefined, at: undefined }), reload())} />`) : html`<p class="mut">Nobody is asked anything${chosen === undefined ? " now" : " at this commit"}.</p>`)}
        ${tab === "requests" && html`<${Decisions} ...${panel} />`}
        ${tab === "overview" && html`<${Overview} ...${panel} />`}
        ${tab === "turns" && html`<${Turns} ...${panel} live=${run.status === "running" ? feed.texts : []} />`}
        ${tab === "changes" && html`<${Changes} ...${panel} />`}
        ${tab === "state" && html`<${State} ...${panel} />`}
        ${tab === "time" && html`<${Timeline} ...${panel} />`}
        ${tab === "events" && html`<${Events} ...${panel} />`}</div></aside>
    ${dialog?.verb === "fork" && html`<${ForkDialog} id=${id} at=${dialog.at ?? run.number} request=${dialog.request}
      answers=${head.answers} onClose=${() => setDialog(null)} />`}
    ${dialog && dialog.verb !== "fork" && html`<${RunVerb} verb=${dialog.verb} run=${head}
      number=${dialog.at ?? run.number} onClose=${() => setDialog(null)}
      onDone=${() => (setDialog(null), choose({ at: undefined }), reload())} />`}</div>`;
}

/** `[` and `]` go to the commit before and after. @param {any[]} commits @param {number} number @param {(number: number) => void} goTo */
function useCommitKeys(commits, number, goTo) {
  const now = useRef({ commits, number, goTo });
  now.current = { commits, number, goTo };
  useEffect(() => {
    const press = (e) => {
      const step = { "[": -1, "]": 1 }[e.key],
        { commits, number, goTo } = now.current,
        index = commits.findIndex((commit) => commit.number === number);
      if (step && !isTyping(e) && commits[index + step]) goTo(commits[index + step].number);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** What a run in each status can be told: the first is what most people want. @type {Record<string, [string, string][]>} */
const VERBS = {
  failed: [["retry", "Retry"]],
  cancelled: [["retry", "Retry"]],
  stalled: [["cancel", "Cancel"]],
  running: [["cancel", "Cancel"]],
  waiting: [["cancel", "Cancel"]],
  queued: [["cancel", "Cancel"]],
  sleeping: [["cancel", "Cancel"]],
};

/** That an answer was accepted, and what becomes of it until the run has gone as far as it can. */
function Accepted({ head, accepted: { request, words } }) {
  const isUnderWay = ["running", "queued"].includes(head.status) || head.requests?.[request];
  return html`<p class="accepted">Answered: ${words}.${isUnderWay ? ` The run continues${head.workers.length ? "" : " when a worker takes it"}.` : ""}</p>`;
}

function Head({ run, head, id, chosen, choose, openDialog, accepted }) {
  const command = run.command
      ?.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
      .join(" "),
    isPast = chosen !== undefined;
  // The end of a run has nothing to do: who forks a completed run wants its last decision otherwise.
  const lastAnswer = !isPast && head.status === "completed" ? head.answers?.at(-1) : undefined;
  const fork = () =>
    openDialog(lastAnswer ? { verb: "fork", at: lastAnswer.commit - 1, request: lastAnswer.request_id } : { verb: "fork" });
  const answer = () => (
    choose({ tab: "requests", at: undefined }),
    requestAnimationFrame(() =>
      /** @type {HTMLElement | null} */ (
        document.querySelector("#panel form input, #panel form textarea, #panel form select")
      )?.focus(),
    )
  );
  return html`<section class="head" aria-label="Run"><div class="row"><${Standing} of=${run.status} /><h1 class="mono">
    ${id}</h1><a class="mut" href=${link(["runs"], { workflow: run.workflow })}>${run.workflow}</a>
      ${run.parent_run && html`<span class="mut">fork of <${RunLink} id=${run.parent_run}
        query=${{ at: run.parent_number }} /></span>`}
      ${run.caller && html`<span class="mut">called by <${RunLink} id=${run.caller.run_id ?? run.caller} /></span>`}
      ${isPast && html`<button class="button small"
        onClick=${() => choose({ at: undefined })}>at commit ${chosen} · show the newest</button>`}<span class="sp" />
      ${!isPast && head.status === "waiting" && html`<button class="button main" onClick=${answer}>Answer</button>`}
      ${!isPast && (VERBS[head.status] ?? []).map(([verb, title]) => html`<button class="button ${verb === "retry" ? "main" : ""}"
        onClick=${() => openDialog({ verb })}>${title}…</button>`)}
      ${isPast && html`<a class="button"
        href=${link(["compare"], { before: `${id}@${chosen}`, after: id })}>Compare with the newest</a>
        <button class="button" onClick=${() => openDialog({ verb: "rerun" })}>Rerun from here…</button>`}
      ${run.parent_run && !isPast && html`<a class="button"
        href=${link(["compare"], { before: run.parent_run, after: id })}>Compare with ${shortId(run.parent_run)}</a>`}
      <button class="button" onClick=${fork}>${lastAnswer ? "Fork with another answer…" : "Fork from here…"}</button>
        <a class="button" href="api/v1/runs/${encodeURIComponent(id)}/export" download>Export</a></div>
    <p class="sentence">${run.sentence}</p>
    <div aria-live="polite">${accepted && html`<${Accepted} head=${head} accepted=${accepted} />`}</div>${command && html`<${Command} text=${command} />`}</section>`;
}

function Strip({ run, number, node, onChoose }) {
  const { commits, newest } = run,
    isLive = run.status === "running",
    ran = node === undefined ? 0 : commits.filter((commit) => commit.executors.includes(node)).length;
  const longest = Math.max(0.001, ...commits.map((commit) => commit.seconds ?? 0)),
    list = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(
    () =>
      void list.current
        ?.querySelector('[aria-pressed="true"]')
        ?.scrollIntoView({ block: "nearest", inline: "nearest" }),
    [number, commits.length],
  );
  return html`<section class="strip" aria-label="Commits"><h2>Commits <small>
    ${node === undefined ? html`one for each superstep, input or answer<span class="by-keys">; [ and ] move</span>${run.parent_run ? `; what ran before the fork is in ${shortId(run.parent_run)}` : ""}` : `${node} ran in ${ran} of them`}
    </small></h2><ol ref=${list}>
    ${commits.map(
      (
        commit,
      ) => html`<li key=${commit.number}>
        <button class="mark ${commit.status} ${node !== undefined && commit.executors.includes(node) ? "lit" : ""}"
        aria-pressed=${commit.number === number}
        onClick=${() => onChoose(commit.number)} title="${commit.kind}, ${commit.at}">
      <span class="n">${commit.number}<small>${commit.seconds ? duration(commit.seconds) : ""}</small></span>
        <span class="len" style="width:${Math.max(6, ((commit.seconds ?? 0) / longest) * 100)}%" /><span class="x">
        ${commit.executors.join(", ") || KINDS[commit.kind] || commit.kind}</span><span class="x">
        ${commit.by ? `by ${commit.by}` : commit.status !== "running" ? commit.status : commit.messages ? plural(commit.messages, "message") : ""}</span></button></li>`,
    )}
    ${isLive && html`<li><div class="mark live"><span class="n">${newest + 1}<small>live</small></span>
      <span class="len" /><span class="x">${run.progress?.next?.join(", ") || "working"}</span>
      <span class="x">working…</span></div></li>`}</ol></section>`;
}
