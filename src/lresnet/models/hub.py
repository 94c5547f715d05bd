"""Download from and upload to the Hugging Face hub, with errors in one line.

The package ``huggingface_hub`` is optional and imported on first use. Files from the hub are untrusted: only
``config.json`` and ``model.safetensors`` are read, see :func:`lresnet.models.pretrained.read`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lresnet._version import __version__

if TYPE_CHECKING:
    from lresnet.models.pretrained import Pretrained

__all__ = ["FILES", "download", "is_repository_name", "upload"]

FILES = ("config.json", "model.safetensors", "README.md")
"""The files of a repository that are downloaded, and the only ones that are uploaded."""

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_LOG_IN = "log in with `hf auth login`, or pass token="
_LIBRARY = {"library_name": "lresnet", "library_version": __version__}

T = TypeVar("T")


def is_repository_name(text: object) -> bool:
    """Whether ``text`` is a string of the form ``"owner/name"``, as the hub allows it.

    Example:
        >>> [is_repository_name(text) for text in ("owner/name", "a/b/c", "name", "../name", "owner/a..b")]
        [True, False, False, False, False]
    """
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and ".." not in text and "--" not in text


def download(
    repo: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download :data:`FILES` of a repository into the cache of ``huggingface_hub`` and return their folder.

    Args:
        repo: ``"owner/name"``.
        revision: branch, tag or commit; None: the default branch.
        token: access token; None: that of ``hf auth login``, if there is one; False: none.
        cache_dir: folder of the cache; None: that of ``huggingface_hub`` (``HF_HOME``, ``HF_HUB_CACHE``).
        local_files_only: read the cache only.

    Raises:
        ImportError: ``huggingface_hub`` is missing.
        OSError: the repository or revision does not exist, access is denied, or the hub cannot be reached.
    """
    hub = _library(f"there is no folder {repo!r}, and downloading the repository {repo!r} from the Hugging Face hub")
    folder: str = _in_one_line(
        lambda: hub.snapshot_download(
            repo,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=list(FILES),
            **_LIBRARY,
        ),
        repo,
        revision,
        missing=f"there is no folder {repo!r}, and no repository {repo!r} on the Hugging Face hub that you may read; "
        f"check the name; for a private repository {_LOG_IN}",
        offline=local_files_only,
    )
    return Path(folder)


def upload(
    repo: str,
    model: Pretrained,
    *,
    card: str | None = None,
    private: bool = True,
    commit_message: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
) -> str:
    """Upload a model and its card, see :meth:`lresnet.models.Pretrained.push_to_hub`."""
    if not is_repository_name(repo):
        raise ValueError(f"{repo!r} is not the name of a repository; write 'owner/name', with letters, digits, - _ .")
    hub = _library(f"uploading to the repository {repo!r} of the Hugging Face hub")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        if card is not None:
            (Path(folder) / "README.md").write_text(card, encoding="utf-8")

        def push() -> str:
            api = hub.HfApi(token=token, **_LIBRARY)
            api.create_repo(repo, private=private, exist_ok=True, repo_type="model")
            commit = api.upload_folder(
                repo_id=repo,
                folder_path=folder,
                revision=revision,
                commit_message=commit_message or f"Upload {model.model_name} with lresnet {__version__}",
                allow_patterns=list(FILES),
            )
            return str(commit.commit_url)

        return _in_one_line(
            push,
            repo,
            revision,
            missing=f"the Hugging Face hub does not let you write to {repo!r}; {_LOG_IN}, with write access to "
            f"{repo.partition('/')[0]!r}",
        )


def _library(purpose: str) -> Any:
    """Return the module ``huggingface_hub``, or raise an error that says for what it is needed."""
    try:
        return import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(f"{purpose} needs huggingface_hub ({error}); pip install 'lresnet[hub]'") from None


def _in_one_line(
    call: Callable[[], T], repo: str, revision: str | None, *, missing: str, offline: bool = False
) -> T:
    """Return ``call()``. An error of the hub becomes one line; ``LRESNET_DEBUG=1`` shows its traceback too.

    Args:
        missing: message for a repository that does not exist or is private; the hub does not distinguish them.
        offline: whether downloads were switched off by an argument.
    """
    try:
        return call()
    except Exception as error:
        found = _explained(error, repo, revision, missing, offline)
        if found is None:
            raise
        raise found from error if os.environ.get("LRESNET_DEBUG") else None


def _explained(error: Exception, repo: str, revision: str | None, missing: str, offline: bool) -> Exception | None:
    """Return the error to raise instead; None: the error is not one of the hub."""
    errors = import_module("huggingface_hub.errors")

    def is_a(*names: str, one: BaseException | None = error) -> bool:
        return isinstance(one, tuple(getattr(errors, name) for name in names if hasattr(errors, name)))

    where, reason = f"the repository {repo!r}", _first_line(error)
    if is_a("GatedRepoError"):
        return PermissionError(f"{where} is gated: accept its conditions on its page of the hub, then {_LOG_IN}")
    if is_a("DisabledRepoError"):
        return PermissionError(f"{where} is disabled by the hub or its owner; use another one")
    if is_a("RepositoryNotFoundError"):
        return FileNotFoundError(missing)
    if is_a("RevisionNotFoundError"):
        return FileNotFoundError(f"{where} has no revision {revision!r}; give a branch, a tag or a commit that it has")
    if is_a("LocalTokenNotFoundError"):
        return PermissionError(f"there is no access token; {_LOG_IN}")
    if is_a("OfflineModeIsEnabled") or is_a("OfflineModeIsEnabled", one=error.__cause__):
        offline = True
    if offline and is_a("LocalEntryNotFoundError", "OfflineModeIsEnabled"):
        return FileNotFoundError(
            f"there is no folder {repo!r}, {where} is not in the cache, and the network is switched off; use it once "
            "without local_files_only and HF_HUB_OFFLINE, or give a local folder"
        )
    if is_a("LocalEntryNotFoundError"):  # snapshot_download wraps what went wrong
        if is_a("HfHubHTTPError", one=error.__cause__):
            assert isinstance(error.__cause__, Exception)
            return _of_status(error.__cause__, repo, missing)
        return _unreachable(_first_line(error.__cause__ or error))
    if is_a("HfHubHTTPError"):
        return _of_status(error, repo, missing)
    if is_a("HFValidationError"):
        return ValueError(f"{where} or its revision has an invalid name: {reason}")
    if is_a("XetDownloadError") or type(error).__module__.startswith("httpx"):  # httpx2 since version 2
        return _unreachable(reason)
    return None


def _of_status(error: Exception, repo: str, missing: str) -> Exception:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return PermissionError(f"{missing} (status {status})")
    if status == 429:
        return ConnectionError(f"the Hugging Face hub refuses more requests for now (status 429); wait, or {_LOG_IN}")
    if status is not None and status >= 500:
        return ConnectionError(f"the Hugging Face hub has a problem (status {status}); try again later")
    return OSError(f"the Hugging Face hub refuses the request for {repo!r}: {_first_line(error)}")


def _unreachable(reason: str) -> ConnectionError:
    return ConnectionError(
        f"the Hugging Face hub cannot be reached ({reason}); check the network, or give a local folder"
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
