"""Tests of models on the Hugging Face hub: with a stand-in for ``huggingface_hub``, and with the real package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import lresnet
from lresnet.models import create_model, from_pretrained
from lresnet.models.hub import _checked_token, _first_line, is_repository_name
from tests.models.hub_server import COMMIT, hub_server


def network() -> Any:
    torch.manual_seed(3)
    return create_model("lorentz_mlp", in_features=4, num_classes=2)


def same_weights(a: Any, b: Any) -> bool:
    own, other = a.state_dict(), b.state_dict()
    return list(own) == list(other) and all(torch.equal(own[name], other[name]) for name in own)


class Hub:
    """Repositories in local folders, behind the functions of ``huggingface_hub`` that we call."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls, self.error = root, list[tuple[str, dict[str, Any]]](), None
        self.sizes: dict[str, int | None] = {}
        self.planned: list[str | None] = []

    def snapshot_download(self, repo_id: str, *, dry_run: bool = False, **options: Any) -> Any:
        if dry_run:
            if self.error is not None:  # as the package does: the reason is the cause
                raise DryRunError("no dry run") from self.error
            self.planned.append(options["revision"])
            files = (self.root / repo_id).glob("*")
            sizes = {path.name: path.stat().st_size for path in files} | self.sizes
            return [
                types.SimpleNamespace(filename=name, file_size=size, commit_hash=COMMIT) for name, size in sizes.items()
            ]
        self._called("snapshot_download", repo_id=repo_id, **options)
        return str(self.root / repo_id)

    def create_repo(self, repo_id: str, **options: Any) -> None:
        self._called("create_repo", repo_id=repo_id, **options)
        (self.root / repo_id).mkdir(parents=True, exist_ok=options["exist_ok"])

    def upload_folder(self, *, repo_id: str, folder_path: str, **options: Any) -> Any:
        self._called("upload_folder", repo_id=repo_id, **options)
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return types.SimpleNamespace(commit_url=f"https://hub.invalid/{repo_id}/commit/1")

    def _called(self, name: str, **options: Any) -> None:
        self.calls.append((name, options))
        if self.error is not None:
            raise self.error


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in for ``huggingface_hub``; the working directory is empty."""
    found, module = Hub(tmp_path / "hub"), types.ModuleType("huggingface_hub")
    module.snapshot_download = found.snapshot_download
    module.HfApi = lambda token, **_: types.SimpleNamespace(
        create_repo=lambda *a, **k: found.create_repo(*a, token=token, **k), upload_folder=found.upload_folder
    )
    errors = types.ModuleType("huggingface_hub.errors")
    for name, base in _ERRORS.items():
        setattr(errors, name, base)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return found


class HfHubHTTPError(OSError):
    def __init__(self, message: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.response = types.SimpleNamespace(status_code=status)


class RepositoryNotFoundError(HfHubHTTPError):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class RevisionNotFoundError(HfHubHTTPError):
    pass


class LocalEntryNotFoundError(FileNotFoundError):
    pass


class DryRunError(OSError):
    pass


class OfflineModeIsEnabled(ConnectionError):
    pass


class HFValidationError(ValueError):
    pass


class ConnectError(Exception):
    """As httpx raises it: huggingface_hub lets some of its errors through."""

    __module__ = "httpx"


_ERRORS = {
    one.__name__: one
    for one in (
        HfHubHTTPError,
        RepositoryNotFoundError,
        GatedRepoError,
        RevisionNotFoundError,
        LocalEntryNotFoundError,
        DryRunError,
        OfflineModeIsEnabled,
        HFValidationError,
    )
}


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", True),
        ("o_1/a.b-c", True),
        ("name", False),
        ("a/b/c", False),
        ("./name", False),
        ("../name", False),
        ("/name", False),
        ("owner/..", False),
        ("owner/a..b", False),
        ("owner/a--b", False),
        ("owner/name.", False),
        ("owner/na me", False),
        ("owner\\name", False),
        ("owner/name\n", False),
        ("hf://owner/name", False),
        ("o/" + "n" * 95, False),
        (Path("owner/name"), False),
        (None, False),
    ],
)
def test_the_form_of_a_repository_name(text, expected):
    assert is_repository_name(text) is expected


def test_a_model_is_uploaded_and_downloaded(hub):
    model = network()
    address = model.push_to_hub("ann/mlp", card="# Card\n", token="secret")
    assert address == "https://hub.invalid/ann/mlp/commit/1"
    assert [name for name, _ in hub.calls] == ["create_repo", "upload_folder"]
    assert hub.calls[0][1] == {
        "repo_id": "ann/mlp",
        "private": True,
        "exist_ok": True,
        "repo_type": "model",
        "token": "secret",
    }
    assert hub.calls[1][1]["commit_message"] == f"Upload lorentz_mlp with lresnet {lresnet.__version__}"
    files = sorted(path.name for path in (hub.root / "ann/mlp").iterdir())
    assert files == ["README.md", "config.json", "model.safetensors"]
    assert same_weights(from_pretrained("ann/mlp"), model)


def test_without_a_card_no_readme_is_uploaded(hub):
    network().push_to_hub("ann/mlp", private=False, commit_message="Mine", revision="try")
    assert not (hub.root / "ann/mlp/README.md").exists()
    assert hub.calls[0][1]["private"] is False
    assert (hub.calls[1][1]["commit_message"], hub.calls[1][1]["revision"]) == ("Mine", "try")


def test_options_of_a_download_reach_the_hub(hub):
    network().save_pretrained(hub.root / "ann/mlp")
    from_pretrained("ann/mlp", revision="v1", token="secret", cache_dir="c", local_files_only=True)
    assert hub.calls == [
        (
            "snapshot_download",
            {
                "repo_id": "ann/mlp",
                "revision": "v1",
                "token": "secret",
                "cache_dir": "c",
                "local_files_only": True,
                "allow_patterns": ["config.json", "model.safetensors", "README.md"],
                "library_name": "lresnet",
                "library_version": lresnet.__version__,
            },
        )
    ]


def test_the_commit_whose_sizes_were_compared_is_downloaded(hub):
    network().save_pretrained(hub.root / "ann/mlp")
    from_pretrained("ann/mlp", revision="v1")
    assert hub.planned == ["v1"]
    assert [options["revision"] for _, options in hub.calls] == [COMMIT]


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("model.safetensors", 2**33 + 1, "has 8,589,934,593 bytes, and the limit is 8,589,934,592; nothing was downlo"),
        ("config.json", 2**22 + 1, "has 4,194,305 bytes, and the limit is 4,194,304; nothing was downloaded"),
        ("README.md", 2**40, "has 1,099,511,627,776 bytes, and the limit is 4,194,304; nothing was downloaded"),
        (
            "model.safetensors",
            None,
            "does not state the size of model.safetensors in 'ann/mlp'; nothing was downloaded",
        ),
    ],
)
def test_a_large_file_is_refused_before_it_is_downloaded(hub, name, size, words):
    network().save_pretrained(hub.root / "ann/mlp")
    hub.sizes = {name: size}
    with pytest.raises(ValueError, match=words):
        from_pretrained("ann/mlp")
    assert hub.calls == []
    hub.sizes = {name: 2**22}
    from_pretrained("ann/mlp")


def test_a_local_folder_takes_precedence(hub):
    model = network()
    model.save_pretrained("ann/mlp")
    assert same_weights(from_pretrained("ann/mlp"), model)
    with pytest.raises(ValueError, match="ann/mlp is a local folder, not a repository, and has no revisions"):
        from_pretrained("ann/mlp", revision="v1")
    with pytest.raises(FileNotFoundError, match=r"ann is not a saved model: config\.json is missing"):
        from_pretrained(Path("ann"))
    with pytest.raises(FileNotFoundError, match="ann/none is not a saved model"):
        from_pretrained(Path("ann/none"))  # a path is a folder
    assert hub.calls == []


def test_messages_about_a_repository_name_it_and_not_the_cache(hub):
    folder = hub.root / "ann/bert"
    with pytest.raises(FileNotFoundError) as error:
        from_pretrained("ann/bert")
    assert str(error.value).startswith("the repository 'ann/bert' is not a saved model: config.json is missing; ")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    with pytest.raises(ValueError) as damage:
        from_pretrained("ann/bert")
    assert str(damage.value) == (
        "the repository 'ann/bert' cannot be read as a model that save_pretrained has written: config.json has no "
        "entry \"model\", as lresnet writes it; it describes a model of another library, 'bert'"
    )


def test_without_the_package_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="there is no folder 'ann/mlp', and downloading the repository") as error:
        from_pretrained("ann/mlp")
    assert str(error.value).endswith("pip install huggingface_hub")
    with pytest.raises(ImportError, match="uploading to the repository 'ann/mlp' of the Hugging Face hub needs"):
        network().push_to_hub("ann/mlp")


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (RepositoryNotFoundError("404\nURL", 404), FileNotFoundError, "no repository 'ann/mlp' on the Hugging Face"),
        (GatedRepoError("403", 403), PermissionError, "is gated: accept its conditions on its page of the hub"),
        (RevisionNotFoundError("404", 404), FileNotFoundError, "has no revision 'v1'; give a branch, a tag"),
        (LocalEntryNotFoundError("no"), FileNotFoundError, "is not in the cache, and the network is switched off"),
        (OfflineModeIsEnabled("no"), FileNotFoundError, "is not in the cache, and the network is switched off"),
        (caused(LocalEntryNotFoundError("no"), ConnectError("refused")), ConnectionError, r"reached \(refused\); chec"),
        (caused(LocalEntryNotFoundError("no"), HfHubHTTPError("x", 503)), ConnectionError, "problem .status 503"),
        (ConnectError("no address"), ConnectionError, r"cannot be reached \(no address\); check the network"),
        (HfHubHTTPError("x", 401), PermissionError, r"log in with `hf auth login`, or pass token= \(status 401\)"),
        (HfHubHTTPError("x", 429), ConnectionError, "refuses more requests for now"),
        (HfHubHTTPError("teapot\nURL", 418), OSError, "refuses the request for 'ann/mlp': teapot$"),
        (HFValidationError("bad\nname"), ValueError, "has an invalid name: bad$"),
    ],
)
def test_an_error_of_the_hub_becomes_one_line(raised, kind, message, hub, monkeypatch):
    monkeypatch.delenv("LRESNET_DEBUG", raising=False)
    hub.error = raised
    with pytest.raises(kind, match=message) as error:
        from_pretrained("ann/mlp", revision="v1")
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    monkeypatch.setenv("LRESNET_DEBUG", "1")
    with pytest.raises(kind) as shown:
        from_pretrained("ann/mlp", revision="v1")
    assert shown.value.__cause__ is raised


def test_errors_of_an_upload_say_what_to_do(hub):
    hub.error = HfHubHTTPError("x", 403)
    with pytest.raises(PermissionError, match=r"does not let you write to 'ann/mlp'; log in .* may write to 'ann'"):
        network().push_to_hub("ann/mlp")
    hub.error = OfflineModeIsEnabled("no")
    with pytest.raises(FileNotFoundError, match="nothing was uploaded to 'ann/mlp': HF_HUB_OFFLINE"):
        network().push_to_hub("ann/mlp")
    with pytest.raises(ValueError, match="'mlp' is not the name of a repository; write 'owner/name'"):
        network().push_to_hub("mlp")


def test_other_errors_pass_unchanged(hub):
    hub.error = PermissionError(13, "Permission denied", "cache")
    with pytest.raises(PermissionError) as error:
        from_pretrained("ann/mlp")
    assert error.value is hub.error


_PROGRAM = """
import json, sys, torch, lresnet

