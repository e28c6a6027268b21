use std::collections::BTreeMap;
use std::fmt::Write;

use super::*;
use crate::node::{AdapterProbe, AdapterSample, GpuProbe, GpuSample, Probe, Said, Sample};

const HEAD: &str =
    "# Collective test starting: all_reduce_perf\n#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n";
const EFA: &str = include_str!("../../tests/fixtures/nccl/two_nodes_efa.txt");
const SOCKET: &str = include_str!("../../tests/fixtures/nccl/two_nodes_socket.txt");

/// A run over two nodes that reaches this at 128 MiB and 1 GiB.
fn log(network: &str, small: f64, large: f64) -> String {
    let row = |size: u64, busbw: f64| format!("{size} 2 float sum -1 1.0 1.0 {busbw} 0 1.0 1.0 {busbw} 0\n");
    format!("{network}{HEAD}{}{}# Out of bounds values : 0 OK\n# Collective test concluded: all_reduce_perf\n", row(128 << 20, small), row(1 << 30, large))
}

fn probe(node: &str) -> Probe {
    Probe {
        at: "2026-12-01T10:00:00Z".parse().unwrap(),
        node: node.into(),
        kernel: None,
        driver: None,
        no_nvml: None,
        gpus: (0..2).map(|index| GpuProbe { index, ..GpuProbe::default() }).collect(),
        modules: BTreeMap::new(),
        huge_pages: BTreeMap::new(),
        adapters: ["rdmap86s0", "rdmap87s0"].map(|device| AdapterProbe { device: device.into(), state: None, rate: None, firmware: None, counts: true }).into(),
        efa_installed: None,
        fi_info: None,
    }
}

/// What an agent says on a node of two GPUs and two adapters; `moves` is what the second adapter moves a second.
fn agent(probe: Probe, moves: u64) -> String {
    let at = probe.at;
    let mut lines = serde_json::to_string(&Said::Probe(Box::new(probe))).unwrap();
    for n in 0..5_u64 {
        let adapter = |device: &str, bytes: u64| AdapterSample { device: device.into(), counters: BTreeMap::from([("rx_bytes".into(), bytes)]) };
        let gpus = (0..2).map(|index| GpuSample { index, used: Some(98), ..GpuSample::default() }).collect();
        let sample = Sample { at, gpus, adapters: vec![adapter("rdmap86s0", n << 32), adapter("rdmap87s0", n * moves)] };
        write!(lines, "\n{}", serde_json::to_string(&Said::Sample(sample)).unwrap()).unwrap();
    }
    lines + "\n"
}

fn asked(instance: &str) -> Asked {
    Asked { instance: instance.into(), nodes: 2, gpus: 2, adapters: 2, baseline: None }
}

fn judged(instance: &str, log: &str, agents: &[String]) -> Answer {
    answer(&asked(instance), &[log.to_owned()], None, &Watched::read(agents.iter().map(String::as_str))).unwrap()
}

fn well() -> [String; 2] {
    [agent(probe("node-0"), 1 << 32), agent(probe("node-1"), 1 << 32)]
}

#[test]
fn a_cluster_that_works_passes() {
    let answer = judged("p5.48xlarge", &log(EFA, 289.0, 437.0), &well());
    assert!(answer.passed, "{:?}", answer.objections);
    insta::assert_snapshot!(answer.to_string());
}

#[test]
fn without_published_bandwidth_use_and_traffic_decide() {
    let answer = judged("p5en.48xlarge", &log(EFA, 3.0, 5.0), &well());
    assert!(answer.passed, "{:?}", answer.objections);
    assert_eq!(answer.expected, "nothing is published for all_reduce of 2 × p5en.48xlarge by message size: bandwidth gives no verdict, use and traffic decide");
}

#[test]
fn what_stands_against_it_is_named() {
    let sockets = judged("p5.48xlarge", &log(SOCKET, 2.1, 2.2), &[agent(probe("node-0"), 1 << 32), agent(probe("node-1"), 0)]);
    assert!(!sockets.passed);
    insta::assert_snapshot!(sockets.to_string());
    let one = judged("p5en.48xlarge", &log(EFA, 289.0, 437.0), &well()[..1]);
    assert_eq!(one.objections, ["1 of 2 nodes were watched: use and traffic of the others are not known"]);
    let none = judged("p5en.48xlarge", "", &[]);
    assert_eq!(none.run.rows, []);
    assert!(none.objections.len() >= 4, "{:?}", none.objections);
}

/// What the agent found before the run counts, too.
#[test]
fn a_node_that_is_not_fit_fails() {
    let mut lost = probe("node-0");
    lost.gpus[1].error = Some("device fell off the bus".into());
    let agents = [agent(lost, 1 << 32), agent(probe("node-1"), 1 << 32)];
    assert_eq!(judged("p5en.48xlarge", &log(EFA, 3.0, 5.0), &agents).objections, ["node-0: GPU 1 cannot be asked: device fell off the bus"]);
}

/// Two logs, the first of them cut within a number: that number is not made whole by what comes after it.
#[test]
fn a_cut_log_is_not_mended_by_the_next() {
    let whole = log(EFA, 289.0, 437.0);
    let cut = whole.find("1073741824").unwrap() + 38;
    let logs = [whole[..cut].to_owned(), SOCKET.to_owned()];
    let answer = answer(&asked("p5.48xlarge"), &logs, None, &BTreeMap::new()).unwrap();
    assert_eq!(answer.run.rows.len(), 1);
    assert_eq!(answer.run.unreadable, Vec::<String>::new());
}

/// Lines of others in the agent's log, and one that is cut, are not the agent's.
#[test]
fn only_whole_lines_of_the_agent_are_read() {
    let text = format!("starting\n{}", agent(probe("node-0"), 1));
    let watched = Watched::read([&text[..text.len() - 20]]);
    assert_eq!(watched["node-0"].samples.len(), 4);
    let nobody = Watched::read([agent(probe("node-0"), 1).lines().skip(1).collect::<Vec<_>>().join("\n").as_str()]);
    assert_eq!(nobody.keys().collect::<Vec<_>>(), ["unknown node"]);
}
