// What the page uses of htm, for the type checker.
declare const htm: { bind(h: unknown): (strings: TemplateStringsArray, ...values: unknown[]) => object };
export default htm;
