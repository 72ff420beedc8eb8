"""`xdesc map update` on the synthetic place: the command, and the photos of the feature file that comes out."""

from tests.support.place import WIDTH
from xdesc_jax.cli import main
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.store import FeatureStore

SPEC = DescriptorSpec("own-b", WIDTH)


def run(place, out, features, queries, *words, model=None, new_features=None):
    """The exit status of the command."""
    given = ["map", "update", model or place.model, out, "--features", features, "--queries", queries]
    given += ["--new-features", new_features or place.features["own-b"], *words]
    return main([str(word) for word in given])


def photos(path):
    """Features of each photo of a file."""
    with FeatureStore(path) as store:
        return dict(store)
