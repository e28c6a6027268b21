//! The gateway's manifests, and its configuration in a real nginx: who is let in, to what, and that answers come as they are made.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use nemo::render::{Rendered, key_map};

use super::documents::exposed;

/// With characters that a regular expression would read as its own.
const KEY: &str = "sk-a.b+c/d~e_0123456789==";

#[test]
fn the_gateway_is_as_in_its_golden_folders() {
    for (name, rendered) in exposed() {
        super::golden(&format!("p5en.48xlarge-bf16-{name}"), &rendered);
    }
}

#[test]
fn only_the_networks_that_are_allowed_come_in_and_nothing_of_ours_errs_by_the_lint() {
    for (name, rendered) in exposed() {
        let service = rendered.manifests.iter().find(|manifest| manifest["kind"] == "Service").unwrap();
        let ranges: Vec<_> = service["spec"]["loadBalancerSourceRanges"].as_array().unwrap().iter().map(|range| range.as_str().unwrap().to_owned()).collect();
        assert!(!ranges.is_empty() && !ranges.contains(&"0.0.0.0/0".to_owned()), "{name}");
        let config = rendered.manifests[0]["data"]["nginx.conf"].as_str().unwrap();
        assert!(ranges.iter().all(|range| config.contains(&format!("    {range} 1;\n"))), "{name}: both know the same networks");
        assert_eq!(service["metadata"]["annotations"]["service.beta.kubernetes.io/aws-load-balancer-internal"] == "true", name.ends_with("internal"));
        let mut linter = nemo::lint::Linter::new().unwrap();
        linter.text("gateway.yaml", &rendered.text).unwrap();
        assert_eq!(linter.end().findings.iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new(), "{name}");
    }
}

/// nginx with the configuration of a rendered gateway, before a frontend of this test.
struct Running {
    nginx: Child,
    folder: tempfile::TempDir,
    port: u16,
    ready: u16,
    /// Heads of the requests that came through.
    heads: Receiver<String>,
    /// Lets the frontend send the rest of an answer.
    go_on: Sender<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not killed: its workers would stay.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.nginx), rustix::process::Signal::TERM);
        let _ = self.nginx.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A frontend that answers at once, but for chats: of those the second half comes when the test says so.
fn frontend() -> (u16, Receiver<String>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (tell, heads), (go_on, going)) = (listener.local_addr().unwrap().port(), channel(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = head(&mut stream);
            let chat = head.starts_with("POST /v1/chat/completions ");
            tell.send(head).unwrap();
            if chat {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nb\r\ndata: one\n\n\r\n").unwrap();
                going.recv().unwrap();
                stream.write_all(b"b\r\ndata: two\n\n\r\n0\r\n\r\n").unwrap();
            } else {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            }
        }
    });
    (port, heads, go_on)
}

fn head(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{head}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    head
}

