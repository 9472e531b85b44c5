// A form for a JSON schema. The value is checked by the server; the form only makes right ones easy to enter.
import { html, useId } from "./html.js";

/** @typedef {Record<string, any>} Schema */
/** @typedef {{schema: Schema, root: Schema, value: any, onChange: (value: any) => void, name?: string, path?: string, errors?: Record<string, string>, required?: boolean}} FieldProps */

const INPUTS = /** @type {Record<string, string>} */ ({
  date: "date",
  time: "time",
  "date-time": "datetime-local",
  email: "email",
  uri: "url",
});

/** What a choice or a number starts with, unless the schema has a default: nobody decides by not looking. */
const UNCHOSEN = "";

/** Follow references. @param {Schema} schema @param {Schema} root @returns {Schema} */
export function resolve(schema, root) {
  let { $ref, ...rest } = schema ?? {};
  for (let hops = 0; $ref && hops < 32; hops++) {
    const target =
      $ref
        .replace(/^#\//, "")
        .split("/")
        .reduce((at, key) => at?.[key.replace(/~1/g, "/").replace(/~0/g, "~")], root) ?? {};
    ({ $ref, ...rest } = { ...target, ...rest, $ref: target.$ref });
  }
  return rest.allOf?.length === 1 ? resolve({ ...rest.allOf[0], ...rest, allOf: undefined }, root) : rest;
}

/** The alternatives of a schema; null is one of them. @param {Schema} schema @param {Schema} root @returns {Schema[]} */
function alternatives(schema, root) {
  const listed =
    schema.anyOf ??
    schema.oneOf ??
    (Array.isArray(schema.type) ? schema.type.map((type) => ({ ...schema, type })) : []);
  return listed.map((each) => resolve(each, root));
}

const isNull = (schema) => schema.type === "null" || schema.const === null;

/**
 * What a field starts with. An alternative of several is known by its value, so there it is never empty.
 * @param {Schema} given @param {Schema} root @param {boolean} [isAlternative] @returns {any}
 */
export function initialValue(given, root = given, isAlternative = false) {
  const schema = resolve(given, root);
  if ("default" in schema) return schema.default;
  if ("const" in schema) return schema.const;
  if (schema.enum) return schema.enum.length === 1 ? schema.enum[0] : UNCHOSEN;
  const choices = alternatives(schema, root);
  if (choices.length) return choices.some(isNull) ? null : initialValue(choices[0], root, true);
  if (schema.type === "object" || schema.properties)
    return Object.fromEntries(
      Object.entries(schema.properties ?? {})
        .filter(([key, part]) => schema.required?.includes(key) || "default" in resolve(part, root))
        .map(([key, part]) => [key, initialValue(part, root)]),
    );
  if (schema.type === "boolean") return isAlternative ? false : UNCHOSEN;
  if (schema.type === "integer" || schema.type === "number") return isAlternative ? 0 : UNCHOSEN;
  return { array: [], string: "" }[/** @type {string} */ (schema.type)] ?? null;
}

/** Whether a value could be of a schema, as far as choosing an alternative needs it. @param {any} value @param {Schema} schema @param {Schema} root @returns {boolean} */
function fits(value, schema, root) {
  if ("const" in schema) return value === schema.const;
  if (schema.enum) return value === UNCHOSEN || schema.enum.includes(value);
  if (value === null) return isNull(schema);
  if (Array.isArray(value)) return schema.type === "array";
  if (typeof value === "object") {
    if (schema.type !== "object" && !schema.properties) return false;
    const constants = Object.entries(schema.properties ?? {})
      .map(([key, part]) => /** @type {[string, Schema]} */ ([key, resolve(part, root)]))
      .filter(([, part]) => "const" in part);
    return (
      constants.every(([key, part]) => value[key] === part.const) &&
      (schema.required ?? []).every((key) => key in value)
    );
  }
  if (typeof value === "number")
    return schema.type === "number" || (schema.type === "integer" && Number.isInteger(value));
  return schema.type === typeof value;
}

const spoken = (name) => name.replace(/_/g, " ").replace(/^./, (letter) => letter.toUpperCase());

const kindOf = (schema) =>
  schema.title ??
  (isNull(schema)
    ? "nothing"
    : "const" in schema
      ? String(schema.const)
      : (/** @type {Record<string, string>} */ ({
          string: "text",
          integer: "whole number",
          object: "fields",
          array: "list",
          boolean: "yes or no",
        })[schema.type] ??
        schema.type ??
        "value"));

/** Yes or no is a choice, unless one of them is what happens by default. @param {Schema} schema @returns {Schema} */
const asChoice = (schema) =>
  schema.type === "boolean" && !("default" in schema || "const" in schema) ? { ...schema, enum: [true, false] } : schema;

/** @param {any} value of a choice */
const wordOf = (value) => (value === true ? "yes" : value === false ? "no" : String(value));

/** @param {FieldProps} props */
export function Field(props) {
  const { root, value, onChange, name = "", path = "", errors = {}, required = true } = props;
  const schema = asChoice(resolve(props.schema, root)),
    id = useId(),
    error = errors[path];
  const label = schema.title && !(schema.properties && name) ? schema.title : spoken(name);
  const hints = [
    schema.description && html`<small id="${id}-hint">${schema.description}</small>`,
    error && html`<small id="${id}-error" class="error" role="alert">${error}</small>`,
  ];
  const described = [schema.description && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const common = { id, "aria-describedby": described, "aria-invalid": error ? "true" : undefined };
  const part = { ...props, schema, errors, path };
  if (value === undefined)
    return html`<div class="field"><button type="button" class="button quiet"
      onClick=${() => onChange(initialValue(schema, root))}>Add ${label.toLowerCase() || "a value"}</button>${hints}
      </div>`;
  const remove =
    required || "default" in schema
      ? null
      : html` <button type="button" class="button quiet small"
        onClick=${() => onChange(undefined)} aria-label="Leave out ${label.toLowerCase()}">leave out</button>`;
  const widget = pick(schema, root);
  if (widget === Nested || widget === Listed || widget === Mapped || widget === Chosen)
    return html`<fieldset class="field" aria-describedby=${described}>${label && html`<legend>${label}${remove}
      </legend>`}<${widget} ...${part} />${hints}</fieldset>`;
  if (widget === Segments)
    return html`<fieldset class="field" aria-describedby=${described}><legend>${label || "Answer"}${remove}</legend>
      <${Segments} ...${part} id=${id} />${hints}</fieldset>`;
  if (widget === Tick)
    return html`<div class="field tick"><input type="checkbox" ...${common} checked=${!!value}
      onChange=${(e) => onChange(e.target.checked)} /><label for=${id}>${label || "Yes"}</label>${remove}${hints}
      </div>`;
  return html`<div class="field"><label for=${id}>${label || "Answer"}${required ? "" : html` <i>optional</i>`}</label>
    ${remove}<${widget} ...${part} common=${common} />${hints}</div>`;
}

function pick(schema, root) {
  if ("const" in schema) return Constant;
  if (schema.enum) return schema.enum.length <= 4 ? Segments : Options;
  if (alternatives(schema, root).length) return Chosen;
  if (schema.properties) return Nested;
  if (schema.type === "object")
    return schema.additionalProperties && typeof schema.additionalProperties === "object" ? Mapped : Anything;
  if (schema.type === "array") return schema.items || schema.prefixItems ? Listed : Anything;
  if (schema.type === "boolean") return Tick;
  if (schema.type === "integer" || schema.type === "number") return Numeric;
  if (schema.type === "string") return INPUTS[schema.format] ? Dated : Text;
  return Anything;
}

/** @param {FieldProps} props */
function Constant({ schema }) {
  return html`<code>${JSON.stringify(schema.const)}</code>`;
}

/** @param {FieldProps & {id?: string}} props */
function Segments({ schema, value, onChange, id }) {
  return html`<div class="segments">${schema.enum.map((each) => html`<label class=${each === value ? "chosen" : ""}>
    <input type="radio" name=${id} checked=${each === value} onChange=${() => onChange(each)} />${wordOf(each)}
    </label>`)}</div>`;
}

/** @param {FieldProps & {common?: object}} props */
function Options({ schema, value, onChange, common }) {
  return html`<select ...${common} value=${schema.enum.indexOf(value)}
    onChange=${(e) => onChange(schema.enum[Number(e.target.value)])}>
    ${!schema.enum.includes(value) && html`<option value="-1" disabled>choose…</option>`}
    ${schema.enum.map((each, n) => html`<option value=${n}>${String(each)}</option>`)}</select>`;
}

function Tick() {
  return null; // drawn by Field, where the label follows the box
}

/** @param {FieldProps & {common?: object}} props */
function Numeric({ schema, value, onChange, common }) {
  const step = schema.type === "integer" ? 1 : (schema.multipleOf ?? "any");
  return html`<input type="number" ...${common} step=${step} min=${schema.minimum} max=${schema.maximum} value=${value}
    onInput=${(e) => onChange(e.target.value === "" ? "" : Number(e.target.value))} />`;
}

/** @param {FieldProps & {common?: object}} props */
function Text({ schema, value, onChange, common }) {
  const change = (e) => onChange(e.target.value);
  return schema.format === "line" || (schema.maxLength ?? 1000) <= 80
    ? html`<input type="text" ...${common} maxlength=${schema.maxLength} value=${value} onInput=${change} />`
    : html`<textarea ...${common} rows="3" maxlength=${schema.maxLength} value=${value} onInput=${change} />`;
}

/** @param {FieldProps & {common?: object}} props */
function Dated({ schema, value, onChange, common }) {
  const isMoment = schema.format === "date-time";
  const shown = isMoment && value ? localMoment(value) : value;
  return html`<input type=${INPUTS[schema.format]} ...${common} step=${isMoment ? 1 : undefined} value=${shown}
    onChange=${(e) => onChange(isMoment && e.target.value ? new Date(e.target.value).toISOString() : e.target.value)} />`;
}

function localMoment(value) {
  const at = new Date(value);
  return Number.isNaN(at.getTime())
    ? ""
    : new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

/** JSON as text, for what has no better form. @param {FieldProps & {common?: object}} props */
function Anything({ value, onChange, common }) {
  const change = (e) => {
    try {
      onChange(JSON.parse(e.target.value));
      e.target.setCustomValidity("");
    } catch {
      e.target.setCustomValidity("This is not JSON. A text needs quotes.");
      e.target.reportValidity();
    }
  };
  return html`<textarea ...${common} class="mono" rows="3" defaultValue=${JSON.stringify(value, null, 2)}
    onChange=${change} />`;
}

/** @param {FieldProps} props */
function Nested({ schema, root, value, onChange, path, errors }) {
  return html`<div class="nested">${Object.entries(schema.properties).map(
    ([
      key,
      part,
    ]) => html`<${Field} key=${key} name=${key} path="${path}/${key}" schema=${part} root=${root} errors=${errors}
    value=${value?.[key]} required=${(schema.required ?? []).includes(key)}
      onChange=${(changed) => onChange(replace(value ?? {}, key, changed))} />`,
  )}</div>`;
}

/** @param {Record<string, any>} value @param {string} key @param {any} changed undefined leaves it out */
function replace(value, key, changed) {
  const { [key]: _, ...rest } = value;
  return changed === undefined ? rest : { ...value, [key]: changed };
}

/** @param {FieldProps} props */
function Listed({ schema, root, value, onChange, path, errors }) {
  const items = Array.isArray(value) ? value : [],
    fixed = schema.prefixItems;
  const part = (n) => fixed?.[n] ?? schema.items ?? {};
  const change = (n, changed) => onChange(items.map((item, i) => (i === n ? changed : item)));
  return html`<div class="nested">${items.map(
    (
      item,
      n,
    ) => html`<div class="item" key=${n}><${Field} name=${`item ${n + 1}`} path="${path}/${n}" schema=${part(n)}
      root=${root} errors=${errors} value=${item} onChange=${(changed) => change(n, changed)} />
      ${!fixed && html`<button type="button" class="button quiet small" aria-label="Remove item ${n + 1}"
        onClick=${() => onChange(items.filter((_, i) => i !== n))}>remove</button>`}</div>`,
  )}
    ${!fixed && html`<button type="button" class="button quiet"
      onClick=${() => onChange([...items, initialValue(part(items.length), root)])}>Add an item</button>`}</div>`;
}

/** @param {FieldProps} props */
function Mapped({ schema, root, value, onChange, path, errors }) {
  const add = (e) => {
    const key = e.target.value.trim();
    if (key && !(key in value)) onChange({ ...value, [key]: initialValue(schema.additionalProperties, root) });
    e.target.value = "";
  };
  return html`<div class="nested">${Object.entries(value ?? {}).map(
    ([
      key,
      item,
    ]) => html`<${Field} key=${key} name=${key} path="${path}/${key}" schema=${schema.additionalProperties} root=${root}
      errors=${errors} value=${item} required=${false}
    onChange=${(changed) => onChange(replace(value, key, changed))} />`,
  )}<input type="text" placeholder="Add a key" aria-label="Add a key" onChange=${add} /></div>`;
}

/** One of several kinds of value. @param {FieldProps} props */
function Chosen(props) {
  const { schema, root, value, onChange } = props,
    choices = alternatives(schema, root),
    id = useId();
  const chosen = Math.max(
    0,
    choices.findIndex((choice) => fits(value, choice, root)),
  );
  const real = choices.filter((choice) => !isNull(choice));
  if (real.length === 1 && choices.length === 2)
    return html`<div><div class="tick"><input id=${id} type="checkbox" checked=${value !== null}
      onChange=${() => onChange(value === null ? initialValue(real[0], root) : null)} />
      <label for=${id}>Give ${kindOf(real[0])}</label></div>
      ${value !== null && html`<${Field} ...${props} name=""
        schema=${{ ...real[0], description: undefined, title: real[0].properties ? undefined : " " }} />`}</div>`;
  return html`<div><label class="hidden" for=${id}>Kind</label><select id=${id} value=${chosen}
    onChange=${(e) => onChange(initialValue(choices[Number(e.target.value)], root, true))}>
    ${choices.map((choice, n) => html`<option value=${n}>${kindOf(choice)}</option>`)}</select>
    ${!isNull(choices[chosen]) && !("const" in choices[chosen]) && html`<${Field} ...${props} name=""
      schema=${choices[chosen]} />`}</div>`;
}
