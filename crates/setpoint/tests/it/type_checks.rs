//! Type checks of validating admission policies.

use crate::admission_policies::{GROUP, policy};
use crate::admission_webhooks::plane;
use crate::https::{Answered, User, with_user};
use serde_json::{Value, json};

#[tokio::test]
async fn types_are_checked_after_the_policy_is_written() {
    with_user(plane(), async |user, _| {
        let rules = json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
            "resources": ["deployments", "statefulsets"], "operations": ["CREATE"]}]});
        let spec = json!({"matchConstraints": rules,
            "variables": [{"name": "n", "expression": "object.spec.replicas"}],
            "validations": [
                {"expression": "object.spec.replicaz > 1", "messageExpression": "string(object.metadata.nam)"},
                {"expression": "variables.n > 1 && object.metadata.labels['a'] == 'b'"},
                {"expression": "variables.n == 'a'"},
                {"expression": "object.spec.template.spec.containers.all(c, c.image != '')"},
                {"expression": "object.metadata.creationTimestamp < timestamp('2100-01-01T00:00:00Z')"},
                {"expression": "object.metadata.creationTimestamp.startsWith('2')"}]});
        let path = format!("{GROUP}/validatingadmissionpolicies");
        user.create(&path, &policy("p", spec)).await;
        let is_checked = |answer: &Answered| answer.body["status"]["observedGeneration"] == 1;
        let checked = user.until("GET", &format!("{path}/p"), &Value::Null, is_checked).await.ok();
        let warnings = &checked["status"]["typeChecking"]["expressionWarnings"];
        let block = |kind: &str| {
            format!("apps/v1, Kind={kind}: ERROR: <input>:1:12: undefined field 'replicaz'\n | object.spec.replicaz > 1\n | ...........^\n")
        };
        assert_eq!(
            warnings[0],
            json!({"fieldRef": "spec.validations[0].expression",
                "warning": format!("{}\n{}", block("Deployment"), block("StatefulSet"))})
        );
        let refs: Vec<&str> = warnings.as_array().unwrap().iter().map(|w| w["fieldRef"].as_str().unwrap()).collect();
        assert_eq!(
            refs,
            ["spec.validations[0].expression", "spec.validations[0].messageExpression", "spec.validations[2].expression", "spec.validations[5].expression"]
        );
        let good = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}});
        user.send("PATCH", &format!("{path}/p"), &good).await.ok();
        let is_checked = |answer: &Answered| answer.body["status"]["observedGeneration"] == 2;
        let changed = user.until("GET", &format!("{path}/p"), &Value::Null, is_checked).await.ok();
        assert_eq!(changed["status"]["typeChecking"], json!({}));
    })
    .await;
}

/// The kinds that have a fault, of a policy with rules of these groups, versions and resources.
async fn checked_kinds(user: &User, name: &str, rules: &[[&[String]; 3]]) -> Vec<String> {
    let rule = |[groups, versions, resources]: &[&[String]; 3]| {
        json!({"apiGroups": groups,
        "apiVersions": versions, "resources": resources, "operations": ["CREATE"]})
    };
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    let spec = json!({"matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "object.nope == 1"}]});
    let path = format!("{GROUP}/validatingadmissionpolicies");
    user.create(&path, &policy(name, spec)).await;
    let is_checked = |answer: &Answered| answer.body["status"]["observedGeneration"] == 1;
    let path = format!("{path}/{name}");
    let checked = user.until("GET", &path, &Value::Null, is_checked).await.ok();
    let warning = checked.pointer("/status/typeChecking/expressionWarnings/0/warning");
    let lines = warning.and_then(Value::as_str).unwrap_or_default().lines();
    let kinds = lines.filter_map(|line| line.split_once(": ERROR"));
    kinds.map(|(kind, _)| kind.to_owned()).collect()
}

#[tokio::test]
async fn types_are_checked_for_each_kind_that_a_rule_names() {
    with_user(plane(), async |user, _| {
        let names = |names: &str| -> Vec<String> { names.split(' ').map(str::to_owned).collect() };
        for (name, groups, versions, resources, kinds) in [
            ("subresources", "apps", "v1", "deployments deployments/scale", "apps/v1, Kind=Deployment"),
            ("wildcards", "apps", "v1", "deployments pods/*", "apps/v1, Kind=Deployment"),
            ("any-group", "*", "v1", "deployments", ""),
            ("any-version", "apps", "*", "deployments", ""),
            ("case", "apps", "v1", "Deployments statefulset", "apps/v1, Kind=Deployment\napps/v1, Kind=StatefulSet"),
            ("core", "", "v1", "pods pods/status", "/v1, Kind=Pod"),
            // The core group stands for all.
            ("events", "", "v1", "events", "/v1, Kind=Event\nevents.k8s.io/v1, Kind=Event"),
        ] {
            let rule = [&*names(groups), &names(versions), &names(resources)];
            let expected: Vec<&str> = kinds.lines().collect();
            assert_eq!(checked_kinds(&user, name, &[rule]).await, expected, "{name}");
        }
        let core = "pods configmaps secrets services endpoints events nodes namespaces limitranges serviceaccounts replicationcontrollers resourcequotas";
        let rule = [&*names(""), &names("v1"), &names(core)];
        assert_eq!(
            checked_kinds(&user, "ten", &[rule]).await.join(" "),
            "/v1, Kind=ConfigMap /v1, Kind=Endpoints /v1, Kind=Event /v1, Kind=LimitRange /v1, Kind=Namespace \
             /v1, Kind=Node /v1, Kind=Pod /v1, Kind=ReplicationController /v1, Kind=ResourceQuota \
             events.k8s.io/v1, Kind=Event",
            "the first ten resources of the rule, in order of their names"
        );
        // Each rule may name ten kinds. The first that has them is the last.
        let apps = names("deployments daemonsets statefulsets replicasets controllerrevisions");
        let core = names(core);
        let (app, batch, group, v1) = (names("apps"), names("batch"), names(""), names("v1"));
        let jobs = names("jobs cronjobs");
        let few = [[&*app, &v1, &apps], [&*batch, &v1, &jobs]];
        assert_eq!(checked_kinds(&user, "few", &few).await.len(), 7);
        let all = [[&*app, &v1, &apps], [&*group, &v1, &core], [&*batch, &v1, &jobs]];
        assert_eq!(checked_kinds(&user, "many", &all).await.len(), 15);
    })
    .await;
}

/// The names of a rule can be combined in more ways than anybody can try.
#[tokio::test]
async fn rules_with_thousands_of_names_are_checked_in_time() {
    with_user(plane(), async |user, _| {
        let names = |own: &str| -> Vec<String> {
            let others = (0..4000).map(|i| format!("n{i}"));
            others.chain([own.to_owned()]).collect()
        };
        let rule = [&*names("apps"), &names("v1"), &names("deployments")];
        assert_eq!(checked_kinds(&user, "p", &[rule]).await, ["apps/v1, Kind=Deployment"]);
    })
    .await;
}
