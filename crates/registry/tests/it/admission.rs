//! Admission as a write meets it: changes by plugins, answers of webhooks, questions to
//! authorizers.
use crate::server::{Server, refused};
use base64::Engine as _;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_registry::{
    Admission, AdmissionOptions, Attributes, Authorizer, Decision, Identity, ListOptions,
    RegistryBuilder, Review, Verb, WebhookCaller, WebhookClient, WebhookClients, WebhookError,
};
use setpoint_spans::SpanContext;
use setpoint_store::{At, MemoryStore, Op, Store, Txn};
use std::sync::Arc;
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NAMESPACES: &str = "/api/v1/namespaces";

pub(crate) async fn server(configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Server {
    let store = Arc::new(MemoryStore::default());
    Server::configured(store.clone(), store, |builder| configure(builder.seed(7))).await
}
/// Waits until the watch cache has what is stored: a list of the newest state reads it.
async fn settle(server: &Server) {
    let request = server.request(Verb::List, NAMESPACES);
    server.registry.list(&request, &ListOptions::default()).await.unwrap();
}
fn owner(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid})
}
fn map(name: &str, owners: Value) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// Adds the first owner of an object once more.
#[derive(Debug)]
struct Repeats;
impl Admission for Repeats {
    fn name(&self) -> &str {
        "Repeats"
    }
    fn mutate<'a>(
        &'a self,
        _: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            let first = owners[0].clone();
            owners.push(first);
        }
        futures::future::ready(Ok(())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn owners_that_admission_repeats_are_there_once() {
    let server = server(|builder| builder.admission(Arc::new(Repeats))).await;
    let path = format!("{MAPS}/a");
    let expected = json!([owner("u")]);
    let warning = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u";
    let created = server.create(MAPS, map("a", expected.clone())).await.unwrap();
    assert_eq!(created["metadata"]["ownerReferences"], expected);
    assert_eq!(server.warnings(), [warning]);
    let updated = server.update(&path, map("a", expected.clone())).await.unwrap();
    assert_eq!(updated["metadata"]["ownerReferences"], expected);
    assert_eq!(server.warnings(), [warning]);
    let patched = server.patch(&path, json!({"data": {"a": "b"}})).await.unwrap();
    assert_eq!(patched["metadata"]["ownerReferences"], expected);
    assert_eq!(server.warnings(), [warning]);
    server.stop().await;
}

/// Refuses to answer questions about one user, which it also asks instead of another.
#[derive(Debug)]
struct Discreet;
impl Admission for Discreet {
    fn name(&self) -> &str {
        "Discreet"
    }
    fn mutate<'a>(
        &'a self,
        _: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if object["spec"]["user"] == "alias" {
            object["spec"]["user"] = "secret".into();
        }
        futures::future::ready(Ok(())).boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let is_secret = object.is_some_and(|object| {
            object["spec"]["user"] == "secret" || object["spec"]["token"] == "secret"
        });
        let is_self = review.attributes().resource().starts_with("self");
        let answer = match is_secret || is_self {
            true => Err(review.forbidden("not asked")),
            false => Ok(()),
        };
        futures::future::ready(answer).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn reviews_pass_admission() {
    let server = server(|builder| builder.admission(Arc::new(Discreet))).await;
    let of_user = |user: &str| json!({"spec": {"user": user, "nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    let access = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert!(server.create(access, of_user("jane")).await.is_ok());
    let own = json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    for (path, review) in [
        (access, of_user("secret")),
        (access, of_user("alias")),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", own),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            json!({"spec": {"namespace": "default"}}),
        ),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})),
        ("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": "secret"}})),
    ] {
        let error = server.create(path, review).await.unwrap_err();
        assert!(error.0.message.ends_with("not asked"), "{path}: {}", error.0.message);
    }
    server.stop().await;
}

