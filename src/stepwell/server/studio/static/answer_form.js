// The form by which a person answers a request: from its JSON schema, and for tools and plans in the words of the decision.
import { change, useRead } from "./api.js";
import { plural } from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { Trouble, useAction } from "./parts.js";
import { Field, initialValue } from "./schema_form.js";

/** How a request is answered: the fields for what was chosen so far, what they start with, and the response they make. */
/** @typedef {{fields: (request: any, value: any) => any, first: (request: any, isOne: boolean) => any, response: (value: any) => any}} AnswerKind */

/** A schema for a value without one, so that its parts can be edited. @param {any} value @returns {any} */
export function inferSchema(value) {
  if (Array.isArray(value))
    return value.length && typeof value[0] !== "object" ? { type: "array", items: inferSchema(value[0]) } : {};
  if (value === null || typeof value !== "object")
    return value === null ? {} : { type: typeof value, ...(value.length < 60 ? { format: "line" } : {}) };
  return {
    type: "object",
    properties: Object.fromEntries(Object.entries(value).map(([key, part]) => [key, inferSchema(part)])),
    required: Object.keys(value),
  };
}

function argumentsSchema({ data }) {
  const declared = data?.parameters;
  return {
    ...(declared?.properties && Object.keys(declared.properties).length ? declared : inferSchema(data?.arguments)),
    title: "Arguments",
    description: "What the tool is called with. Change them, and it is called with yours.",
  };
}

/** @type {AnswerKind} */
const TOOL = {
  fields: (request, { decision }) => ({
    type: "object",
    required: ["decision", "arguments", "reason", "result"],
    properties: {
      decision: { enum: ["approve", "deny", "answer"] },
      ...(["", "approve"].includes(decision) && request.data?.arguments ? { arguments: argumentsSchema(request) } : {}),
      ...(decision === "deny" ? { reason: { type: "string", description: "Shown to the agent." } } : {}),
      ...(decision === "answer"
        ? { result: { type: "string", description: "Shown to the agent as the result; the tool is not called." } }
        : {}),
    },
  }),
  first: (request, isOne) => ({
    decision: "",
    reason: "",
    result: "",
    ...(isOne ? { arguments: request.data?.arguments } : {}),
  }),
  response: ({ decision, arguments: changed, reason, result }) =>
    decision === "approve"
      ? { decision, ...(changed ? { arguments: changed } : {}) }
      : decision === "deny"
        ? { decision, reason }
        : { decision, result },
};

const ANOTHER = "ask for another plan";
/** @type {AnswerKind} */
const PLAN = {
  fields: (_, { decision }) => ({
    type: "object",
    required: ["decision", "feedback"],
    properties: {
      decision: { enum: ["approve", ANOTHER] },
      ...(decision === ANOTHER
        ? { feedback: { type: "string", description: "What to change. Shown to the manager of the team." } }
        : {}),
    },
  }),
  first: () => ({ decision: "", feedback: "" }),
  response: ({ decision, feedback }) => ({ review: decision === ANOTHER ? [{ role: "user", text: feedback }] : [] }),
};

/** @type {AnswerKind} */
const ANY = {
  fields: (request) => ({ ...request.response_schema, title: undefined, description: undefined }),
  first: startOf,
  response: (value) => value,
};

/** As the server refuses an answer: nobody decides by not looking. */
const UNDECIDED = {
  details: { detail: "nothing is decided yet", errors: [{ path: "/decision", message: "choose one" }] },
};

/** @type {Record<string, AnswerKind>} */
const KINDS = { ToolApprovalRequest: TOOL, MagenticPlanReviewRequest: PLAN };

/** Whether what is asked about can be what a field starts with. @param {any} asked @param {any} schema @param {any} first */
const isAlikeKind = (asked, schema, first) =>
  !("default" in schema) &&
  (typeof asked === typeof first || (typeof asked === "number" && ["number", "integer"].includes(schema.type)));

