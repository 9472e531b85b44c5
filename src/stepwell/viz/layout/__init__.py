"""Places the boxes of a graph in layers, so that arrows point down where possible.

This is the layered drawing of Sugiyama, in four decisions, each a module. Arrows that close a cycle
are reversed, and every box is as far down as the longest path to it (`layers`). An arrow over several
layers gets a point in each of them, and the layers are sorted so that few arrows cross (`ordering`).
Then boxes and points are moved sideways, in that order, until arrows are short and long ones straight
(`positions`). `layered` puts the four together and makes the routes.

Everything here is pure and deterministic: the same graph looks the same every time.
"""

from stepwell.viz.layout.layered import lay_out
from stepwell.viz.layout.values import Box, Connector, Layout, Point, Rectangle

__all__ = ["Box", "Connector", "Layout", "Point", "Rectangle", "lay_out"]
