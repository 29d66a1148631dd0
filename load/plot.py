"""Plots with two logarithmic axes, as SVG without a library."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 60, 45
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")


def log_plot(title, x_title, series):
    """An SVG text of {name of a line: [(x, y), ...]}, all positive."""
    points = [point for line in series.values() for point in line]
    x_span, y_span = (_decades([point[axis] for point in points]) for axis in (0, 1))

    def place(x, y):
        return (
            LEFT + _share(x, x_span) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - _share(y, y_span) * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 20, title, "font-weight='bold'"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_title, "text-anchor='middle'"),
    ]
    for exponent in range(x_span[0], x_span[1] + 1):
        x, _ = place(10 ** exponent, 10 ** y_span[0])
        parts += [
            _line(x, TOP, x, HEIGHT - BOTTOM), _text(x, HEIGHT - BOTTOM + 16, number(10 ** exponent),
                                                     "text-anchor='middle' fill='#555'"),
        ]
    for exponent in range(y_span[0], y_span[1] + 1):
        _, y = place(10 ** x_span[0], 10 ** exponent)
        parts += [
            _line(LEFT, y, WIDTH - RIGHT, y),
            _text(LEFT - 6, y + 4, number(10 ** exponent), "text-anchor='end' fill='#555'"),
        ]
    at = LEFT
    for colour, (name, line) in zip(COLOURS, series.items(), strict=False):
        places = [place(*point) for point in line]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
            + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>'
        )
        for (x, y), (_, value) in zip(places, line, strict=True):
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>',
                _text(x, y - 7, number(value), f"text-anchor='middle' font-size='10' fill='{colour}'"),
            ]
        parts.append(_text(at, 40, name, f"fill='{colour}'"))
        at += 20 + 6.5 * len(name)
    return "\n".join([*parts, "</svg>", ""])


def number(value):
    """Two digits of it, and what of: 0.15, 3.4, 100, 10 k, 1 M."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _decades(values):
    """The powers of ten around some values, at least one apart."""
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))


def _share(value, span):
    return (math.log10(value) - span[0]) / (span[1] - span[0])


def _line(x, y, to_x, to_y):
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#ddd"/>'


def _text(x, y, text, style=""):
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>"
