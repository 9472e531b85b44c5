// One stream for the whole page says what changed; views read again what they show.
import { useStream } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";

const PAUSE = 300; // milliseconds in which changes are collected
const REST = 1000; // milliseconds between two redraws at least: a busy store must not make the page busy
const ASKED_AGAIN = 15000; // milliseconds after which a change of any run counts as one: the stream says nothing of the oldest
const ASKED = ["request_info", "request_answered"];
const PIECES = ["update", "withdrawn"]; // live, not durable
const NAMES = [
  "run",
  "superstep_completed",
  "status",
  "request_info",
  "request_answered",
  "failed",
  "end",
  "executor_invoked",
  "executor_returned",
  "executor_completed",
  ...PIECES,
];
const MOST = 20000; // characters that are kept of an answer on its way; the whole is stored when the answer is

/** @typedef {{executor: string, text: string, isWithdrawn: boolean}} LiveText */
/** `asked` changes with what is asked of people. @typedef {{version: number, asked: number, isOpen: boolean, texts: LiveText[]}} Feed */

const pieceOf = (data) => (typeof data === "string" ? data : (data?.text ?? ""));

/** @param {Map<string, LiveText>} texts @param {string} name @param {any} event */
function keep(texts, name, event) {
  const executor = event.executor ?? "",
    before = texts.get(executor);
  if (name === "withdrawn") before && texts.set(executor, { ...before, isWithdrawn: true });
  else
    texts.set(executor, {
      executor,
      text: `${before && !before.isWithdrawn ? before.text : ""}${pieceOf(event.data)}`.slice(-MOST),
      isWithdrawn: false,
    });
}

/** What changes, and what agents of the run that is shown say before it is stored. @param {string | undefined} id @returns {Feed} */
export function useFeed(id) {
  const [version, setVersion] = useState(0),
    [asked, setAsked] = useState(0),
    waiting = useRef(/** @type {Set<string>} */ (new Set())),
    askedAt = useRef(0),
    [texts, setTexts] = useState(/** @type {LiveText[]} */ ([]));
  const timer = useRef(0),
    drawn = useRef(-REST),
    frame = useRef(0),
    live = useRef(/** @type {Map<string, LiveText>} */ (new Map()));
  useEffect(() => {
    live.current.clear();
    setTexts([]);
  }, [id]);
  const isOpen = useStream(
    `stream?page=true&live=true&damaged=true&limit=200${id === undefined ? "" : `&run=${encodeURIComponent(id)}`}`,
    NAMES,
    (name, event) => {
      if (PIECES.includes(name)) keep(live.current, name, event);
      else {
        if (name === "executor_completed") live.current.delete(event.executor);
        else if (name === "superstep_completed") live.current.clear(); // pieces may arrive after the commit that has the whole
        const wasWaiting = waiting.current.has(event.run_id);
        if (name === "run") waiting.current[event.status === "waiting" ? "add" : "delete"](event.run_id);
        if (wasWaiting || event.status === "waiting" || ASKED.includes(name)) askedAt.current = 0;
        timer.current ||= setTimeout(
          () => {
            timer.current = 0;
            drawn.current = performance.now();
            setVersion((n) => n + 1);
            if (drawn.current - askedAt.current < ASKED_AGAIN && askedAt.current) return;
            askedAt.current = drawn.current;
            setAsked((n) => n + 1);
          },
          Math.max(PAUSE, drawn.current + REST - performance.now()),
        );
      }
      frame.current ||= requestAnimationFrame(() => {
        frame.current = 0;
        setTexts([...live.current.values()]);
      });
    },
  );
  return { version, asked, isOpen, texts };
}
