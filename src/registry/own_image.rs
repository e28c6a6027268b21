//! The agent's image: this very binary, what it is linked to, and what a process needs to find names and trust servers.
//!
//! One layer, the same bytes each time. Linked to the C library of the machine that runs `nemo`, so that library comes along.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};

use super::chart::Artifact;
use super::manifest::{Descriptor, Document, Manifest, OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, digest_of, hex_digest};
use crate::error::{Kind, fail};

/// Where the binary is in its image.
pub const BINARY: &str = "/nemo";
/// Where libraries that nobody loaded yet are looked for, beside the ones that are.
const NAME_SERVICES: [&str; 3] = ["libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"];
/// Where distributions keep the certificates that this machine trusts.
const CERTIFICATES: [&str; 4] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"];
/// The loader's place is part of the platform's ABI.
const LOADERS: [(&str, &str); 2] = [("ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"), ("ld-linux-aarch64.so.1", "lib/ld-linux-aarch64.so.1")];
const SELF: &str = "/proc/self/exe";

/// The tag of this binary's image: version and hash. Read once; a binary does not change while it runs.
pub fn own_tag() -> anyhow::Result<String> {
    static TAG: OnceLock<String> = OnceLock::new();
    if let Some(tag) = TAG.get() {
        return Ok(tag.clone());
    }
    let mut hashing = Hashing { inner: io::sink(), hash: Sha256::new() };
    io::copy(&mut open(Path::new(SELF))?, &mut hashing).with_context(|| format!("reading {SELF}"))?;
    let hex = hex_digest(&hashing.hash.finalize());
    let tag = format!("{}-{}", env!("CARGO_PKG_VERSION"), &hex["sha256:".len()..][..12]);
    Ok(TAG.get_or_init(|| tag).clone())
}

/// Makes the image of the running binary. Takes a second or two of one core.
pub fn own_image() -> anyhow::Result<Artifact> {
    let maps = fs::read_to_string("/proc/self/maps").context("reading /proc/self/maps")?;
    image(Path::new(SELF), &libraries(&maps), own_tag()?)
}

/// The files that the process has mapped and that are shared libraries, the loader among them.
fn libraries(maps: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(".so")))
        .collect();
    found.sort();
    found.dedup();
    let folder = found.iter().find(|path| path.file_name().is_some_and(|name| name == "libc.so.6")).and_then(|libc| libc.parent().map(Path::to_owned));
    let more = folder.iter().flat_map(|folder| NAME_SERVICES.map(|name| folder.join(name))).filter(|path| path.exists() && !found.contains(path)).collect::<Vec<_>>();
    found.extend(more);
    found
}

/// One entry of the layer.
enum Entry {
    Folder(u32),
    File { from: PathBuf, mode: u32 },
    Text(&'static str),
}

fn image(binary: &Path, libraries: &[PathBuf], version: String) -> anyhow::Result<Artifact> {
    let (layer, unpacked) = layer(entries(binary, libraries)?)?;
    let architecture = super::manifest::image_architecture(std::env::consts::ARCH);
    let config = serde_json::json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": [BINARY],
            "Env": ["PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "WorkingDir": "/tmp",
            "Labels": {"org.opencontainers.image.title": "nemo agent", "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [unpacked]},
    });
    let config = serde_json::to_vec(&config).context("writing the image's configuration")?;
    let of = |media_type: &str, bytes: &[u8]| Descriptor { media_type: media_type.into(), digest: digest_of(bytes), size: bytes.len() as u64, platform: None };
    let (config_blob, layer_blob) = (of(OCI_CONFIG, &config), of(OCI_LAYER_GZIP, &layer));
    let document = Document {
        schema_version: 2,
        media_type: Some(OCI_MANIFEST.into()),
        config: Some(config_blob.clone()),
        layers: vec![layer_blob.clone()],
        manifests: Vec::new(),
        annotations: BTreeMap::new(),
    };
    let bytes = serde_json::to_vec(&document).context("writing the image's manifest")?;
    let manifest = Manifest { digest: digest_of(&bytes), media_type: OCI_MANIFEST.into(), bytes };
    Ok(Artifact { manifest, blobs: vec![(config_blob, config), (layer_blob, layer)], version })
}

/// What is in the layer, by path without the leading slash; folders come before what is in them.
fn entries(binary: &Path, libraries: &[PathBuf]) -> anyhow::Result<BTreeMap<String, Entry>> {
    let mut entries = BTreeMap::from([
        ("nemo".to_owned(), Entry::File { from: binary.to_owned(), mode: 0o755 }),
        ("etc/passwd".to_owned(), Entry::Text("root:x:0:0:root:/tmp:/nemo\nnobody:x:65534:65534:nobody:/tmp:/nemo\n")),
        ("etc/group".to_owned(), Entry::Text("root:x:0:\nnogroup:x:65534:\n")),
        ("etc/nsswitch.conf".to_owned(), Entry::Text("passwd: files\ngroup: files\nhosts: files dns\n")),
        ("tmp".to_owned(), Entry::Folder(0o1777)),
    ]);
    for library in libraries {
        let place = library.to_string_lossy().trim_start_matches('/').to_owned();
        // A file may be mapped under a longer name than the one it is asked for by (libm-2.36.so); the loader wants the latter.
        if let Some((_, abi)) = LOADERS.iter().find(|(name, _)| library.file_name().is_some_and(|file| file == *name)) {
            entries.insert((*abi).to_owned(), Entry::File { from: library.clone(), mode: 0o755 });
        }
        entries.insert(place, Entry::File { from: library.clone(), mode: 0o755 });
    }
    let chosen = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let bundle = chosen.into_iter().chain(CERTIFICATES.map(PathBuf::from)).find(|path| path.is_file());
    let bundle =
        bundle.ok_or_else(|| fail(Kind::LocalIo, "this machine has no bundle of trusted certificates").hint("install the package ca-certificates, or set SSL_CERT_FILE"))?;
    entries.insert("etc/ssl/certs/ca-certificates.crt".to_owned(), Entry::File { from: bundle, mode: 0o644 });
    for path in entries.keys().cloned().collect::<Vec<_>>() {
        for folder in Path::new(&path).ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            entries.entry(folder.to_string_lossy().into_owned()).or_insert(Entry::Folder(0o755));
        }
    }
    Ok(entries)
}