torch.manual_seed(3)
model = lresnet.create_model("lorentz_mlp", in_features=4, num_classes=2)
model.push_to_hub("ann/mlp", card=sys.argv[1], commit_message="First", token="hf_writer")
for options in ({}, {"local_files_only": True}, {"revision": sys.argv[2]}):
    found = lresnet.from_pretrained("ann/mlp", **options)
    assert all(torch.equal(a, b) for a, b in zip(found.state_dict().values(), model.state_dict().values(), strict=True))

messages = {}
for repo, options in json.loads(sys.argv[3]):
    try:
        lresnet.from_pretrained(repo, **options)
    except Exception as error:
        messages[repo + str(options.get("revision", ""))] = f"{type(error).__name__}: {error}"
try:
    model.push_to_hub("ann/mlp", token="hf_reader")
except Exception as error:
    messages["push"] = f"{type(error).__name__}: {error}"
print(json.dumps(messages))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="needs huggingface_hub")
def test_the_real_package_with_a_local_server(tmp_path):
    with hub_server() as server:
        server.refused = {"ann/gated": (403, "GatedRepo"), "ann/down": (503, "")}
        server.repositories["ann/bert"] = {
            "config.json": b'{"model_type": "bert"}',
            "pytorch_model.bin": b"a pickle",
            "nested/config.json": b"{}",
        }
        server.repositories["ann/large"] = {"config.json": b" " * (2**22 + 1)}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "LRESNET_"))}
        environment |= {"HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
        wrong = [
            ("ann/none", {}),
            ("ann/gated", {}),
            ("ann/down", {}),
            ("ann/bert", {}),
            ("ann/large", {}),
            ("ann/mlp", {"revision": "v9"}),
        ]
        arguments = ["---\nlibrary_name: lresnet\n---\n", COMMIT, json.dumps(wrong)]
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        messages = json.loads(done.stdout.splitlines()[-1])
        assert messages["ann/none"].startswith("FileNotFoundError: there is no folder 'ann/none', and no repository")
        assert messages["ann/gated"].startswith("PermissionError: the repository 'ann/gated' is gated")
        assert messages["ann/down"].startswith("ConnectionError: the Hugging Face hub has a problem (status 503)")
        assert messages["ann/bert"].endswith("it describes a model of another library, 'bert'")
        assert messages["ann/mlpv9"].startswith("FileNotFoundError: the repository 'ann/mlp' has no revision 'v9'")
        assert messages["push"].startswith("PermissionError: the Hugging Face hub does not let you write to 'ann/mlp'")
        assert sorted(server.repositories["ann/mlp"]) == ["README.md", "config.json", "model.safetensors"]
        assert server.private == {"ann/mlp": True}
        assert server.messages == ["First"]
        asked = " ".join(server.requests)
        assert "pytorch_model.bin" not in asked
        assert "nested" not in asked
        assert messages["ann/large"].startswith("ValueError: config.json in the repository 'ann/large' has 4,194,305 b")
        assert not any(one.startswith("GET /ann/large/resolve") for one in server.requests)
        assert len(server.requests) < 60


@pytest.mark.parametrize("token", ["", "  \n", "hf_ab cd", "hf_ü"])
def test_a_malformed_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ValueError, match="as it was issued") as error:
        _checked_token(token)
    assert not token.strip() or token not in str(error.value)


def test_a_token_from_a_file_loses_its_newline_and_errors_hide_it() -> None:
    assert _checked_token("hf_secret\n") == "hf_secret"
    assert _checked_token(None) is None
    assert _checked_token(False) is False
    assert "secret" not in _first_line(ValueError("Illegal header value b'Bearer hf_secret' for hf_secret"))
