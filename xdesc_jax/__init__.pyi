# The public names of the package. `__init__.py` reads them from here, and type checkers do, too.

from .colmap.model import Camera as Camera
from .colmap.model import Model as Model
from .colmap.model import Pose as Pose
from .config import TrainConfig as TrainConfig
from .config import load_config as load_config
from .descriptors import DescriptorSpec as DescriptorSpec
from .descriptors import get_spec as get_spec
from .descriptors import register as register
from .descriptors import registered as registered
from .export.photo_inputs import photo_inputs as photo_inputs
from .features.store import FeatureStore as FeatureStore
from .features.store import ImageFeatures as ImageFeatures
from .features.store import StoreWriter as StoreWriter
from .localization.localizer import Localizer as Localizer
from .localization.outcome import Localization as Localization
from .localization.outcome import PoseSettings as PoseSettings
from .matching.matches import MatchFile as MatchFile
from .matching.nearest import match as match
from .sweep.config import SweepConfig as SweepConfig
from .train.descriptors.config import DescriptorConfig as DescriptorConfig
from .translation.translator import Translator as Translator

__version__: str
