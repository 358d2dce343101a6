"""Masks and boxes over pictures, pixel by pixel."""

import numpy as np
import pytest

from pipelines.base.figures import overlaid


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 1), (6, 8, 3)])
def test_a_mask_tints_its_pixels_and_a_box_is_drawn_on_its_border(shape):
    image = np.full(shape, 100, np.uint8)
    mask = np.zeros((6, 8), int)
    mask[0, :2] = 1, 2
    drawn = overlaid(image, mask=mask, boxes=[[4, 2, 8, 6]])
    assert drawn.shape == (6, 8, 3) and drawn.dtype == np.uint8
    assert tuple(drawn[0, 0]) == tuple(np.rint(50 + np.array([0xD5, 0x5E, 0]) / 2).astype(int))
    assert tuple(drawn[0, 1]) != tuple(drawn[0, 0]) and (drawn[0, 2:] == 100).all()
    border = (drawn[2:, 4:] == [0xD5, 0x5E, 0]).all(-1)
    assert border[[0, -1]].all() and border[:, [0, -1]].all() and not border[1:-1, 1:-1].any() and (drawn[:, :4] != 0xD5).all()


def test_a_box_that_reaches_out_of_the_picture_ends_at_its_edge():
    assert overlaid(np.zeros((4, 4)), boxes=[[-3, -3, 9, 9]], names=[1])[0].any(-1).all()
