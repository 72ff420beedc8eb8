"""A COLMAP database copied as mapping does, with its own cameras or with one that is given."""

from xdesc_jax.colmap.camera_models import parse_camera
from xdesc_jax.colmap.cameras import choose_intrinsics, database_cameras
from xdesc_jax.mapping.build import copy_database


def copy(source, out, text=None, **options):
    """The counts of `copy_database`; `text` is the camera of all photos."""
    own = database_cameras(source)
    given = parse_camera(text, "test") if text else None
    chosen = choose_intrinsics({n: (c.width, c.height) for n, c in own.items()}, own=own, given=given)
    return copy_database(source, out, chosen, **options)
