// What the page uses of Preact's hooks, for the type checker.
export function useCallback<T>(callback: T, inputs: readonly unknown[]): T;
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useId(): string;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
