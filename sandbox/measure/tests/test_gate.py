import http.client
import http.server
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_proxies import free

from measure.gate import Gate, _gone


class Api(http.server.BaseHTTPRequestHandler):
    """Makes what it is asked for, in chunks as the real one does for larger answers."""

    protocol_version = "HTTP/1.1"
    made: list[str] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.made.append(body["metadata"]["name"])
        data = json.dumps({"kind": "ConfigMap", **body}).encode()
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (data[:10], data[10:], b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def do_GET(self) -> None:
        data = json.dumps(self.made).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def until(check: Callable[[], Any]) -> Any:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come true")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout k -out c -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return Gate(("127.0.0.1", free()), ("127.0.0.1", server.server_port), tmp_path / "c", tmp_path / "k", tmp_path / "c")


def test_what_is_gone_is_called_as_what_was_made() -> None:
    assert _gone("/api/v1/namespaces/nemo/configmaps/bench-1?x=y") == "configmap nemo/bench-1"
    assert _gone("/apis/batch/v1/namespaces/nemo/jobs/bench-1") == "job nemo/bench-1"
    assert _gone("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nemo-helm") == "clusterrolebinding /nemo-helm"
    assert _gone("/api/v1/namespaces/nemo") == "namespace /nemo"


def test_a_write_is_done_while_its_answer_is_held_and_reads_pass(gate: Gate) -> None:
    Api.made.clear()
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    answers: list[tuple[int, Any]] = []

    def ask(method: str, body: Any = None) -> None:
        connection = http.client.HTTPSConnection(*gate.listen, context=trust)
        connection.request(method, "/api/v1/namespaces/nemo/configmaps", json.dumps(body) if body else None)
        answer = connection.getresponse()
        answers.append((answer.status, json.loads(answer.read())))

    ask("POST", {"metadata": {"name": "first", "namespace": "nemo"}})
    assert answers[0][0] == 201 and gate.log[0].made == "ConfigMap nemo/first"
    gate.hold = True
    caller = threading.Thread(target=ask, args=("POST", {"metadata": {"name": "second", "namespace": "nemo"}}))
    caller.start()
    held = until(lambda: list(gate.waiting.values()))
    assert [(one.method, one.made) for one in held] == [("POST", "ConfigMap nemo/second")] and len(answers) == 1
    ask("GET")
    assert answers[1] == (200, ["first", "second"])
    gate.hold = False
    gate.release()
    caller.join(5)
    assert answers[2][0] == 201 and not gate.waiting
