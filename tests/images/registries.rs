//! Debian's docker-registry in both roles, filled and signed in to as the sandbox's are, on loopback.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nemo::registry::{Anonymous, Reference, Registry};

/// Two registries and the token service of the first, gone with the test.
pub(crate) struct Registries {
    pub(crate) processes: Vec<Child>,
    pub(crate) upstream: String,
    pub(crate) ecr: String,
    pub(crate) folder: tempfile::TempDir,
}

impl Drop for Registries {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port()
}

pub(crate) fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/images")
}

fn line_of(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?} failed; run scripts/setup");
    String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().trim().to_owned()
}

pub(crate) async fn wait_for(port: u16) {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody listens at {port}");
        nemo::engine::clock::sleep(Duration::from_millis(20)).await;
    }
}

impl Registries {
    pub(crate) async fn start() -> Self {
        let python = PathBuf::from(line_of(&mut Command::new(images().join("setup.sh")))).join("bin/python");
        let store = line_of(Command::new(&python).args(["-m", "images", "store"]).current_dir(images()));
        let folder = tempfile::tempdir().unwrap();
        let (tokens, upstream, ecr) = (free_port(), free_port(), free_port());
        let mut token_service = Command::new(&python)
            .args(["-m", "images.token_server", "images.toml", "--host", "127.0.0.1", "--port", &tokens.to_string(), "--state"])
            .arg(folder.path().join("tokens"))
            .current_dir(images())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its line says that it listens and that its certificate is there.
        let mut said = String::new();
        BufReader::new(token_service.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let registry = |port: u16, settings: &Path, storage: PathBuf| {
            let mut command = Command::new("docker-registry");
            command.arg("serve").arg(settings).env("REGISTRY_HTTP_ADDR", format!("127.0.0.1:{port}")).env("OTEL_TRACES_EXPORTER", "none");
            command.env("REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY", storage).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let upstream_role = registry(upstream, &images().join("upstream.yml"), Path::new(&store).join("registry"))
            .env("REGISTRY_AUTH_TOKEN_ROOTCERTBUNDLE", folder.path().join("tokens/token.crt"))
            .env("REGISTRY_AUTH_TOKEN_AUTOREDIRECT", "false")
            .env("REGISTRY_AUTH_TOKEN_REALM", format!("http://127.0.0.1:{tokens}/token"))
            .spawn()
            .unwrap();
        let ecr_role = registry(ecr, &images().join("../world/ecr.yml"), folder.path().join("ecr")).spawn().unwrap();
        wait_for(upstream).await;
        wait_for(ecr).await;
        let host = |port| format!("127.0.0.1:{port}");
        Self { processes: vec![token_service, upstream_role, ecr_role], upstream: host(upstream), ecr: host(ecr), folder }
    }

    pub(crate) fn reference(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.upstream).parse().unwrap()
    }

    pub(crate) fn upstream(&self) -> Registry {
        Registry::new(reqwest::Client::new(), &self.upstream, Box::new(Anonymous))
    }

    pub(crate) fn ecr(&self) -> Registry {
        Registry::new(reqwest::Client::new(), &self.ecr, Box::new(Anonymous))
    }

    /// Blobs on the target's disk.
    pub(crate) fn blobs(&self) -> usize {
        let found = Command::new("find").arg(self.folder.path().join("ecr")).args(["-path", "*/blobs/sha256/*", "-name", "data"]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().count()
    }
}
