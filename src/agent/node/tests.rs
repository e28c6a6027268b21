use std::fs;
use std::path::Path;
use std::sync::Mutex;

use super::*;

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A `/sys` as EFA's driver makes it, with a device of somebody else beside it.
fn sys(root: &Path) {
    for (device, driver) in [("rdmap86s0", "efa"), ("rdmap87s0", "efa"), ("mlx5_0", "mlx5_core")] {
        let folder = root.join("class/infiniband").join(device);
        for (name, count) in [("rx_bytes", 1000), ("tx_bytes", 2000), ("rx_drops", 1), ("lifespan", 12)] {
            put(&folder.join("ports/1/hw_counters").join(name), &format!("{count}\n"));
        }
        put(&folder.join("ports/1/state"), "4: ACTIVE\n");
        put(&folder.join("ports/1/rate"), "100 Gb/sec (4X EDR)\n");
        put(&folder.join("fw_ver"), "0.0.0.0\n");
        fs::create_dir_all(folder.join("device")).unwrap();
        std::os::unix::fs::symlink(format!("../../../bus/pci/drivers/{driver}"), folder.join("device/driver")).unwrap();
    }
    put(&root.join("module/efa/version"), "2.17.3g\n");
    fs::create_dir_all(root.join("module/gdrdrv")).unwrap();
    put(&root.join("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "5128\n");
}

fn look(root: &Path, seconds: u64) -> Look {
    Look {
        node: "node-0".into(),
        sys: root.join("sys"),
        proc: root.join("proc"),
        amazon: root.join("amazon"),
        nvml: "/nowhere/libnvidia-ml.so.1".into(),
        seconds: Some(seconds),
        every: Duration::from_millis(250),
    }
}

async fn said(look: &Look) -> Vec<Said> {
    let heard = Mutex::new(Vec::new());
    run(look, &|said| heard.lock().unwrap().push(said.clone())).await.unwrap();
    heard.into_inner().unwrap()
}

fn program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    put(path, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_node_is_told_by_what_is_in_its_folders() {
    let root = tempfile::tempdir().unwrap();
    sys(&root.path().join("sys"));
    put(&root.path().join("proc/sys/kernel/osrelease"), "6.12.40-63.114.amzn2023.x86_64\n");
    put(&root.path().join("amazon/efa_installed_packages"), "# EFA installer version: 1.43.2\n");
    program(
        &root.path().join("amazon/efa/bin/fi_info"),
        "#!/bin/sh\necho 'provider: efa'\necho '    domain: rdmap86s0-rdm'\necho '    domain: rdmap87s0-rdm'\necho '    domain: rdmap86s0-rdm'\n",
    );
    let all = said(&look(root.path(), 0)).await;
    let [Said::Probe(probe), Said::End { samples: 0 }] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(Said::read(&serde_json::to_string(&all[0]).unwrap()).as_ref(), Some(&all[0]));
    assert_eq!((probe.node.as_str(), probe.kernel.as_deref()), ("node-0", Some("6.12.40-63.114.amzn2023.x86_64")));
    assert_eq!(probe.modules.iter().map(|(name, version)| (name.as_str(), version.as_deref())).collect::<Vec<_>>(), [("efa", Some("2.17.3g")), ("gdrdrv", None)]);
    assert_eq!(probe.huge_pages.get("2048"), Some(&5128));
    assert_eq!(
        probe.adapters.iter().map(|adapter| (adapter.device.as_str(), adapter.state.as_deref(), adapter.counts)).collect::<Vec<_>>(),
        [("rdmap86s0", Some("4: ACTIVE"), true), ("rdmap87s0", Some("4: ACTIVE"), true)]
    );
    assert_eq!(probe.fi_info.as_ref().map(|fi| (fi.found, fi.said.len())), Some((true, 2)));
    assert_eq!(probe.efa_installed.as_deref(), Some("# EFA installer version: 1.43.2"));
    // No NVML: an answer, not an end.
    assert_eq!((probe.gpus.len(), probe.driver.as_ref()), (0, None));
    assert!(probe.no_nvml.as_deref().unwrap().starts_with("/nowhere/libnvidia-ml.so.1 cannot be loaded: there is no NVIDIA driver here"));
}

/// The counters are read anew each time, and an adapter that goes is missed from then on.
#[tokio::test]
async fn samples_follow_the_counters() {
    let root = tempfile::tempdir().unwrap();
    sys(&root.path().join("sys"));
    let counter = root.path().join("sys/class/infiniband/rdmap87s0/ports/1/hw_counters/rx_bytes");
    let heard = Mutex::new(Vec::new());
    let mut looks = 0;
    let looks = Mutex::new(&mut looks);
    run(&look(root.path(), 1), &|said| {
        heard.lock().unwrap().push(said.clone());
        let mut looks = looks.lock().unwrap();
        **looks += 1;
        // In place, as sysfs does: the agent holds the file open.
        fs::write(&counter, if **looks < 4 { format!("{}\n", 1000 * **looks) } else { "gone".into() }).unwrap();
    })
    .await
    .unwrap();
    let heard = heard.into_inner().unwrap();
    let samples: Vec<&Sample> = heard.iter().filter_map(|said| if let Said::Sample(sample) = said { Some(sample) } else { None }).collect();
    let received = |sample: &Sample| sample.adapters.iter().find(|adapter| adapter.device == "rdmap87s0").map(|adapter| adapter.counters["rx_bytes"]);
    assert_eq!(samples.iter().map(|sample| received(sample)).collect::<Vec<_>>(), [Some(1000), Some(2000), Some(3000), None]);
    assert_eq!(heard.last(), Some(&Said::End { samples: 4 }));
    assert!(samples.iter().all(|sample| sample.adapters.iter().all(|adapter| !adapter.counters.contains_key("lifespan"))));
}

#[tokio::test]
async fn libfabric_without_efa_says_its_error() {
    let root = tempfile::tempdir().unwrap();
    program(&root.path().join("efa/bin/fi_info"), "#!/bin/sh\necho 'fi_getinfo: -61 (No data available)' >&2\nexit 61\n");
    let answer = system::fi_info(root.path()).await.unwrap();
    assert_eq!((answer.found, answer.said), (false, vec!["fi_getinfo: -61 (No data available)".to_owned()]));
}

/// A line of the log is what the judge reads.
#[test]
fn what_is_said_is_read_again() {
    let said = Said::Sample(Sample {
        at: "2026-12-01T10:00:00Z".parse().unwrap(),
        gpus: vec![crate::node::GpuSample { index: 3, used: Some(99), ..Default::default() }],
        adapters: Vec::new(),
    });
    assert_eq!(serde_json::to_string(&said).unwrap(), r#"{"kind":"sample","at":"2026-12-01T10:00:00Z","gpus":[{"index":3,"used":99}],"adapters":[]}"#);
    assert_eq!(Said::read(&serde_json::to_string(&said).unwrap()), Some(said));
}