/// Webhooks that allow everything, with these members of the response.
#[derive(Debug, Clone)]
struct Answers(&'static str, Value);
impl WebhookClients for Answers {
    fn client(&self, _: WebhookCaller, _: &Value) -> Arc<dyn WebhookClient> {
        Arc::new(self.clone())
    }
}
impl WebhookClient for Answers {
    fn call(
        &self,
        review: Bytes,
        _: Duration,
        _: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>> {
        let review: Value = serde_json::from_slice(&review).unwrap();
        assert_eq!(review["apiVersion"], format!("admission.k8s.io/{}", self.0));
        let mut response = self.1.clone();
        if response["uid"].is_null() {
            response["uid"] = review["request"]["uid"].clone();
        }
        response["allowed"] = true.into();
        let answer = json!({
            "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response,
        });
        futures::future::ready(Ok(answer.to_string().into())).boxed()
    }
}

/// Creates a ConfigMap with one webhook of a kind; returns it, or the refusal.
async fn reviewed(kind: &str, version: &'static str, response: Value) -> Result<Value, String> {
    let answers = Arc::new(Answers(version, response));
    let server = server(|builder| builder.webhooks(answers)).await;
    let configuration = json!({
        "metadata": {"name": "c"},
        "webhooks": [{
            "name": "w.ex.io", "admissionReviewVersions": [version], "sideEffects": "None",
            "clientConfig": {"url": "https://localhost/"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE"],
            }],
        }],
    });
    let collection = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    server.create(&collection, configuration).await.unwrap();
    settle(&server).await;
    let made = server.create(MAPS, json!({"metadata": {"name": "a"}})).await;
    server.stop().await;
    made.map_err(|error| error.0.message)
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_old_version_are_checked_less() {
    // `[{"op": "add", "path": "/data", "value": {"a": "b"}}]`
    let patch = "W3sib3AiOiAiYWRkIiwgInBhdGgiOiAiL2RhdGEiLCAidmFsdWUiOiB7ImEiOiAiYiJ9fV0=";
    let with_type = |kind: &str| json!({"patch": patch, "patchType": kind});
    let ignored = reviewed("validating", "v1beta1", with_type("JSONPatch")).await.unwrap();
    assert!(ignored["data"].is_null());
    for response in [json!({"patch": patch}), with_type(""), with_type("Other")] {
        let patched = reviewed("mutating", "v1beta1", response).await.unwrap();
        assert_eq!(patched["data"], json!({"a": "b"}));
    }
    let invalid = |why: &str| {
        let why = format!("received invalid webhook response: {why}");
        Err(format!("Internal error occurred: failed calling webhook \"w.ex.io\": {why}"))
    };
    assert_eq!(
        reviewed("validating", "v1", with_type("JSONPatch")).await,
        invalid("validating webhook may not return response.patch")
    );
    assert_eq!(
        reviewed("mutating", "v1", json!({"patch": patch})).await,
        invalid("webhook returned response.patch but not response.patchType")
    );
}

#[tokio::test(start_paused = true)]
async fn managed_fields_that_a_webhook_empties_are_gone() {
    let patch = json!([{"op": "add", "path": "/metadata/managedFields", "value": []}]);
    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    let response = json!({"patch": patch, "patchType": "JSONPatch"});
    let made = reviewed("mutating", "v1", response).await.unwrap();
    assert!(!made["metadata"].as_object().unwrap().contains_key("managedFields"), "{made}");
}

#[tokio::test(start_paused = true)]
async fn params_of_a_kind_that_cannot_be_listed_are_a_failure() {
    let server = server(|builder| builder).await;
    let group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"],
    });
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "paramKind": {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"},
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}],
    }});
    let binding = json!({"metadata": {"name": "b"}, "spec": {
        "policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "x", "parameterNotFoundAction": "Allow"},
    }});
    server.create(&format!("{group}ies"), policy).await.unwrap();
    server.create(&format!("{group}ybindings"), binding).await.unwrap();
    settle(&server).await;
    let refusal = refused(server.create(MAPS, json!({"metadata": {"name": "a"}})).await);
    let why = "failed to configure binding: paramKind kind `&ParamKind{APIVersion:authorization.k8s.io/v1,Kind:SubjectAccessReview,}` not yet synced to use for admission";
    assert!(refusal.ends_with(why), "{refusal}");
    server.stop().await;
}

