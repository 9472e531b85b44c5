// The one place that names the vendored libraries.
import htm from "./vendor/htm.mjs";
import { h, render } from "./vendor/preact.mjs";

export { render };
export { useCallback, useEffect, useId, useMemo, useRef, useState } from "./vendor/hooks.mjs";
export const html = htm.bind(h);
