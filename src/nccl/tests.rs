//! The true values are those of `tests/fixtures/nccl/README.md`.

use std::ops::Range;

use proptest::prelude::*;

use super::*;

const TEXT: &str = include_str!("../../tests/fixtures/nccl/all_reduce_2xh200.txt");
const JSON: &str = include_str!("../../tests/fixtures/nccl/all_reduce_2xh200.json");
const GATHER: &str = include_str!("../../tests/fixtures/nccl/all_gather_2xh200.txt");
const EFA: &str = include_str!("../../tests/fixtures/nccl/two_nodes_efa.txt");
const SOCKET: &str = include_str!("../../tests/fixtures/nccl/two_nodes_socket.txt");

const HEAD: &str =
    "# Collective test starting: all_reduce_perf\n#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n";
const GIB: u64 = 1 << 30;

fn at(run: &Run, size: u64) -> (f64, f64) {
    let row = run.rows.iter().find(|row| row.size == size).unwrap();
    (row.out_of_place.unwrap().busbw_gb_s, row.in_place.unwrap().busbw_gb_s)
}

#[test]
fn the_recorded_runs_have_their_true_values() {
    let text = read(TEXT.as_bytes());
    assert_eq!((text.rows.len(), text.collective(), text.version.as_deref()), (31, Some("all_reduce"), Some("2.19.6")));
    assert_eq!((at(&text, GIB), at(&text, 8 * GIB)), ((325.95, 325.81), (346.19, 342.90)));
    assert_eq!((text.average_busbw_gb_s, text.out_of_bounds, text.concluded), (Some(111.807), Some(0), true));
    assert_eq!(text.objections(), Vec::<String>::new());

    let json = read(JSON.as_bytes());
    assert_eq!((json.rows.len(), json.collective()), (31, Some("all_reduce")));
    assert_eq!(at(&json, 8 * GIB), (346.190_062, 342.895_399));
    assert_eq!((json.average_busbw_gb_s, json.out_of_bounds, json.concluded), (Some(111.806_597), Some(0), true));
    assert_eq!(json.objections(), Vec::<String>::new());

    let gather = read(GATHER.as_bytes());
    assert_eq!((gather.rows.len(), gather.collective(), at(&gather, GIB)), (6, Some("all_gather"), (274.79, 293.43)));
    assert_eq!(gather.average_busbw_gb_s, Some(169.932));
    assert_eq!(gather.objections(), Vec::<String>::new());
}

/// Text and JSON of one run say the same, to the digits that the text has.
#[test]
fn text_and_json_agree() {
    for (text, json) in read(TEXT.as_bytes()).rows.iter().zip(read(JSON.as_bytes()).rows) {
        assert_eq!(text.size, json.size);
        assert!((text.out_of_place.unwrap().busbw_gb_s - json.out_of_place.unwrap().busbw_gb_s).abs() < 0.006, "{}", text.size);
    }
}

/// What a cut leaves holds no row and no figure that the whole does not have, and says that it is not whole.
fn holds_nothing_new(all: &Run, whole: &str, cut: Range<usize>) {
    let left = read(&whole.as_bytes()[cut.clone()]);
    assert!(left.rows.iter().all(|row| all.rows.contains(row)), "{cut:?}: {:?}", left.rows.last());
    assert!(left.rows.len() <= all.rows.len());
    assert!(left.average_busbw_gb_s.is_none_or(|average| Some(average) == all.average_busbw_gb_s), "{cut:?}");
    assert!(left.out_of_bounds.is_none_or(|count| Some(count) == all.out_of_bounds), "{cut:?}");
    assert!(left.program.is_none() || left.program == all.program, "{cut:?}");
    assert_eq!(left.unreadable, Vec::<String>::new(), "{cut:?}");
    if left.rows.len() < all.rows.len() {
        assert_ne!(left.objections(), Vec::<String>::new(), "{cut:?}: less than all was read, and nothing is said");
    }
}

#[test]
fn an_output_cut_at_any_byte_holds_no_number_that_is_not_there() {
    // The lines of NCCL between the table make up most of the log; cuts in them are drawn below.
    let table: String = TEXT.split_inclusive('\n').filter(|line| !line.contains("NCCL INFO")).collect();
    for whole in [table.as_str(), JSON, GATHER] {
        let all = read(whole.as_bytes());
        (0..whole.len()).for_each(|end| holds_nothing_new(&all, whole, 0..end));
    }
    // What a pod's log keeps of a long run may begin anywhere.
    let all = read(GATHER.as_bytes());
    (0..GATHER.len()).for_each(|start| holds_nothing_new(&all, GATHER, start..GATHER.len()));
}

