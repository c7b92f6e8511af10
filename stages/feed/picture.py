"""Writes a plot: as the SVG it is, or drawn as PNG.

Owns the file it writes. Draws what the plots here use of SVG (rect, line, polyline, text) and nothing else.
"""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

KINDS = (".svg", ".png")
SCALE = 2  # of a PNG, so that it is sharp on today's screens
FONT = 12


def why_not(path: Path) -> str:
    """Return why no plot can be written there; empty when it can."""
    if path.suffix.lower() not in KINDS:
        return f"{path}: a plot is SVG or PNG: end its name with {' or '.join(KINDS)}"
    if path.suffix.lower() == ".png" and importlib.util.find_spec("PIL") is None:
        return f"{path}: PNG needs the package pillow: install it (headrace[feed] has it), or name the plot .svg"
    return ""


def write(svg: str, path: Path) -> None:
    """Write a plot as the name of the file says. Raises OSError."""
    if path.suffix.lower() == ".png":
        _drawn(svg).save(path, "PNG")
    else:
        path.write_text(svg)


def _drawn(svg: str):
    from PIL import Image, ImageDraw, ImageFont

    root = ElementTree.fromstring(svg)
    whole = int(float(root.get("width"))), int(float(root.get("height")))
    image = Image.new("RGB", (whole[0] * SCALE, whole[1] * SCALE), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(FONT * SCALE)
    for each in root:
        kind = each.tag.rpartition("}")[2]
        if kind == "rect" and "x" in each.attrib:
            x, y, width, height = (float(each.get(name)) * SCALE for name in ("x", "y", "width", "height"))
            draw.rectangle((x, y, x + width, y + height), each.get("fill"))
        elif kind == "line":
            ends = [float(each.get(name)) * SCALE for name in ("x1", "y1", "x2", "y2")]
            draw.line(ends, each.get("stroke"), SCALE)
        elif kind == "polyline":
            points = [float(number) * SCALE for number in re.split(r"[ ,]", each.get("points"))]
            draw.line(points, each.get("stroke"), 2 * SCALE, joint="curve")
        elif kind == "text":
            at = float(each.get("x")) * SCALE, float(each.get("y")) * SCALE
            anchor = {"end": "rs", "middle": "ms"}.get(each.get("text-anchor", ""), "ls")
            color = each.get("style", "").removeprefix("fill:") or "#333333"
            draw.text(at, each.text or "", color, font, anchor)
    return image
