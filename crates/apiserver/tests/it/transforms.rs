//! Tables and metadata-only answers.

use crate::harness::{Server, config_map, request};
use serde_json::json;

crate::cases! {
    list_as_a_table
    object_as_a_table
    scales_have_columns_of_their_own
    subresources_without_a_printer_have_no_table
    included_objects_are_chosen
    lists_without_elements_are_null_in_some_forms
    metadata_only
    asking_the_wrong_shape_is_406
    options_of_a_delete_are_read_before_its_form_is_refused
    a_deprecated_kind_in_an_unknown_form_has_no_warning
    reviews_have_no_table
    tables_of_flow_schemas_are_in_the_order_of_matching
    html_is_escaped_in_objects_statuses_and_tables
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn list_as_a_table(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let answer = server.accept(MAPS, TABLE).await;
    assert_eq!(answer.header("content-type"), "application/json");
    let table = answer.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&"Table".into(), &"meta.k8s.io/v1".into()));
    let names: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["cells"][1], 1);
    let object = &table["rows"][0]["object"];
    assert_eq!(object["kind"], "PartialObjectMetadata");
    assert_eq!(object["metadata"]["name"], "a");
    assert!(object.get("data").is_none());
    assert!(table["metadata"]["resourceVersion"].is_string());
}

async fn object_as_a_table(server: Server) {
    let created = server.post(MAPS, config_map("a", "1")).await.json();
    let table = server.accept(&format!("{MAPS}/a"), TABLE).await.json();
    assert_eq!(table["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
    // A failure is never a table.
    server.accept(&format!("{MAPS}/b"), TABLE).await.check_status(
        404,
        "NotFound",
        r#"configmaps "b" not found"#,
    );
}

async fn scales_have_columns_of_their_own(server: Server) {
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"k": "v"}},
            "template": {
                "metadata": {"labels": {"k": "v"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    let created = server.post(sets, set).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let table = server.accept(&format!("{sets}/a/scale"), TABLE).await.json();
    let names: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("a"), json!(3), json!(0)]);
    assert_eq!(cells.len(), 4);
}

async fn subresources_without_a_printer_have_no_table(server: Server) {
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let created = server.post(pods, pod).await;
    assert_eq!(created.code, 201, "{}", created.text());
    for (subresource, kind) in
        [("resize", "Pod"), ("ephemeralcontainers", "Pod"), ("status", "Table")]
    {
        let path = format!("{pods}/a/{subresource}");
        assert_eq!(server.accept(&path, TABLE).await.json()["kind"], kind, "{subresource}");
        let only = server.accept(&path, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
        assert_eq!(only.code, if kind == "Table" { 200 } else { 406 }, "{subresource}");
    }
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    });
    let created = server.post(claims, claim).await;
    assert_eq!(created.code, 201, "{}", created.text());
    for (path, kind) in [("a", "Table"), ("a/status", "ResourceClaim")] {
        let answer = server.accept(&format!("{claims}/{path}"), TABLE).await;
        assert_eq!(answer.json()["kind"], kind, "{path}");
    }
}

async fn included_objects_are_chosen(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let none = server.accept(&format!("{MAPS}?includeObject=None"), TABLE).await.json();
    assert_eq!(none["rows"][0]["object"], json!(null));
    let whole = server.accept(&format!("{MAPS}?includeObject=Object"), TABLE).await.json();
    assert_eq!(whole["rows"][0]["object"]["data"]["k"], "1");
    server.accept(&format!("{MAPS}?includeObject=foo"), TABLE).await.check_status(
        400,
        "BadRequest",
        r#"Unable to convert to Table as requested: includeObject: Invalid value: "foo": must be 'Metadata', 'Object', 'None', or empty"#,
    );
}

