// What the page uses of Preact, for the type checker.
export function h(type: unknown, props: object | null, ...children: unknown[]): object;
export function render(node: unknown, parent: Element): void;
