//! Nodes without containers, as kubectl shows and changes them.

use crate::server::Server;

fn start() -> Server {
    Server::start_with(&["--nodes".as_ref(), "2".as_ref()])
}

#[test]
fn nodes_are_ready_and_pods_run_on_them() {
    let server = start();
    let kubectl = &server.kubectl();
    let nodes = kubectl.eventually("get nodes", |table| table.matches(" Ready ").count() == 2);
    assert!(nodes.contains("node-0") && nodes.contains("node-1"), "{nodes}");
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    kubectl.ok("run web --image=nginx");
    let waited = kubectl.ok("wait pod/web --for=condition=Ready --timeout=30s");
    assert_eq!(waited, "pod/web condition met\n");
    let table = kubectl.ok("get pod web -o wide");
    assert!(
        table.contains("1/1") && table.contains("Running") && table.contains("node-"),
        "{table}"
    );
    let described = kubectl.eventually("describe pod web", |text| {
        text.contains("Successfully assigned default/web to")
    });
    assert!(described.contains("State:          Running"), "{described}");
    kubectl.ok("run job --image=busybox --restart=Never -- sh -c 'exit 3'");
    kubectl.eventually("get pod job", |table| table.contains("Error"));
    kubectl.ok("delete pod web job --timeout=30s");
}

#[test]
fn describe_says_why_a_pod_waits() {
    let server = start();
    let kubectl = &server.kubectl();
    kubectl.eventually("get nodes", |table| table.matches(" Ready ").count() == 2);
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    server.file(
        "big.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: big}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 64}}}]}}",
    );
    kubectl.ok("create -f big.yaml");
    let described =
        kubectl.eventually("describe pod big", |text| text.contains("FailedScheduling"));
    assert!(
        described.contains("0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."),
        "{described}"
    );
    assert!(kubectl.ok("get pod big").contains("Pending"));
}

#[test]
fn nodes_are_cordoned_tainted_and_drained() {
    let server = start();
    let kubectl = &server.kubectl();
    kubectl.eventually("get nodes", |table| table.matches(" Ready ").count() == 2);
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    assert_eq!(kubectl.ok("cordon node-0"), "node/node-0 cordoned\n");
    kubectl.eventually("get nodes", |table| table.contains("Ready,SchedulingDisabled"));
    kubectl.ok("run a --image=nginx");
    kubectl.ok("wait pod/a --for=condition=Ready --timeout=30s");
    assert!(kubectl.ok("get pod a -o wide").contains("node-1"));
    // Drained: the pod is evicted, and a new one has nowhere to go.
    let drained = kubectl.both_outputs("drain node-1 --force --timeout=30s");
    assert!(
        drained.contains("pod/a evicted") && drained.contains("node/node-1 drained"),
        "{drained}"
    );
    kubectl.ok("run b --image=nginx");
    kubectl.eventually("describe pod b", |text| {
        text.contains("0/2 nodes are available:") && text.contains("node(s) were unschedulable")
            || text.contains("node(s) had untolerated taint(s)")
    });
    assert_eq!(kubectl.ok("uncordon node-0"), "node/node-0 uncordoned\n");
    kubectl.ok("wait pod/b --for=condition=Ready --timeout=30s");
    // A taint that evicts.
    assert_eq!(kubectl.ok("taint nodes node-0 maintenance=now:NoExecute"), "node/node-0 tainted\n");
    kubectl.eventually("get pods", |table| table.contains("No resources found"));
}

#[test]
fn stages_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stages.yaml");
    let stage = "apiVersion: nodes.setpoint.dev/v1alpha1\nkind: Stage\nmetadata: {name: lb}\nspec:\n  \
        resourceRef: {kind: Service}\n  selector:\n    matchExpressions:\n    \
        - {key: .spec.type, operator: In, values: [LoadBalancer]}\n    \
        - {key: .status.loadBalancer.ingress, operator: DoesNotExist}\n  \
        next: {status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}\n";
    std::fs::write(&path, stage).unwrap();
    let server =
        Server::start_with(&["--nodes".as_ref(), "1".as_ref(), "--stages".as_ref(), path.as_ref()]);
    let kubectl = &server.kubectl();
    kubectl.ok("create service loadbalancer web --tcp=80");
    kubectl.eventually("get service web", |table| table.contains("192.0.2.7"));
}

#[test]
fn services_pods_and_nodes_have_addresses_of_both_families() {
    let server = Server::start_with(&[
        "--nodes".as_ref(),
        "1".as_ref(),
        "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112".as_ref(),
    ]);
    let kubectl = &server.kubectl();
    kubectl.eventually("get nodes", |table| table.contains(" Ready "));
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    assert!(kubectl.ok("get servicecidrs").contains("10.0.0.0/24,fd00:10::/112"));
    assert_eq!(
        kubectl.ok("get node node-0 -o jsonpath={.status.addresses[*].address}"),
        "172.16.0.2 fd00:172:16::2 node-0"
    );
    kubectl.ok("run web --image=nginx --labels=app=web");
    kubectl.ok("wait pod/web --for=condition=Ready --timeout=30s");
    assert_eq!(
        kubectl.ok("get pod web -o jsonpath={.status.podIPs[*].ip}/{.status.hostIPs[*].ip}"),
        "10.64.0.2 fd00:10:64::2/172.16.0.2 fd00:172:16::2"
    );
    server.file(
        "web.yaml",
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80}]}}",
    );
    kubectl.ok("create -f web.yaml");
    let described = kubectl.ok("describe svc web");
    assert!(
        described.contains("RequireDualStack") && described.contains("IPv4,IPv6"),
        "{described}"
    );
    let addresses = kubectl.ok("get svc web -o jsonpath={.spec.clusterIPs[*]}");
    let (four, six) = addresses.split_once(' ').unwrap();
    assert!(four.starts_with("10.0.0.") && six.starts_with("fd00:10::"), "{addresses}");
    assert!(kubectl.ok("get ipaddresses").contains(&format!("{six} ")));
    let slices = "get endpointslices -l kubernetes.io/service-name=web --no-headers -o custom-columns=T:.addressType,A:.endpoints[*].addresses[*]";
    let lines = |table: &str| -> Vec<String> {
        let mut lines: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort();
        lines
    };
    kubectl.eventually(slices, |table| lines(table) == ["IPv4 10.64.0.2", "IPv6 fd00:10:64::2"]);
    let endpoints = "get endpoints web -o jsonpath={.subsets[*].addresses[*].ip}";
    // A warning that Endpoints are deprecated follows.
    kubectl.eventually(endpoints, |ips| ips.starts_with("10.64.0.2") && !ips.contains("fd00"));
    // Back to one family: the second address is free, and its slice goes.
    kubectl.ok(r#"patch svc web -p {"spec":{"ipFamilyPolicy":"SingleStack"}}"#);
    assert_eq!(kubectl.ok("get svc web -o jsonpath={.spec.clusterIPs[*]}"), four);
    assert!(!kubectl.ok("get ipaddresses").contains(six));
    kubectl.eventually(slices, |table| lines(table) == ["IPv4 10.64.0.2"]);
}
