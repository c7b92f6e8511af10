"""The plot of a load test, as SVG: what listeners held over time, and how the delays of the probes are distributed.

Owns nothing: figures in, text out.
"""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 80, 36, 34, 40
COLORS = ("#1b6ca8", "#c0392b", "#2e8b57", "#b8860b", "#6a4c93", "#008b8b", "#a0522d", "#555555")

Series = tuple[str, list[tuple[float, float]]]


def plot(title: str, held: list[Series], delays_ms: Sequence[float]) -> str:
    """Return an SVG: a panel for each of the two that has something to show."""
    panels = []
    if any(points for _, points in held):
        panels.append((f"{title}: prefixes held", "s", held[: len(COLORS)], False))
    if delays_ms:
        ordered = sorted(delays_ms)
        points = [(delay, (number + 1) / len(ordered)) for number, delay in enumerate(ordered)]
        panels.append((f"{title}: share of changes arrived within", "ms", [("", thinned(points))], True))
    height = HEIGHT * max(1, len(panels))
    body = "".join(_panel(number, *panel) for number, panel in enumerate(panels))
    style = "text{font:12px sans-serif;fill:#333}.t{font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="white"/>{body}</svg>\n'
    )


def thinned(points: list, most: int = 500) -> list:
    """Return at most so many of the points, the last one among them."""
    step = max(1, len(points) // most)
    return points[::step] + ([points[-1]] if points and (len(points) - 1) % step else [])


def _panel(number: int, title: str, unit: str, series: list[Series], is_share: bool) -> str:
    top = number * HEIGHT
    most_x = max((x for _, points in series for x, _ in points), default=0) or 1
    most_y = 1.0 if is_share else max((y for _, points in series for _, y in points), default=0) or 1

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + across * x / most_x, 1), round(top + HEIGHT - BOTTOM - up * y / most_y, 1)

    parts = [f'<text class="t" x="{LEFT}" y="{top + 18}">{escape(title)}</text>']
    for step in range(5):
        value_x, value_y = most_x * step / 4, most_y * step / 4
        x, y = at(value_x, value_y)
        bottom = top + HEIGHT - BOTTOM
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        label = f"{value_y:.0%}" if is_share else f"{value_y:,.0f}"
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{label}</text>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{value_x:.3g} {unit}</text>')
    for index, (name, points) in enumerate(series):
        line = " ".join("{},{}".format(*at(x, y)) for x, y in thinned(points))
        color = COLORS[index]
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.8" points="{line}"/>')
        if name:
            x = LEFT + 110 * index
            parts.append(f'<text x="{x}" y="{top + HEIGHT - 6}" style="fill:{color}">{escape(name[:16])}</text>')
    return "".join(parts)
