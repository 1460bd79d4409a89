# SPDX-License-Identifier: Apache-2.0
"""What values have to show beside what IPython knows: `data` of a table, `chart` of a figure (chart.py), and
pictures of PIL that are shown or saved. Nothing is imported for it: the libraries are met when the user's code imports them.
"""

import importlib.util
import sys

DATA_MAX = 200000  # cells of a table that are told as data


class After:
    """Call functions once with the modules that they wait for, right after their import."""

    def __init__(self, waiting):
        self.waiting = waiting
        sys.meta_path.insert(0, self)

    def find_spec(self, name, _path=None, _target=None):
        then = self.waiting.pop(name, None)
        if not then:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module if spec and spec.loader else None
        if not execute:
            return spec

        def exec_module(module):
            execute(module)
            try:
                then(module)
            except AttributeError:
                pass  # another version, which has not what we would change

        spec.loader.exec_module = exec_module
        return spec


def table(frame):
    """Columns and their values."""
    if frame.size > DATA_MAX:
        return None
    return {str(name): frame.iloc[:, i].tolist() for i, name in enumerate(frame.columns)}


def pictures(display):
    def after(module):
        save = module.Image.save

        def show(self, title=None, **_ignored):
            display(self)

        def save_and_show(self, fp, *args, **keywords):
            save(self, fp, *args, **keywords)
            if isinstance(fp, (str, bytes)) or hasattr(fp, "__fspath__"):
                display(self)

        module.Image.show, module.Image.save = show, save_and_show

    return after


def boxes(module):
    """Keep the numbers of box plots with their axes: what is drawn does not tell them."""
    draw = module.Axes.bxp

    def bxp(self, bxpstats, *args, **keywords):
        bxpstats = list(bxpstats)
        self._parbake_boxes = getattr(self, "_parbake_boxes", []) + bxpstats
        return draw(self, bxpstats, *args, **keywords)

    module.Axes.bxp = bxp


def charts(chart):
    """As a method: IPython takes each formatter of figures away when it chooses their format."""

    def after(module):
        module.Figure._repr_e2b_chart_ = chart

    return after


def install(formatters, display, chart):
    """@formatters: IPython's, by mime type; @chart: a figure as a dictionary."""
    for module in ("pandas.core.frame", "pandas"):  # of versions 1, 2 and of 3
        formatters["e2b/data"].for_type_by_name(module, "DataFrame", table)
    After(
        {
            "PIL.Image": pictures(display),
            "matplotlib.axes._axes": boxes,
            "matplotlib.figure": charts(chart),
        }
    )
