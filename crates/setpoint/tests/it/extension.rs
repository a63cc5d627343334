//! Extensions by an embedder, written with public names only.

use crate::plane::{Person, with_person_of};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{
    ApiServer, Attributes, AuditEvent, AuditQueue, AuditSink, Authentication, Authenticator, Body,
    Ended, Identity, Metrics, RequestBody, Stage, Verb,
};
use setpoint_object::{ApiError, GroupKind, GroupVersionResource};
use setpoint_registry::{
    Admission, Authorizer, Conversion, ConversionError, ConversionProvider, ConversionRequest,
    Decision, Operation, Review,
};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs a control plane while `act` sends requests to its server.
async fn with_server<T>(plane: ControlPlane, act: impl AsyncFnOnce(ApiServer) -> T) -> T {
    let (server, stop) = (plane.server().clone(), CancellationToken::new());
    let acting = async {
        let answer = act(server).await;
        stop.cancel();
        answer
    };
    let (ended, answer) = tokio::join!(plane.run(stop.clone()), acting);
    ended.unwrap();
    answer
}

fn builder() -> setpoint::ControlPlaneBuilder {
    ControlPlane::builder().simulated(0).controllers(false)
}

fn person(server: &ApiServer, user: &str) -> Person {
    Person { client: server.client_as(Identity::new(user, ["system:authenticated"])) }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn code(result: Result<Value, kube_client::Error>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(kube_client::Error::Api(status)) => format!("{} {}", status.code, status.message),
        Err(other) => panic!("{other}"),
    }
}

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";

// ---- an authorizer

