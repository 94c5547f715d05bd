"""A small server on 127.0.0.1 that answers the requests of ``huggingface_hub`` for a few model repositories."""

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

__all__ = ["COMMIT", "HubServer", "hub_server"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_MOST_REQUESTS = 200


class HubServer(ThreadingHTTPServer):
    """The repositories by name, each with its files by path, and the log of requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        """Status and error code (a header of the hub) for repositories that are not to be read."""
        self.private: dict[str, bool] = {}
        self.messages: list[str] = []
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def hub_server() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def _get(self) -> None:
        parts = self._parts()
        if parts[:2] == ["api", "models"]:
            repo, kind = "/".join(parts[2:4]), parts[4] if len(parts) > 4 else "revision"
            revision = parts[5] if len(parts) > 5 else "main"
            if self._is_refused(repo):
                return
            if revision not in ("main", COMMIT):
                self._send(404, {"error": "no revision"}, {"X-Error-Code": "RevisionNotFound"})
                return
            files = self.server.repositories[repo]
            if kind == "revision":
                siblings = [{"rfilename": path} for path in files]
                self._send(200, {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings})
            elif kind == "tree":
                tree = [
                    {"type": "file", "path": path, "size": len(data), "oid": _oid(data)} for path, data in files.items()
                ]
                self._send(200, tree)
            else:
                self._send(404, {"error": f"the stub does not know {self.path}"})
        elif len(parts) > 4 and parts[2] == "resolve":
            repo, path = "/".join(parts[:2]), "/".join(parts[4:])
            if self._is_refused(repo):
                return
            data = self.server.repositories[repo].get(path)
            if data is None:
                self._send(404, {"error": "no file"}, {"X-Error-Code": "EntryNotFound"})
            else:
                self._send(200, data, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": COMMIT})
        else:
            self._send(404, {"error": f"the stub does not know {self.path}"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = self._parts()
        if self.headers.get("Authorization") != "Bearer hf_writer":
            self._send(401, {"error": "Invalid username or password."})
        elif parts == ["api", "repos", "create"]:
            given = json.loads(body)
            repo = "/".join(filter(None, [given.get("organization"), given["name"]]))
            self.server.private[repo] = bool(given.get("private")) or given.get("visibility") == "private"
            self.server.repositories.setdefault(repo, {})
            self._send(200, {"url": f"{self.server.address}/{repo}", "name": repo, "id": "1"})
        elif parts == ["api", "validate-yaml"]:
            self._send(200, {"errors": [], "warnings": []})
        elif parts[4:5] == ["preupload"]:
            files = [{"path": one["path"], "uploadMode": "regular"} for one in json.loads(body)["files"]]
            self._send(200, {"files": [one | {"shouldIgnore": False, "oid": None} for one in files]})
        elif parts[4:5] == ["commit"]:
            repo = "/".join(parts[2:4])
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "header":
                    self.server.messages.append(line["value"]["summary"])
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.repositories[repo][line["value"]["path"]] = content
            url = f"{self.server.address}/{repo}/commit/{COMMIT}"
            self._send(200, {"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})
        else:
            self._send(404, {"error": f"the stub does not know {self.path}"})

    def _parts(self) -> list[str]:
        self.server.requests.append(f"{self.command} {self.path}")
        if len(self.server.requests) > _MOST_REQUESTS:
            return ["too-many-requests"]
        return [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]

    def _is_refused(self, repo: str) -> bool:
        status, code = self.server.refused.get(repo, (404, "RepoNotFound"))
        if repo in self.server.repositories and repo not in self.server.refused:
            return False
        self._send(status, {"error": "refused"}, {"X-Error-Code": code} if code else {})
        return True

    def _send(self, status: int, answer: object, headers: dict[str, str] | None = None) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(answer, bytes) else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
