"""Download from and upload to the Hugging Face hub, with errors in one line.

The package ``huggingface_hub`` is optional and imported on first use. Files from the hub are untrusted: only
``config.json`` and ``model.safetensors`` are read, see :func:`lresnet.models.pretrained.read`.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lresnet._limits import HUB_BYTES, JSON_BYTES
from lresnet._version import __version__

if TYPE_CHECKING:
    from lresnet.models.pretrained import Pretrained

__all__ = ["FILES", "download", "is_repository_name", "locate", "upload"]

FILES = ("config.json", "model.safetensors", "README.md")
"""The files of a repository that are downloaded, and the only ones that are uploaded."""

_NAME = re.compile(r"\w([\w.-]*\w)?/\w([\w.-]*\w)?", re.ASCII)
_LONGEST_NAME = 96  # characters, a limit of the hub
_LOG_IN = "log in with `hf auth login`, or pass token="
_LIBRARY = {"library_name": "lresnet", "library_version": __version__}

T = TypeVar("T")


def is_repository_name(text: object) -> bool:
    """Whether ``text`` is a string of the form ``"owner/name"``, as the hub allows it.

    Example:
        >>> [is_repository_name(text) for text in ("owner/name", "a/b/c", "name", "../name", "owner/a..b")]
        [True, False, False, False, False]
    """
    if not isinstance(text, str) or len(text) > _LONGEST_NAME or ".." in text or "--" in text:
        return False
    return _NAME.fullmatch(text) is not None


def locate(folder: str | Path, *, revision: str | None = None, **options: Any) -> tuple[Path, str]:
    """Return a local folder, or the folder of a downloaded repository, and the name of either for messages.

    A local folder takes precedence over a repository of the same name. The options are those of :func:`download`.

    Raises:
        ValueError: a revision of a local folder is requested.
    """
    if is_repository_name(folder) and not Path(folder).exists():
        return download(str(folder), revision=revision, **options), f"the repository {str(folder)!r}"
    if revision is not None:
        raise ValueError(f"{folder} is a local folder, not a repository, and has no revisions; leave revision out")
    return Path(folder), str(folder)


def download(
    repo: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download :data:`FILES` of a repository into the cache of ``huggingface_hub`` and return their folder.

    Their sizes are compared with :data:`lresnet._limits.HUB_BYTES` and ``JSON_BYTES`` before a file is downloaded.

    Args:
        repo: ``"owner/name"``.
        revision: branch, tag or commit; None: the default branch.
        token: access token; None: that of ``hf auth login``, if there is one; False: none.
        cache_dir: folder of the cache; None: that of ``huggingface_hub`` (``HF_HOME``, ``HF_HUB_CACHE``).
        local_files_only: read the cache only.

    Raises:
        ImportError: ``huggingface_hub`` is missing.
        OSError: the repository or revision does not exist, access is denied, or the hub cannot be reached.
        ValueError: a file is larger than the limit, or the hub does not state its size.
    """
    hub = _library(f"there is no folder {repo!r}, and downloading the repository {repo!r} from the Hugging Face hub")
    folder: str = _in_one_line(
        lambda: _snapshot(
            hub,
            repo,
            revision,
            local_files_only,
            token=_checked_token(token),
            cache_dir=cache_dir,
            allow_patterns=list(FILES),
            **_LIBRARY,
        ),
        repo,
        revision,
        _Words(
            missing=f"there is no folder {repo!r}, and no repository {repo!r} on the Hugging Face hub that you may "
            f"read; check the name; for a private repository {_LOG_IN}",
            offline=f"there is no folder {repo!r}, the repository {repo!r} is not in the cache, and the network is "
            "switched off; load it once without local_files_only and HF_HUB_OFFLINE, or give a local folder",
            unreachable="check the network, or give a local folder",
        ),
    )
    return Path(folder)


def _snapshot(hub: Any, repo: str, revision: str | None, local_files_only: bool, **options: Any) -> str:
    """Return the folder of a repository in the cache, after its sizes have been checked."""
    if not local_files_only:
        unanswered: BaseException | None = None
        try:
            plan = hub.snapshot_download(repo, revision=revision, local_files_only=False, dry_run=True, **options)
        except import_module("huggingface_hub.errors").DryRunError as error:
            unanswered = error.__cause__ or error
        if unanswered is not None:
            with contextlib.suppress(FileNotFoundError):  # there is nothing in the cache either
                return _snapshot(hub, repo, revision, True, **options)
            raise unanswered
        for file in plan:
            _require_small(repo, file.filename, file.file_size)
        # The commit whose sizes were checked: the owner may replace the files of a branch at any time.
        revision = next((file.commit_hash for file in plan), revision)
    folder: str = hub.snapshot_download(repo, revision=revision, local_files_only=local_files_only, **options)
    return folder


