// The graph of a run, where the server has placed it. The page only draws, pans and zooms.
import { link } from "./address.js";
import { html, useEffect, useRef, useState } from "./html.js";

/** @typedef {{id: string, kind: string, label: string, note?: string, lines: string[], captions: string[], x: number, y: number, width: number, height: number, state?: string, count?: number, inner?: Drawing, run?: string, ran_in?: string}} Box */
/** @typedef {{source: string, target: string, label: string, dotted: boolean, path: string, state?: string, label_box?: {x: number, y: number}}} Edge */
/** @typedef {{width: number, height: number, nodes: Box[], edges: Edge[]}} Drawing */
/** @typedef {{k: number, x: number, y: number}} Transform */
/** What is chosen, what a commit touched, and what happens on a click. @typedef {{chosen?: string, lit?: string[], onChoose?: (id: string) => void, onOpen: (run: string) => void}} Marks */

const LINE = 16,
  SMALL = 14;

/** How an arrow is drawn that messages went along, or are on now. @type {Record<string, string>} */
const HEAT = { taken: "past", current: "hot" };

/** Answer a click, and the keys that mean one. @param {() => void} act */
const button = (act) => ({
  role: "button",
  tabindex: 0,
  onClick: (e) => (e.stopPropagation(), act()),
  onKeyDown: (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), e.stopPropagation(), act()),
});

function Shapes({ drawing, marks }) {
  const edges = drawing.edges.map((edge) => {
    const heat = HEAT[edge.state ?? ""] ?? "";
    return html`<path class="edge ${heat} ${edge.dotted ? "dotted" : ""}"
      d=${edge.path} marker-end="url(#tip${heat})" />
      ${edge.label && edge.label_box && html`<text class="label" x=${edge.label_box.x} y=${edge.label_box.y + 3}>
        ${edge.label.length > 28 ? `${edge.label.slice(0, 27)}…` : edge.label}<title>${edge.label}</title></text>`}`;
  });
  return html`${edges}${drawing.nodes.map((box) => html`<${Shape} key=${box.id} box=${box} marks=${marks} />`)}`;
}

function Shape({ box, marks: { chosen, lit, onChoose, onOpen } }) {
  const left = box.x - box.width / 2,
    top = box.y - box.height / 2,
    text = [
      ...box.lines.map((line) => /** @type {const} */ ([line, LINE])),
      ...box.captions.map((line) => /** @type {const} */ ([line, SMALL])),
    ];
  const height = text.reduce((sum, [, size]) => sum + size, 0),
    isChosen = box.id === chosen,
    { run, inner } = box;
  let y = inner ? top + 8 : box.y - height / 2;
  const lines = text.map(
    ([line, size]) => (
      (y += size),
      html`<text class=${size === SMALL ? "small" : ""} x=${box.x} y=${y - 4}>${line}</text>`
    ),
  );
  const choose =
    onChoose && box.kind !== "fan-in" ? { ...button(() => onChoose(box.id)), "aria-pressed": isChosen } : {};
  const before = box.ran_in ? `ran in ${box.ran_in}, before the fork` : "";
  return html`<g class="box ${box.state ?? ""} ${before && "before"} ${isChosen ? "chosen" : ""} ${lit?.includes(box.id) ? "lit" : ""}"
    data-node=${box.id} data-state=${box.state}>
    <g aria-label="${box.label}, ${before || box.captions.join(", ") || box.kind}" ...${choose}>
      ${before && html`<title>${box.label} ${before}</title>`}<rect class="frame" x=${left}
      y=${top} width=${box.width} height=${box.height} rx="10" />${lines}</g>
    ${inner && html`<g transform="translate(${box.x - inner.width / 2},${top + height + 8})"><${Shapes} drawing=${inner}
      marks=${{ onOpen }} /></g>`}
    ${run && html`<g class="opener" aria-label="${inner ? "Close" : "Open"} the sub-workflow of ${box.label}"
      aria-expanded=${!!inner} ...${button(() => onOpen(run))}><rect x=${left - 8}
      y=${top - 8} width="18" height="18" rx="5" /><text x=${left + 1} y=${top + 5}>${inner ? "−" : "+"}</text></g>`}
    ${run && inner && html`<a class="inner" href=${link(["runs", run])}><text class="small" x=${left + box.width - 22}
      y=${top + 18}>its run</text></a>`}
    ${(box.count ?? 0) > 1 && html`<rect class="count" x=${left + box.width - 22}
      y=${top - 8} width="28" height="16" rx="8" /><text class="small" x=${left + box.width - 8}
      y=${top + 4}>×${box.count}</text>`}</g>`;
}

export function Graph({ drawing, marks }) {
  const svg = useRef(/** @type {SVGSVGElement | null} */ (null)),
    drag = useRef(/** @type {{at: DOMPoint, from: Transform} | null} */ (null));
  const [at, setAt] = useState(/** @type {Transform} */ ({ k: 1, x: 0, y: 0 }));
  const { width, height } = drawing,
    [least, low] = innerWidth < 900 ? [380, 300] : [860, 560],
    box = { width: Math.max(width, least), height: Math.max(height, low) }; // a small graph is not drawn large
  const point = (e) =>
    new DOMPoint(e.clientX, e.clientY).matrixTransform(/** @type {any} */ (svg.current).getScreenCTM().inverse());
  const zoom = (factor, centre = { x: box.width / 2, y: box.height / 2 }) =>
    setAt((t) => {
      const k = Math.min(4, Math.max(0.2, t.k * factor));
      return { k, x: centre.x - ((centre.x - t.x) * k) / t.k, y: centre.y - ((centre.y - t.y) * k) / t.k };
    });
  useEffect(() => {
    const wheel = (e) => (e.preventDefault(), zoom(Math.exp(-e.deltaY / 400), point(e)));
    svg.current?.addEventListener("wheel", wheel, { passive: false });
    return () => svg.current?.removeEventListener("wheel", wheel);
  }, [width, height]);
  const move = (e) => {
    if (!drag.current) return;
    const to = point(e),
      { at: from, from: t } = drag.current;
    setAt({ ...t, x: t.x + to.x - from.x, y: t.y + to.y - from.y });
  };
  return html`<svg ref=${svg} class="graph" viewBox="${(width - box.width) / 2} ${(height - box.height) / 2} ${box.width} ${box.height}" role="group" aria-label="Graph of the workflow"
      onPointerDown=${(e) => /** @type {Element} */ (e.target).closest(".box") || (drag.current = { at: point(e), from: at })}
        onPointerMove=${move} onPointerUp=${() => (drag.current = null)} onPointerLeave=${() => (drag.current = null)}>
      <defs>${["", "past", "hot"].map((heat) => html`<marker id="tip${heat}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
        <path class="tip ${heat}" d="M0,0L8,4L0,8z" /></marker>`)}</defs>
      <g transform="translate(${at.x},${at.y}) scale(${at.k})"><${Shapes} drawing=${drawing} marks=${marks} /></g></svg>
    <div class="zoom"><button class="button" aria-label="Zoom in" onClick=${() => zoom(1.25)}>+</button>
      <button class="button" aria-label="Zoom out" onClick=${() => zoom(0.8)}>−</button>
      <button class="button" aria-label="Fit" onClick=${() => setAt({ k: 1, x: 0, y: 0 })}>⤢</button></div>`;
}