/// Renames what is created beside a pod.
#[derive(Debug)]
struct Renames;
impl Admission for Renames {
    fn name(&self) -> &str {
        "Renames"
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if review.subresource().is_some() {
            object["metadata"]["name"] = "other".into();
        }
        futures::future::ready(Ok(())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn bindings_and_evictions_are_checked_after_they_are_mutated() {
    let server = server(|builder| builder.admission(Arc::new(Renames))).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.create(PODS, pod).await.unwrap();
    let sent = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    for (subresource, kind) in [("binding", "Binding"), ("eviction", "Eviction")] {
        let made = server.create(&format!("{PODS}/p/{subresource}"), sent.clone()).await;
        let refusal = format!("400 name in URL does not match name in {kind} object");
        assert_eq!(refused(made), refusal);
    }
    assert!(server.get(&format!("{PODS}/p")).await.unwrap()["spec"]["nodeName"].is_null());
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_patch_is_applied_and_one_longer_than_a_body_is_refused() {
    let patch = |n: usize| {
        let patch = json!([{"op": "add", "path": "/data", "value": {"a": "x".repeat(n)}}]);
        let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
        reviewed("mutating", "v1", json!({"patch": patch, "patchType": "JSONPatch"}))
    };
    let patched = patch(200_000).await.unwrap();
    assert_eq!(patched["data"]["a"].as_str().map(str::len), Some(200_000));
    let error = patch(4 << 20).await.unwrap_err();
    assert!(error.ends_with("\"w.ex.io\" is larger than 3145728 bytes"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_repeats_only_the_beginning_of_what_a_webhook_says() {
    let error = reviewed("mutating", "v1", json!({"uid": "é".repeat(1 << 20)})).await.unwrap_err();
    assert!(error.contains("received invalid webhook response: expected response.uid="), "{error}");
    assert!((60_000..70_000).contains(&error.len()), "{}", error.len());
}

/// Allows what the plugin OwnerReferencesPermissionEnforcement asks about all finalizers.
#[derive(Debug)]
struct Finalizes(bool);
impl Authorizer for Finalizes {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let is_all = [request.group(), request.resource(), request.name()] == ["*"; 3]
            && request.subresource().is_some_and(|part| part.as_str() == "finalizers");
        let decision = match self.0 && is_all {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        };
        futures::future::ready(Ok(decision)).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_finalize_everything_may_block_every_owner() {
    let blocking = |kind: &str| {
        json!([{
            "apiVersion": "ex.io/v1", "kind": kind, "name": "o", "uid": "u",
            "blockOwnerDeletion": true,
        }])
    };
    for (may, refusal) in [(true, None), (false, Some("no matches for kind \"Foo\""))] {
        let options = AdmissionOptions::default().enable("OwnerReferencesPermissionEnforcement");
        let plugins = options.build().unwrap();
        let configure = |builder: RegistryBuilder| {
            builder.admission_plugins(plugins).authorizer(Arc::new(Finalizes(may)))
        };
        let server = server(configure).await;
        let made = server.create(MAPS, map("a", blocking("Foo"))).await;
        match refusal {
            None => assert!(made.is_ok(), "{made:?}"),
            Some(text) => assert!(refused(made).contains(text)),
        }
        server.stop().await;
    }
}

/// Allows one verb of a subresource that only authorizers know.
#[derive(Debug)]
struct Changes(&'static str);
impl Authorizer for Changes {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let part = request.subresource().map_or("", |part| part.as_str());
        let place = request.scope();
        let asked = format!("{} {part} {place}/{}", request.verb, request.name());
        let decision = match asked == self.0 {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        };
        futures::future::ready(Ok(decision)).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_claims_status_says_of_devices_has_rights_of_its_own() {
    const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = || {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
        json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
    };
    let device = json!({"driver": "ex.io", "pool": "p", "device": "d"});
    let allocation = || {
        let mut result = device.clone();
        result["request"] = "r".into();
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        json!({"status": {"allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }}})
    };
    let reported = || json!({"status": {"devices": [device.clone()]}});
    let status = format!("{CLAIMS}/c/status");
    let invalid = r#"422 ResourceClaim.resource.k8s.io "c" is invalid: status"#;
    let refusal = |verb: &str, place: &str, what: &str| {
        format!(
            r#"User "alice" cannot {verb} resource "resourceclaims/{what}" in API group "resource.k8s.io" {place}"#
        )
    };
    for (right, binds, reports, is_of_node) in [
        ("patch binding /", true, false, false),
        ("arbitrary-node:patch driver default/ex.io", false, true, false),
        ("associated-node:patch driver default/ex.io", false, false, false),
        ("associated-node:patch driver default/ex.io", false, true, true),
    ] {
        let configure = |builder: RegistryBuilder| builder.authorizer(Arc::new(Changes(right)));
        let mut server = server(configure).await;
        server.create(CLAIMS, claim()).await.unwrap();
        let bound = server.patch(&status, allocation()).await;
        if binds {
            bound.unwrap();
        } else {
            let why = refusal("patch", "at the cluster scope", "binding");
            assert_eq!(
                refused(bound),
                format!(
                    r#"{invalid}.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: {why}"#
                )
            );
            // As a scheduler has written it.
            let key = Bytes::from_static(b"/registry/resourceclaims/default/c");
            let stored = server.store.get(&key, At::Latest).await.unwrap().value.unwrap();
            let mut stored: Value = serde_json::from_slice(&stored.value).unwrap();
            stored["status"] = allocation()["status"].clone();
            let ops = vec![Op::Put(key, stored.to_string().into())];
            server.store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
            settle(&server).await;
        }
        if is_of_node {
            let extra =
                [("authentication.kubernetes.io/node-name".to_owned(), vec!["n1".to_owned()])];
            server.identity = Identity {
                extra: Arc::new(extra.into()),
                ..Identity::new("system:serviceaccount:default:driver", [])
            };
        }
        let written = server.patch(&status, reported()).await;
        if reports {
            assert_eq!(written.unwrap()["status"]["devices"][0]["device"], "d", "{right}");
        } else {
            let why = refusal("arbitrary-node:patch", r#"in the namespace "default""#, "driver");
            assert_eq!(
                refused(written),
                format!(
                    r#"{invalid}.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "ex.io" is forbidden: {why}"#
                ),
                "{right}"
            );
        }
        server.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_permitted_tolerations_permits_all() {
    let own = json!([{"key": "a", "operator": "Exists"}]);
    let other = json!([{"key": "b", "operator": "Exists"}]);
    let options = AdmissionOptions::default()
        .enable("PodTolerationRestriction")
        .disable("DefaultTolerationSeconds")
        .configure("PodTolerationRestriction", json!({"whitelist": other}));
    let plugins = options.build().unwrap();
    let mut server = server(|builder| builder.admission_plugins(plugins)).await;
    let pod = || {
        json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "tolerations": own,
        }})
    };
    let refusal = |scope: &str| {
        format!(
            "500 pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )
    };
    assert_eq!(refused(server.create(PODS, pod()).await), refusal("cluster"));
    let annotate = |text: String| {
        json!({"metadata": {"annotations": {
            "scheduler.alpha.kubernetes.io/tolerationsWhitelist": text,
        }}})
    };
    server.identity = Identity::admin();
    let default = format!("{NAMESPACES}/default");
    server.patch(&default, annotate(other.to_string())).await.unwrap();
    settle(&server).await;
    assert_eq!(refused(server.create(PODS, pod()).await), refusal("namespace"));
    server.patch(&default, annotate(String::new())).await.unwrap();
    settle(&server).await;
    server.create(PODS, pod()).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn mutating_policies_are_chosen_before_the_first_changes_the_object() {
    let server = server(|builder| builder).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    // The second one matches only what the first one has changed.
    for (name, key, selector) in [("a", "x", json!({})), ("b", "z", json!({"x": "y"}))] {
        let expression = format!("Object{{metadata: Object.metadata{{labels: {{'{key}': 'y'}}}}}}");
        let policy = json!({
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "objectSelector": {"matchLabels": selector},
                    "resourceRules": [{
                        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }],
                },
                "reinvocationPolicy": "Never",
                "mutations": [{
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression},
                }],
            },
        });
        server.create(&format!("{group}/mutatingadmissionpolicies"), policy).await.unwrap();
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
        server.create(&format!("{group}/mutatingadmissionpolicybindings"), binding).await.unwrap();
    }
    settle(&server).await;
    let made = server.create(MAPS, json!({"metadata": {"name": "m"}})).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"x": "y"}));
    let labelled = json!({"metadata": {"name": "n", "labels": {"x": "y"}}});
    let made = server.create(MAPS, labelled).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"x": "y", "z": "y"}));
    server.stop().await;
}

/// A mutating policy of ConfigMaps and Deployments with its binding.
pub(crate) async fn enforce(server: &Server, name: &str, failure_policy: &str, mutation: Value) {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["", "apps"], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "deployments"],
            }]},
            "matchConditions": [{"name": "c", "expression":
                format!("has(object.metadata.labels) && '{name}' in object.metadata.labels")}],
            "reinvocationPolicy": "Never", "failurePolicy": failure_policy,
            "mutations": [mutation],
        },
    });
    server.create(&format!("{group}/mutatingadmissionpolicies"), policy).await.unwrap();
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    server.create(&format!("{group}/mutatingadmissionpolicybindings"), binding).await.unwrap();
    settle(server).await;
}