async fn metadata_only(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let one = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partial = server.accept(&format!("{MAPS}/a"), one).await.json();
    assert_eq!(partial["kind"], "PartialObjectMetadata");
    assert_eq!(partial.as_object().unwrap().len(), 3);
    let list = "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io";
    let partials = server.accept(MAPS, list).await.json();
    assert_eq!(partials["kind"], "PartialObjectMetadataList");
    assert_eq!(partials["items"][0]["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(partials["items"][0]["metadata"]["name"], "a");
}

/// Forms that the reference fills by appending.
async fn lists_without_elements_are_null_in_some_forms(server: Server) {
    let partials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let empty = server.accept(&format!("{MAPS}?labelSelector=a%3Db"), partials).await.json();
    assert_eq!(
        (&empty["kind"], &empty["items"]),
        (&json!("PartialObjectMetadataList"), &json!(null))
    );
    // Its kind has no columns of its own.
    let plain = "/api/v1/namespaces/default/limitranges";
    for (path, rows) in [(plain, json!(null)), ("/api/v1/namespaces/default/pods", json!([]))] {
        let table = server.accept(path, TABLE).await.json();
        assert_eq!((&table["kind"], &table["rows"]), (&json!("Table"), &rows), "{path}");
    }
}

async fn asking_the_wrong_shape_is_406(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    let (one, list) = (
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    );
    for (path, accept, reason) in [
        (
            MAPS,
            one,
            "PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            "/api/v1/namespaces/default",
            list,
            "PartialObjectMetadataList, but the requested object is not a list (*core.Namespace)",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/roles",
            one,
            "PartialObjectMetadata, but the requested object is a list (*rbac.RoleList)",
        ),
        (
            "/apis/events.k8s.io/v1/events",
            one,
            "PartialObjectMetadata, but the requested object is a list (*core.EventList)",
        ),
    ] {
        let answer = server.accept(path, accept).await;
        answer.check_status(406, "NotAcceptable", &format!("you requested {reason}"));
    }
}

async fn options_of_a_delete_are_read_before_its_form_is_refused(server: Server) {
    let send = |body: &str| {
        let mut request = request("DELETE", MAPS, body);
        let one = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        request.headers_mut().insert("accept", one.parse().unwrap());
        server.send(request)
    };
    let wrong = send(r#"{"dryRun":["x"]}"#).await;
    assert_eq!(wrong.code, 422, "{}", wrong.text());
    assert_eq!(send("{}").await.code, 406);
}

/// What a route refuses has no warnings.
async fn a_deprecated_kind_in_an_unknown_form_has_no_warning(server: Server) {
    let path = "/api/v1/namespaces/default/endpoints";
    let refused = server.accept(path, "text/plain").await;
    assert_eq!((refused.code, refused.header("warning")), (406, ""));
    let listed = server.accept(path, "application/json").await;
    assert_eq!(listed.code, 200);
    assert!(listed.header("warning").contains("v1 Endpoints is deprecated"));
}

async fn reviews_have_no_table(server: Server) {
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let only = TABLE.split(',').next().unwrap();
    let post = |accept: &'static str| {
        let mut request = request("POST", path, &review.to_string());
        request.headers_mut().insert("accept", accept.parse().unwrap());
        server.send(request)
    };
    post(only).await.check_status(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    );
    // The next form of the list is taken, as kubectl does for anything.
    assert_eq!(post(TABLE).await.json()["kind"], "SelfSubjectAccessReview");
}

async fn tables_of_flow_schemas_are_in_the_order_of_matching(server: Server) {
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let table = server.accept(schemas, TABLE).await.json();
    let rows = table["rows"].as_array().unwrap().iter();
    let shown: Vec<(i64, &str)> = rows
        .map(|row| (row["cells"][2].as_i64().unwrap(), row["cells"][0].as_str().unwrap()))
        .collect();
    assert!(shown.is_sorted(), "{shown:?}");
    assert_eq!((shown[0], shown.last().unwrap().1), ((1, "exempt"), "catch-all"));
    // The list itself, and each of its pages, is in the order of names.
    let list = server.get(schemas).await.json();
    let names = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]);
    assert!(names.map(|name| name.as_str()).is_sorted());
}

async fn html_is_escaped_in_objects_statuses_and_tables(server: Server) {
    let made = server.post(MAPS, config_map("a", "<b> & \u{2028}")).await;
    let escaped = r"\u003cb\u003e \u0026 \u2028";
    assert!(made.text().contains(escaped), "{}", made.text());
    assert_eq!(made.json()["data"]["k"], "<b> & \u{2028}");
    for path in [format!("{MAPS}/a"), format!("{MAPS}?pretty=true")] {
        assert!(server.get(&path).await.text().contains(escaped));
    }
    // Not in YAML.
    assert!(server.accept(&format!("{MAPS}/a"), "application/yaml").await.text().contains("<b> &"));
    let selector = server.get(&format!("{MAPS}?labelSelector=-a")).await;
    assert!(selector.text().contains(r"requirement: \u003cnil\u003e: Invalid value"));
    let event = serde_json::json!({
        "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "message": "a > b",
    });
    server.post("/api/v1/namespaces/default/events", event).await;
    let table = server.accept("/api/v1/namespaces/default/events", TABLE).await;
    assert!(table.text().contains(r#""a \u003e b""#), "{}", table.text());
    let heading = r#"{"name":"Last Seen","type":"string","format":"","#;
    assert!(table.text().contains(heading), "{}", table.text());
}