/** What a form starts with: what the question says about the same thing. @param {any} request @param {boolean} isOne */
function startOf(request, isOne) {
  const schema = request.response_schema ?? {},
    value = initialValue(schema),
    asked = request.data;
  if (isOne && value && typeof value === "object" && !Array.isArray(value) && asked && typeof asked === "object")
    for (const key of Object.keys(value))
      if (isAlikeKind(asked[key], schema.properties?.[key] ?? {}, value[key])) value[key] = asked[key];
  return value;
}

export const isAlike = (request) => `${request.request_type} ${JSON.stringify(request.response_schema)}`;

/** The fields of an answer. */
export function AnswerFields({ request, value, onChange, errors }) {
  const schema = (KINDS[request.request_type] ?? ANY).fields(request, value);
  return html`<${Field} schema=${schema} root=${request.response_schema ?? schema} value=${value} errors=${errors}
    onChange=${onChange} />`;
}

/** What the fields of a request start with. @param {any} request */
export const firstAnswer = (request, isOne = true) => (KINDS[request.request_type] ?? ANY).first(request, isOne);
/** The response that filled fields make. @param {any} request @param {any} value */
export function responseOf(request, value) {
  const kind = KINDS[request.request_type];
  if (kind && value.decision === "") throw UNDECIDED;
  return (kind ?? ANY).response(value);
}

const FEW = 80; // characters

/** An answer in a few words. @param {any} value the response @returns {string} */
export function inWords(value) {
  const told = value?.decision ?? value,
    words = typeof told === "boolean" ? (told ? "yes" : "no") : typeof told === "object" ? JSON.stringify(told) : String(told);
  return words.length > FEW ? `${words.slice(0, FEW - 1)}…` : words;
}

/** @param {{requests: any[], onDone: (words: string) => void}} props `onDone` is called when the answer was accepted */
export function AnswerForm({ requests, onDone }) {
  const [request] = requests,
    isOne = requests.length === 1,
    form = useRef(/** @type {HTMLElement | null} */ (null)),
    { data: caller } = useRead("caller");
  const first = useMemo(() => firstAnswer(request, isOne), [request.request_id, isOne]);
  const [value, setValue] = useState(first),
    [comment, setComment] = useState(""),
    action = useAction();
  const listed = action.problem?.details?.errors ?? [],
    errors = useMemo(() => Object.fromEntries(listed.map((error) => [error.path, error.message])), [action.problem]);
  useEffect(
    () => void (/** @type {HTMLElement | null} */ (form.current?.querySelector('[aria-invalid="true"]'))?.focus()),
    [action.problem],
  );
  const send = (e) => {
    e.preventDefault();
    return action.run(async () => {
      for (const each of requests)
        await change(
          `runs/${encodeURIComponent(each.run_id)}/requests/${encodeURIComponent(each.request_id)}/response`,
          { value: responseOf(each, value), ...(comment ? { comment } : {}) },
        );
      onDone(inWords(responseOf(request, value)));
    });
  };
  return html`<form ref=${form} onSubmit=${send}><${AnswerFields} request=${request} value=${value} onChange=${setValue}
    errors=${errors} />
    <div class="field"><label>Comment <i>optional, kept with the answer</i><input type="text" value=${comment}
      onInput=${(e) => setComment(e.target.value)} /></label></div>
    ${listed.length ? html`<div class="trouble" role="alert">${listed.map((error) => html`<p>
      ${error.path.slice(1).replaceAll("/", ".") || "The answer"}: ${error.message}</p>`)}</div>` : html`<${Trouble}
      problem=${action.problem} />`}
    <div class="row"><button class="button main" disabled=${action.isBusy}>
      ${isOne ? "Send response" : `Send ${plural(requests.length, "response")}`}</button><span class="mut">
      ${caller ? `as ${caller.name}` : ""}</span></div></form>`;
}
