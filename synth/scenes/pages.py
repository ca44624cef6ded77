"""Screens as HTML pages: real buttons and fields in the places of screens.py, which a browser draws and which answer to its mouse and
keyboard.

A cell is 8 x 8 CSS pixels and a widget the middle 6 x 6 of it, so that its box is that of the screen. A click presses a button (its
colour gets a dark frame, and `presses` its name); a field is a line of one letter, and is read-only once it holds one. Nothing else is said to the page: that
a click elsewhere takes the focus away is what browsers do. A pointer lies in the cell that the mouse was moved to last, and takes no clicks.

    page([screen])      one screen, live
    page(screens)       a sheet: the same markup side by side, to be drawn with one picture (a document has one focus, so only the
                        first of several fields that show it has it)

The caret does not blink: it is drawn where a field has the focus and holds nothing, so a picture does not depend on when it was taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.scenes.scenes import CELL, COLOURS, GROUND
from synth.scenes.screens import EDGE, INK, Screen, Widget

COLUMNS = 16  # screens in a row of a sheet
_GAP = (CELL - EDGE) // 2


def _rgb(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{v:02x}" for v in colour)


def _spots(rows: str) -> str:
    """A pointer of square pixels: of one pixel, the shadows of the others."""
    inks = {"#": _rgb(INK), "o": "white"}
    spots = [(x, y, inks[c]) for y, row in enumerate(rows.split()) for x, c in enumerate(row) if c in inks]
    return ", ".join(f"{x}px {y}px {ink}" for x, y, ink in spots)


# Every edge but those of letters lies between pixels: where one is smoothed, its colour depends on how the browser came to paint it.
STYLE = f"""
html, body, main {{ margin: 0; background: {_rgb((GROUND,) * 3)}; overflow: hidden }}
main {{ position: absolute }}
button, input {{ all: unset; position: absolute; box-sizing: border-box; width: {EDGE}px; height: {EDGE}px; border: 1px solid;
  font: bold 5px/3px "DejaVu Sans Mono", monospace; text-align: center; color: {_rgb(INK)}; caret-color: transparent; cursor: default }}
button {{ clip-path: polygon(1px 0, 5px 0, 5px 1px, 6px 1px, 6px 5px, 5px 5px, 5px 6px, 1px 6px, 1px 5px, 0 5px, 0 1px, 1px 1px) }}
button.pressed {{ box-shadow: inset 0 0 0 1px {_rgb(INK)} }}
input {{ background: white }}
input::selection {{ background: transparent }}
input.focus {{ background: linear-gradient({_rgb(INK)} 0 0) 0 0 / 1px 100% no-repeat white }}
i {{ position: absolute; pointer-events: none; width: 1px; height: 1px; background: {_rgb(INK)}; box-shadow: {_spots("#o.. ##o. ###o #oo.")} }}
i[hidden] {{ display: none }}
"""
SCRIPT = f"""{{
globalThis.presses = []
const pointer = document.querySelector('i')
const show = field => field.classList.toggle('focus', field === document.activeElement && !field.value)
for (const b of document.querySelectorAll('button')) b.onclick = () => {{ presses.push(b.title); b.classList.add('pressed') }}
for (const f of document.querySelectorAll('input')) {{
  f.onfocus = f.onblur = () => show(f)
  f.oninput = () => {{ f.readOnly = !!f.value; show(f) }}
}}
document.querySelector('input.focus')?.focus()
document.onmousemove = e => {{
  pointer.hidden = false
  for (const [side, at] of [['left', e.clientX], ['top', e.clientY]]) pointer.style[side] = Math.floor(at / {CELL}) * {CELL} + {CELL // 2} + 'px'
}}
}}"""


def _widget(w: Widget) -> str:
    left, top, *_ = w.box
    colour = _rgb(COLOURS[w.colour])
    place = f"left: {left}px; top: {top}px; border-color: {colour}"
    if w.kind == "button":
        return f'<button title="{w.name}" class="{w.state}" style="{place}; background: {colour}"></button>'
    held = "" if w.state == "focus" else w.state
    read_only = " readonly" if held else ""
    return f'<input title="{w.name}" class="{"" if held else w.state}" style="{place}" maxlength="1" value="{held}" autocomplete="off"{read_only}>'


def page(screens: Sequence[Screen]) -> str:
    """An HTML document that shows screens of one side, COLUMNS in a row. Raises ValueError for none, or for screens of several sides."""
    if len({s.side for s in screens}) != 1:
        raise ValueError(f"a page of {len(screens)} screens needs screens of one side")
    side, shown = screens[0].side, []
    for i, screen in enumerate(screens):
        x, y = (CELL * v + CELL // 2 for v in screen.cursor or (0, 0))
        pointer = f'<i style="left: {x}px; top: {y}px"{"" if screen.cursor else " hidden"}></i>'
        place = f"left: {i % COLUMNS * side}px; top: {i // COLUMNS * side}px; width: {side}px; height: {side}px"
        shown.append(f'<main style="{place}">{"".join(map(_widget, screen.widgets))}{pointer}</main>')
    body = "\n".join(shown)
    return f'<!doctype html><meta charset="utf-8"><title>Screens</title><style>{STYLE}</style>\n{body}\n<script>{SCRIPT}</script>\n'
