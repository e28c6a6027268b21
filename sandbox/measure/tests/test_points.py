from measure.points import STEPS, Every, OneInEachStep, aws_point, kube_point, step_of


def test_a_point_is_the_same_in_every_run() -> None:
    upload = {"service": "registry", "operation": "PUT blobs", "target": "/v2/nemo/agent/blobs/uploads/5bd1b2d2-0d4f-4a0c"}
    assert aws_point(upload) == "registry PUT blobs /v2/nemo/agent/blobs/uploads/*"
    assert (
        aws_point({"service": "fsx", "operation": "TagResource", "target": "FileSystemId=fs-0123456789abcdef0"}) == "fsx TagResource FileSystemId=*"
    )
    assert kube_point("PATCH", "/api/v1/namespaces/nemo/services/x?fieldManager=nemo") == "kubernetes PATCH /api/v1/namespaces/nemo/services/x"


def test_every_call_belongs_to_a_step() -> None:
    known = {
        "cloudformation CreateStack StackName=nemo-network": "network",
        "cloudformation CreateStack StackName=nemo-gpu-nodes": "gpu-nodes",
        "eks CreateCluster /clusters,name=nemo": "cluster",
        "eks CreateNodegroup /clusters/nemo/node-groups,nodegroupName=nemo-gpu": "gpu-nodes",
        "eks CreateNodegroup /clusters/nemo/node-groups,nodegroupName=nemo-system": "system-nodes",
        "eks CreateAddon /clusters/nemo/addons,addonName=coredns": "platform",
        "eks CreateAddon /clusters/nemo/addons,addonName=vpc-cni": "cluster",
        "fsx CreateFileSystem": "filesystem",
        "registry PUT manifests /v2/nemo/agent/manifests/1": "images",
        "kubernetes PATCH /api/v1/persistentvolumes/nemo-weights": "storage",
        "kubernetes PATCH /apis/batch/v1/namespaces/nemo/jobs/nemo-weights": "weights",
        "kubernetes PATCH /apis/batch/v1/namespaces/nemo/jobs/bench-1": "bench",
        "kubernetes PATCH /apis/apps/v1/namespaces/nemo/deployments/frontend": "serve",
        "kubernetes PATCH /apis/batch/v1/namespaces/nemo-system/jobs/helm-lws": "platform",
        "kubernetes PATCH /api/v1/namespaces/dynamo-system": "platform",
        "kubernetes PATCH /api/v1/namespaces/nemo/serviceaccounts/dynamo": "serve",
    }
    assert {point: step_of(point) for point in known} == known


def test_every_point_is_killed_once() -> None:
    every = Every()
    assert every.choose("a") and not every.choose("a") and every.choose("b")


def test_each_step_is_killed_once_whatever_the_seed() -> None:
    for seed in range(50):
        one = OneInEachStep(seed)
        for step in STEPS:
            one.choose(f"noted {step} started")
            one.choose(f"noted {step} done")
        assert set(one.killed) == set(STEPS) and not one.left()
    again = OneInEachStep(3)
    assert again.at == OneInEachStep(3).at