#[test]
fn a_cut_says_how_far_it_is_whole() {
    let until = TEXT.find("  1073741824").unwrap() + 40;
    let run = read(&TEXT.as_bytes()[..until]);
    assert_eq!(run.objections(), ["it does not come to its end: the run broke off, or a part is missing; its last whole size is 536870912 bytes"]);
    let until = JSON.find("1073741824").unwrap() + 40;
    assert_eq!(read(&JSON.as_bytes()[..until]).rows.last().unwrap().size, 536_870_912);
    assert_eq!(read(b"").objections(), ["there is no measurement in it", "it does not come to its end: the run broke off, or a part is missing"]);
}

#[test]
fn what_is_wrong_is_said() {
    let row = |rest: &str| format!("{HEAD}        8             2     float     sum      -1    {rest}\n# Collective test concluded: all_reduce_perf\n");
    let cases = [
        (row("13.18    0.00    0.00       3    12.61    0.00    0.00       0"), "wrong results at 8 bytes"),
        (row("nan    0.00    0.00       0    12.61    0.00    0.00       0"), "1 lines of the table cannot be read, the first: 8 "),
        (row("13.18    0.00"), "1 lines of the table cannot be read"),
        (row("13.18 node-0:1:9 [0] NCCL INFO Channel 00/0"), "1 lines of the table cannot be read"),
        (format!("{HEAD}node-1: Test CUDA failure common.cu:892 'out of memory'\n .. node-1 pid 77: Test failure common.cu:1100\n"), "memory ran out"),
        (format!("{HEAD}node-1: Test NCCL failure common.cu:1000 'unhandled system error / '\n"), "nccl-tests says: node-1: Test NCCL failure"),
        (format!("{}# Out of bounds values : 4 FAILED\n# Collective test concluded: all_reduce_perf\n", row("1 2 3 0 1 2 3 0")), "4 values out of bounds"),
    ];
    for (log, said) in cases {
        let objections = read(log.as_bytes()).objections();
        assert!(objections.iter().any(|objection| objection.contains(said)), "{said}: {objections:?}");
    }
    // What a collective does not have is no error, nor are checks that were not asked for.
    let whole = read(row("13.18    0.10    0.20     N/A    N/A    N/A    N/A     N/A").as_bytes());
    assert_eq!((whole.objections(), whole.rows[0].in_place, whole.rows[0].out_of_place.unwrap().wrong), (Vec::new(), None, None));
}

#[test]
fn the_network_is_read_from_the_log() {
    let efa = Transport::read(EFA);
    assert_eq!((efa.nodes, efa.channels, efa.gpudirect_channels, efa.socket_channels), (Some(2), 3, 3, 0));
    assert_eq!(efa.networks.keys().collect::<Vec<_>>(), ["node-0", "node-1"]);
    assert_eq!(efa.objections(2), []);
    assert_eq!(efa.objections(3)[0].what, "2 of 3 nodes were in one communicator");
    // Within one node a network is named and not used.
    let one = Transport::read(TEXT);
    assert_eq!((one.nodes, one.channels), (Some(1), 0));
    assert_eq!(one.objections(1), []);
    assert!(one.objections(2)[0].what.starts_with("NCCL went by Socket on node-0"));
}

#[test]
fn anything_but_the_plug_in_over_efa_with_gpudirect_is_objected_to() {
    let cases = [
        (SOCKET.to_owned(), "N27", "NCCL went by Socket on node-0, Socket on node-1"),
        (String::new(), "N27", "does not say which network"),
        (EFA.replace("provider is efa, fabric is efa-direct", "provider is tcp, fabric is 10.0.0.0/16"), "N27", "provider tcp"),
        (EFA.replacen("NET/Libfabric/0/GDRDMA", "NET/Libfabric/0", 1), "N22", "1 of 3 connections between nodes are without GPUDirect"),
        (EFA.replacen("NET/Libfabric/0/GDRDMA", "NET/Socket/0", 1), "N27", "Socket for 1 of 3 connections"),
        (EFA.replace("Using network Libfabric", "Using network IB"), "N27", "NCCL went by IB on node-0, IB on node-1"),
        (EFA.lines().filter(|line| !line.contains("via NET")).collect::<Vec<_>>().join("\n"), "N27", "no connection between nodes"),
    ];
    for (log, rule, said) in cases {
        let objections = Transport::read(&log).objections(2);
        assert!(objections.iter().any(|objection| objection.rule == rule && objection.what.contains(said)), "{said}: {objections:?}");
    }
}

