"""A figure of matplotlib that is drawn once when it is saved."""

from __future__ import annotations

from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine


class LaidOutFigure(Figure):
    """Lays out its axes before it is saved, without the drawing that matplotlib throws away to have them laid out."""

    def draw(self, renderer: RendererBase) -> None:
        """Draw it; while it still has a layout to find, as at the beginning of `savefig`, find that alone."""
        layout = self.get_layout_engine()
        if isinstance(layout, ConstrainedLayoutEngine):
            layout.execute(self)
        else:  # `savefig` turns it off once it is found
            super().draw(renderer)
