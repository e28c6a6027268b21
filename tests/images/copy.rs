//! Copying between real registries (Debian's docker-registry in both roles), on loopback.

use std::process::{Command, Stdio};
use std::sync::Mutex;

use nemo::registry::{Copier, Document, Meter, Reference, Target, Upstream, Way, own_image};
use tokio::sync::Semaphore;

use crate::registries::{Registries, images, wait_for};

fn silent(_: &str, _: &str, _: u32) {}

#[tokio::test]
async fn an_image_is_copied_with_its_digest_and_a_second_time_nothing_moves() {
    let registries = Registries::start().await;
    let (from, copier, slots) = (registries.upstream(), Copier::new(registries.ecr()), Semaphore::new(3));
    let reference = registries.reference("nvidia/ai-dynamo/vllm-runtime:1.6.1-efa");
    let resolved = Upstream::resolve(&reqwest::Client::new(), &reference.to_string()).await.unwrap();
    assert!(resolved.architectures.contains(&"amd64".to_owned()) && resolved.bytes > 0, "{resolved:?}");
    let pinned = Reference { digest: Some(resolved.digest.clone()), ..reference };
    let tags = ["one".to_owned(), "two".to_owned()];
    let meter = Meter::default();
    let way = Way { slots: &slots, meter: &meter, notice: &silent };
    let digest = copier.image(&from, &pinned, "amd64", Target { repository: "nemo/vllm-runtime", tags: &tags }, way).await.unwrap();
    assert_eq!(meter.read(), (resolved.bytes, resolved.bytes));
    for tag in &tags {
        let stored = registries.ecr().manifest("nemo/vllm-runtime", tag, &silent).await.unwrap().unwrap();
        assert_eq!(stored.digest, digest);
        let document: Document = serde_json::from_slice(&stored.bytes).unwrap();
        for blob in document.blobs().into_iter().filter(|blob| blob.size < 1 << 20) {
            registries.ecr().small_blob("nemo/vllm-runtime", &blob.digest, &silent).await.unwrap();
        }
    }
    let before = registries.blobs();
    // Another process knows nothing of the first: what is there is found by asking.
    let again = Copier::new(registries.ecr()).image(&from, &pinned, "amd64", Target { repository: "nemo/vllm-runtime", tags: &tags }, way).await.unwrap();
    assert_eq!((again, registries.blobs()), (digest.clone(), before));
    // In another repository of the same registry blobs are linked, not sent: no new bytes on the disk.
    let linked = copier.image(&from, &pinned, "amd64", Target { repository: "other/runtime", tags: &tags[..1] }, way).await.unwrap();
    assert_eq!((linked, registries.blobs()), (digest, before));
}

#[tokio::test]
async fn every_kind_of_image_passes_and_a_missing_architecture_is_named() {
    let registries = Registries::start().await;
    let (from, copier, slots, meter) = (registries.upstream(), Copier::new(registries.ecr()), Semaphore::new(2), Meter::default());
    let way = Way { slots: &slots, meter: &meter, notice: &silent };
    let tags = ["t".to_owned()];
    for name in ["alpine/helm:3.22.0", "nvidia/k8s-device-plugin:v0.17.4", "test/unknown-layer:1", "lws/charts/lws:0.9.0"] {
        let reference = registries.reference(name);
        copier.image(&from, &reference, "amd64", Target { repository: &reference.repository, tags: &tags }, way).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let arm = registries.reference("test/arm64-only:1");
    let resolved = Upstream::resolve(&reqwest::Client::new(), &arm.to_string()).await.unwrap();
    assert_eq!(resolved.architectures, ["arm64"]);
    let private = Upstream::resolve(&reqwest::Client::new(), &registries.reference("closed/private-image:1").to_string()).await.unwrap_err();
    assert_eq!(private.kind(), nemo::error::Kind::Credentials, "{private}");
    let missing = Upstream::resolve(&reqwest::Client::new(), &registries.reference("alpine/helm:0.0.0").to_string()).await.unwrap_err();
    assert_eq!(missing.code, "MANIFEST_UNKNOWN", "{missing}");
}

#[tokio::test]
async fn a_registry_that_dies_is_told_and_a_new_copy_goes_on() {
    let mut registries = Registries::start().await;
    let (copier, slots, meter) = (Copier::new(registries.ecr()), Semaphore::new(2), Meter::default());
    let told = Mutex::new(0);
    let notice = |_: &str, _: &str, _: u32| *told.lock().unwrap() += 1;
    let way = Way { slots: &slots, meter: &meter, notice: &notice };
    let artifact = own_image().unwrap();
    let tags = [artifact.version.clone()];
    let to = Target { repository: "nemo/agent", tags: &tags };
    let mut dead = registries.processes.pop().unwrap();
    dead.kill().unwrap();
    dead.wait().unwrap();
    let error = copier.artifact(&artifact, to, way).await.unwrap_err();
    assert_eq!((error.code.as_str(), *told.lock().unwrap()), ("Unreachable", 5), "{error}");
    let port = registries.ecr.rsplit_once(':').unwrap().1.to_owned();
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(images().join("../world/ecr.yml")).env("REGISTRY_HTTP_ADDR", format!("127.0.0.1:{port}")).env("OTEL_TRACES_EXPORTER", "none");
    command.env("REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY", registries.folder.path().join("ecr")).stdout(Stdio::null()).stderr(Stdio::null());
    registries.processes.push(command.spawn().unwrap());
    wait_for(port.parse().unwrap()).await;
    let digest = copier.artifact(&artifact, to, way).await.unwrap();
    assert_eq!(registries.ecr().manifest("nemo/agent", &artifact.version, &silent).await.unwrap().unwrap().digest, digest);
}
