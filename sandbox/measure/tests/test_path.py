from measure.path import NEEDS, STEPS, Interval, busy, by_step, critical_path, durations, from_timeline


def row(operation: str, resource: str, begin: float, end: float | None, parent: str | None = None) -> dict[str, object]:
    return {"operation": operation, "resource": resource, "accepted": begin, "ready": end, "parent": parent}


def test_every_part_has_a_step_and_known_needs() -> None:
    assert set(NEEDS) == set(STEPS)
    assert {need for needs in NEEDS.values() for need in needs} <= set(NEEDS)


def test_time_is_counted_once_where_intervals_overlap() -> None:
    assert busy([Interval("x", "", 0, 4), Interval("x", "", 1, 2), Interval("x", "", 3, 6), Interval("x", "", 8, 9)]) == 7


def test_the_chain_follows_needs_and_not_what_the_client_waited_for() -> None:
    rows = [
        row("CreateStack", "stack:nemo-network", 0, 3),
        row("CreateStack", "stack:nemo-roles", 0, 5),
        row("CreateStack", "stack:nemo-nat", 3, 12),
        row("CreateCluster", "arn:aws:eks:x:cluster/nemo", 5, 60),
        row("CreateNatGateway", "nat-1", 4, 11, parent="nemo-nat"),
        row("CreateNodegroup", "arn:x:nodegroup/nemo/nemo-gpu/1", 70, 90),
        row("CreateNodegroup", "arn:x:nodegroup/nemo/nemo-system/2", 60, 75),
        row("CreateFileSystem", "fs-1", 200, 248),  # made late, without need: its length counts, not its place
        row("CreateAddon", "arn:x:addon/nemo/coredns/3", 60, None),
        row("DeleteCluster", "arn:aws:eks:x:cluster/old", 0, 500),
    ]
    intervals = [*from_timeline(rows), Interval("pods weights", "w", 250, 260), Interval("pods serve", "s", 260, 290)]
    took = durations(intervals)
    assert took["cluster"] == 55 and took["node group gpu"] == 20 and "add-ons" not in took
    length, chain = critical_path(took)
    assert chain == ["stack roles", "cluster", "node group system", "pods weights", "pods serve"]  # by the GPU nodes it is 110
    assert length == 115


def test_steps_are_the_busy_time_of_their_parts() -> None:
    assert by_step([Interval("stack network", "", 0, 3), Interval("stack nat", "", 3, 12), Interval("cluster", "", 3, 58)]) == {
        "network": 12,
        "cluster": 55,
    }
