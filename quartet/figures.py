"""Figures for reports of one's own: pictures in rows, and masks and boxes over them.

    from quartet import figures

    judgement.figures["worst"] = figures.image_grid(np.stack([figures.overlaid(one.inputs, mask=one.answers["mask"]) for one in worst]))
"""

from pipelines.base.figures import image_grid, new_figure, overlaid, style

__all__ = ["image_grid", "new_figure", "overlaid", "style"]
