//! kubectl of today: workloads, services, pods, namespaces, cascades.

use crate::server::Server;

#[test]
fn deployment_is_created_scaled_and_given_an_image() {
    let server = Server::start();
    let kubectl = server.kubectl();
    assert_eq!(
        kubectl.ok("create deployment web --image=nginx:1 --replicas=2"),
        "deployment.apps/web created\n"
    );
    assert_eq!(
        kubectl.ok("get deploy web -o jsonpath={.spec.strategy}"),
        r#"{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}"#
    );
    let table = kubectl.ok("get deploy web -o wide");
    assert!(table.contains("web    0/2     0            0"), "{table}");
    assert_eq!(
        kubectl.ok("set image deployment/web nginx=nginx:2"),
        "deployment.apps/web image updated\n"
    );
    assert_eq!(kubectl.ok("get deploy web -o jsonpath={.spec.template.spec.containers[0].image}/{.metadata.generation}"), "nginx:2/2");
    assert_eq!(kubectl.ok("scale deployment web --replicas=5"), "deployment.apps/web scaled\n");
    assert_eq!(
        kubectl.ok("get deploy web -o jsonpath={.spec.replicas}/{.metadata.generation}"),
        "5/3"
    );
    assert!(
        kubectl
            .fails("scale deployment web --current-replicas=2 --replicas=1")
            .contains("Expected replicas to be 2, was 5")
    );
    assert!(kubectl.fails("scale deployment web --replicas=-1").contains("replicas"));
    let described = kubectl.ok("describe deployment web");
    assert!(
        described.contains("StrategyType:           RollingUpdate")
            && described.contains("Image:         nginx:2"),
        "{described}"
    );
    let said = kubectl.fails(
        r#"patch deploy web --type merge -p {"spec":{"selector":{"matchLabels":{"app":"other"}}}}"#,
    );
    assert!(said.contains("field is immutable"), "{said}");
    assert!(kubectl.ok("get all").contains("deployment.apps/web"));
    assert_eq!(
        kubectl.ok("wait deploy/web --for=jsonpath={.spec.replicas}=5"),
        "deployment.apps/web condition met\n"
    );
    kubectl.ok("set env deployment/web A=b");
    kubectl.ok("set resources deployment web --requests=cpu=100m,memory=64Mi");
    assert_eq!(
        kubectl.ok("get deploy web -o jsonpath={.spec.template.spec.containers[0].env}"),
        r#"[{"name":"A","value":"b"}]"#
    );
    assert_eq!(
        kubectl.ok("delete deploy web"),
        "deployment.apps \"web\" deleted from default namespace\n"
    );
}

#[test]
fn lists_of_a_deployment_merge_by_key() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let manifest = |image: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers:\n      - name: one\n        image: {image}\n        ports: [{{containerPort: 80}}]\n"
        )
    };
    server.file("d.yaml", &manifest("one:1"));
    kubectl.ok("apply -f d.yaml");
    kubectl.ok(r#"patch deploy web -p {"spec":{"template":{"spec":{"containers":[{"name":"two","image":"two:1"}]}}}}"#);
    server.file("d.yaml", &manifest("one:2"));
    assert_eq!(kubectl.ok("apply -f d.yaml"), "deployment.apps/web configured\n");
    let images = kubectl.ok("get deploy web -o jsonpath={.spec.template.spec.containers[*].image}");
    let mut images: Vec<&str> = images.split(' ').collect();
    images.sort_unstable();
    assert_eq!(images, ["one:2", "two:1"]);
}

