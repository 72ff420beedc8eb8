"""Scene folders with photos of noise, and feature files whose right answer is known."""

import cv2
import numpy as np
import pytest

from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.translation.bundle import Bundle

WIDTH = 24


@pytest.fixture
def scene_folder(tmp_path):
    """Two scenes of three photos: smooth noise, shifted by 8 px in photo 2 and by 16 px in photo 3."""
    root = tmp_path / "scenes"
    for seed, name in enumerate(("door", "wall")):
        (root / name).mkdir(parents=True)
        noise = np.random.default_rng(seed).integers(0, 256, (150, 220), np.uint8)
        texture = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 2), None, 0, 255, cv2.NORM_MINMAX)
        for k in (1, 2, 3):
            cv2.imwrite(str(root / name / f"{k}.png"), texture[:, 8 * (k - 1) :][:, :190])
            if k > 1:
                np.savetxt(root / name / f"H_1_{k}", [[1, 0, -8 * (k - 1)], [0, 1, 0], [0, 0, 1]])
    return root


@pytest.fixture
def feature_folder(tmp_path):
    """`own-a.h5` and `own-b.h5` (the values of `own-a` in reverse): the same rows in every photo."""
    rows = unit_rows(np.random.default_rng(0).normal(size=(29, WIDTH)))
    xy = np.stack([40 + 7.0 * (np.arange(29) % 6), 20 + 7.0 * (np.arange(29) // 6)], axis=1)
    for name, step in (("own-a", 1), ("own-b", -1)):
        with StoreWriter(tmp_path / "features" / f"{name}.h5", DescriptorSpec(name, WIDTH)) as writer:
            for scene in ("door", "wall"):
                for k in (1, 2, 3):
                    moved = (xy - [8 * (k - 1), 0]).astype(np.float32)
                    features = ImageFeatures(moved, rows[:, ::step], np.ones(29, bool), (190, 150))
                    writer.write(f"{scene}/{k}.png", features)
    return tmp_path / "features"


@pytest.fixture
def model(tmp_path):
    """The exact translator between `own-a` and `own-b`: both networks of `own-b` reverse the values."""
    straight, zeros = np.eye(WIDTH, dtype=np.float32), np.zeros(WIDTH, np.float32)
    kernels = {"own-a": straight, "own-b": straight[::-1].copy()}
    networks = {f"{part}/{n}": [(k, zeros)] for part in ("encoder", "decoder") for n, k in kernels.items()}
    specs = {name: DescriptorSpec(name, WIDTH) for name in kernels}
    return Bundle("encoder_decoder", specs, WIDTH, networks).save(tmp_path / "model.safetensors")
