# SPDX-License-Identifier: Apache-2.0
"""A figure of matplotlib as a chart that a client can draw anew: E2B's types and fields. Only what is drawn is
looked at, so it is the same whichever library drew it.
"""

import re
import sys

UNIT = re.compile(r"\(([^()]+)\)\s*$|\[([^][]+)\]\s*$")


def unit(label):
    """"Time (s)" is in "s"."""
    found = UNIT.search(label or "")
    return (found.group(1) or found.group(2)).strip() if found else None


def number(value):
    return float(value)


class Side:
    """One axis: its scale, and values in the words of what was plotted."""

    def __init__(self, axis):
        self.axis = axis
        converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
        kind = type(converter).__name__
        self.dates = "Date" in kind
        self.names = {}
        if kind == "StrCategoryConverter":
            mapping = getattr(axis.get_units(), "_mapping", {})
            self.names = {int(at): name for name, at in mapping.items()}
        self.scale = "datetime" if self.dates else "categorical" if self.names else axis.get_scale()

    def value(self, at):
        if isinstance(at, (str, bytes)):
            return str(at)
        if hasattr(at, "isoformat"):
            return at.isoformat()
        if self.dates:
            return self.date(at)
        at = number(at)
        return self.names.get(int(at), at) if at == int(at) else at

    def date(self, at):
        dates = sys.modules["matplotlib.dates"]
        if not isinstance(at, (int, float)) and "datetime64" in type(at).__name__:
            at = dates.date2num(at)
        return dates.num2date(number(at)).replace(tzinfo=None).isoformat()

    def ticks(self):
        values = self.axis.get_ticklocs()
        return [self.date(at) for at in values] if self.dates else [number(at) for at in values]

    def labels(self):
        return [label.get_text() for label in self.axis.get_ticklabels()]

    def name_at(self, at):
        """How the reader of the axis calls the place @at."""
        for place, label in zip(self.axis.get_ticklocs(), self.labels()):
            if abs(place - at) < 1e-9 and label:
                return label
        return str(self.value(at))


def described(axes, kind, elements, points=False):
    x, y = Side(axes.xaxis), Side(axes.yaxis)
    chart = {
        "type": kind,
        "title": axes.get_title(),
        "x_label": axes.get_xlabel() or None,
        "y_label": axes.get_ylabel() or None,
        "x_unit": unit(axes.get_xlabel()),
        "y_unit": unit(axes.get_ylabel()),
        "elements": elements,
    }
    if points:
        chart.update(
            x_ticks=x.ticks(), x_tick_labels=x.labels(), x_scale=x.scale,
            y_ticks=y.ticks(), y_tick_labels=y.labels(), y_scale=y.scale,
        )
    return chart


def series(axes, label, xs, ys):
    x, y = Side(axes.xaxis), Side(axes.yaxis)
    return {"label": str(label), "points": [[x.value(a), y.value(b)] for a, b in zip(xs, ys)]}


def lines(axes):
    return [
        series(axes, one.get_label(), one.get_xdata(), one.get_ydata())
        for one in axes.lines
    ]


def scatters(axes):
    offsets = [(one, one.get_offsets()) for one in axes.collections]
    return [series(axes, one.get_label(), at[:, 0], at[:, 1]) for one, at in offsets]


def bars(axes):
    elements = []
    for group in axes.containers:
        flat = getattr(group, "orientation", "vertical") == "horizontal"
        side = Side(axes.yaxis if flat else axes.xaxis)
        for bar in group:
            at = bar.get_y() + bar.get_height() / 2 if flat else bar.get_x() + bar.get_width() / 2
            elements.append({
                "label": side.name_at(at),
                "value": number(bar.get_width() if flat else bar.get_height()),
                "group": str(group.get_label()),
            })
    return elements


def wedges(axes):
    return [
        {"label": str(one.get_label()), "angle": number(one.theta2 - one.theta1), "radius": number(one.r)}
        for one in axes.patches
    ]


def boxes(axes):
    keys = (("min", "whislo"), ("first_quartile", "q1"), ("median", "med"),
            ("third_quartile", "q3"), ("max", "whishi"))
    elements = []
    for i, stats in enumerate(axes._parbake_boxes):
        one = {key: number(stats[name]) for key, name in keys}
        one["label"] = str(stats.get("label", i + 1))
        one["outliers"] = [number(value) for value in stats.get("fliers", ())]
        elements.append(one)
    return elements


def of_axes(axes):
    """The kind of chart that its parts make."""
    if getattr(axes, "name", "") != "rectilinear":
        return {"type": "unknown", "title": axes.get_title(), "elements": []}
    kinds = {type(one).__name__ for one in axes.patches}
    marks = {type(one).__name__ for one in axes.collections}
    if getattr(axes, "_parbake_boxes", None):
        return described(axes, "box_and_whisker", boxes(axes))
    if axes.images or marks - {"PathCollection"}:
        pass
    elif kinds == {"Wedge"}:
        return {"type": "pie", "title": axes.get_title(), "elements": wedges(axes)}
    elif kinds == {"Rectangle"} and any(hasattr(one, "patches") for one in axes.containers):
        return described(axes, "bar", bars(axes))
    elif not kinds and marks:
        return described(axes, "scatter", scatters(axes), points=True)
    elif not kinds and axes.lines:
        return described(axes, "line", lines(axes), points=True)
    return {"type": "unknown", "title": axes.get_title(), "elements": []}


def of_figure(figure):
    """None where there is nothing to tell. A chart is an extra: none of its own faults fails a cell."""
    try:
        charts = [of_axes(axes) for axes in figure.axes if axes.get_visible()]
    except Exception:
        return None
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0]
    above = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": above.get_text() if above else "", "elements": charts}
