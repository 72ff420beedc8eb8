"""Random small changes of patches, so that training sees what detection noise and light do to them.

In: patches. Out: patches of the same shape, each turned, scaled, shifted and relit by its own random amounts.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class JitterSettings:
    """Ranges of the random changes; 0 switches one off. Each patch draws its own, uniformly in +- the range.

    Attributes:
        rotation_deg: rotation about the patch centre, degrees.
        scale: relative change of scale; 0.1 draws factors of 1/1.1 to 1.1, uniform in their logarithm.
        shift_px: shift along x and along y, px.
        contrast: relative change of contrast about the patch mean, as `scale`.
        brightness: added gray value, where 1 is white.
        gamma: relative change of the exponent of gray values, as `scale`.
        noise: standard deviation of normal noise per pixel, where 1 is white.
    """

    rotation_deg: float = 8.0
    scale: float = 0.1
    shift_px: float = 1.0
    contrast: float = 0.2
    brightness: float = 0.1
    gamma: float = 0.2
    noise: float = 0.01

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value >= 0:
                raise ValueError(f"jitter {field.name} is {value}, expected 0 or more")


NO_JITTER = JitterSettings(*[0.0] * len(dataclasses.fields(JitterSettings)))


def jitter(key: jax.Array, patches: jax.Array, settings: JitterSettings) -> jax.Array:
    """Applies random rotation, scale and shift, then gamma, contrast, brightness and noise.

    Args:
        key: random key; the same key changes patches in the same way.
        patches: float32 [B, 32, 32] in 0..1.
        settings: ranges, static under jit.

    Returns:
        float32 [B, 32, 32] in 0..1; pixels from outside a patch repeat its border.
    """
    count = len(patches)
    keys = jax.random.split(key, 7)

    def symmetric(i: int, reach: float, *shape: int) -> jax.Array:
        return jax.random.uniform(keys[i], (count, *shape), minval=-reach, maxval=reach)

    def factor(i: int, change: float) -> jax.Array:
        return (1 + change) ** symmetric(i, 1)

    angle = jnp.deg2rad(symmetric(0, settings.rotation_deg))
    patches = warp(patches, angle, factor(1, settings.scale), symmetric(2, settings.shift_px, 2))
    light = (factor(3, settings.gamma), factor(4, settings.contrast), symmetric(5, settings.brightness))
    patches = relight(patches, *light)
    return jnp.clip(patches + settings.noise * jax.random.normal(keys[6], patches.shape), 0, 1)


def warp(patches: jax.Array, angle: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Turns, scales and shifts what is seen in each patch, sampled bilinearly.

    Args:
        patches: [B, H, W].
        angle: [B], radians, from x towards y: clockwise as displayed.
        scale: [B], above 1 enlarges the content.
        shift: [B, 2], px along x and y, applied last.

    Returns:
        [B, H, W]; the centre of rotation and scale is the patch's middle, (15.5, 15.5) for 32x32.
    """
    return jax.vmap(_warp_one)(patches, angle, scale, shift)


def _warp_one(patch: jax.Array, angle: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    height, width = patch.shape
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    # Where each output pixel comes from: the inverse of x' = scale * R (x - centre) + centre + shift.
    y, x = jnp.mgrid[:height, :width]
    x, y = (x - centre_x - shift[0]) / scale, (y - centre_y - shift[1]) / scale
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    source_x = jnp.clip(cos * x + sin * y + centre_x, 0, width - 1)
    source_y = jnp.clip(cos * y - sin * x + centre_y, 0, height - 1)
    left = jnp.floor(source_x).astype(jnp.int32)
    top = jnp.floor(source_y).astype(jnp.int32)
    right, bottom = jnp.minimum(left + 1, width - 1), jnp.minimum(top + 1, height - 1)
    upper = _blend(patch[top, left], patch[top, right], source_x - left)
    lower = _blend(patch[bottom, left], patch[bottom, right], source_x - left)
    return _blend(upper, lower, source_y - top)


def _blend(a: jax.Array, b: jax.Array, share: jax.Array) -> jax.Array:
    # Unlike (1 - share) * a + share * b this keeps equal values equal, and so BRIEF's ties.
    return a + share * (b - a)


def relight(patches: jax.Array, gamma: jax.Array, contrast: jax.Array, brightness: jax.Array) -> jax.Array:
    """Changes gray values: q = p^gamma, then contrast * (q - mean(q)) + mean(q) + brightness.

    Args:
        patches: [B, H, W] in 0..1.
        gamma: [B].
        contrast: [B], about each patch's own mean.
        brightness: [B].

    Returns:
        [B, H, W], possibly outside 0..1.
    """
    gamma, contrast, brightness = (jnp.expand_dims(v, (1, 2)) for v in (gamma, contrast, brightness))
    curved = patches**gamma
    mean = curved.mean(axis=(1, 2), keepdims=True)
    return contrast * (curved - mean) + mean + brightness
