//! Rows of the API that few clients reach, with their exact texts.

use crate::harness::{Server, config_map, request};
use serde_json::json;

crate::cases! {
    methods_of_collections_are_limited
    slashes_at_the_end_do_not_count
    the_log_of_a_pod_without_a_node_is_empty
    options_that_mean_something_else
    owners_and_names_have_limits
    both_ways_of_collecting_garbage_exclude_each_other
    an_eviction_with_two_budgets_fails
    selectors_at_their_edges
    watches_of_unusual_requests
    a_failure_is_written_in_the_accepted_form
    object_is_looked_up_before_its_form_is_refused
    deprecated_watch_paths_have_options_of_their_own
    body_without_a_document_has_no_members
    patches_do_not_change_the_kind
    floats_are_integers_where_the_reference_reads_them_so
    the_state_of_the_process_is_a_page
    paths_at_their_edges
    missing_namespaces_and_names_are_said_to_be
    names_may_be_no_utf8
    lists_of_media_types_are_read_as_there
    bodies_of_malformed_types_are_refused
    what_is_wrong_first_is_said
    head_has_the_length_of_what_it_leaves_out
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn methods_of_collections_are_limited(server: Server) {
    let text = "the server does not allow this method on the requested resource";
    let everywhere = server.post("/api/v1/configmaps", config_map("a", "1")).await;
    everywhere.check_status(405, "MethodNotAllowed", text);
    for path in ["/api/v1/configmaps", "/api/v1/namespaces"] {
        server.delete(path).await.check_status(405, "MethodNotAllowed", text);
    }
    let head = server.send(request("HEAD", MAPS, "")).await;
    assert_eq!((head.code, head.body.len()), (405, 0));
    assert_eq!(server.get(&format!("{MAPS}/")).await.code, 200, "a trailing slash");
}

async fn slashes_at_the_end_do_not_count(server: Server) {
    let created = server.post(&format!("{MAPS}/"), config_map("a", "1")).await;
    assert_eq!(created.code, 201, "{}", created.text());
    for path in [
        "/api/v1/",
        "/api/v1//",
        "/api/v1/namespaces/default/configmaps//",
        "/api/v1/namespaces/default/configmaps/a/",
        "/api/v1/namespaces/default/configmaps/a//",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.code, 200, "{path}: {}", answer.text());
    }
    let changed = server.patch(&format!("{MAPS}/a/"), MERGE, r#"{"data":{"k":"2"}}"#).await;
    assert_eq!(changed.json()["data"]["k"], "2");
    server.get("/api/v1/namespaces/default/pods/p/status/").await.check_status(
        404,
        "NotFound",
        r#"pods "p" not found"#,
    );
    assert_eq!(server.delete(&format!("{MAPS}/a/")).await.code, 200);
    server.get(&format!("{MAPS}//a")).await.check_status(
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
}

async fn the_log_of_a_pod_without_a_node_is_empty(server: Server) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let created = server.post(PODS, pod).await;
    assert_eq!(created.code, 201, "{}", created.text());
    for query in ["", "?container=c", "?previous=true&follow=true"] {
        let log = server.get(&format!("{PODS}/p/log{query}")).await;
        assert_eq!((log.code, log.text().as_str()), (204, ""), "{query}");
    }
    server.get(&format!("{PODS}/p/log?container=x")).await.check_status(
        400,
        "BadRequest",
        "container x is not valid for pod p",
    );
    server.get(&format!("{PODS}/q/log")).await.check_status(
        404,
        "NotFound",
        r#"pods "q" not found"#,
    );
    server.post(&format!("{PODS}/p/log"), "{}").await.check_status(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
}

async fn options_that_mean_something_else(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    server.get(&format!("{MAPS}/a?export=true")).await.check_status(
        400,
        "BadRequest",
        "the export parameter, deprecated since v1.14, is no longer supported",
    );
    assert_eq!(server.get(&format!("{MAPS}?export=true")).await.code, 200);
    let all = server.get(&format!("{MAPS}?limit=-1")).await.json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let watched = server.get(&format!("{MAPS}/a?watch=true")).await.json();
    assert_eq!(watched["kind"], "ConfigMap");
    let future = server.get(&format!("{MAPS}/a?resourceVersion=x")).await;
    let text =
        r#"resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#;
    future.check_status(500, "", text);
    let both = server.get(&format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion=0")).await;
    both.check_status(
        422,
        "Invalid",
        r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
    );
}

async fn owners_and_names_have_limits(server: Server) {
    let mut owned = config_map("a", "1");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]);
    let text = server.post(MAPS, owned).await.text();
    assert!(text.contains("/v1, Kind=Event is disallowed from being an owner"), "{text}");
    let mut large = config_map("a", "1");
    large["metadata"]["annotations"] = json!({"a": "x".repeat(262_144)});
    let text = server.post(MAPS, large).await.text();
    assert!(
        text.contains("metadata.annotations: Too long: may not be more than 262144 bytes"),
        "{text}"
    );
    let job = json!({"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
    }}}});
    let cron = json!({
        "metadata": {"name": "n".repeat(53)},
        "spec": {"schedule": "* * * * *", "jobTemplate": job},
    });
    let text = server.post("/apis/batch/v1/namespaces/default/cronjobs", cron).await.text();
    assert!(text.contains("must be no more than 52 characters"), "{text}");
}