#[test]
fn service_gets_a_stable_address() {
    let server = Server::start();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("create service clusterip web --tcp=80:8080"), "service/web created\n");
    let address = kubectl.ok("get svc web -o jsonpath={.spec.clusterIP}");
    assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{address}");
    assert_eq!(
        kubectl
            .ok("get svc web -o jsonpath={.spec.clusterIPs}/{.spec.type}/{.spec.sessionAffinity}"),
        format!(r#"["{address}"]/ClusterIP/None"#)
    );
    kubectl.ok(r#"patch svc web -p {"spec":{"type":"NodePort"}}"#);
    let port: u16 =
        kubectl.ok("get svc web -o jsonpath={.spec.ports[0].nodePort}").parse().unwrap();
    assert!((30000..=32767).contains(&port));
    let said = kubectl.fails(
        r#"patch svc web -p {"spec":{"clusterIP":"10.0.0.250","clusterIPs":["10.0.0.250"]}}"#,
    );
    assert!(said.contains("may not change once set"), "{said}");
    let table = kubectl.ok("get svc web");
    assert!(table.contains("NodePort") && table.contains(&format!("80:{port}/TCP")), "{table}");
    assert!(kubectl.ok("describe svc web").contains("Selector:                 app=web"));
    assert!(kubectl.ok("get svc kubernetes").contains("443/TCP"));
}

#[test]
fn pod_is_run_described_and_deleted() {
    let server = Server::start();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("run p --image=nginx --labels=a=b"), "pod/p created\n");
    let table = kubectl.ok("get pods");
    assert!(table.contains("p      0/1     Pending   0"), "{table}");
    assert_eq!(kubectl.ok("get pod p -o jsonpath={.spec.restartPolicy}/{.spec.dnsPolicy}/{.status.phase}/{.status.qosClass}"), "Always/ClusterFirst/Pending/BestEffort");
    assert!(kubectl.ok("describe pod p").contains("Image:        nginx"));
    kubectl.ok("set image pod/p p=nginx:2");
    let said = kubectl.fails(r#"patch pod p -p {"spec":{"nodeName":"n"}}"#);
    assert!(said.contains("pod updates may not change fields other than"), "{said}");
    kubectl.ok("label pod p x=y");
    assert_eq!(
        kubectl.ok("get pods -l x=y,a=b --no-headers -o custom-columns=N:.metadata.name"),
        "p\n"
    );
    assert_eq!(kubectl.ok("get pods --field-selector status.phase=Pending -o name"), "pod/p\n");
    assert_eq!(kubectl.ok("get pods --field-selector status.phase=Running -o name"), "");
    assert_eq!(kubectl.ok("delete pod p"), "pod \"p\" deleted from default namespace\n");
    assert_eq!(kubectl.ok("get pods -o name"), "");
}

#[test]
fn explain_reads_the_published_schema() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let explained = kubectl.ok("explain deployment.spec.template.spec.containers");
    assert!(
        explained.contains("KIND:       Deployment")
            && explained.contains("imagePullPolicy")
            && explained.contains("<string>"),
        "{explained}"
    );
    assert!(kubectl.ok("explain pod --recursive").contains("terminationGracePeriodSeconds"));
    assert!(kubectl.fails("explain pod.nothing").contains("does not exist"));
}

#[test]
fn objects_are_deleted_with_their_namespace() {
    let server = Server::start();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("create namespace doomed"), "namespace/doomed created\n");
    kubectl.ok("-n doomed create configmap a");
    kubectl.ok("-n doomed create secret generic s --from-literal=k=v");
    kubectl.ok("-n doomed create deployment d --image=i");
    kubectl.ok("-n doomed run p --image=i");
    assert_eq!(
        kubectl.ok("delete namespace doomed --timeout=30s"),
        "namespace \"doomed\" deleted\n"
    );
    assert!(kubectl.fails("get ns doomed").contains("NotFound"));
    kubectl.ok("create namespace doomed");
    assert_eq!(
        kubectl
            .ok("-n doomed get cm,secret,deploy,pod -o name")
            .replace("configmap/kube-root-ca.crt\n", ""),
        ""
    );
    let said = kubectl.fails("delete namespace default");
    assert!(said.contains("this namespace may not be deleted"), "{said}");
}

#[test]
fn object_with_a_finalizer_blocks_its_namespace_until_released() {
    let server = Server::start();
    let kubectl = server.kubectl();
    kubectl.ok("create namespace held");
    server.file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: held, finalizers: [example.com/hold]}\n");
    kubectl.ok("apply -f cm.yaml");
    kubectl.ok("delete namespace held --wait=false");
    kubectl.eventually("get ns held -o jsonpath={.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}", |said| {
        said.contains("example.com/hold in 1 resource instances")
    });
    let said = kubectl.fails("-n held create configmap late");
    assert!(said.contains("because it is being terminated"), "{said}");
    kubectl.ok(r#"-n held patch cm cm --type merge -p {"metadata":{"finalizers":null}}"#);
    kubectl.ok("wait --for=delete ns/held --timeout=60s");
}

/// A parent, and a child that names it as its owner.
fn family(server: &Server, block: bool) {
    let kubectl = server.kubectl();
    kubectl.ok("create deployment parent --image=i --replicas=0");
    let uid = kubectl.ok("get deploy parent -o jsonpath={.metadata.uid}");
    server.file(
        "child.yaml",
        &format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: child\n  ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: parent, uid: {uid}, controller: true, blockOwnerDeletion: {block}}}]\n"),
    );
    kubectl.ok("apply -f child.yaml");
}

#[test]
fn background_cascade_removes_the_child_after_the_parent() {
    let server = Server::start();
    family(&server, false);
    let kubectl = server.kubectl();
    kubectl.ok("delete deploy parent --cascade=background");
    kubectl.eventually("get cm child", |said| said.contains("NotFound"));
}

#[test]
fn foreground_cascade_removes_the_child_before_the_parent() {
    let server = Server::start();
    family(&server, true);
    let kubectl = server.kubectl();
    kubectl.ok("delete deploy parent --cascade=foreground --timeout=30s");
    assert!(kubectl.fails("get deploy parent").contains("NotFound"));
    assert!(kubectl.fails("get cm child").contains("NotFound"));
}

#[test]
fn orphan_cascade_leaves_the_child_without_its_reference() {
    let server = Server::start();
    family(&server, false);
    let kubectl = server.kubectl();
    kubectl.ok("delete deploy parent --cascade=orphan --timeout=30s");
    assert!(kubectl.fails("get deploy parent").contains("NotFound"));
    kubectl
        .eventually("get cm child -o jsonpath=[{.metadata.ownerReferences}]", |said| said == "[]");
}