#[tokio::test(start_paused = true)]
async fn a_merged_object_of_a_wrong_form_is_a_failure_of_the_policy() {
    let server = server(|builder| builder).await;
    let pod = "Object.spec.template.spec";
    let expression = format!(
        "Object{{spec: Object.spec{{template: Object.spec.template{{spec: {pod}{{containers: [
            {pod}.containers{{name: 'main', resources: {pod}.containers.resources{{
                limits: {{'cpu': 'x'}}}}}}]}}}}}}}}"
    );
    let mutation = json!({"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression}});
    enforce(&server, "closed", "Fail", mutation.clone()).await;
    enforce(&server, "open", "Ignore", mutation).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |name: &str| {
        json!({"metadata": {"name": name, "labels": {name: ""}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "image": "a"}]}}}})
    };
    let refused = refused(server.create(deployments, deployment("closed")).await);
    let text = "403 policy 'closed' with binding 'closed' denied request: unable to convert \
        unstructured object to apps/v1, Kind=Deployment: quantities must match";
    assert!(refused.starts_with(text), "{refused}");
    let made = server.create(deployments, deployment("open")).await.unwrap();
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["resources"], json!({}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn admission_takes_no_update_to_another_namespace() {
    let server = server(|builder| builder).await;
    let expression = "[JSONPatch{op: 'replace', path: '/metadata/namespace', value: 'other'}]";
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    enforce(&server, "move", "Fail", mutation).await;
    server.create(MAPS, json!({"metadata": {"name": "m"}})).await.unwrap();
    let labelled = json!({"metadata": {"labels": {"move": ""}}});
    assert_eq!(
        refused(server.patch(&format!("{MAPS}/m"), labelled).await),
        "400 the namespace of the provided object does not match the namespace sent on the request"
    );
    server.stop().await;
}
