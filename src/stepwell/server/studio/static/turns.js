// The turns of agents as a conversation: what each heard, its model and tool calls, whom it asked, and what it said.
import { duration, plural } from "./format.js";
import { html } from "./html.js";
import { Age } from "./parts.js";

/** @param {import("./run_panels.js").PanelProps & {live: import("./feed.js").LiveText[]}} props */
export function Turns({ run, node, live, goTo }) {
  const turns = run.turns.filter((turn) => !node || turn.executor === node),
    texts = live.filter((text) => !node || text.executor === node);
  if (!turns.length && !texts.length)
    return html`<p class="mut">No agent has worked here. What an <code>AgentExecutor</code> says and calls is shown as a conversation, while it happens.</p>`;
  return html`<${Sum} calls=${turns.flatMap((turn) => turn.calls)} />
    ${turns.map((turn) => html`<${Turn} key=${`${turn.commit}/${turn.executor}`} turn=${turn} goTo=${goTo} />`)}
    ${texts.map((text) => html`<section key="live ${text.executor}" class="live" aria-live="polite"><h2>
      ${text.executor} · now, not stored yet</h2><div class="turn model ${text.isWithdrawn ? "withdrawn" : ""}">
      ${text.isWithdrawn && html`<span class="tag bad">withdrawn: this attempt failed</span>`}<pre>${text.text}</pre>
      </div></section>`)}`;
}

/** What all calls came to. */
function Sum({ calls }) {
  const models = calls.filter((call) => call.kind === "model" && !call.recalled),
    tools = calls.filter((call) => call.kind === "tool" && !call.recalled),
    recalled = calls.filter((call) => call.recalled).length;
  const heard = models.reduce((sum, call) => sum + (call.input_tokens ?? 0), 0),
    said = models.reduce((sum, call) => sum + (call.output_tokens ?? 0), 0),
    cost = models.reduce((sum, call) => sum + (call.cost ?? 0), 0);
  const facts = [
    models.length && plural(models.length, "model call"),
    tools.length && plural(tools.length, "tool call"),
    heard + said > 0 && `${heard.toLocaleString()} tokens in, ${said.toLocaleString()} out`,
    cost > 0 && `cost ${price(cost)}`,
    recalled && `${recalled} recalled`,
  ].filter(Boolean);
  return facts.length > 0 && html`<p class="sum">${facts.join(" · ")}</p>`;
}

const price = (cost) => cost.toLocaleString(undefined, { maximumSignificantDigits: 3 });

function Turn({ turn, goTo }) {
  const isAgent = turn.heard.length + turn.said.length > 0 || turn.calls.some((call) => call.kind !== "step");
  return html`<section class="talk"><h2><span class="mono">${turn.executor}</span><button class="button quiet small"
    onClick=${() => goTo(turn.commit)}>commit ${turn.commit}</button>${turn.seconds !== null && html`<small>
    ${duration(turn.seconds)}</small>`}${turn.attempts > 1 && html`<span class="tag">attempt ${turn.attempts}
    </span>`}${!isAgent && html`<small>steps</small>`}</h2>
    ${turn.heard.map((message) => html`<${Speech} message=${message} />`)}${turn.calls.map((call) => html`<${Call}
      call=${call} />`)}${turn.asked.map((asked) => html`<${Asked}
      asked=${asked} />`)}${turn.said.map((message) => html`<${Speech} message=${message} />`)}</section>`;
}

const Speech = ({ message }) =>
  html`<div class="turn speech ${message.role === "assistant" ? "said" : "heard"}"><small>
    ${message.author_name ?? message.role}</small><p>${message.text}</p></div>`;

const Asked = ({ asked }) =>
  html`<div class="turn asked"><small>asks a person</small><p>${asked.question}</p>${asked.answer ? html`<p><b>
    ${asked.answer.by ?? "somebody"}</b> <span class="mut"><${Age} at=${asked.answer.at} /></span> <code>
    ${JSON.stringify(asked.answer.value)}</code>${asked.answer.comment && html` “${asked.answer.comment}”`}
    </p>` : html`<p class="mut">no answer yet</p>`}</div>`;

function Call({ call }) {
  const { input_tokens: heard = 0, output_tokens: said = 0, cost, seconds } = call;
  const facts = [
    heard + said > 0 && `${heard} tokens in, ${said} out`,
    cost && `cost ${price(cost)}`,
    typeof seconds === "number" && duration(seconds),
  ];
  return html`<div class="turn ${call.kind} ${call.error ? "error" : ""}"><div class="row"><b>
    ${call.kind === "model" ? "model" : call.name}</b>${call.kind !== "model" && html`<span class="mut">${call.kind}
    </span>`}${call.recalled && html`<span class="tag recalled" title="Its result was stored before: it was not called again">recalled</span>`}${call.attempts > 1 && html`<span class="tag">attempt ${call.attempts}
    </span>`}<span class="sp" />
      <span class="mut">${facts.filter(Boolean).join(" · ")}</span></div>
    ${call.arguments && html`<pre class="mut">${call.arguments}</pre>`}${call.result && html`<pre>→ ${call.result}
      </pre>`}${call.error && html`<pre class="bad">${call.error}
      </pre>`}${call.has_result === false && html`<p class="mut">no result</p>`}</div>`;
}
