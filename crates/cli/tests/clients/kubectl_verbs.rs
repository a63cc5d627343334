//! Current kubectl: generators, and operations on many objects at once.

use crate::server::{Lines, Server};
use std::process::Command;

#[test]
fn proxy_passes_requests_and_watches_on() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let proxy = Lines::of(kubectl.command("proxy --port=0"));
    let line = proxy.next();
    let address = line.strip_prefix("Starting to serve on ").unwrap_or_else(|| panic!("{line}"));
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sN"]).args(arguments);
        curl
    };
    let pods = format!("http://{address}/api/v1/namespaces/default/pods");
    let version = curl(&[&format!("http://{address}/version")]).output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).contains("\"gitVersion\": \"v1.36"));
    kubectl.ok("run first --image=i");
    let watch = Lines::of(curl(&[&format!("{pods}?watch=true")]));
    assert!(watch.next().starts_with(r#"{"type":"ADDED","object":{"#));
    let created = curl(&[
        "-X",
        "POST",
        "-H",
        "Content-Type: application/yaml",
        "--data-binary",
        "metadata: {name: second}\nspec: {containers: [{name: c, image: i}]}",
        &pods,
    ])
    .output()
    .unwrap();
    assert!(String::from_utf8_lossy(&created.stdout).contains("\"phase\": \"Pending\""));
    let added = watch.next();
    assert!(
        added.starts_with(r#"{"type":"ADDED""#) && added.contains(r#""name":"second""#),
        "{added}"
    );
    kubectl.ok("label pod second a=b");
    assert!(watch.next().starts_with(r#"{"type":"MODIFIED""#));
    kubectl.ok("delete pod second");
    let last = std::iter::repeat_with(|| watch.next())
        .find(|line| !line.starts_with(r#"{"type":"MODIFIED""#))
        .unwrap();
    assert!(
        last.starts_with(r#"{"type":"DELETED""#) && last.contains("deletionTimestamp"),
        "{last}"
    );
}

#[test]
fn generators_of_every_kind_are_understood() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let cases: &[(&str, &str, &str, &str)] = &[
        ("configmap cm --from-literal=a=1 --append-hash", "configmap/cm-", "", ""),
        ("secret generic s --from-literal=k=v", "secret/s", "{.type}/{.data.k}", "Opaque/dg=="),
        (
            "secret docker-registry d --docker-username=u --docker-password=p",
            "secret/d",
            "{.type}",
            "kubernetes.io/dockerconfigjson",
        ),
        ("serviceaccount sa", "serviceaccount/sa", "{.metadata.name}", "sa"),
        (
            "namespace n",
            "namespace/n",
            "{.status.phase}/{.spec.finalizers[0]}",
            "Active/kubernetes",
        ),
        (
            "deployment web --image=nginx --replicas=3 --port=80 -- sleep 1",
            "deployment.apps/web",
            "{.spec.replicas}/{.spec.template.spec.containers[0].ports[0].containerPort}/{.spec.template.spec.containers[0].command}",
            "3/80/[\"sleep\",\"1\"]",
        ),
        (
            "service clusterip c --tcp=80:8080",
            "service/c",
            "{.spec.ports[0].targetPort}/{.spec.selector.app}",
            "8080/c",
        ),
        (
            "service clusterip headless --clusterip=None",
            "service/headless",
            "{.spec.clusterIP}",
            "None",
        ),
        (
            "service nodeport np --tcp=81:http --node-port=30123",
            "service/np",
            "{.spec.ports[0].nodePort}/{.spec.ports[0].targetPort}",
            "30123/http",
        ),
        (
            "service loadbalancer lb --tcp=82",
            "service/lb",
            "{.spec.type}/{.spec.allocateLoadBalancerNodePorts}",
            "LoadBalancer/true",
        ),
        (
            "service externalname e --external-name=x.example",
            "service/e",
            "{.spec.externalName}",
            "x.example",
        ),
        (
            "job j --image=i",
            "job.batch/j",
            "{.spec.backoffLimit}/{.spec.template.spec.restartPolicy}/{.spec.completionMode}",
            "6/Never/NonIndexed",
        ),
        (
            "cronjob cj --image=i --schedule='*/5 * * * *'",
            "cronjob.batch/cj",
            "{.spec.schedule}/{.spec.concurrencyPolicy}",
            "*/5 * * * */Allow",
        ),
        (
            "ingress i --rule=foo.example/bar*=svc:http --class=c",
            "ingress.networking.k8s.io/i",
            "{.spec.rules[0].host}/{.spec.rules[0].http.paths[0].backend.service.port.name}/{.spec.rules[0].http.paths[0].pathType}",
            "foo.example/http/Prefix",
        ),
        (
            "quota q --hard=cpu=1,pods=2",
            "resourcequota/q",
            "{.spec.hard}",
            r#"{"cpu":"1","pods":"2"}"#,
        ),
        (
            "poddisruptionbudget p --selector=app=web --min-available=50%",
            "poddisruptionbudget.policy/p",
            "{.spec.minAvailable}/{.spec.selector.matchLabels.app}",
            "50%/web",
        ),
        (
            "poddisruptionbudget p1 --selector=app=web --max-unavailable=1",
            "poddisruptionbudget.policy/p1",
            "{.spec.maxUnavailable}",
            "1",
        ),
        (
            "priorityclass pc --value=1000 --description=d",
            "priorityclass.scheduling.k8s.io/pc",
            "{.value}/{.preemptionPolicy}",
            "1000/PreemptLowerPriority",
        ),
        (
            "role r --verb=get,list --resource=pods,pods/status --resource-name=x",
            "role.rbac.authorization.k8s.io/r",
            "{.rules[0].resources}/{.rules[0].verbs}",
            r#"["pods","pods/status"]/["get","list"]"#,
        ),
        (
            "rolebinding rb --role=r --user=u --serviceaccount=default:sa",
            "rolebinding.rbac.authorization.k8s.io/rb",
            "{.roleRef.kind}/{.subjects[*].name}",
            "Role/u sa",
        ),
        (
            "clusterrole cr --verb=get --non-resource-url=/logs",
            "clusterrole.rbac.authorization.k8s.io/cr",
            "{.rules[0].nonResourceURLs}",
            r#"["/logs"]"#,
        ),
        (
            "clusterrolebinding crb --clusterrole=cr --group=g",
            "clusterrolebinding.rbac.authorization.k8s.io/crb",
            "{.roleRef.name}/{.subjects[0].kind}",
            "cr/Group",
        ),
    ];
    for (arguments, name, jsonpath, expected) in cases {
        let said = kubectl.ok(&format!("create {arguments}"));
        assert!(said.starts_with(name) && said.ends_with(" created\n"), "{arguments}: {said}");
        if !jsonpath.is_empty() {
            assert_eq!(
                kubectl.ok(&format!("get {name} -o jsonpath={jsonpath}")),
                *expected,
                "{arguments}"
            );
        }
    }
    // Generators that derive an object from existing ones.
    assert_eq!(
        kubectl.ok("expose deployment web --name=exposed --port=8080 --target-port=80"),
        "service/exposed exposed\n"
    );
    assert_eq!(kubectl.ok("get svc exposed -o jsonpath={.spec.selector}"), r#"{"app":"web"}"#);
    assert_eq!(
        kubectl.ok("autoscale deployment web --min=2 --max=9 --cpu=80%"),
        "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    );
    assert_eq!(
        kubectl.ok("get hpa web -o jsonpath={.spec.metrics[0].resource.target.averageUtilization}"),
        "80"
    );
    kubectl.ok("create job from-cron --from=cronjob/cj");
    assert_eq!(
        kubectl.ok("get job from-cron -o jsonpath={.metadata.ownerReferences[0].kind}"),
        "CronJob"
    );
    assert!(kubectl.ok("get all").contains("cronjob.batch/cj"));
    for kind in [
        "deploy",
        "svc",
        "job",
        "cronjob",
        "ingress",
        "quota",
        "pdb",
        "priorityclass",
        "role",
        "rolebinding",
        "clusterrole",
        "hpa",
        "sa",
        "secret",
    ] {
        assert!(!kubectl.ok(&format!("describe {kind}")).is_empty(), "{kind}");
        assert!(kubectl.ok(&format!("get {kind} -o wide")).starts_with("NAME"), "{kind}");
    }
}

#[test]
fn many_objects_are_changed_and_deleted_at_once() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let mut manifest = String::new();
    for i in 0..5 {
        manifest += &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m{i}, labels: {{part: many, half: '{}'}}}}\n---\n",
            i % 2
        );
    }
    server.file("many.yaml", &manifest);
    assert_eq!(kubectl.ok("apply -f many.yaml").lines().count(), 5);
    assert_eq!(kubectl.ok("get -f many.yaml -o name").lines().count(), 5);
    assert_eq!(kubectl.ok("annotate cm -l part=many a=b").lines().count(), 5);
    assert_eq!(
        kubectl.ok("get cm -l 'half in (0),part' -o name"),
        "configmap/m0\nconfigmap/m2\nconfigmap/m4\n"
    );
    assert_eq!(kubectl.ok("get cm --sort-by=.metadata.name -l part=many --no-headers -o custom-columns=N:.metadata.name").lines().count(), 5);
    assert_eq!(kubectl.ok("delete cm -l half=1").lines().count(), 2);
    assert_eq!(kubectl.ok("get cm -l part -o name").lines().count(), 3);
    kubectl.ok("create secret generic left --from-literal=a=b");
    kubectl.ok("delete cm --all");
    // The CA of each namespace comes back.
    assert_eq!(kubectl.ok("get cm -l part -o name"), "");
    assert_eq!(
        kubectl.ok(
            "get cm,secret -l '!none' --field-selector metadata.name!=kube-root-ca.crt -o name"
        ),
        "secret/left\n"
    );
    server.file("one.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed}}\n- {apiVersion: v1, kind: Secret, metadata: {name: listed}}\n");
    assert_eq!(
        kubectl.ok("create -f one.yaml"),
        "configmap/listed created\nsecret/listed created\n"
    );
    // Applied again without one of the objects, which is pruned.
    server.file("set/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {set: s}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, labels: {set: s}}\n");
    kubectl.ok("apply -f set --prune -l set=s");
    server.file(
        "set/a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {set: s}}\n",
    );
    let pruned = kubectl.ok("apply -f set --prune -l set=s");
    assert!(pruned.contains("configmap/b pruned"), "{pruned}");
}

#[test]
fn names_with_a_prefix_are_generated() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file("g.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: made-}\n");
    let one = kubectl.ok("create -f g.yaml -o jsonpath={.metadata.name}");
    let other = kubectl.ok("create -f g.yaml -o jsonpath={.metadata.name}");
    assert!(one.starts_with("made-") && one.len() == 10 && one != other, "{one} {other}");
}

#[test]
fn waits_end_when_their_condition_is_met() {
    let server = Server::start();
    let kubectl = server.kubectl();
    kubectl.ok("run p --image=i");
    let waiting = kubectl
        .command("wait pod/p --for=condition=Ready --timeout=30s")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let gone = kubectl
        .command("wait pod/p --for=delete --timeout=30s")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.ok(r#"patch pod p --subresource=status --type=merge -p {"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "pod/p condition met\n");
    assert!(kubectl.ok("get pods").contains("Running"));
    assert_eq!(
        kubectl.ok("wait pod/p --for=jsonpath={.status.phase}=Running"),
        "pod/p condition met\n"
    );
    kubectl.ok("delete pod p --wait=false --grace-period=0 --force");
    assert!(gone.wait_with_output().unwrap().status.success());
    let late = kubectl.fails("wait pod/none --for=condition=Ready --timeout=1s");
    assert!(late.contains("NotFound"), "{late}");
    kubectl.ok("create configmap cm");
    let never = kubectl.fails("wait cm/cm --for=jsonpath={.data.a}=b --timeout=1s");
    assert!(never.contains("timed out waiting for the condition on configmaps/cm"), "{never}");
}

#[test]
fn rollouts_are_restarted_paused_and_observed() {
    let server = Server::start();
    let kubectl = server.kubectl();
    kubectl.ok("create deployment web --image=nginx:1");
    assert_eq!(kubectl.ok("rollout restart deployment/web"), "deployment.apps/web restarted\n");
    assert!(
        kubectl
            .ok("get deploy web -o jsonpath={.spec.template.metadata.annotations}")
            .contains("kubectl.kubernetes.io/restartedAt")
    );
    assert_eq!(kubectl.ok("rollout pause deployment/web"), "deployment.apps/web paused\n");
    assert_eq!(kubectl.ok("get deploy web -o jsonpath={.spec.paused}"), "true");
    assert!(kubectl.fails("rollout pause deployment/web").contains("already paused"));
    assert_eq!(kubectl.ok("rollout resume deployment/web"), "deployment.apps/web resumed\n");
    let generation = kubectl.ok("get deploy web -o jsonpath={.metadata.generation}");
    kubectl.ok(&format!(r#"patch deploy web --subresource=status --type=merge -p {{"status":{{"observedGeneration":{generation},"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}}}"#));
    assert_eq!(
        kubectl.ok("rollout status deployment/web --timeout=10s"),
        "deployment \"web\" successfully rolled out\n"
    );
    assert!(kubectl.ok("get deploy web").contains("1/1     1            1"));
    assert_eq!(kubectl.ok("scale deploy/web --replicas=0"), "deployment.apps/web scaled\n");
    assert_eq!(
        kubectl.ok("get deploy web --subresource=scale -o jsonpath={.kind}/{.spec}"),
        "Scale/{}"
    );
}

#[test]
fn nodes_are_cordoned_and_tainted() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n");
    kubectl.ok("create -f node.yaml");
    assert_eq!(kubectl.ok("cordon n1"), "node/n1 cordoned\n");
    assert!(kubectl.ok("get node n1").contains("SchedulingDisabled"));
    assert_eq!(kubectl.ok("uncordon n1"), "node/n1 uncordoned\n");
    assert_eq!(kubectl.ok("taint node n1 k=v:NoSchedule"), "node/n1 tainted\n");
    assert!(
        kubectl
            .ok("get node n1 -o jsonpath={.spec.taints}")
            .contains(r#"{"effect":"NoSchedule","key":"k","value":"v"}"#)
    );
    assert!(kubectl.ok("describe node n1").contains("k=v:NoSchedule"));
    assert_eq!(kubectl.ok("taint node n1 k-"), "node/n1 untainted\n");
}

#[test]
fn events_are_listed_with_their_object() {
    let server = Server::start();
    let kubectl = server.kubectl();
    kubectl.ok("run p --image=i");
    let uid = kubectl.ok("get pod p -o jsonpath={.metadata.uid}");
    server.file("e.yaml", &format!("apiVersion: v1\nkind: Event\nmetadata: {{name: p.1}}\ninvolvedObject: {{apiVersion: v1, kind: Pod, namespace: default, name: p, uid: {uid}}}\nreason: Tested\nmessage: it was tested\ntype: Normal\nsource: {{component: tests}}\ncount: 1\nfirstTimestamp: '2026-01-01T00:00:00Z'\nlastTimestamp: '2026-01-01T00:00:00Z'\n"));
    kubectl.ok("create -f e.yaml");
    assert!(kubectl.ok("describe pod p").contains("it was tested"));
    assert!(kubectl.ok("events --for pod/p").contains("it was tested"));
    assert!(kubectl.ok("get events --field-selector involvedObject.name=p").contains("Tested"));
    assert_eq!(kubectl.ok("get events --field-selector involvedObject.name=q -o name"), "");
    assert_eq!(
        kubectl.ok("get events.events.k8s.io p.1 -o jsonpath={.note}/{.regarding.name}"),
        "it was tested/p"
    );
}

#[test]
fn discovery_answers_in_every_form() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let table = kubectl.ok("api-resources --api-group=apps --no-headers");
    assert_eq!(table.lines().count(), 5, "{table}");
    assert_eq!(
        kubectl.ok("api-resources --namespaced=false --api-group=scheduling.k8s.io -o name"),
        "priorityclasses.scheduling.k8s.io\n"
    );
    let wide = kubectl.ok("api-resources -o wide --verbs=list,watch --categories=all");
    assert!(wide.contains("create,delete,deletecollection,get,list,patch,update,watch"), "{wide}");
    assert!(kubectl.ok("api-versions").lines().any(|line| line == "apiextensions.k8s.io/v1"));
    assert!(kubectl.ok("get --raw /apis/apps/v1").contains(r#""name":"deployments/scale""#));
    assert!(kubectl.ok("get --raw /openapi/v3").contains("apis/apps/v1"));
    assert!(kubectl.ok("get --raw /version").contains("\"major\": \"1\""));
    server.file("raw.json", r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"raw"}}"#);
    assert!(
        kubectl
            .ok("create --raw /api/v1/namespaces/default/configmaps -f raw.json")
            .contains(r#""name":"raw""#)
    );
    assert!(
        kubectl.ok("delete --raw /api/v1/namespaces/default/configmaps/raw").contains("Success")
    );
    assert!(
        kubectl
            .ok("explain pods.spec.containers.image --output=plaintext-openapiv2")
            .contains("image")
    );
    assert!(kubectl.ok("cluster-info dump --namespaces default").contains("kubernetes"));
    assert!(
        kubectl
            .fails("get nothings")
            .contains("the server doesn't have a resource type \"nothings\"")
    );
    assert!(kubectl.fails("logs none").contains("pods \"none\" not found"));
}
