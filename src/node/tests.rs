use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const RECORDED: &str = include_str!("../../tests/fixtures/nccl/utilization-during-all-reduce.csv");
const WANTED: Wanted = Wanted { gpus: 2, adapters: 2, over_nodes: true };

fn gpu(index: u32, used: u32) -> GpuSample {
    GpuSample { index, used: Some(used), power_w: Some(300.0), ..GpuSample::default() }
}

fn adapter(device: &str, bytes: u64) -> AdapterSample {
    AdapterSample { device: device.into(), counters: BTreeMap::from([("rx_bytes".into(), bytes), ("tx_bytes".into(), bytes), ("rx_drops".into(), 0)]) }
}

/// Look number `n` of a node on which all is well.
fn look(n: u64) -> Sample {
    let at = jiff::Timestamp::from_second(1_790_000_000 + i64::try_from(n).unwrap()).unwrap();
    Sample { at, gpus: vec![gpu(0, 97), gpu(1, 64)], adapters: vec![adapter("rdmap86s0", (7 + n) << 30), adapter("rdmap87s0", (9 + n) << 30)] }
}

fn judged(change: impl Fn(u64, &mut Sample)) -> Judged {
    let samples: Vec<Sample> = (0..6)
        .map(|n| {
            let mut sample = look(n);
            change(n, &mut sample);
            sample
        })
        .collect();
    judge("node-0", None, &samples, WANTED)
}

#[test]
fn use_on_every_gpu_and_traffic_on_every_adapter_passes() {
    let judged = judged(|_, _| {});
    assert!(judged.passed(), "{:?}", judged.objections);
    assert_eq!(judged.gpus.iter().map(|gpu| gpu.peak_used).collect::<Vec<_>>(), [Some(97), Some(64)]);
    assert_eq!(judged.adapters.iter().map(|adapter| adapter.moved).collect::<Vec<_>>(), [10 << 30, 10 << 30]);
}

#[test]
fn the_gpu_or_adapter_at_fault_is_named() {
    type Change = fn(u64, &mut Sample);
    let cases: &[(Change, &str)] = &[
        (|_, look| look.gpus[1].used = Some(3), "GPU 1 was idle: at most 3 % of it were used in any look"),
        (|_, look| look.gpus.truncate(1), "GPU 1 was never seen"),
        (|_, look| look.gpus[0].used = None, "GPU 0 was never seen"),
        (|n, look| look.gpus[0].error = (n > 3).then(|| "device fell off the bus".into()), "GPU 0 cannot be asked: device fell off the bus"),
        (|n, look| look.gpus[0].ecc_uncorrected = Some(4 + n / 5), "GPU 0 had 1 memory errors that ECC could not correct"),
        (|_, look| look.adapters[1] = adapter("rdmap87s0", 9 << 30), "adapter rdmap87s0 moved nothing (0 bytes) while NCCL ran"),
        (|n, look| look.adapters[1] = adapter("rdmap87s0", n << 10), "adapter rdmap87s0 moved nothing (10240 bytes)"),
        (|n, look| look.adapters[0] = adapter("rdmap86s0", n << 22), "adapter rdmap86s0 moved 41943040 bytes where its neighbours moved about 10737418240"),
        (|_, look| look.adapters.truncate(1), "1 of 2 EFA adapters were seen"),
        (|n, look| look.adapters.truncate(if n == 0 { 2 } else { 1 }), "adapter rdmap87s0 was seen in 1 of 6 looks"),
    ];
    for (change, said) in cases {
        let judged = judged(change);
        assert!(judged.objections.iter().any(|words| words.starts_with(said)), "{said}: {:?}", judged.objections);
        assert_eq!(judged.objections.len(), 1, "{said}: {:?}", judged.objections);
    }
}

#[test]
fn without_samples_nothing_is_proven() {
    let judged = judge("node-0", None, &[], WANTED);
    assert_eq!(
        judged.objections,
        [
            "0 samples of it: too few to tell what it did",
            "GPU 0 was never seen: nothing is known of it",
            "GPU 1 was never seen: nothing is known of it",
            "0 of 2 EFA adapters were seen"
        ]
    );
    assert!(!judge("node-0", None, &[look(0), look(1)], WANTED).passed());
}

