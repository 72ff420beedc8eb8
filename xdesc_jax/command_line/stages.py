"""The stages of the command line: one entry each.

In: nothing. Out: what the words after `xdesc` stand for, in the order in which `xdesc --help` lists them. A stage is a
function of paths and settings, named here and imported when it is called.
"""

from __future__ import annotations

import dataclasses

from cyclopts import Group

Words = tuple[str, ...]
_BENCHMARKS = "xdesc_jax.evaluate.benchmarks."
_FEATURES = Group("Photos and features", sort_key=1)
_MATCHING = Group("Translate and match", sort_key=2)
_MAPS = Group("Maps", sort_key=3)
_EVALUATE = Group("Evaluate", sort_key=4)
_TRAINING = Group("Records and training", sort_key=5)
_FILES = Group("Models and files", sort_key=6)


@dataclasses.dataclass(frozen=True)
class Stage:
    """An entry of the command line.

    Attributes:
        target: 'module:function'.
        extra: of this package, which brings what the stage needs; '' for the base install.
        group: under which `xdesc --help` lists it.
        help: one line.
        needs: packages without which it cannot even begin, told before it does; others are told when they are missed.
        aliases: older name of an option -> its parameter; not shown.
    """

    target: str
    extra: str
    group: Group
    help: str
    needs: Words = ()
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)


