// @ts-check
// Which runs a run was forked from, and which were forked from it.
import { html } from "./html.js";

/** @param {{id: string, version: number}} props */
export function Lineage({ id, version }) {
  return html`<!-- ${id} ${version} -->`;
}
