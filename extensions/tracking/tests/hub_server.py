"""A hub of models on this machine: as much of Hugging Face's interface as its own client asks for to send files."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """Repositories in memory: {"owner/name": {"private": bool, "files": {name: bytes}}}; those that end in .keras go by LFS."""

    def __init__(self):
        self.repositories, self.objects, self.tokens = {}, {}, set()  # None: a PUT to storage, which goes without
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self._answer(hub.posted)

            def do_GET(self):
                self._answer(hub.asked)

            def do_PUT(self):
                self._answer(hub.put)

            def _answer(self, act):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.tokens.add(self.headers.get("Authorization"))
                status, found = act(self.path.partition("?")[0].strip("/"), body)
                content = json.dumps(found).encode()
                self.send_response(status)
                for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(content))), ("ETag", '"x"')):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def posted(self, path, body):
        if path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            private = asked.get("private") or asked.get("visibility") == "private"
            there = name in self.repositories
            self.repositories.setdefault(name, {"private": bool(private), "files": {}})
            return (409 if there else 200), {"url": f"{self.url}/{name}", "id": name}
        if path == "api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [{**one, "actions": {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}} for one in json.loads(body)["objects"]]
            return 200, {"transfer": "basic", "objects": objects}
        _, _, owner, name, what, _ = path.split("/")
        files = self.repositories[f"{owner}/{name}"]["files"]
        if what == "preupload":
            modes = {one["path"]: "lfs" if one["path"].endswith(".keras") else "regular" for one in json.loads(body)["files"]}
            return 200, {"files": [{"path": name, "shouldIgnore": False, "uploadMode": mode} for name, mode in modes.items()]}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
        return 200, {"commitUrl": f"{self.url}/{owner}/{name}/commit/1", "commitOid": "1", "success": True}

    def asked(self, path, _):
        name = "/".join(path.split("/")[2:4])
        if name not in self.repositories:
            return 404, {"error": "Repository not found"}
        return 200, {"id": name, "private": self.repositories[name]["private"], "sha": "1", "siblings": [], "tags": []}

    def put(self, path, body):
        self.objects[path.rpartition("/")[2]] = body
        return 200, {}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
