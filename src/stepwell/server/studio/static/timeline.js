// When each executor worked, and why nothing did: a bar for each handler call, with retries, waits, crashes and takeovers.
import { duration, moment } from "./format.js";
import { html } from "./html.js";
import { Age } from "./parts.js";

/** What the bars mean. @type {[string, string][]} */
const KINDS = [
  ["ran", "worked"],
  ["retried", "failed attempts"],
  ["failed", "failed"],
  ["lost", "cut off by a crash or a stop"],
  ["wait", "nothing ran"],
];

/** @param {import("./run_panels.js").PanelProps} props */
export function Timeline({ run, node, goTo }) {
  const data = run.timeline;
  if (!data) return html`<p class="mut">Nothing has run yet.</p>`;
  const names = [...new Set(data.bars.map((bar) => bar.executor))],
    shown = new Set([...data.bars.map((bar) => bar.kind), ...(data.waits.length ? ["wait"] : [])]);
  const happened = [
    ...data.waits.map((wait) => ({ at: wait.left, words: wait.words })),
    ...data.bars
      .filter((bar) => bar.kind !== "ran")
      .map((bar) => ({ at: bar.left, words: bar.words, commit: bar.commit })),
  ].sort((one, other) => one.at - other.at);
  return html`<p class="mut">
    ${moment(data.start)} to ${moment(data.end)}; worked for ${duration(data.working_seconds)}. Long waits are drawn short.</p>
    <div class="times">${names.map((name) => html`<span class="mono ${name === node ? "chosen" : ""}">${name || "run"}
      </span><div class="track">${data.waits.map((wait) => html`<span class="span wait"
      title=${wait.words} style="left:${wait.left * 100}%;width:${wait.width * 100}%" />`)}${data.bars.filter((bar) => bar.executor === name).map((bar) => html`<button type="button" tabindex="-1" class="span ${bar.kind} ${bar.commit === run.number ? "lit" : ""}"
      aria-label=${bar.words} title=${bar.words}
      onClick=${() => goTo(bar.commit)} style="left:${bar.left * 100}%;width:${Math.max(0.4, bar.width * 100)}%" />`)}
      </div>`)}</div>
    <p class="legend mut">${KINDS.filter(([kind]) => shown.has(kind)).map(([kind, words]) => html`<span>
      <i class="span ${kind}" />${words}</span>`)}</p>
    ${(happened.length > 0 || run.status === "stalled") && html`<section><h2>What held it up</h2><ul class="plain">
      ${happened.map(({ words, commit }) => html`<li>
      ${commit === undefined ? words : html`<button class="button quiet small"
      onClick=${() => goTo(commit)}>commit ${commit}</button> ${words}`}
      </li>`)}${run.status === "stalled" && html`<li class="bad">crashed: ${run.owner} drives it no longer; its last commit was <${Age}
      at=${run.since} /></li>`}</ul></section>`}`;
}
