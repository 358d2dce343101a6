"""An image file as a converted model takes it, with Pillow and numpy alone; as vision.data.decode has it, to a level of 255 in JPEG files
and where the size changes. `quartet export` puts a copy of this file beside the model, so it imports nothing of this project."""

import numpy as np
from PIL import Image, ImageOps

NEEDS = ["pillow"]


def decode(settings, given):
    """The path of an image, or an open file, as [1, height, width, channels] float32, 0 to 255."""
    with Image.open(given) as image:
        upright = ImageOps.exif_transpose(image) if image.format == "JPEG" else image
        pixels = _channels(_pixels(upright), settings["channels"])
    height, width = settings["image_size"]
    if pixels.shape[:2] != (height, width):
        pixels = _fit(pixels, height, width, settings["resize"])
    return pixels[None].astype(np.float32)


def _pixels(image):
    """uint8 [h, w, 1 or 3], on white where it is transparent."""
    if image.mode.startswith("I"):  # 16 bits, of which the upper 8 count
        return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)[..., None]
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        wide = np.asarray(image.convert("RGBA")).astype(np.uint32)
        alpha = wide[..., 3:]
        return ((wide[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    if image.mode in ("L", "1"):
        return np.asarray(image.convert("L"))[..., None]
    return np.asarray(image.convert("RGB"))


def _channels(pixels, channels):
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    wide = pixels.astype(np.int64)
    return ((299 * wide[..., :1] + 587 * wide[..., 1:2] + 114 * wide[..., 2:] + 500) // 1000).astype(np.uint8)


def _fit(pixels, height, width, resize):
    tall, wide = pixels.shape[:2]
    if resize == "crop":
        scale = min(tall / height, wide / width)
        part = [min(max(round(edge * scale), 1), full) for edge, full in ((height, tall), (width, wide))]
        top, left = (tall - part[0]) // 2, (wide - part[1]) // 2
        return _scaled(pixels[top:top + part[0], left:left + part[1]], height, width)
    if resize == "squash":
        return _scaled(pixels, height, width)
    scale = min(height / tall, width / wide)
    inner = [min(max(round(full * scale), 1), edge) for edge, full in ((height, tall), (width, wide))]
    fitted = np.zeros((height, width, pixels.shape[2]), np.uint8)
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    fitted[top:top + inner[0], left:left + inner[1]] = _scaled(pixels, *inner)
    return fitted


def _scaled(pixels, height, width):
    """Antialiased bilinear, each channel in float32."""
    planes = [Image.fromarray(pixels[..., place].astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
              for place in range(pixels.shape[2])]
    return (np.stack([np.asarray(plane) for plane in planes], axis=-1) + 0.5).astype(np.uint8)
