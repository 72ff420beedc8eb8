"""A model as COLMAP leaves small ones: with a photo that sees none of its points and whose camera cannot be."""

from xdesc_jax.colmap.bindings.api import pycolmap


def photos_with_own_cameras(photos=6):
    """Each photo with a camera of its own, and 40 points that all see."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = photos, 1, 1, 40
    pycolmap.set_random_seed(1)
    return pycolmap.synthesize_dataset(options)


def unheld(model):
    """Takes all observations from a photo and spoils its camera; the photo's name."""
    image = model.images[3]
    for row, point in enumerate(image.points2D):
        if point.has_point3D():
            model.delete_observation(image.image_id, row)
    model.cameras[image.camera_id].params = [-1.07775e8, 512, 384, -4.1e8]
    return image.name