/// Errors of before the run are the probe's business; a driver that counts anew is no traffic backwards; RDMA alone is traffic.
#[test]
fn counters_are_taken_as_they_come() {
    assert!(judged(|_, look| look.gpus[0].ecc_uncorrected = Some(7)).passed());
    let reset = judged(|n, look| look.adapters[0] = adapter("rdmap86s0", (if n < 3 { 90 + n } else { n }) << 30));
    assert_eq!((reset.passed(), reset.adapters[0].moved), (true, 8 << 30));
    let rdma = judged(|n, look| look.adapters[0].counters = BTreeMap::from([("rdma_write_bytes".into(), n << 31), ("rx_bytes".into(), 5), ("retrans_pkts".into(), n)]));
    assert_eq!((rdma.passed(), rdma.adapters[0].moved, rdma.adapters[0].retransmitted), (true, 10 << 30, 5));
}

#[test]
fn within_one_node_no_adapter_has_to_move_anything() {
    let still: Vec<Sample> = (0..4).map(|_| look(0)).collect();
    assert!(judge("node-0", None, &still, Wanted { over_nodes: false, ..WANTED }).passed());
    assert!(!judge("node-0", None, &still, WANTED).passed());
}

/// Once a second of what two H200s showed during a real all_reduce, begun at any third of a second: used. And the quiet seconds before and after: idle.
#[test]
fn recorded_use_is_told_from_recorded_rest() {
    let looks: Vec<(f64, u32, u32)> = RECORDED
        .lines()
        .map(|line| {
            let columns: Vec<&str> = line.split(", ").collect();
            let seconds = columns[0].rsplit(':').next().unwrap().parse().unwrap();
            (seconds, columns[1].parse().unwrap(), columns[2].trim_end_matches(" %").parse().unwrap())
        })
        .collect();
    for phase in 0..3 {
        for index in 0..2 {
            let during: Vec<u32> = looks.iter().filter(|(at, gpu, _)| (27.9..34.3).contains(at) && *gpu == index).map(|(_, _, used)| *used).skip(phase).step_by(3).collect();
            let samples: Vec<Sample> = during.iter().map(|used| Sample { gpus: vec![gpu(0, *used)], ..look(0) }).collect();
            assert!(judge("n", None, &samples, Wanted { gpus: 1, adapters: 0, over_nodes: false }).passed(), "phase {phase}, GPU {index}: {during:?}");
        }
    }
    let rest: Vec<Sample> = looks.iter().filter(|(at, _, _)| (27.0..28.5).contains(at)).map(|(_, _, used)| Sample { gpus: vec![gpu(0, *used)], ..look(0) }).collect();
    assert!(rest.len() > 3 && !judge("n", None, &rest, Wanted { gpus: 1, adapters: 0, over_nodes: false }).passed());
}

fn recorded(log: &str) -> (Probe, Vec<Sample>) {
    let mut probe = None;
    let mut samples = Vec::new();
    for said in log.lines().map(|line| Said::read(line).unwrap()) {
        match said {
            Said::Probe(said) => probe = Some(*said),
            Said::Sample(sample) => samples.push(sample),
            Said::End { samples: count } => assert_eq!(count as usize, samples.len()),
        }
    }
    (probe.unwrap(), samples)
}

