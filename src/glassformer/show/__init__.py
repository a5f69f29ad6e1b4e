"""Figures of runs and models. Needs Matplotlib, which is imported when a figure is drawn."""

from .figures.curves import training_curves as training_curves
from .style import figure as figure
from .style import save as save