async fn both_ways_of_collecting_garbage_exclude_each_other(server: Server) {
    let mut map = config_map("a", "1");
    map["metadata"]["finalizers"] = json!(["orphan", "foregroundDeletion"]);
    let text = server.post(MAPS, map).await.text();
    assert!(text.contains("finalizer orphan and foregroundDeletion cannot be both set"), "{text}");
    server.post(MAPS, config_map("a", "1")).await;
    let options = r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#;
    let answer = server.send(request("DELETE", &format!("{MAPS}/a"), options)).await;
    let text = "orphanDependents and deletionPropagation cannot be both set";
    assert!(answer.code == 422 && answer.text().contains(text), "{}", answer.text());
}

async fn an_eviction_with_two_budgets_fails(server: Server) {
    let pod = json!({
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(server.post(PODS, pod).await.code, 201);
    let mut running = server.get(&format!("{PODS}/p")).await.json();
    running["status"]["phase"] = "Running".into();
    assert_eq!(server.put(&format!("{PODS}/p/status"), running).await.code, 200);
    for name in ["one", "two"] {
        let selector = json!({"matchLabels": {"a": "b"}});
        let budget = json!({"metadata": {"name": name}, "spec": {"selector": selector}});
        let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
        assert_eq!(server.post(budgets, budget).await.code, 201);
    }
    let eviction = json!({"metadata": {"name": "p"}});
    server.post(&format!("{PODS}/p/eviction"), eviction).await.check_status(
        500,
        "",
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    );
    let other = json!({"metadata": {"name": "q"}});
    server.post(&format!("{PODS}/p/eviction"), other).await.check_status(
        400,
        "BadRequest",
        "name in URL does not match name in Eviction object",
    );
}

async fn selectors_at_their_edges(server: Server) {
    for (name, labels) in
        [("a", json!({"k": ""})), ("b", json!({"k": "v", "n": "7"})), ("c", json!({}))]
    {
        let mut map = config_map(name, "1");
        map["metadata"]["labels"] = labels;
        server.post(MAPS, map).await;
    }
    for (selector, expected) in [
        ("k%20in%20()", vec!["a"]),
        ("k!=v", vec!["a", "c"]),
        ("k%20notin%20(v)", vec!["a", "c"]),
        ("!k", vec!["c"]),
        ("n%3E5,n%3C8", vec!["b"]),
        ("k%3D%3Dv", vec!["b"]),
    ] {
        let list = server.get(&format!("{MAPS}?labelSelector={selector}")).await.json();
        let names = list["items"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{selector}");
    }
    server.get(&format!("{MAPS}?fieldSelector=a")).await.check_status(
        400,
        "BadRequest",
        "invalid selector: 'a'; can't understand 'a'",
    );
}

async fn watches_of_unusual_requests(server: Server) {
    let yaml = server.accept(&format!("{MAPS}?watch=true"), "application/yaml").await;
    assert_eq!(yaml.code, 406);
    let text = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    assert!(yaml.text().contains(text), "{}", yaml.text());
    // A negative timeout closes at once.
    let list = server.get(MAPS).await.json();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=-1&resourceVersion={version}");
    let mut stream = server.watch(&path).await;
    assert_eq!(stream.code, 200);
    assert!(stream.next().await.is_none());
    let refused = server.get(&format!("{MAPS}?watch=1&continue=x")).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    // The list form of metadata is no form of an event.
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let ends = server.accept(&format!("{MAPS}?watch=1&timeoutSeconds=1"), partial).await;
    assert_eq!(ends.code, 200);
}

async fn a_failure_is_written_in_the_accepted_form(server: Server) {
    let missing = server.accept(&format!("{MAPS}/none"), "application/yaml").await;
    assert_eq!((missing.code, missing.header("content-type")), (404, "application/yaml"));
    assert!(missing.text().contains("reason: NotFound\n"), "{}", missing.text());
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let missing = server.accept(&format!("{MAPS}/none"), table).await;
    assert_eq!(missing.code, 404);
    assert!(missing.text().starts_with("{\n  \"kind\": \"Status\""), "{}", missing.text());
}

async fn object_is_looked_up_before_its_form_is_refused(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for accept in [table, partials] {
        let missing = server.accept(&format!("{MAPS}/none?includeObject=foo"), accept).await;
        missing.check_status(404, "NotFound", r#"configmaps "none" not found"#);
    }
    assert_eq!(server.accept(&format!("{MAPS}/a?includeObject=foo"), table).await.code, 400);
    assert_eq!(server.accept(&format!("{MAPS}/a"), partials).await.code, 406);
    let list = server.accept(&format!("{MAPS}?includeObject=foo&limit=x"), table).await;
    list.check_status(400, "BadRequest", r#"strconv.ParseInt: parsing "x": invalid syntax"#);
}

async fn deprecated_watch_paths_have_options_of_their_own(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let one = "/api/v1/watch/namespaces/default/configmaps/a";
    for selector in ["metadata.name%3Db", "metadata.namespace%3Ddefault", "metadata.name!%3Db"] {
        let refused = server.get(&format!("{one}?fieldSelector={selector}")).await;
        let text = "fieldSelector metadata.name doesn't match requested name";
        refused.check_status(400, "BadRequest", text);
    }
    for selector in ["", "metadata.name%3Da", "metadata.namespace%3Ddefault,metadata.name%3Da"] {
        let mut watch = server.watch(&format!("{one}?fieldSelector={selector}")).await;
        assert_eq!(watch.event().await, ("ADDED".into(), "a".into()), "{selector}");
    }
    // Without `watch`, they are checked as those of a list.
    let all = "/api/v1/watch/namespaces/default/configmaps";
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let refused = server.get(&format!("{all}?{initial}")).await;
    refused.check_status(
        422,
        "Invalid",
        r#"ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]"#,
    );
    for options in ["continue=x", &format!("watch=1&{initial}")] {
        let mut watch = server.watch(&format!("{all}?{options}")).await;
        assert_eq!(watch.event().await, ("ADDED".into(), "a".into()), "{options}");
    }
}

async fn body_without_a_document_has_no_members(server: Server) {
    let text = r#"ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#;
    for (content_type, body) in [
        ("application/json", "null"),
        ("application/yaml", ""),
        ("application/yaml", "# nothing\n"),
        ("application/yaml", "---\n"),
        ("application/yaml", "~"),
    ] {
        server.post(MAPS, config_map("a", "1")).await;
        let sent = |method: &str, path: &str| {
            let mut request = request(method, path, body);
            request.headers_mut().insert("content-type", content_type.parse().unwrap());
            request
        };
        server.send(sent("POST", MAPS)).await.check_status(422, "Invalid", text);
        let deleted = server.send(sent("DELETE", &format!("{MAPS}/a"))).await;
        assert_eq!(deleted.code, 200, "{content_type} {body:?}: {}", deleted.text());
    }
}

async fn patches_do_not_change_the_kind(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let patch = |form: &str, body: &str| {
        let mut request = request("PATCH", &format!("{MAPS}/a"), body);
        let form = format!("application/{form}-patch+json");
        request.headers_mut().insert("content-type", form.parse().unwrap());
        request
    };
    for body in [r#"{"kind":"Foo"}"#, r#"{"apiVersion":"v9"}"#, r#"{"kind":null}"#] {
        let patched = server.send(patch("strategic-merge", body)).await;
        assert_eq!(patched.code, 200, "{body}: {}", patched.text());
        assert_eq!(patched.json()["kind"], "ConfigMap");
    }
    for body in [r#"{"kind":null}"#, r#"{"kind":""}"#] {
        let patched = server.send(patch("merge", body)).await;
        assert_eq!((patched.code, &patched.json()["kind"]), (200, &json!("ConfigMap")), "{body}");
    }
    for (body, fault) in [
        (
            r#"{"kind":"Foo"}"#,
            r#": no kind "Foo" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
        ),
        (r#"{"kind":"Pod"}"#, ": converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        (
            r#"{"kind":1}"#,
            ": couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (r#"{"apiVersion":"a/b/c"}"#, ": unexpected GroupVersion string: a/b/c"),
    ] {
        let refused = server.send(patch("merge", body)).await;
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(refused.code, 422, "{message}");
        assert!(message.ends_with(fault), "{message}");
    }
    server.send(patch("merge", r#"{"apiVersion":null}"#)).await.check_status(
        400,
        "BadRequest",
        "the name of the object (a based on URL) was undeterminable: name must be provided",
    );
}

/// Go's decoder of JSON takes no float for an integer. Other forms go through a float first.
async fn floats_are_integers_where_the_reference_reads_them_so(server: Server) {
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |replicas: &str| {
        format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"a"}},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        )
    };
    let wrong = |number: &str| {
        format!(
            r#"Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal number {number} into Go struct field DeploymentSpec.spec.replicas of type int32"#
        )
    };
    for number in ["1.0", "1e0"] {
        let made = server.post(path, deployment(number)).await;
        made.check_status(400, "BadRequest", &wrong(number));
    }
    let yaml = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 2.0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    let mut made = request("POST", path, yaml);
    made.headers_mut().insert("content-type", "application/yaml".parse().unwrap());
    assert_eq!(server.send(made).await.json()["spec"]["replicas"], 2);
    let item = &format!("{path}/a");
    server.put(item, deployment("3.0")).await.check_status(400, "BadRequest", &wrong("3.0"));
    let change = r#"{"spec":{"replicas":3.0}}"#;
    let replace = r#"[{"op":"replace","path":"/spec/replicas","value":3.0}]"#;
    for (ty, patch) in [(MERGE, change), ("application/json-patch+json", replace)] {
        let refused = server.patch(item, ty, patch).await;
        assert_eq!(refused.code, 422, "{}", refused.text());
        let end = "json: cannot unmarshal number 3.0 into Go struct field DeploymentSpec.spec.replicas of type int32";
        assert!(refused.json()["message"].as_str().unwrap().ends_with(end), "{}", refused.text());
    }
    let strategic = "application/strategic-merge-patch+json";
    assert_eq!(server.patch(item, strategic, change).await.json()["spec"]["replicas"], 3);
    let apply = "application/apply-patch+yaml";
    let applied = format!("{item}?fieldManager=m&force=true");
    let applied = server.patch(&applied, apply, &deployment("4.0")).await;
    assert_eq!(applied.json()["spec"]["replicas"], 4, "{}", applied.text());
    let mut deleted = request("DELETE", item, r#"{"gracePeriodSeconds":1e0}"#);
    deleted.headers_mut().insert("content-type", "application/json".parse().unwrap());
    server.send(deleted).await.check_status(
        400,
        "BadRequest",
        "json: cannot unmarshal number 1e0 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
    );
}

async fn paths_at_their_edges(server: Server) {
    for path in ["/version//", "/api//", "/apis/apps//", "/apis/apps/v1//", "/openid/v1/jwks/"] {
        let (answer, expected) =
            (server.get(path).await, server.get(path.trim_end_matches('/')).await);
        assert_eq!((answer.code, answer.body), (expected.code, expected.body), "{path}");
        assert_ne!(expected.code, 405);
    }
    for path in ["/apis//", "/apis///", "/apis//v1"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.text().as_str()), (404, "404 page not found\n"), "{path}");
    }
    let nothing = server.get("/api/v1/watch/").await;
    assert_eq!(nothing.code, 500);
    let end = "failed to create RequestInfo: unable to determine kind and namespace from url, ";
    assert!(nothing.text().contains(end), "{}", nothing.text());
    // What is not listed is in a namespace.
    for path in ["/api/v1/bindings", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"] {
        for method in ["GET", "POST"] {
            server.send(request(method, path, "{}")).await.check_status(
                404,
                "NotFound",
                "the server could not find the requested resource",
            );
        }
    }
}

async fn missing_namespaces_and_names_are_said_to_be(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let list = server.get("/api/v1/namespaces//configmaps").await;
    assert_eq!(list.code, 200, "{}", list.text());
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 1);
    // What is created is refused for what it lacks.
    let created = server.post("/api/v1/namespaces//configmaps", config_map("b", "1")).await;
    let why = r#"ConfigMap "b" is invalid: metadata.namespace: Required value"#;
    created.check_status(422, "Invalid", why);
    let binding = json!({"metadata": {"name": "x"}, "target": {"name": "n"}});
    let bound = server.post("/api/v1/namespaces//bindings", binding).await;
    bound.check_status(400, "BadRequest", "Namespace parameter required.");
    for method in ["PUT", "PATCH"] {
        let answer = server.send(request(method, "/api/v1/namespaces//configmaps", "{}")).await;
        assert_eq!(answer.code, 405, "{method}");
    }
    let deleted = server.send(request("DELETE", "/api/v1/namespaces//configmaps", "")).await;
    deleted.check_status(400, "BadRequest", "Namespace parameter required.");
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 200);
    let deleted = server.send(request("DELETE", "/api/v1/namespaces//secrets", "")).await;
    assert_eq!(deleted.json()["items"], json!([]));
    for (path, why) in [
        ("/api/v1/namespaces//configmaps/a", "Namespace parameter required."),
        ("/apis/apps/v1/namespaces//deployments/a/scale", "Namespace parameter required."),
        ("/api/v1/nodes//status", "name must be provided"),
        ("/api/v1/namespaces//status", "name must be provided"),
        ("/api/v1/namespaces/default/pods//log", "name must be provided"),
    ] {
        server.get(path).await.check_status(400, "BadRequest", why);
    }
    for path in ["/api/v1/namespaces//nodes", "/apis/apps//deployments", "/api/v1//configmaps"] {
        let text = "the server could not find the requested resource";
        server.get(path).await.check_status(404, "NotFound", text);
    }
    for (path, key) in [
        ("/api/v1/namespaces/%2e%2e/configmaps", ".."),
        ("/api/v1/namespaces/./configmaps/a", "./a"),
    ] {
        let text = format!("invalid key: \"/configmaps/{key}\"");
        server.get(path).await.check_status(500, "", &text);
    }
}

async fn names_may_be_no_utf8(server: Server) {
    let missing = server.get(&format!("{MAPS}/%ff")).await;
    missing.check_status(404, "NotFound", "configmaps \"\u{fffd}\" not found");
    let list = server.get("/api/v1/namespaces/%ff/configmaps").await;
    assert_eq!((list.code, &list.json()["items"]), (200, &json!([])));
    for path in ["/api/v1/%ff", "/api/v1/nodes/n/proxy/%ff"] {
        assert_eq!(server.get(path).await.json()["reason"], "NotFound", "{path}");
    }
    assert_eq!(server.get("/apis/%ff").await.text(), "404 page not found\n");
}

async fn lists_of_media_types_are_read_as_there(server: Server) {
    let media_type = async |accept: &str| {
        let answer = server.accept(MAPS, accept).await;
        (answer.code, answer.header("content-type").to_owned())
    };
    let (json, yaml) = ("application/json".to_owned(), "application/yaml".to_owned());
    for (accept, expected) in [
        ("*/*, application/yaml;q=0.1", (200, &yaml)),
        ("application/json;q=x, application/yaml;q=0.5", (200, &yaml)),
        ("application/json;q=0", (200, &json)),
        ("application/ yaml, application/json", (200, &yaml)),
        ("application/yaml;stream=watch, application/json", (200, &json)),
        ("*", (406, &json)),
        ("application / json", (406, &json)),
        (",", (406, &json)),
    ] {
        let (code, of) = expected;
        assert_eq!(media_type(accept).await, (code, of.clone()), "{accept}");
    }
    // Only the first line counts.
    let mut lines = request("GET", MAPS, "");
    lines.headers_mut().append("accept", "application/yaml".parse().unwrap());
    lines.headers_mut().append("accept", "application/json;q=2".parse().unwrap());
    assert_eq!(server.send(lines).await.header("content-type"), yaml);
    // The best type decides, although there are no events of it.
    let watch = format!("{MAPS}?watch=1&timeoutSeconds=1");
    assert_eq!(server.accept(&watch, "application/yaml, application/json;q=0.9").await.code, 406);
}

async fn bodies_of_malformed_types_are_refused(server: Server) {
    for (content_type, is_read) in [
        ("application/json; charset=foo", true),
        ("Application/JSON;", true),
        ("application/json; a=\"b;c\"", true),
        ("application/json; charset", false),
        ("application/json; a=b; a=c", false),
        ("application/json, application/yaml", false),
    ] {
        for (method, path) in [("POST", MAPS.to_owned()), ("DELETE", format!("{MAPS}/a"))] {
            let mut sent = request(method, &path, r#"{"metadata":{"name":"a"}}"#);
            sent.headers_mut().insert("content-type", content_type.parse().unwrap());
            let code = server.send(sent).await.code;
            assert_eq!(code != 415, is_read, "{method} {content_type}: {code}");
        }
    }
    // Options are of a built-in kind, also if a custom object is deleted.
    crate::custom::define(&server).await;
    let mut sent = request("DELETE", &format!("{}/a", crate::custom::FOOS), "x");
    let protobuf = "application/vnd.kubernetes.protobuf".parse().unwrap();
    sent.headers_mut().insert("content-type", protobuf);
    assert_eq!(server.send(sent).await.code, 400);
}

async fn what_is_wrong_first_is_said(server: Server) {
    let send = async |method: &str, path: &str, accept: &str, content_type: &str| {
        let mut sent = request(method, path, "{");
        sent.headers_mut().insert("accept", accept.parse().unwrap());
        sent.headers_mut().insert("content-type", content_type.parse().unwrap());
        server.send(sent).await.code
    };
    let item = format!("{MAPS}/a?dryRun=x");
    let (json, html) = ("application/json", "text/html");
    assert_eq!(send("PATCH", &item, html, html).await, 415, "the type of a patch");
    assert_eq!(send("PATCH", &item, html, MERGE).await, 406, "the form of the answer");
    assert_eq!(send("PATCH", &item, json, MERGE).await, 422, "its options");
    assert_eq!(send("PUT", &item, html, html).await, 406, "the form of the answer");
    assert_eq!(send("PUT", &item, json, html).await, 422, "the options of an update");
    assert_eq!(send("PUT", &format!("{MAPS}/a"), json, html).await, 415, "the type of a body");
    let create = format!("{MAPS}?dryRun=x");
    assert_eq!(send("POST", &create, html, html).await, 406, "the form of the answer");
    assert_eq!(send("POST", &create, json, html).await, 415, "the type of a body");
    assert_eq!(send("POST", &create, json, json).await, 422, "the options of a create");
    assert_eq!(send("POST", MAPS, json, json).await, 400, "the body");
    // Events have a form only once there are some.
    let watch = format!("{MAPS}?watch=1&limit=x");
    assert_eq!(send("GET", &watch, "application/yaml", json).await, 400, "options of a watch");
}

async fn head_has_the_length_of_what_it_leaves_out(server: Server) {
    for path in ["/healthz", "/apis/apps", "/nothing", MAPS] {
        let head = server.send(request("HEAD", path, "")).await;
        assert!(head.body.is_empty(), "{path}");
        let mut get = request("GET", path, "");
        if path == MAPS {
            *get.method_mut() = http::Method::OPTIONS;
        }
        let length = server.send(get).await.body.len().to_string();
        assert_eq!(head.header("content-length"), length, "{path}");
    }
}

async fn the_state_of_the_process_is_a_page(server: Server) {
    let page = server.get("/statusz").await;
    assert_eq!(page.code, 200, "{}", page.text());
    assert!(page.text().contains("Paths: /healthz /livez /readyz /statusz /version\n"));
    let form = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io";
    assert_eq!(server.accept("/statusz", form).await.json()["kind"], "Statusz");
    // This server does not show its options.
    assert_eq!(server.get("/flagz").await.code, 404);
    assert_eq!(server.get("/statusz/").await.code, 404);
}
