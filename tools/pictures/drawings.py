"""What each picture of the docs shows."""

from __future__ import annotations

from collections.abc import Callable

from tools.pictures.canvas import Canvas, Colours


def draw_superstep(colours: Colours) -> Canvas:
    sheet = Canvas(860, 330, "A superstep: messages, handlers side by side, one commit, events", colours)
    sheet.text(20, 32, "messages in flight", kind="faint")
    sheet.text(192, 32, "handlers, at the same time", kind="faint")
    for number, name in enumerate(("weather", "trains", "hotels")):
        y = 46 + number * 52
        sheet.box(20, y, 110, 38, f"message {number + 1}")
        sheet.line((130, y + 19), (190, y + 19))
        sheet.box(192, y, 130, 38, name, kind="good")
        sheet.line((322, y + 19), (430, y + 19), (430, 117), (468, 117))
        sheet.line((345 + number * 24, y + 19), (345 + number * 24, 228), kind="store", dashed=True)
    sheet.box(470, 83, 130, 68, "merge,\nin plan order")
    sheet.line((535, 151), (535, 228), kind="store")
    sheet.box(20, 230, 820, 40, "", kind="store")
    sheet.text(40, 255, "store", kind="store")
    sheet.text(390, 255, "log: each outcome when its handler returns", kind="store", anchor="end", size=12)
    sheet.text(535, 255, "commit n+1", anchor="middle")
    sheet.line((730, 230), (730, 153), kind="store")
    sheet.text(738, 195, "once it is stored", kind="store", size=12)
    sheet.box(670, 83, 120, 68, "events", kind="good")
    sheet.line((535, 270), (535, 300), (8, 300), (8, 117), (18, 117), kind="faint", dashed=True)
    sheet.text(290, 318, "the messages of the commit start the next superstep", kind="faint", anchor="middle")
    return sheet


def draw_crash(colours: Colours) -> Canvas:
    sheet = Canvas(860, 250, "A crash and a resume: what was committed or logged does not run again", colours)
    sheet.text(20, 34, "process 1", kind="faint")
    for number in range(3):
        x = 20 + number * 110
        sheet.box(x, 48, 90, 44, f"superstep {number + 1}", kind="good")
        sheet.line((x + 45, 92), (x + 45, 128), kind="store")
    sheet.box(350, 48, 90, 20, "weather", kind="good")
    sheet.box(350, 72, 60, 20, "hotels", kind="bad", dashed=True)
    sheet.line((440, 58), (462, 58), (462, 128), kind="store", dashed=True)
    sheet.cross(424, 82)
    sheet.text(474, 87, "kill -9", kind="bad")
    sheet.box(20, 130, 820, 34, "", kind="store")
    sheet.text(800, 152, "store", kind="store", anchor="middle")
    for number in range(3):
        sheet.text(65 + number * 110, 152, f"commit {number + 1}", anchor="middle", size=12)
    sheet.text(462, 152, "log: weather", anchor="middle", size=12)
    sheet.text(680, 152, "commit 4", anchor="middle", size=12)
    sheet.text(20, 220, "process 2", kind="faint")
    sheet.line((330, 164), (330, 204), (528, 204), kind="store")
    sheet.text(340, 222, "reads commit 3 and the log", kind="store", size=12)
    sheet.box(530, 184, 100, 40, "hotels again", kind="good")
    sheet.line((630, 204), (680, 204), (680, 166), kind="store")
    sheet.text(700, 209, "the run continues", kind="good")
    return sheet


def draw_zombie(colours: Colours) -> Canvas:
    sheet = Canvas(
        860, 290, "A fenced zombie: a process that fell silent cannot write after another took over", colours
    )
    for y, words in ((50, "process A"), (130, "store"), (210, "process B")):
        sheet.text(20, y + 5, words, kind="store" if words == "store" else "ink")
        sheet.line((100, y), (840, y), kind="faint", arrow=False)
    sheet.line((130, 50), (130, 126), kind="good")
    sheet.text(138, 92, "lease, fence 7", kind="good", size=12)
    sheet.line((250, 50), (250, 126), kind="good")
    sheet.text(258, 92, "commit 3 (7)", kind="good", size=12)
    sheet.box(350, 34, 210, 32, "paused, or cut off", kind="bad", dashed=True)
    sheet.text(372, 120, "the lease ends", kind="faint", size=12)
    sheet.line((480, 210), (480, 134), kind="good")
    sheet.text(488, 176, "lease, fence 8", kind="good", size=12)
    sheet.line((610, 210), (610, 134), kind="good")
    sheet.text(618, 176, "commit 4 (8)", kind="good", size=12)
    sheet.line((690, 50), (690, 114), kind="bad")
    sheet.cross(690, 122)
    sheet.text(702, 92, "commit 4 (7): refused", kind="bad", size=12)
    sheet.text(
        100, 262, "Every write carries the fence of its lease. The store refuses one that is lower than the newest."
    )
    return sheet


def draw_workers(colours: Colours) -> Canvas:
    sheet = Canvas(890, 300, "Workers and hints: the store is the truth, hints say only when to look", colours)
    sheet.box(20, 40, 130, 56, "web service")
    sheet.box(20, 204, 130, 56, "command line\nor Studio")
    sheet.box(330, 70, 190, 160, "store\n\nruns, logs,\nsignals, leases", kind="store")
    for number, name in enumerate(("worker 1", "worker 2", "worker 3")):
        y = 40 + number * 80
        sheet.box(710, y, 130, 52, name, kind="good")
        sheet.line((708, y + 34), (522, 116 + number * 34), kind="store")
    sheet.line((150, 68), (240, 68), (240, 110), (328, 110))
    sheet.text(160, 58, "submit, respond", size=12)
    sheet.line((150, 232), (240, 232), (240, 190), (328, 190))
    sheet.text(160, 252, "respond, cancel", size=12)
    for y in (66, 146, 226):
        sheet.line((425, 68), (425, 26), (870, 26), (870, y), (842, y), kind="faint", dashed=True)
    sheet.text(435, 20, "hint: look now (may be lost, may come twice)", kind="faint", size=12)
    sheet.text(540, 262, "acquire, drive, commit", kind="store", size=12)
    return sheet


def draw_signals(colours: Colours) -> Canvas:
    sheet = Canvas(860, 210, "A signal is stored first, and consumed in the commit that it causes", colours)
    sheet.box(20, 60, 140, 60, "person\nor program")
    sheet.line((160, 90), (228, 90))
    sheet.box(230, 60, 150, 60, "signal, stored\n(first one wins)", kind="store")
    sheet.line((380, 90), (448, 90))
    sheet.box(450, 60, 180, 60, "intake: one commit\nconsumes it", kind="store")
    sheet.line((630, 90), (698, 90))
    sheet.box(700, 60, 140, 60, "message to\na handler", kind="good")
    sheet.line((540, 120), (540, 152), kind="faint", dashed=True)
    sheet.text(540, 172, "a tombstone stays: the same key is refused for ever", kind="faint", anchor="middle")
    sheet.text(20, 34, "No process needs to be alive here", kind="faint")
    sheet.text(450, 34, "whichever process drives the run", kind="faint")
    return sheet


DRAWINGS: dict[str, Callable[[Colours], Canvas]] = {
    "superstep": draw_superstep,
    "crash": draw_crash,
    "zombie": draw_zombie,
    "workers": draw_workers,
    "signals": draw_signals,
}
