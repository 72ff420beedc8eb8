"""Random small changes of patches, so that training sees what detection noise and light do to them.

In: patches. Out: patches of the same shape, each turned, scaled, shifted and relit by its own random amounts.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class JitterSettings:
    """How much patches change: standard deviations of normal draws, one for each patch; 0 is no change.

    Attributes:
        rotation_deg: rotation about the patch's middle, degrees.
        scale: natural logarithm of the scale factor.
        shift_px: shift along x and along y, px.
        contrast: natural logarithm of the contrast factor, about the patch's mean.
        brightness: added gray value, where 1 is white.
        gamma: natural logarithm of the exponent of gray values.
        noise: added to each pixel, where 1 is white.
    """

    rotation_deg: float = 0.0
    scale: float = 0.0
    shift_px: float = 0.0
    contrast: float = 0.0
    brightness: float = 0.0
    gamma: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value >= 0:
                raise ValueError(f"jitter {field.name} is {value}, expected 0 or more")


def jitter(keys: jax.Array, patches: jax.Array, settings: JitterSettings) -> jax.Array:
    """Applies random rotation, scale and shift, then gamma, contrast, brightness and noise.

    Args:
        keys: [B] random keys; the same key changes a patch in the same way, whichever others there are.
        patches: float32 [B, 32, 32] in 0..1.
        settings: standard deviations.

    Returns:
        float32 [B, 32, 32] in 0..1; pixels from outside a patch repeat its border.
    """
    return _jitter(keys, patches, **dataclasses.asdict(settings))


# Settings are traced values, so that any of them run the same program.
@jax.jit
def _jitter(keys, patches, *, rotation_deg, scale, shift_px, contrast, brightness, gamma, noise):
    changes_keys, noise_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    draws = jax.vmap(lambda key: jax.random.normal(key, (7,)), out_axes=1)(changes_keys)
    grain = jax.vmap(lambda key: jax.random.normal(key, patches.shape[1:]))(noise_keys)
    angle = jnp.deg2rad(rotation_deg) * draws[0]
    patches = warp(patches, angle, jnp.exp(scale * draws[1]), shift_px * draws[2:4].T)
    patches = relight(patches, jnp.exp(gamma * draws[4]), jnp.exp(contrast * draws[5]), brightness * draws[6])
    return jnp.clip(patches + noise * grain, 0, 1)


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