fn certificate(folder: &Path) {
    let (key, certificate) = (folder.join("tls/tls.key"), folder.join("tls/tls.crt"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nemo", "-keyout"])
        .arg(key)
        .arg("-out")
        .arg(certificate)
        .output()
        .expect("openssl is there (scripts/setup)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// `allowed` stands for the networks of the settings.
fn start(rendered: &Rendered, allowed: &str) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // As root nginx works as nobody.
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["key", "tls"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    certificate(at);
    fs::write(at.join("key/keys.conf"), key_map(KEY)).unwrap();
    fs::write(at.join("resolver.conf"), "resolver 127.0.0.1;\n").unwrap();
    let ((behind, heads, go_on), port, ready) = (frontend(), free_port(), free_port());
    let config = rendered.manifests[0]["data"]["nginx.conf"].as_str().unwrap();
    let here = at.display().to_string();
    let config = [
        // First: the folder itself may be below /tmp.
        ("/tmp/", format!("{here}/")),
        ("/etc/gateway/", format!("{here}/")),
        ("/dev/stdout", format!("{here}/access.log")),
        ("listen 8443 ", format!("listen 127.0.0.1:{port} ")),
        ("listen 8081;", format!("listen 127.0.0.1:{ready};")),
        ("frontend.nemo.svc.cluster.local", "127.0.0.1".to_owned()),
        ("$frontend:8000", format!("$frontend:{behind}")),
        ("10.180.0.0/16 1;", format!("{allowed} 1;")),
    ]
    .into_iter()
    .fold(config.to_owned(), |config, (from, to)| {
        assert!(config.contains(from), "{from}: {config}");
        config.replace(from, &to)
    });
    fs::write(at.join("nginx.conf"), config).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let mut nginx =
        Command::new("nginx").env("PATH", path).args(["-e", "stderr", "-c"]).arg(at.join("nginx.conf")).stderr(Stdio::piped()).spawn().expect("nginx is there (scripts/setup)");
    let mut said = BufReader::new(nginx.stderr.take().unwrap());
    let mut all = String::new();
    while !all.contains("start worker process ") {
        assert!(said.read_line(&mut all).unwrap() > 0, "nginx does not start: {all}");
    }
    // Somebody has to read on, or it stops at a full pipe.
    let log = at.join("error.log");
    std::thread::spawn(move || std::io::copy(&mut said, &mut File::create(log).unwrap()));
    Running { nginx, folder, port, ready, heads, go_on }
}

impl Running {
    fn curl(&self, path: &str, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--insecure", "--noproxy", "*", "--path-as-is", "--max-time", "20"]).args(more).arg(format!("https://127.0.0.1:{}{path}", self.port));
        curl
    }

    /// Status, challenge and body.
    fn ask(&self, path: &str, more: &[&str]) -> (String, String) {
        let output = self.curl(path, &[more, &["--write-out", "\n%{http_code} %header{www-authenticate}"]].concat()).output().expect("curl is there (scripts/setup)");
        assert!(output.status.success(), "{path} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.trim().to_owned(), body.to_owned())
    }
}

/// Of an address without TLS.
fn status(address: &str, header: &str) -> String {
    let output = Command::new("curl").args(["-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "-H", header, address]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn internal() -> Rendered {
    exposed().into_iter().find(|(name, _)| name.ends_with("internal")).unwrap().1
}

#[test]
fn without_the_key_nothing_is_answered() {
    let gateway = start(&internal(), "127.0.0.0/8");
    let bearer = |key: &str| format!("Authorization: Bearer {key}");
    let refused = [
        bearer("wrong"),
        bearer(&KEY.to_uppercase()),
        bearer(&format!("{KEY}x")),
        bearer(&format!("x{KEY}")),
        bearer(&KEY.replace('.', "x")),
        bearer(""),
        format!("Authorization: Basic {KEY}"),
        format!("Authorization: {KEY}"),
        format!("X-Api-Key: {KEY}"),
    ];
    for path in ["/v1/models", "/v1/chat/completions", "/metrics", "/health", "/", &format!("/v1/models?api_key={KEY}")] {
        for header in refused.iter().map(String::as_str).chain(["X-None: 1"]) {
            let (status, body) = gateway.ask(path, &["-H", header]);
            assert_eq!(status, "401 Bearer", "{path} {header}");
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body["error"]["code"], "invalid_api_key");
        }
    }
    assert!(gateway.heads.try_recv().is_err(), "nothing came through");
    assert_eq!(status(&format!("http://127.0.0.1:{}/v1/models", gateway.port), &bearer(KEY)), "400", "without TLS nothing is read");
}

#[test]
fn with_the_key_the_api_answers_and_nothing_else_does() {
    let gateway = start(&internal(), "127.0.0.0/8");
    for header in [format!("Authorization: Bearer {KEY}"), format!("authorization: bearer {KEY}")] {
        assert_eq!(gateway.ask("/v1/models", &["-H", &header]), ("200".to_owned(), "{}".to_owned()));
        let head = gateway.heads.recv().unwrap();
        assert!(head.starts_with("GET /v1/models ") && !head.to_lowercase().contains("authorization") && !head.contains(KEY), "the key stays here: {head}");
    }
    let header = format!("Authorization: Bearer {KEY}");
    for path in ["/metrics", "/health", "/live", "/", "/openapi.json", "/ready", "/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/..%2fmetrics", "//metrics", "/v1/./../health"] {
        assert_eq!(gateway.ask(path, &["-H", &header]).0, "404", "{path}");
    }
    assert!(gateway.heads.try_recv().is_err(), "nothing of these came through");
    // A picture within the request.
    let body = gateway.folder.path().join("body");
    fs::write(&body, vec![b'x'; 20 << 20]).unwrap();
    assert_eq!(gateway.ask("/v1/embeddings", &["-H", &header, "--data-binary", &format!("@{}", body.display())]).0, "200");
    gateway.heads.recv().unwrap();
    let log = fs::read_to_string(gateway.folder.path().join("access.log")).unwrap();
    assert!(log.contains("\"GET /v1/models\" 200") && !log.contains(KEY), "{log}");
    assert_eq!(status(&format!("http://127.0.0.1:{}/ready", gateway.ready), "X-None: 1"), "200");
}

#[test]
fn tokens_come_as_they_are_made() {
    let gateway = start(&internal(), "127.0.0.0/8");
    let header = format!("Authorization: Bearer {KEY}");
    let mut chat = gateway.curl("/v1/chat/completions", &["--no-buffer", "-H", &header, "-d", "{}"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(chat.stdout.take().unwrap()).lines().map(Result::unwrap).filter(|line| !line.is_empty());
    assert_eq!(lines.next().as_deref(), Some("data: one"), "while the frontend still holds back the rest");
    gateway.go_on.send(()).unwrap();
    assert_eq!(lines.next().as_deref(), Some("data: two"));
    assert!(chat.wait().unwrap().success());
}

#[test]
fn another_network_is_refused_even_with_the_key() {
    let gateway = start(&internal(), "203.0.113.0/24");
    let (status, body) = gateway.ask("/v1/models", &["-H", &format!("Authorization: Bearer {KEY}")]);
    assert_eq!(status, "403");
    assert!(body.contains("network_not_allowed") && gateway.heads.try_recv().is_err(), "{body}");
}