/// Writers may do everything, readers may read and update existing objects.
#[derive(Debug, Default)]
struct Roles {
    checks: Mutex<Vec<String>>,
}
impl Authorizer for Roles {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let what = match request.subresource() {
            Some(sub) => format!("{}/{sub}", request.resource()),
            None => format!("{}{}", request.resource(), request.path()),
        };
        let user = &*request.identity.user;
        self.checks.lock().push(format!("{user} {} {what} {}", request.verb, request.name()));
        let may_only_change = !matches!(request.verb, Verb::Create | Verb::Escalate | Verb::Bind);
        let decision = match user {
            "writer" => Decision::Allow("writers may".to_owned()),
            "reader" if may_only_change => Decision::Allow(String::new()),
            _ => Decision::NoOpinion("no role".to_owned()),
        };
        async move { Ok(decision) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn authorizer_checks_requests_and_their_side_effects() {
    let roles = Arc::new(Roles::default());
    with_server(builder().authorizer(roles.clone()).build(), async |server| {
        let (writer, reader) = (person(&server, "writer"), person(&server, "reader"));
        let denied = r#"403 configmaps "a" is forbidden: User "reader" cannot create resource "configmaps" in API group "" in the namespace "default": no role"#;
        let path = format!("{CONFIG_MAPS}/a");
        let apply = format!("{path}?fieldManager=t");
        // An apply is a patch if the object exists, otherwise a create.
        let applied = reader.request("PATCH", &apply, APPLY, &config_map("a")).await;
        assert_eq!(code(applied), denied);
        assert_eq!(code(writer.request("PATCH", &apply, APPLY, &config_map("a")).await), "ok");
        assert_eq!(code(reader.request("PATCH", &apply, APPLY, &config_map("a")).await), "ok");
        assert_eq!(code(reader.request("GET", &path, JSON, &Value::Null).await), "ok");
        // The rights that a role grants are authorized separately.
        let roles_path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r"}, "rules": []});
        assert_eq!(code(writer.request("POST", roles_path, JSON, &role).await), "ok");
        let more = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        let merge = "application/merge-patch+json";
        let escalated = reader.request("PATCH", &format!("{roles_path}/r"), merge, &more).await;
        assert!(code(escalated).contains(r#"cannot escalate resource "clusterroles""#));
        // Unauthorized users do not learn which resources are served.
        let nobody = person(&server, "nobody");
        let unknown = nobody.request("GET", "/apis/ex.io/v1/foos", JSON, &Value::Null).await;
        assert!(code(unknown).starts_with(r#"403 foos.ex.io is forbidden: User "nobody" cannot list"#));
        let version = nobody.request("GET", "/version", JSON, &Value::Null).await;
        assert_eq!(code(version), r#"403 forbidden: User "nobody" cannot get path "/version": no role"#);
    })
    .await;
    let checks = roles.checks.lock();
    assert!(checks.contains(&"reader create configmaps a".to_owned()), "{checks:?}");
}

/// Allows requests that are restricted by a selector.
#[derive(Debug)]
struct Selective;
impl Authorizer for Selective {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let is_selective = !request.field_selector.is_empty() || !request.label_selector.is_empty();
        let decision = match is_selective {
            true => Decision::Allow("selective".to_owned()),
            false => Decision::NoOpinion("all of them".to_owned()),
        };
        async move { Ok(decision) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_selector_gives_no_right_to_a_request_that_it_does_not_restrict() {
    with_server(builder().authorizer(Arc::new(Selective)).build(), async |server| {
        let ann = person(&server, "ann");
        let (one, watch) = (format!("{CONFIG_MAPS}/a"), format!("{CONFIG_MAPS}/a?watch=1&"));
        for selector in ["fieldSelector=metadata.name%3Da", "labelSelector=x"] {
            for (method, path, may) in [
                ("GET", format!("{CONFIG_MAPS}?"), true),
                ("DELETE", format!("{CONFIG_MAPS}?"), true),
                ("GET", format!("{one}?"), false),
                ("GET", watch.clone(), false),
                ("POST", format!("{CONFIG_MAPS}?"), false),
                ("PUT", format!("{one}?"), false),
                ("DELETE", format!("{one}?"), false),
                ("GET", "/api/v1/namespaces/default/pods/a/log?".to_owned(), false),
                ("POST", "/api/v1/namespaces/default/pods/a/exec?command=a&".to_owned(), false),
                ("GET", "/version?".to_owned(), false),
            ] {
                let body = if method == "POST" { config_map("a") } else { Value::Null };
                let sent = ann.request(method, &format!("{path}{selector}"), JSON, &body).await;
                let answer = code(sent);
                assert_eq!(!answer.starts_with("403"), may, "{method} {path}{selector}: {answer}");
            }
        }
    })
    .await;
}

// ---- admission

/// Sets the number of labels in every ConfigMap.
#[derive(Debug)]
struct CountLabels;
impl Admission for CountLabels {
    fn name(&self) -> &str {
        "count-labels.example.com"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        &*review.resource().resource == "configmaps"
    }
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let n_labels = object["metadata"]["labels"].as_object().map_or(0, |labels| labels.len());
        object["data"]["labels"] = n_labels.to_string().into();
        async { Ok(()) }.boxed()
    }
    fn reinvoked(&self) -> bool {
        true
    }
}
#[derive(Debug)]
struct Color;
impl Admission for Color {
    fn name(&self) -> &str {
        "color.example.com"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        &*review.resource().resource == "configmaps"
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if object["metadata"]["labels"]["color"].is_null() {
            object["metadata"]["labels"]["color"] = "red".into();
            review.warn("it is red now");
            review.annotate("color.example.com/set", "red");
        }
        async { Ok(()) }.boxed()
    }
}

/// A ConfigMap may refer to another existing one.
#[derive(Debug)]
struct Referenced;
impl Admission for Referenced {
    fn name(&self) -> &str {
        "referenced.example.com"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        &*review.resource().resource == "configmaps" && review.operation() == Operation::Create
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(name) = object.and_then(|o| o["data"]["after"].as_str()) else {
                return Ok(());
            };
            let config_maps = GroupVersionResource::new("", "v1", "configmaps");
            match review.objects().get(&config_maps, review.namespace(), name).await? {
                Some(_) => Ok(()),
                None => Err(review.forbidden(&format!("there is no {name}"))),
            }
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn admission_plugins_change_refuse_and_read_other_objects() {
    let audit = AuditQueue::new(100);
    let plane = builder()
        .admission(Arc::new(CountLabels))
        .admission(Arc::new(Color))
        .admission(Arc::new(Referenced))
        .audit(audit.clone());
    with_server(plane.build(), async |server| {
        let bob = person(&server, "bob");
        let made = bob.request("POST", CONFIG_MAPS, JSON, &config_map("a")).await.unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"color": "red"}));
        // The first plugin has seen the change of the second.
        assert_eq!(made["data"], json!({"labels": "1"}));
        let mut other = config_map("b");
        other["data"] = json!({"after": "z"});
        let refused = bob.request("POST", CONFIG_MAPS, JSON, &other).await;
        assert_eq!(code(refused), r#"403 configmaps "b" is forbidden: there is no z"#);
        other["data"] = json!({"after": "a"});
        assert_eq!(code(bob.request("POST", CONFIG_MAPS, JSON, &other).await), "ok");
    })
    .await;
    let created = loop {
        let event = audit.next().await;
        if event.stage == Stage::ResponseComplete && event.request.verb == Verb::Create {
            break event;
        }
    };
    let annotations = created.request.audit_annotations();
    assert_eq!(annotations["color.example.com/set"], "red");
    assert_eq!(annotations["authorization.k8s.io/decision"], "allow");
    assert_eq!(created.request.warnings(), ["it is red now"]);
}

// ---- an authenticator, a route, an audit sink and metrics

/// Authenticates users of a trusted proxy.
#[derive(Debug)]
struct Proxy;
impl Authenticator for Proxy {
    fn authenticate<'a>(
        &'a self,
        request: &'a http::request::Parts,
    ) -> BoxFuture<'a, Authentication> {
        let user = request.headers.get("x-remote-user").and_then(|user| user.to_str().ok());
        let answer = match user {
            None => Authentication::NoOpinion,
            Some("mallory") => Authentication::Refused,
            Some(user) => Authentication::User(Identity::new(user, [])),
        };
        async move { answer }.boxed()
    }
}

/// Greets the user.
async fn greet(request: Request<RequestBody>) -> Response<Body> {
    let attributes = request.extensions().get::<Arc<Attributes>>().unwrap();
    Response::new(Body::once(format!("hello {}", attributes.identity.user)))
}

/// Records one line per event.
#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);
impl AuditSink for Lines {
    fn record(&self, event: AuditEvent) {
        let request = &event.request;
        let what = format!("{}{}", request.resource(), request.path());
        let (stage, code) = (event.stage.as_str(), event.code.unwrap_or_default());
        let user = &request.identity.user;
        self.0.lock().push(format!("{stage} {user} {} {what} {code}", request.verb));
    }
}
impl Metrics for Lines {
    fn answered(&self, request: &Attributes, code: u16, _latency: Duration) {
        self.0.lock().push(format!("answered {} {code}", request.verb));
    }
    fn ended(&self, request: &Attributes, ended: &Ended) {
        let code = ended.code;
        self.0.lock().push(format!("ended {} {}", request.verb, code.unwrap_or_default()));
    }
}

async fn send(server: &ApiServer, path: &str, user: Option<&str>) -> (u16, String) {
    let mut request = Request::get(path);
    if let Some(user) = user {
        request = request.header("x-remote-user", user);
    }
    let response = server.serve(request.body(Full::<Bytes>::default()).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test(start_paused = true)]
async fn authenticator_and_route_are_part_of_the_pipeline_and_are_audited() {
    let (audit, metrics) = (Arc::new(Lines::default()), Arc::new(Lines::default()));
    let plane = builder()
        .aggregation(false)
        .authenticator(Arc::new(Proxy))
        .route("/hello", Arc::new(greet))
        .audit(audit.clone())
        .metrics(metrics.clone());
    with_server(plane.build(), async |server| {
        assert_eq!(send(&server, "/hello/x", Some("bob")).await, (200, "hello bob".to_owned()));
        assert_eq!(send(&server, "/hello", None).await.0, 401);
        assert_eq!(send(&server, "/hello", Some("mallory")).await.0, 401);
        assert_eq!(send(&server, "/hellox", Some("bob")).await.0, 404);
        let (_, index) = send(&server, "/", Some("bob")).await;
        assert!(index.contains(r#""/hello""#), "{index}");
        // Only the lines of this request.
        audit.0.lock().clear();
        metrics.0.lock().clear();
        let watch = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=5");
        assert_eq!(send(&server, &watch, Some("bob")).await.0, 200);
    })
    .await;
    let lines = audit.0.lock();
    assert_eq!(
        *lines,
        [
            "RequestReceived bob watch configmaps 0",
            "ResponseStarted bob watch configmaps 200",
            "ResponseComplete bob watch configmaps 200",
        ]
    );
    assert_eq!(*metrics.0.lock(), ["answered watch 200", "ended watch 200"]);
}

// ---- a conversion

/// Version v1 of a Foo has `size`, v2 has `length`.
#[derive(Debug)]
struct Lengths;
impl ConversionProvider for Lengths {
    fn conversion(&self, kind: &GroupKind, _spec: &Value) -> Option<Arc<dyn Conversion>> {
        (&*kind.kind == "Foo").then(|| Arc::new(Self) as Arc<dyn Conversion>)
    }
}
impl Conversion for Lengths {
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
        let (from, to) = match request.api_version.ends_with("v2") {
            true => ("size", "length"),
            false => ("length", "size"),
        };
        let convert = move |object: Bytes| {
            let mut object: Value = serde_json::from_slice(&object)
                .map_err(|error| ConversionError::Refused(error.to_string()))?;
            object["spec"] = json!({to: object["spec"][from]});
            object["apiVersion"] = request.api_version.clone().into();
            Ok(object.to_string().into())
        };
        let objects = request.objects.into_iter().map(convert).collect();
        async { objects }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn converter_takes_the_place_of_a_webhook() {
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec":
                {"type": "object", "properties": {field: {"type": "integer"}}}}}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", "size"), version("v2", "length")],
            // Nobody listens there.
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://localhost:1/"}, "conversionReviewVersions": ["v1"]}},
        },
    });
    let plane = ControlPlane::builder().simulated(0).converter(Arc::new(Lengths)).build();
    with_person_of(plane, async |person| {
        person.define(&definition).await;
        let foos = |version: &str| format!("/apis/ex.io/{version}/namespaces/default/foos");
        let new = json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": {"name": "a"},
            "spec": {"length": 3}});
        let made = person.request("POST", &foos("v2"), JSON, &new).await.unwrap();
        assert_eq!(made["spec"], json!({"length": 3}));
        let stored = format!("{}/a", foos("v1"));
        let stored = person.request("GET", &stored, JSON, &Value::Null).await.unwrap();
        assert_eq!(stored["spec"], json!({"size": 3}));
    })
    .await;
}

// ---- latencies

/// Takes as long as a user's name says, in milliseconds.
#[derive(Debug)]
struct Slow;
impl Authorizer for Slow {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let took = Duration::from_millis(request.identity.user.parse().unwrap_or_default());
        async move {
            tokio::time::sleep(took).await;
            Ok(Decision::Allow(String::new()))
        }
        .boxed()
    }
}
/// Keeps what it hears of latencies.
#[derive(Debug, Default)]
struct Latencies(Mutex<Vec<String>>);
impl AuditSink for Latencies {
    fn record(&self, event: AuditEvent) {
        let annotations = event.request.audit_annotations();
        let known = annotations.iter().filter_map(|(key, value)| {
            Some(format!("{} {value}", key.strip_prefix("apiserver.latency.k8s.io/")?))
        });
        self.0.lock().extend(known);
    }
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_says_where_the_time_of_a_slow_request_went() {
    let sink = Arc::new(Latencies::default());
    let plane = builder().authorizer(Arc::new(Slow)).audit(sink.clone()).build();
    with_server(plane, async |server| {
        let takes = async |millis: &str| {
            let person = person(&server, millis);
            let asked = person.request("GET", CONFIG_MAPS, JSON, &Value::Null).await;
            assert_eq!(code(asked), "ok");
            std::mem::take(&mut *sink.0.lock())
        };
        assert_eq!(takes("500").await, [""; 0]);
        assert_eq!(takes("501").await, ["authorization 501ms", "total 501ms"]);
    })
    .await;
}