/// The gzipped tar, and the digest of the tar within.
fn layer(entries: BTreeMap<String, Entry>) -> anyhow::Result<(Vec<u8>, String)> {
    let packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    let mut tar = tar::Builder::new(Hashing { inner: packed, hash: Sha256::new() });
    for (path, entry) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match entry {
            Entry::Folder(mode) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(mode);
                header.set_size(0);
                tar.append_data(&mut header, format!("{path}/"), io::empty())
            }
            Entry::Text(text) => {
                header.set_mode(0o644);
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, path, text.as_bytes())
            }
            Entry::File { from, mode } => {
                let file = open(&from)?;
                let size = file.metadata().with_context(|| format!("reading {}", from.display()))?.len();
                header.set_mode(mode);
                header.set_size(size);
                tar.append_data(&mut header, path, file.take(size))
            }
        }
        .context("packing the agent's image")?;
    }
    let hashing = tar.into_inner().context("packing the agent's image")?;
    let unpacked = hex_digest(&hashing.hash.finalize());
    Ok((hashing.inner.finish().context("packing the agent's image")?, unpacked))
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("opening {}: the agent's image is made from it (nemo publishes it from Linux only)", path.display()))
}

/// Hashes what it passes on.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: io::Write> io::Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The libraries of a program, as its loader finds them.
    fn libraries_of(program: &str) -> Vec<PathBuf> {
        let listed = Command::new("ldd").arg(program).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
    }

    #[test]
    fn the_same_files_give_the_same_image() {
        let libraries = libraries(&fs::read_to_string("/proc/self/maps").unwrap());
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
        let make = || image(Path::new("/bin/true"), &libraries, "1".into()).unwrap();
        let (one, two) = (make(), make());
        assert_eq!(one.manifest.digest, two.manifest.digest);
        let config: serde_json::Value = serde_json::from_slice(&one.blobs[0].1).unwrap();
        let mut tar = Vec::new();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(one.blobs[1].1.as_slice()), &mut tar).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest_of(&tar));
    }

    #[test]
    fn a_program_starts_in_the_unpacked_image_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let artifact = image(Path::new("/usr/bin/id"), &libraries_of("/usr/bin/id"), "1".into()).unwrap();
        let layer = flate2::read::GzDecoder::new(artifact.blobs[1].1.as_slice());
        tar::Archive::new(layer).unpack(root.path()).unwrap();
        // A root of its own, without leave of the system: what the image lacks is not there.
        let ran = Command::new("bwrap").args(["--unshare-all", "--bind"]).arg(root.path()).args(["/", "--", BINARY, "-un"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "root", "{}", String::from_utf8_lossy(&ran.stderr));
        assert!(root.path().join("etc/ssl/certs/ca-certificates.crt").is_file());
    }
}