/// What the agent printed on a real H200: at rest it is called idle, under load it passes, and without NVML that is the answer.
#[test]
fn a_real_gpu_is_judged_by_what_the_agent_saw() {
    let wanted = Wanted { gpus: 1, adapters: 0, over_nodes: false };
    let (probe, idle) = recorded(include_str!("../../tests/fixtures/gpu/h200-580.159.04/idle.jsonl"));
    assert_eq!(probe.driver.as_ref().map(|driver| (driver.version.as_str(), driver.cuda.as_deref())), Some(("580.159.04", Some("13.0"))));
    assert_eq!((probe.gpus[0].name.as_deref(), probe.gpus[0].memory_mib, probe.gpus[0].ecc), (Some("NVIDIA H200"), Some(143_771), Some(true)));
    assert_eq!(judge("gpu-machine", Some(&probe), &idle, wanted).objections, ["GPU 0 was idle: at most 0 % of it were used in any look"]);
    let (probe, load) = recorded(include_str!("../../tests/fixtures/gpu/h200-580.159.04/load.jsonl"));
    let judged = judge("gpu-machine", Some(&probe), &load, wanted);
    assert_eq!((judged.objections, judged.samples, judged.gpus[0].peak_used), (Vec::new(), 63, Some(100)));
    let (probe, none) = recorded(include_str!("../../tests/fixtures/gpu/h200-580.159.04/no-nvml.jsonl"));
    let objections = judge("gpu-machine", Some(&probe), &none, wanted).objections;
    assert!(objections[1].starts_with("libnvidia-ml-not-here.so.1 cannot be loaded: there is no NVIDIA driver here"), "{objections:?}");
}

#[test]
fn a_line_that_is_cut_is_no_sample() {
    let line = serde_json::to_string(&Said::Sample(look(3))).unwrap();
    assert_eq!(Said::read(&line), Some(Said::Sample(look(3))));
    for end in 0..line.len() {
        assert_eq!(Said::read(&line[..end]), None);
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("node-{n}")).collect()
}

/// Runs the search on nodes of which these are bad, and pairs of which these fail only together. Also how many runs it took.
fn search(count: usize, bad: &[usize], between: Option<(usize, usize)>) -> (Culprit, u32) {
    let (nodes, runs) = (names(count), Cell::new(0));
    let is = |node: &String, n: usize| *node == format!("node-{n}");
    let run = async |group: &Group| {
        runs.set(runs.get() + 1);
        let a_bad_one = group.iter().any(|node| bad.iter().any(|n| is(node, *n)));
        let both = between.is_some_and(|(one, other)| group.iter().any(|node| is(node, one)) && group.iter().any(|node| is(node, other)));
        Ok::<_, std::convert::Infallible>(!a_bad_one && !both)
    };
    let found = futures::executor::block_on(bisect(&nodes, run)).unwrap();
    (found, runs.get())
}

#[test]
fn one_bad_node_is_named_among_any_number() {
    for count in 2..=9 {
        for bad in 0..count {
            let (found, runs) = search(count, &[bad], None);
            assert_eq!(found, Culprit::Nodes { nodes: vec![format!("node-{bad}")] }, "of {count}");
            assert!(runs as usize <= count / 2 + 4, "{runs} runs for {count} nodes");
        }
    }
}

#[test]
fn what_lies_between_two_nodes_is_told_from_a_bad_node() {
    assert_eq!(search(2, &[], Some((0, 1))).0, Culprit::Between { nodes: ["node-0".into(), "node-1".into()] });
    assert_eq!(search(4, &[], Some((2, 3))).0, Culprit::Between { nodes: ["node-2".into(), "node-3".into()] });
    assert_eq!(search(3, &[], Some((0, 1))).0, Culprit::Between { nodes: ["node-0".into(), "node-1".into()] });
}

#[test]
fn no_node_is_blamed_without_proof() {
    assert_eq!(search(6, &[], None).0, Culprit::NoPair);
    assert_eq!(search(4, &[0, 1, 2, 3], None).0, Culprit::All);
    assert_eq!(search(3, &[0, 1, 2], None).0, Culprit::All);
    assert_eq!(search(5, &[0, 1, 2, 3], None).0, Culprit::All);
}

proptest! {
    /// While two nodes are well, exactly the bad ones are named, each with proof.
    #[test]
    fn all_bad_nodes_are_named_while_two_are_well(count in 3_usize..9, picks in proptest::collection::btree_set(0_usize..9, 1..7)) {
        let bad: Vec<usize> = picks.into_iter().filter(|n| *n < count).collect();
        prop_assume!(!bad.is_empty() && count - bad.len() >= 2);
        let Culprit::Nodes { mut nodes } = search(count, &bad, None).0 else { panic!("no nodes named") };
        nodes.sort();
        prop_assert_eq!(nodes, bad.iter().map(|n| format!("node-{n}")).collect::<Vec<_>>());
    }
}
