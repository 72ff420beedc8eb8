"""Translators of others on the Hugging Face hub, named 'user/model' in the place of a path.

In: 'user/model', or 'user/model@revision' for a branch, tag or commit. Out: the path of the model file in the hub's
cache, downloaded where it is not there yet. A repository holds one translator, as `translator.safetensors` beside its
README. Without network, or with HF_HUB_OFFLINE=1, what the cache holds is used. Needs the extra 'hub'.
"""

from __future__ import annotations

import re
from pathlib import Path

from xdesc_jax.files import dry_run

FILE = "translator.safetensors"
SUFFIXES = (".safetensors", ".pth", ".npz", ".onnx", ".npy", ".h5", ".db")  # of files, and so of no repository
EXTRA = "pip install 'xdesc-jax[hub]'"

_NAME = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def is_name(text: str) -> bool:
    """Whether a text may name a repository: two words with a slash between, and no file's suffix."""
    return _NAME.fullmatch(text) is not None and not text.endswith(SUFFIXES)


def find(model: Path | str) -> Path | None:
    """The model file of a repository; None where the text names none, or a path whose folder exists.

    Raises:
        FileNotFoundError, OSError: as `fetch`.
    """
    text = str(model)
    return fetch(text) if is_name(text) and not Path(text).parent.is_dir() else None


def fetch(name: str) -> Path:
    """Downloads the model file of a repository, or finds it in the cache. A dry run downloads nothing.

    Args:
        name: see the module.

    Returns:
        Where the file lies in the hub's cache.

    Raises:
        FileNotFoundError: no such repository, revision or file, no huggingface_hub, or, without network, no copy in the
            cache.
        OSError: the download failed otherwise, such as where access is not granted.
        ValueError: the name is none of a repository.
    """
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name!r}: expected 'user/model' or 'user/model@revision', as the hub names repositories")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ModuleNotFoundError as error:
        raise FileNotFoundError(f"{name}: no such file; to have it from the Hugging Face hub, {EXTRA}") from error
    local = dry_run.active()
    try:
        found = huggingface_hub.hf_hub_download(
            parts["repository"], FILE, revision=parts["revision"], library_name="xdesc-jax", local_files_only=local
        )
    except errors.LocalEntryNotFoundError as error:  # before EntryNotFoundError, which it also is
        why = "a dry run downloads nothing" if local else "there is no network, or HF_HUB_OFFLINE is set"
        raise FileNotFoundError(
            f"{name}: {FILE} is not in the hub's cache, and {why} ({_first_line(error)})"
        ) from error
    except errors.GatedRepoError as error:
        raise OSError(f"{name}: the hub asks for access: accept its terms there, then `hf auth login`") from error
    except errors.RepositoryNotFoundError as error:
        private = "or it is private: `hf auth login`"
        raise FileNotFoundError(f"{name}: no such file, and the hub has no such repository, {private}") from error
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(f"{name}: the repository has no revision {parts['revision']!r}") from error
    except errors.EntryNotFoundError as error:
        raise FileNotFoundError(
            f"{name}: the repository holds no {FILE}, as a translator on the hub is called"
        ) from error
    except errors.HFValidationError as error:
        raise ValueError(f"{name!r}: the hub takes it for no repository ({_first_line(error)})") from error
    except OSError as error:
        raise OSError(f"{name}: could not be had from the hub ({_first_line(error)})") from error
    dry_run.read(Path(found))
    return Path(found)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