/// Sockets are what is left when EFA has failed: what the log says of that stands beside it.
#[test]
fn the_reason_of_sockets_is_said_where_the_log_has_it() {
    let because = "node-0:41:57 [0] nccl_ofi_ofiutils_get_providers:169 NCCL WARN OFI fi_getinfo() call failed: No data available\n";
    let objections = Transport::read(&format!("{because}{SOCKET}")).objections(2);
    assert_eq!(objections.iter().map(|objection| objection.rule.as_str()).collect::<Vec<_>>(), ["N27", "N19"]);
}

proptest! {
    #[test]
    fn a_log_cut_on_both_sides_holds_no_number_that_is_not_there(start in 0..TEXT.len(), end in 0..TEXT.len()) {
        holds_nothing_new(&read(TEXT.as_bytes()), TEXT, start.min(end)..end.max(start));
        holds_nothing_new(&read(TEXT.as_bytes()), TEXT, 0..end);
    }

    /// A log cut anywhere proves nothing that the whole log does not prove.
    #[test]
    fn a_cut_log_never_turns_sockets_into_efa(end in 0..SOCKET.len()) {
        prop_assert_ne!(Transport::read(&SOCKET[..end]).objections(2), []);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes).objections();
        let _ = Transport::read(&String::from_utf8_lossy(&bytes)).objections(2);
    }
}

fn measured(points: &[(u64, f64)]) -> Run {
    let mut log = HEAD.to_owned();
    for (mib, busbw) in points {
        log += &format!("{} 2 float sum -1 1.0 1.0 {busbw} 0 1.0 1.0 1.0 0\n", mib << 20);
    }
    read(log.as_bytes())
}

/// N23: a healthy p5 pair has 289 GB/s at 128 MiB; that is no failure, and no floor of another size is held against it.
#[test]
fn each_size_is_held_against_its_own_figure() {
    let published = expected("p5.48xlarge", 2, "all_reduce").unwrap();
    let compared = compare(&measured(&[(64, 200.0), (128, 289.0), (1024, 300.0), (16384, 487.0)]), published.as_ref());
    let verdicts: Vec<_> = compared.iter().map(|one| (one.expected_gb_s, one.verdict)).collect();
    assert_eq!(verdicts, [(None, Verdict::None), (Some(289.0), Verdict::Reached), (Some(437.0), Verdict::Below), (Some(487.0), Verdict::Reached)]);
    assert!((compared[2].share.unwrap() - 300.0 / 437.0).abs() < 1e-9);
}

#[test]
fn without_a_published_figure_there_is_no_verdict() {
    for (instance, nodes, collective) in [("p5en.48xlarge", 2, "all_reduce"), ("p5.48xlarge", 4, "all_reduce"), ("p5.48xlarge", 1, "all_reduce"), ("p5.48xlarge", 2, "all_gather")]
    {
        let published = expected(instance, nodes, collective).unwrap();
        assert_eq!(published, None);
        assert!(compare(&measured(&[(1024, 1.0)]), published.as_ref()).iter().all(|one| one.verdict == Verdict::None));
    }
}

/// What a cluster has reached is held against its next run of the same kind, and against no other.
#[test]
fn an_own_baseline_is_for_the_same_kind_of_run() {
    let at = "2026-12-01T10:00:00Z".parse().unwrap();
    let baseline = Baseline::of(&measured(&[(1024, 400.0)]), "p5en.48xlarge", 2, at).unwrap();
    let expected = baseline.expected("p5en.48xlarge", 2, "all_reduce").unwrap();
    assert_eq!(expected.as_ref().map(|expected| (expected.source.as_str(), expected.read.as_str())), Some(("own baseline", "2026-12-01")));
    assert_eq!(compare(&measured(&[(1024, 350.0)]), expected.as_ref())[0].verdict, Verdict::Below);
    assert_eq!(compare(&measured(&[(1024, 399.0)]), expected.as_ref())[0].verdict, Verdict::Reached);
    for (instance, nodes, collective) in [("p5.48xlarge", 2, "all_reduce"), ("p5en.48xlarge", 4, "all_reduce"), ("p5en.48xlarge", 2, "all_gather")] {
        assert_eq!(baseline.expected(instance, nodes, collective).unwrap(), None);
    }
    // A run that does not say what it was is none.
    assert_eq!(Baseline::of(&read(b""), "p5en.48xlarge", 2, at), None);
}