STAGES: dict[Words, Stage] = {
    ("extract",): Stage(
        "xdesc_jax.features.extract:extract", "features,colmap", _FEATURES, "Photos -> feature files.", ("cv2", "PIL")
    ),
    ("inspect",): Stage(
        "xdesc_jax.inspection.inspect:inspect", "", _FILES, "What a database, feature, match or model file holds."
    ),
    ("show",): Stage(
        "xdesc_jax.inspection.show:show", "colmap,report", _MATCHING, "Your matches or localised queries -> pictures.",
        ("matplotlib", "PIL"),
    ),
    ("scenes",): Stage(
        "xdesc_jax.data.scenes:scenes", "features", _EVALUATE, "Photos -> scenes with known homographies.",
        ("cv2", "PIL"),
    ),
    ("translate",): Stage(
        "xdesc_jax.translation.translate:translate", "", _MATCHING, "Descriptors -> another type, or the joint space.",
        aliases={"source": "descriptor"},
    ),
    ("match",): Stage(
        "xdesc_jax.matching.match:match", "", _MATCHING, "Features, also of mixed descriptors -> matches."
    ),
    ("retrieve",): Stage(
        "xdesc_jax.matching.retrieval:retrieve", "", _MATCHING, "Feature files -> pairs of photos of the same place."
    ),
    ("calibrate",): Stage(
        "xdesc_jax.evaluate.calibrate:calibrate", "features,colmap,report", _MATCHING,
        "Ratio thresholds for a model's rows.",
    ),
    ("reconstruct",): Stage(
        "xdesc_jax.mapping.reconstruct:reconstruct", "colmap", _MAPS, "Features and matches -> models.", ("pycolmap",)
    ),
    ("localize",): Stage(
        "xdesc_jax.localization.localize:localize", "colmap", _MAPS, "Query features and a map -> poses.", ("pycolmap",)
    ),
    ("map", "update"): Stage(
        "xdesc_jax.mapping.update:update", "colmap,report", _MAPS, "New photos replace translated rows of a map.",
        ("pycolmap", "matplotlib"),
    ),
    ("evaluate", "homography"): Stage(
        "xdesc_jax.evaluate.stages.homography:homography", "features,colmap,report", _EVALUATE,
        "Matching on scenes with known homographies.", ("PIL", "matplotlib"),
    ),
    ("evaluate", "localization"): Stage(
        "xdesc_jax.evaluate.stages.localization:localization", "colmap,report", _EVALUATE,
        "Localised queries against true poses.", ("pycolmap", "matplotlib"),
    ),
    ("evaluate", "sfm"): Stage(
        "xdesc_jax.evaluate.stages.sfm:sfm", "colmap,report", _EVALUATE, "A reconstruction against a reference.",
        ("pycolmap", "matplotlib"),
    ),
    ("benchmark", "list"): Stage(
        _BENCHMARKS + "stages:listed", "features,report", _EVALUATE, "The benchmarks of the paper, and their data."
    ),
    ("benchmark", "check"): Stage(
        _BENCHMARKS + "stages:check", "features,report", _EVALUATE, "Whether a folder holds the data of one."
    ),
    ("benchmark", "run", "hpatches-patches"): Stage(
        _BENCHMARKS + "hpatches_patches:run", "features,report", _EVALUATE,
        "HPatches: verification, matching and retrieval of patches.", ("PIL", "cv2", "jax", "matplotlib"),
    ),
    ("benchmark", "run", "hpatches-sequences"): Stage(
        _BENCHMARKS + "hpatches_sequences:run", "features,report", _EVALUATE,
        "HPatches: matching accuracy and homographies on 108 sequences.", ("PIL", "cv2", "matplotlib"),
    ),
    ("benchmark", "run", "relative-pose"): Stage(
        _BENCHMARKS + "relative_pose:run", "features,report", _EVALUATE,
        "MegaDepth-1500, ScanNet-1500 and their like: relative poses.", ("pycolmap", "PIL", "matplotlib"),
    ),
    ("benchmark", "run", "cross"): Stage(
        _BENCHMARKS + "cross.benchmark:run", "features,report", _EVALUATE,
        "Maps and devices of all descriptors, on scenes of your own.", ("pycolmap", "cv2", "PIL", "matplotlib"),
    ),
    ("benchmark", "run", "image-matching-challenge"): Stage(
        _BENCHMARKS + "image_matching.benchmark:run", "features,colmap,report", _EVALUATE,
        "PhotoTourism: poses of pairs and of small reconstructions.", ("pycolmap", "PIL", "cv2", "matplotlib"),
    ),
    ("benchmark", "run", "aachen"): Stage(
        _BENCHMARKS + "places.aachen:run", "features,report", _EVALUATE,
        "Aachen Day-Night: localisation in maps of the same and of other descriptors.",
        ("pycolmap", "PIL", "matplotlib"),
    ),
    ("benchmark", "run", "aachen-embedding-size"): Stage(
        _BENCHMARKS + "places.aachen:run_sizes", "features,report", _EVALUATE,
        "Aachen Day-Night: collaborative maps in joint spaces of several sizes.", ("pycolmap", "PIL", "matplotlib"),
    ),
    ("benchmark", "run", "inloc"): Stage(
        _BENCHMARKS + "places.inloc:run", "features,report", _EVALUATE,
        "InLoc: indoor localisation against laser scans.", ("pycolmap", "PIL", "matplotlib"),
    ),
    ("benchmark", "run", "local-feature-evaluation"): Stage(
        _BENCHMARKS + "places.local_features:run", "features,report", _EVALUATE,
        "Local Feature Evaluation: collaborative maps of photo collections.", ("pycolmap", "PIL", "matplotlib"),
    ),
    ("benchmark", "run", "ablations"): Stage(
        "xdesc_jax.command_line.ablations:run", "train,features,report", _EVALUATE,
        "The paper's ablations: a training each, and which of its claims hold.", ("jax", "PIL", "cv2", "matplotlib"),
    ),
    ("benchmark", "run", "joint-space"): Stage(
        _BENCHMARKS + "joint_space:run", "features,report", _EVALUATE,
        "t-SNE of the joint space, and whether a patch's embeddings find each other.",
        ("PIL", "cv2", "matplotlib", "sklearn"),
    ),
    ("benchmark", "table"): Stage(
        _BENCHMARKS + "stages:table", "features,report", _EVALUATE, "Results beside the paper's values."
    ),
    ("views",): Stage(
        "xdesc_jax.data.views:views", "features", _TRAINING, "Photos -> the same turned, scaled and relit.",
        ("cv2", "PIL"),
    ),
    ("records",): Stage(
        "xdesc_jax.data.records:records", "train,features,colmap", _TRAINING, "Photos or feature files -> records.",
        aliases={"descriptor": "descriptors"},
    ),
    ("describe",): Stage(
        "xdesc_jax.data.describe:describe", "train,features", _TRAINING,
        "Records with patches -> further descriptors.", ("jax",),
    ),
    ("pairs",): Stage(
        "xdesc_jax.data.pairs.pairs:pairs", "train,features,colmap", _TRAINING,
        "Photos -> records of corresponding patches.", ("PIL", "cv2"),
    ),
    ("train",): Stage(
        "xdesc_jax.train.translators.stage:train", "train", _TRAINING, "Records -> run directory.",
        ("jax", "flax", "optax", "orbax"),
    ),
    ("train-descriptor",): Stage(
        "xdesc_jax.train.descriptors.stage:train_descriptor", "train", _TRAINING,
        "Records of pairs -> run directory.", ("jax", "flax", "optax", "orbax"),
    ),
    ("sweep",): Stage(
        "xdesc_jax.sweep.stage:sweep", "sweep", _TRAINING,
        "Records -> many run directories; `sweep report`: their results.", ("jax", "flax", "optax", "orbax"),
    ),
    ("sweep", "report"): Stage(
        "xdesc_jax.sweep.report:report", "sweep", _TRAINING, "Results of a sweep -> page, best configurations."
    ),
    ("pipeline",): Stage(
        "xdesc_jax.command_line.pipelines:pipeline", "all", _FILES, "Experiments that ship, the demo among them."
    ),
    ("configs",): Stage("xdesc_jax.config:configs", "", _TRAINING, "Configurations that ship, for --config."),
    ("models",): Stage(
        "xdesc_jax.pretrained.listing:models", "", _FILES, "What ships with the package, and how good it is."
    ),
    ("export",): Stage(
        "xdesc_jax.export.export:export", "train", _FILES, "Run or model file -> ONNX, StableHLO, PyTorch, ..."
    ),
    ("export-descriptor",): Stage(
        "xdesc_jax.train.descriptors.export:export_descriptor", "train", _FILES, "Run directory -> descriptor weights.",
        ("jax", "flax", "optax", "orbax"),
    ),
    ("import",): Stage(
        "xdesc_jax.export.pytorch_translator:import_model", "torch", _FILES,
        "The authors' PyTorch file -> one model file.",
    ),
    ("weights", "install"): Stage(
        "xdesc_jax.features.official:install_all", "features,torch", _FILES,
        "Published weights of learned descriptors and matchers.",
    ),
    ("weights", "list"): Stage(
        "xdesc_jax.features.official:listed", "features", _FILES, "Which weights can be installed, and their licences.",
        ("platformdirs",),
    ),
}  # fmt: skip
# Former name of a stage -> the words that it stands for now.
FORMER = {"records-beam": ["records", "--beam"]}
# Package that one setting of a stage needs -> the smallest extra that holds it.
SETTING_EXTRAS = {"apache_beam": "beam", "poselib": "poselib"}
# Words that only hold other stages -> the line for them.
FOLDERS: dict[Words, tuple[Group, str]] = {
    ("map",): (_MAPS, "`map update`: new photos replace translated rows of a map."),
    ("benchmark",): (_EVALUATE, "`benchmark list`, `check`, `run` or `table`: the paper's benchmarks."),
    ("benchmark", "run"): (_EVALUATE, "`benchmark run NAME`: one of `benchmark list`."),
    ("evaluate",): (_EVALUATE, "`evaluate homography`, `localization` or `sfm`: results against the truth."),
    ("weights",): (_FILES, "`weights install`, `weights list`: published weights of learned descriptors."),
}