def _require_small(repo: str, name: str, size: int | None) -> None:
    """Raise an error for a file that is not to be downloaded."""
    limit = HUB_BYTES if name.endswith(".safetensors") else JSON_BYTES
    if size is None:
        raise ValueError(f"the Hugging Face hub does not state the size of {name} in {repo!r}; nothing was downloaded")
    if size > limit:
        raise ValueError(
            f"{name} in the repository {repo!r} has {size:,} bytes, and the limit is {limit:,}; nothing was "
            "downloaded; if you trust it, download it with `hf download` and give the folder"
        )


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
            api = hub.HfApi(token=_checked_token(token), **_LIBRARY)
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
            _Words(
                missing=f"the Hugging Face hub does not let you write to {repo!r}; {_LOG_IN}, of an account that may "
                f"write to {repo.partition('/')[0]!r}",
                offline=f"nothing was uploaded to {repo!r}: HF_HUB_OFFLINE switches the network off; unset it",
                unreachable="check the network and repeat the upload",
            ),
        )


def _library(purpose: str) -> Any:
    """Return the module ``huggingface_hub``, or raise an error that says for what it is needed."""
    try:
        return import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(f"{purpose} needs huggingface_hub ({error}); pip install huggingface_hub") from None


@dataclass(frozen=True)
class _Words:
    """What the messages say about one request.

    Args:
        missing: for a repository that does not exist or is private; the hub does not distinguish them.
        offline: for a request while the network is switched off.
        unreachable: what to do without a network.
    """

    missing: str
    offline: str
    unreachable: str


def _in_one_line(call: Callable[[], T], repo: str, revision: str | None, words: _Words) -> T:
    """Return ``call()``. An error of the hub becomes one line; ``LRESNET_DEBUG=1`` shows its traceback too."""
    try:
        return call()
    except Exception as error:
        found = _explained(error, repo, revision, words)
        if found is None:
            raise
        raise found from error if os.environ.get("LRESNET_DEBUG") else None


def _explained(error: Exception, repo: str, revision: str | None, words: _Words) -> Exception | None:
    """Return the error to raise instead; None: the error is not one of the hub."""
    errors = import_module("huggingface_hub.errors")

    def is_a(name: str, one: BaseException | None = error) -> bool:
        return hasattr(errors, name) and isinstance(one, getattr(errors, name))

    where, cause = f"the repository {repo!r}", error.__cause__
    if is_a("GatedRepoError"):
        return PermissionError(f"{where} is gated: accept its conditions on its page of the hub, then {_LOG_IN}")
    if is_a("RepositoryNotFoundError"):
        return FileNotFoundError(words.missing)
    if is_a("RevisionNotFoundError"):
        return FileNotFoundError(f"{where} has no revision {revision!r}; give a branch, a tag or a commit that it has")
    if is_a("LocalTokenNotFoundError"):
        return PermissionError(f"there is no access token; {_LOG_IN}")
    if is_a("OfflineModeIsEnabled") or is_a("OfflineModeIsEnabled", cause):
        return FileNotFoundError(words.offline)
    if is_a("LocalEntryNotFoundError"):  # snapshot_download found nothing in the cache after another error, its cause
        if cause is None:
            return FileNotFoundError(words.offline)
        error = cause if isinstance(cause, Exception) else error
        if not is_a("HfHubHTTPError", error):
            return _unreachable(error, words)
    if is_a("HfHubHTTPError", error):
        return _of_status(error, repo, words.missing)
    if is_a("HFValidationError"):
        return ValueError(f"{where} or its revision has an invalid name: {_first_line(error)}")
    if is_a("XetDownloadError") or type(error).__module__.startswith("httpx"):  # httpx2 since version 2
        return _unreachable(error, words)
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


def _unreachable(error: BaseException, words: _Words) -> ConnectionError:
    return ConnectionError(f"the Hugging Face hub cannot be reached ({_first_line(error)}); {words.unreachable}")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = re.sub(r"(?i)bearer\s+\S+|hf_\w+", "[token]", lines[0]) if lines else type(error).__name__
    return shown[:200]


def _checked_token(token: str | bool | None) -> str | bool | None:
    """Return the token without surrounding space, such as the newline of a file; its value is never shown."""
    if not isinstance(token, str):
        return token
    token = token.strip()
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise ValueError(
            "token is empty, or has a space or a letter outside ASCII; pass the access token as it was issued"
        )
    return token
