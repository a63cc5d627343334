//! kubectl of today and admission policies: one denies and warns, one injects a container.

use crate::server::Server;

const REPLICAS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE, UPDATE]}
  variables:
  - {name: max, expression: int(params.data.max)}
  validations:
  - expression: object.spec.replicas <= variables.max
    messageExpression: "'at most ' + string(variables.max) + ' replicas'"
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec:
  policyName: replicas
  validationActions: [ACTION]
  paramRef: {name: limit, namespace: default, parameterNotFoundAction: Deny}
"#;

const SIDECAR: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sidecar}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints:
    namespaceSelector: {matchLabels: {mesh: "on"}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  matchConditions:
  - {name: once, expression: "!object.spec.containers.exists(c, c.name == 'proxy')"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        [JSONPatch{op: "add", path: "/spec/containers/-",
          value: Object.spec.containers{name: "proxy", image: "proxy:1"}},
         JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/injected"),
          value: "yes"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sidecar}
spec: {policyName: sidecar}
"#;

#[test]
fn a_policy_denies_and_warns() {
    let server = Server::start();
    let kubectl = server.kubectl();
    kubectl.ok("create configmap limit --from-literal=max=2");
    server.file("deny.yaml", &REPLICAS.replace("ACTION", "Deny"));
    kubectl.ok("apply -f deny.yaml");
    let shown = kubectl.ok("get validatingadmissionpolicies,validatingadmissionpolicybindings");
    assert!(shown.contains("v1/ConfigMap") && shown.contains("default/limit"), "{shown}");
    let text = "ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: at most 2 replicas";
    let create = "create deployment a --image=a --replicas=3 --dry-run=server";
    let refused = kubectl.eventually(create, |said| !said.contains("created"));
    assert_eq!(
        refused,
        format!(
            "error: failed to create deployment: deployments.apps \"a\" is forbidden: {text}\n"
        )
    );
    assert!(kubectl.ok("create deployment b --image=a --replicas=2").contains("created"));
    let scaled = kubectl.fails("patch deployment b -p {\"spec\":{\"replicas\":4}}");
    assert!(scaled.contains(text), "{scaled}");

    server.file("warn.yaml", &REPLICAS.replace("ACTION", "Warn"));
    kubectl.ok("apply -f warn.yaml");
    let warned = kubectl.eventually(create, |said| said.contains("created"));
    assert!(
        warned.contains("Warning: Validation failed for ValidatingAdmissionPolicy 'replicas' with binding 'replicas': at most 2 replicas"),
        "{warned}"
    );
    server.file("bad.yaml", &REPLICAS.replace("variables.max\n", "variables.min\n"));
    let refused = kubectl.fails("apply -f bad.yaml");
    assert!(refused.contains("undefined field 'min'"), "{refused}");
    kubectl.eventually("get validatingadmissionpolicy replicas -o yaml", |said| {
        said.contains("observedGeneration: 1") && said.contains("typeChecking: {}")
    });
}

#[test]
fn a_policy_injects_a_container_into_pods_of_labelled_namespaces() {
    let server = Server::start();
    let kubectl = server.kubectl();
    server.file("sidecar.yaml", SIDECAR);
    kubectl.ok("apply -f sidecar.yaml");
    kubectl.ok("create namespace shop");
    kubectl.ok("label namespace shop mesh=on");
    let containers = "-o jsonpath={.spec.containers[*].name}";
    kubectl.eventually(
        &format!("-n shop run probe --image=a --dry-run=server {containers}"),
        |said| said == "probe proxy",
    );
    kubectl.ok("-n shop run web --image=web:1");
    assert_eq!(kubectl.ok(&format!("-n shop get pod web {containers}")), "web proxy");
    let labels = kubectl.ok("-n shop get pod web -o jsonpath={.metadata.labels}");
    assert!(labels.contains(r#""example.com/injected":"yes""#), "{labels}");
    kubectl.ok("run web --image=web:1");
    assert_eq!(kubectl.ok(&format!("get pod web {containers}")), "web");
}
