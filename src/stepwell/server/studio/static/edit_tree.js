// A JSON value as a tree whose leaves can be changed, and whose parts can be removed or added.
// Nothing is changed here: the edits are a list.
import { html, useState } from "./html.js";
import { Draft } from "./parts.js";

/** @typedef {Record<string, import("./fork.js").Edit>} Edits by JSON Pointer */
/** @typedef {{name: string, path: string, value: any, edits: Edits, onEdit: (edits: Edits) => void}} PartProps */

const escape = (key) => key.replaceAll("~", "~0").replaceAll("/", "~1");

/** What somebody wrote, as JSON where it is JSON. @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {Edits} edits @param {string} path */
function without(edits, path) {
  const { [path]: _, ...rest } = edits;
  return rest;
}

export function EditTree({ value, edits, onEdit }) {
  const [key, setKey] = useState(""),
    [text, setText] = useState("");
  const add = () =>
    key &&
    (onEdit({ ...edits, [`/${escape(key)}`]: { verb: key in value ? "set" : "add", value: parse(text) } }),
    setKey(""),
    setText(""));
  const added = Object.entries(edits).filter(([, edit]) => edit.verb === "add");
  return html`<div class="tree edit mono">${Object.entries(value).map(([name, part]) => html`<${Part} key=${name}
    name=${name} path="/${escape(name)}" value=${part} edits=${edits} onEdit=${onEdit} />`)}
    ${added.map(([path, edit]) => html`<div class="leaf changed" key=${path}><span class="key">${path.slice(1)}</span>
      ${JSON.stringify(edit.value)} <button type="button" class="button quiet small"
      onClick=${() => onEdit(without(edits, path))}>undo</button></div>`)}
    <div class="row"><input type="text" aria-label="New key" placeholder="new key" size="12" value=${key}
      onInput=${(e) => setKey(e.target.value)} /><input type="text" aria-label="New value" placeholder="value" size="16"
      value=${text} onInput=${(e) => setText(e.target.value)} /><button type="button" class="button small"
      onClick=${add}>Add</button></div></div>`;
}

/** @param {PartProps} props */
function Part(props) {
  const { name, path, value, edits, onEdit } = props,
    edit = edits[path],
    isTree = value !== null && typeof value === "object" && Object.keys(value).length > 0,
    [isOpen, setOpen] = useState(path.split("/").length < 3);
  const tools = edit
    ? html`<button type="button" class="button quiet small" aria-label="Undo the change of ${name}"
      onClick=${() => onEdit(without(edits, path))}>undo</button>`
    : html`<button type="button" class="button quiet small remove" aria-label="Remove ${name}"
      onClick=${() => onEdit({ ...edits, [path]: { verb: "delete" } })}>remove</button>`;
  if (edit?.verb === "delete") return html`<div class="leaf changed"><s class="key">${name}</s> ${tools}</div>`;
  if (!isTree)
    return html`<div class="leaf ${edit ? "changed" : ""}"><span class="key">${name}</span>
      <${Atom} ...${props} /> ${tools}</div>`;
  return html`<div><button type="button" class="twig" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
    <i aria-hidden="true">${isOpen ? "▾" : "▸"}</i><span class="key">${name}</span></button> ${tools}
    ${isOpen && html`<div class="twigs">${Object.entries(value).map(([key, part]) => html`<${Part} key=${key}
      name=${key} path="${path}/${escape(key)}" value=${part} edits=${edits} onEdit=${onEdit} />`)}</div>`}</div>`;
}

/** @param {PartProps} props */
function Atom({ name, path, value, edits, onEdit }) {
  const now = edits[path] ? edits[path].value : value,
    set = (changed) =>
      onEdit(changed === value ? without(edits, path) : { ...edits, [path]: { verb: "set", value: changed } });
  if (typeof value === "boolean")
    return html`<input type="checkbox" aria-label=${name} checked=${now} onChange=${(e) => set(e.target.checked)} />`;
  if (typeof value === "number")
    return html`<${Draft} type="number" step="any" aria-label=${name} value=${now}
      onChange=${(text) => text !== "" && set(Number(text))} />`;
  if (typeof value === "string")
    return html`<${Draft} aria-label=${name} value=${now} onChange=${set} />`;
  return html`<${Draft} aria-label=${name} value=${JSON.stringify(now)} onChange=${(text) => set(parse(text))} />`;
}
